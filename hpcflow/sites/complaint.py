"""Why a run does not fit a site or a partition: what the checks of a placement raise."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hpcflow.errors import SpecError, Where

if TYPE_CHECKING:
    from hpcflow.documents import Document


class Complaint(Exception):
    """Why a run cannot go somewhere: which key, what is wrong with it, what to do next."""

    def __init__(self, key: str, message: str, action: str, *, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.key = key
        self.message = message
        self.action = action
        self.lines = lines

    def as_error(self, document: Document | None) -> SpecError:
        """The error for people, with the place in ``document`` when there is one."""
        where = Where(key=self.key)
        return SpecError(
            self.message,
            where=document.located(where) if document else where,
            next_action=self.action,
            lines=self.lines,
        )
