"""What no command may do, whatever it finds."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Final

from tests.soak.worker import MEMORY_BYTES, Ended

#: What hpcflow itself sends to a terminal: colours, and bars that are drawn over.
_OWN: Final = re.compile(r"\x1b\[([0-9;]*m|\?25[lh]|2K|1A)|\r")
_BIDI: Final = frozenset("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f\u061c")
#: Of ``hpcflow``, and of ``hpcflow.runtime resume-path``.
_CODES: Final = (0, 1, 2, 3, 4)


def faults_of(ended: Ended, *, at_terminal: bool) -> Iterator[str]:
    """In the same words for the same fault."""
    if ended.hung:
        yield "hangs"
        return
    if ended.has_traceback:
        yield f"traceback: {_error(ended.text)}"
    elif ended.code not in _CODES:
        yield f"ends with {ended.code}"
    elif ended.code in (1, 2) and not ended.out.strip():
        yield f"ends with {ended.code} and no word"
    if ended.grown_bytes > MEMORY_BYTES:
        yield "takes much memory"
    if at_terminal and (found := control_characters(ended.text)):
        yield f"sends to the terminal: {found!a}"


def control_characters(text: str) -> str:
    """Those that a terminal would obey, or that change what a line seems to say."""
    rest = _OWN.sub("", text)
    return "".join(
        sorted(
            {
                each
                for each in rest
                if each in _BIDI or (unicodedata.category(each) == "Cc" and each not in "\n\t")
            }
        )
    )


def _error(text: str) -> str:
    """The last line of a traceback, and where in hpcflow it was; without what differs each time."""
    frames = re.findall(r'File "[^"]*/(hpcflow/[^"]*)", line \d+, in (\w+)', text)
    names = re.findall(r"^([\w.]*(?:Error|Exception|Interrupt|Killed)\b)", text, re.MULTILINE)
    where = f"{frames[-1][0]} {frames[-1][1]}" if frames else "?"
    return f"{names[-1] if names else '?'} in {where}"
