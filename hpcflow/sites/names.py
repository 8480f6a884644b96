"""Suggest the right name for a wrong one, in error messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: An error lists no more names.
_MOST_NAMES: Final = 12
#: A longer word is not a typo, and its comparison would be slow.
_LONGEST_WORD: Final = 128


def suggestion(word: str, names: Iterable[str]) -> str:
    """Return the hint for ``word``, which is none of ``names``: the nearest name, and all names."""
    from hpcflow.documents.suggest import nearest

    known = list(names)
    if not known:
        return "none exist here"
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    there = f"there are: {', '.join(known[:_MOST_NAMES])}{more}"
    if len(word) <= _LONGEST_WORD and (near := nearest(word, known)):
        return f"did you mean {near}? {there[0].upper()}{there[1:]}"
    return there
