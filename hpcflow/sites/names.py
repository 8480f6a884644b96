"""Suggest the right name for a wrong one, in error messages."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

#: More names than these are not worth reading in an error.
_MOST_NAMES: Final = 12
#: A longer word is no slip of the finger, and comparing it would take long.
_LONGEST_WORD: Final = 128


def suggestion(word: str, names: Iterable[str]) -> str:
    """What to say about ``word``, which is none of ``names``: the nearest, and all there are."""
    from hpcflow.documents.suggest import nearest

    known = list(names)
    if not known:
        return "there are none here"
    more = f" and {len(known) - _MOST_NAMES} more" if len(known) > _MOST_NAMES else ""
    there = f"there are: {', '.join(known[:_MOST_NAMES])}{more}"
    if len(word) <= _LONGEST_WORD and (near := nearest(word, known)):
        return f"did you mean {near}? {there[0].upper()}{there[1:]}"
    return there
