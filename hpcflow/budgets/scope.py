"""What a budget limits: ``project:vision``, ``user:ada``, ``sweep:ID``, ``run:ID``."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hpcflow.errors import InputError

KINDS: Final = ("project", "user", "sweep", "run")
#: What can be the name of a file, and of whatever has a budget.
_NAME: Final = re.compile(r"\w[\w.@+\\$-]{0,200}", re.ASCII)


class Scope(NamedTuple):
    """What a budget is of. A tuple, for a round makes and compares them by the ten thousand."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_scope(text: str) -> Scope:
    """``project:vision`` as a scope.

    Raises:
        InputError: not a scope.
    """
    kind, colon, name = text.partition(":")
    if not colon or kind not in KINDS or not _NAME.fullmatch(name):
        raise InputError(
            f"no budget can be of {text[:100]!r}",
            next_action="name one like project:vision, user:ada, sweep:ID or run:ID; those that "
            "are set: hpcflow budget ls",
        )
    return Scope(kind, name)


def scopes_of(*, project: str, user: str, sweep: str | None, run_id: str) -> tuple[Scope, ...]:
    """The budgets that an attempt of a run counts against, if they are set."""
    sweeps = [Scope("sweep", sweep)] if sweep is not None else []
    return (Scope("project", project), Scope("user", user), *sweeps, Scope("run", run_id))


#: Kind -> the column of a run in the ledger that has the name.
COLUMNS: Final = {
    "project": "project",
    "user": "user_name",
    "sweep": "parent_sweep",
    "run": "run_id",
}
