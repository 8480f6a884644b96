"""What a budget limits: ``project:vision``, ``user:ada``, ``sweep:ID``, ``run:ID``."""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from hpcflow.errors import InputError

KINDS: Final = ("project", "user", "sweep", "run")
#: Valid as a name of a file, and of each kind of scope.
_NAME: Final = re.compile(r"\w[\w.@+\\$-]{0,200}", re.ASCII)


class Scope(NamedTuple):
    """The subject of a budget. A tuple, because a round makes and compares ten thousands."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind}:{self.name}"


def parse_scope(text: str) -> Scope:
    """Parse a text such as ``project:vision``, or raise InputError."""
    kind, colon, name = text.partition(":")
    if not colon or kind not in KINDS or not _NAME.fullmatch(name):
        raise InputError(
            f"not the name of a budget: {text[:100]!r}",
            next_action="write it like project:vision, user:ada, sweep:ID or run:ID; list the "
            "budgets: hpcflow budget ls",
        )
    return Scope(kind, name)


def scopes_of(*, project: str, user: str, sweep: str | None, run_id: str) -> tuple[Scope, ...]:
    """Return the scopes of the budgets that an attempt of a run counts against, if they are set."""
    sweeps = [Scope("sweep", sweep)] if sweep is not None else []
    return (Scope("project", project), Scope("user", user), *sweeps, Scope("run", run_id))


#: Kind -> the column of a run in the ledger with the name.
COLUMNS: Final = {
    "project": "project",
    "user": "user_name",
    "sweep": "parent_sweep",
    "run": "run_id",
}
