"""Edit hpcflow's block in the text of a crontab. Pure.

The block stands at the beginning, and what others wrote after it, byte for byte: a setting of
theirs (``SHELL=``, ``PATH=``) holds for the lines below it only, so neither does theirs reach our
line, nor is there one of ours to reach theirs.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcflow.errors import InputError


def make_block(name: str, lines: Sequence[str]) -> str:
    """``lines`` between the marks by which the block is found again.

    Args:
        name: what it is for, and where: ``daemon north``; ``sweeps north`` is another block.
    """
    return "".join(f"{line}\n" for line in (_begin(name), *lines, _end(name)))


def find_block(text: str, name: str) -> str | None:
    """The block called ``name``, marks included.

    Raises:
        InputError: it begins and does not end, or the other way round.
    """
    found = _found(text, name)
    return found[0] if found else None


def with_block(text: str, name: str, lines: Sequence[str]) -> str:
    """``text`` with this block: where an older one stood, else at the beginning.

    Raises:
        InputError: the marks in it do not match.
    """
    rest = text
    position = 0
    if found := _found(text, name):
        position = found.start()
        rest = without_block(text, name)
    return rest[:position] + make_block(name, lines) + rest[position:]


def without_block(text: str, name: str) -> str:
    """``text`` without this block, however often it is in it.

    Raises:
        InputError: the marks in it do not match.
    """
    while found := _found(text, name):
        text = text[: found.start()] + text[found.end() :]
    return text


def block_names(text: str, what: str) -> list[str]:
    """The names of all blocks for ``what`` that begin in ``text``, without that word."""
    return re.findall(rf"(?<![^\n]){re.escape(_begin(f'{what} '))}([^\r\n]+)", text)


def _found(text: str, name: str) -> re.Match[str] | None:
    begin, end = (re.escape(mark) for mark in (_begin(name), _end(name)))
    # No line between the marks is a mark itself; only \n ends a line, whatever Unicode says.
    # An editor may have ended all of them with \r\n.
    block = re.search(
        rf"(?<![^\n]){begin}\r?\n(?:(?!{begin}\r?\n|{end}\r?(?:\n|\Z))[^\n]*\n)*"
        rf"{end}\r?(?:\n|\Z)",
        text,
    )
    if block is None and re.search(rf"(?<![^\n])(?:{begin}|{end})\r?(?:\n|\Z)", text):
        raise InputError(
            f"only one of the lines {_begin(name)!r} and {_end(name)!r} is there: "
            "what hpcflow wrote was edited",
            next_action="delete the rest of it by hand: crontab -e (or scrontab -e)",
        )
    return block


def _begin(name: str) -> str:
    return f"# BEGIN hpcflow {name}"


def _end(name: str) -> str:
    return f"# END hpcflow {name}"
