"""Find the lines of one rank in a log to which all ranks write.

If a run has several ranks, :mod:`hpcflow.runtime.rank_process` labels each line with its rank.
"""

from __future__ import annotations

import re
from typing import Final

#: ``[rank3]: `` of hpcflow and torch, ``[default3]:`` of torchrun, padded ``3: `` of srun.
LABEL: Final = r"\[(?:rank|default)([0-9]+)\]: ?| *([0-9]+): "
_LABEL: Final = re.compile(LABEL.encode())
#: The programs that label lines; the first is that of older attempts.
_LABELLED: Final = ("/hpcflow/runtime/label.py", "/hpcflow/runtime/rank_process.py")
#: How many ranks a script starts.
_RANKS: Final = re.compile(
    r"^export WORLD_SIZE=([0-9]+)|^ +--nnodes=([0-9]+) --nproc-per-node=([0-9]+)", re.MULTILINE
)


def has_labels(script: str) -> bool:
    """Return whether the lines of an attempt's log begin with their rank, by its job script."""
    return has_several_ranks(script) and any(each in script for each in _LABELLED)


def has_several_ranks(script: str) -> bool:
    """Return whether an attempt has several ranks, by its job script."""
    found = _RANKS.search(script)
    return found is not None and any(int(each) > 1 for each in found.groups() if each)


class RankLines:
    """Pick the lines of one rank, and remove their labels."""

    def __init__(self, rank: int) -> None:
        self._rank = rank
        self._rest = b""

    def pick(self, chunk: bytes) -> list[bytes]:
        """Return the rank's lines that ``chunk`` completes, each with its newline."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        texts = [self._text(line) for line in lines]
        return [text + b"\n" for text in texts if text is not None]

    def end(self) -> list[bytes]:
        """Return the incomplete last line, if it is the rank's."""
        rest, self._rest = self._rest, b""
        text = self._text(rest)
        return [text] if text else []

    def _text(self, line: bytes) -> bytes | None:
        match = _LABEL.match(line)
        if match is None or int(match[1] or match[2]) != self._rank:
            return None
        return line[match.end() :]
