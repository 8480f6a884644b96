"""Expand Slurm's host lists: ``n[1-4,07-10],login1`` -> the names, in order.

Compute nodes and containers may have no ``scontrol show hostnames``. A process for each row of
squeue would be slow.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final

#: No machine has more nodes; a longer list is an error or an attack.
_MAX_NAMES: Final = 1_000_000

_NO_NODES: Final = frozenset({"", "(null)", "none", "none assigned", "n/a", "unknown"})
_BRACKETS: Final = re.compile(r"\[([^\[\]]*)\]")


def expand(hostlist: str) -> tuple[str, ...]:
    """Return every name in ``hostlist``; an empty tuple for Slurm's notations of no nodes.

    Raises:
        ValueError: not a host list, or more than a million names.
    """
    if hostlist.strip().lower() in _NO_NODES:
        return ()
    if "[" not in hostlist and "," not in hostlist and "]" not in hostlist:
        return (hostlist.strip(),)
    names: list[str] = []
    for item in _split(hostlist.strip()):
        for name in _expand_item(item):
            names.append(name)
            if len(names) > _MAX_NAMES:
                raise ValueError(f"more than {_MAX_NAMES} names in {hostlist[:80]!r}")
    return tuple(names)


def names_in(text: str) -> tuple[str, ...]:
    """Return the names in a host list; a text that is none as one name."""
    try:
        return expand(text)
    except ValueError:
        return (text,)


def _split(text: str) -> Iterator[str]:
    """Split at commas outside of brackets."""
    start = depth = 0
    for position, char in enumerate(text):
        if char == "[":
            depth += 1
        elif char == "]":
            depth -= 1
        elif char == "," and depth == 0:
            yield text[start:position]
            start = position + 1
        if depth not in (0, 1):
            raise ValueError(f"brackets do not match in {text[:80]!r}")
    if depth != 0:
        raise ValueError(f"brackets do not match in {text[:80]!r}")
    yield text[start:]


def _expand_item(item: str) -> Iterator[str]:
    """Expand ``a[1-2]b[3,4]c`` -> a1b3c a1b4c a2b3c a2b4c: the last brackets vary fastest."""
    match = _BRACKETS.search(item)
    if match is None:
        if not item:
            raise ValueError("an empty name in a host list")
        yield item
        return
    head, tail = item[: match.start()], item[match.end() :]
    for number in _numbers(match[1]):
        if tail:
            for rest in _expand_item(tail):
                yield f"{head}{number}{rest}"
        else:
            yield f"{head}{number}"


def _numbers(ranges: str) -> Iterator[str]:
    """Expand ``1-3,007-009`` -> 1 2 3 007 008 009: as wide as the first number of the range."""
    for part in ranges.split(","):
        first, dash, last = part.partition("-")
        if not first.isdecimal() or (dash and not last.isdecimal()) or not part.isascii():
            raise ValueError(f"not a range of a host list: {part!r}")
        for number in range(int(first), int(last or first) + 1):
            yield f"{number:0{len(first)}d}"
