"""Parse the URL of a database, and show it without its password."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from hpcflow.errors import InputError

_POSTGRES = re.compile(r"(?:postgresql|postgres)(?:\+psycopg)?://")
_SQLITE = "sqlite:///"

#: The syntax after ``postgresql://``. Stricter than libpq, whose messages quote invalid text: a
#: password with an unescaped character must not reach it.
_WELL_FORMED = re.compile(
    r"(?:[^\s:@/?#]*(?::[^\s@/?#]*)?@)?"
    r"(?:\[[^\s@?#\[\]]+\](?![^:/?,])|[^\s@?#\[\]])*"
    r"(?:\?[^\s@#]*)?",
    re.ASCII,
)
_BAD_ESCAPE = re.compile(r"%(?:00|(?![0-9A-Fa-f]{2}))")


@dataclass(frozen=True)
class DatabaseUrl:
    """The URL of a database.

    Attributes:
        path: file of a SQLite database.
        dsn: for libpq; empty for SQLite.
    """

    kind: Literal["sqlite", "postgresql"]
    path: Path = Path()
    dsn: str = ""

    def __str__(self) -> str:
        """Return the URL without password, for people."""
        return str(self.path) if self.kind == "sqlite" else redact(self.dsn)

    def __repr__(self) -> str:
        return f"<database {self}>"

    @property
    def is_own(self) -> bool:
        """Return whether it is a file, which only its user reads."""
        return self.kind == "sqlite"

    @property
    def has_password(self) -> bool:
        """Return whether it has a password, after the user or as an option."""
        place, _, options = self.dsn.partition("?")
        return redact(place) != place or "password" in options.lower()

    @property
    def sqlalchemy(self) -> str:
        if self.kind == "sqlite":
            return f"{_SQLITE}{self.path}"
        return "postgresql+psycopg" + self.dsn.removeprefix("postgresql")


def parse_url(text: str) -> DatabaseUrl:
    """Parse ``sqlite:///PATH`` (four slashes for an absolute path), ``postgresql://…``, or a path.

    Raises:
        InputError: neither.
    """
    if text.startswith(_SQLITE):
        return _sqlite(text.removeprefix(_SQLITE))
    postgres = _POSTGRES.match(text)
    if postgres:
        rest = text[postgres.end() :]
        if _BAD_ESCAPE.search(rest) or not _WELL_FORMED.fullmatch(rest):
            raise InputError(
                "the ledger's URL is not well formed (not shown: it may hold a password)",
                next_action="write special characters as %40 (@), %2F (/), %3F (?), %25 (%), "
                "%20 (blank)",
            )
        return DatabaseUrl("postgresql", dsn=f"postgresql://{rest}")
    if ":" not in text and "@" not in text:
        return _sqlite(text)
    raise InputError(
        "not a ledger: neither a path nor a supported URL (not shown: it may hold a password)",
        next_action="write it like sqlite:////home/ada/ledger.sqlite or postgresql://host/hpcflow",
    )


def _sqlite(text: str) -> DatabaseUrl:
    path = Path(text)
    if not path.is_absolute() or "\0" in text:
        raise InputError(
            f"not a ledger: {text[:200]!r} is not an absolute path",
            next_action="write it like sqlite:////home/ada/ledger.sqlite, with four slashes",
        )
    return DatabaseUrl("sqlite", path)


def redact(url: str) -> str:
    """Return ``url`` without anything that can be a password, even if it is malformed."""
    scheme, separator, rest = url.partition("://")
    if not separator:
        return url
    place = rest.partition("?")[0]
    login, at, host = place.rpartition("@")
    return f"{scheme}://{login.partition(':')[0]}{at}{host}"
