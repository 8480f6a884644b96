"""The exception of the placement checks: a run does not fit a site or a partition."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcflow.errors import SpecError, Where

if TYPE_CHECKING:
    from hpcflow.documents import Document


class Complaint(Exception):
    """A run does not fit: the wrong key, the reason, and the next action."""

    def __init__(self, key: str, message: str, action: str, *, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.key = key
        self.message = message
        self.action = action
        self.lines = lines

    def as_error(self, document: Document | None) -> SpecError:
        """Return the error for the user, with file and line if ``document`` has the key."""
        where = Where(key=self.key)
        return SpecError(
            self.message,
            where=document.located(where) if document else where,
            next_action=self.action,
            lines=self.lines,
        )
