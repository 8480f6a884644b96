"""Edit hpcflow's block in the text of a crontab. Pure.

The block comes first; the other lines follow, byte for byte. A setting (``SHELL=``, ``PATH=``)
applies only to the lines below it, so theirs do not apply to hpcflow's line, which sets none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from hpcflow.errors import InputError


def make_block(name: str, lines: Sequence[str]) -> str:
    """Return ``lines`` between the marks of the block.

    Args:
        name: what the block is for, and where, such as ``daemon north`` or ``sweeps north``.
    """
    return "".join(f"{line}\n" for line in (_begin(name), *lines, _end(name)))


def find_block(text: str, name: str) -> str | None:
    """Return the block called ``name``, marks included.

    Raises:
        InputError: one of its marks is missing.
    """
    found = _found(text, name)
    return found[0] if found else None


def with_block(text: str, name: str, lines: Sequence[str]) -> str:
    """Return ``text`` with this block, in place of an older one, else at the beginning.

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
    """Return ``text`` without any copy of this block.

    Raises:
        InputError: the marks in it do not match.
    """
    while found := _found(text, name):
        text = text[: found.start()] + text[found.end() :]
    return text


def block_names(text: str, what: str) -> list[str]:
    """Return the names of all blocks for ``what`` in ``text``, without that word."""
    return re.findall(rf"(?<![^\n]){re.escape(_begin(f'{what} '))}([^\r\n]+)", text)


def _found(text: str, name: str) -> re.Match[str] | None:
    begin, end = (re.escape(mark) for mark in (_begin(name), _end(name)))
    # No line between the marks is a mark itself. Only \n ends a line, not other Unicode line
    # breaks; an editor may have written \r\n.
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
