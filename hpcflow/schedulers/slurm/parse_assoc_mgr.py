"""Parse ``scontrol show assoc_mgr``: every limit, and its present use. Pure.

slurmctld starts jobs by this data, and only here Slurm shows the use of limits. ``12(4)`` means
allowed and used, ``N(4)`` no limit, ``12`` a limit of a single job. Tested with 22.05.8. From 20.11
to 25.11, the sources differ in columns that are not read here, and in the name of a QOS's user:
``1001`` or ``ada(1001)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hpcflow.sites.standing import JOBS, MINUTES, Limit

_WORD: Final = re.compile(r"([A-Za-z]\w*)=(\S*)")
_COUNTED: Final = re.compile(r"(N|\d+)\((\d+)(?:\.\d+)?\)", re.ASCII)

#: slurmctld's names -> those of sacctmgr, which hpcflow uses.
_NAMES: Final = {
    "GrpJobs": "GrpJobs",
    "GrpSubmitJobs": "GrpSubmitJobs",
    "GrpWall": "GrpWall",
    "GrpTRES": "GrpTRES",
    "GrpTRESMins": "GrpTRESMins",
    "GrpTRESRunMins": "GrpTRESRunMins",
    "MaxJobs": "MaxJobs",
    "MaxSubmitJobs": "MaxSubmitJobs",
    "MaxWallPJ": "MaxWall",
    "MaxTRESPJ": "MaxTRESPerJob",
    "MaxTRESPN": "MaxTRESPerNode",
    "MaxTRESMinsPJ": "MaxTRESMinsPerJob",
    "MinTRESPJ": "MinTRESPerJob",
    "MaxJobsPU": "MaxJobsPerUser",
    "MaxSubmitJobsPU": "MaxSubmitJobsPerUser",
    "MaxTRESPU": "MaxTRESPerUser",
    "MaxTRESRunMinsPU": "MaxTRESRunMinsPerUser",
    "MaxJobsPA": "MaxJobsPerAccount",
    "MaxSubmitJobsPA": "MaxSubmitJobsPerAccount",
    "MaxTRESPA": "MaxTRESPerAccount",
    "MaxTRESRunMinsPA": "MaxTRESRunMinsPerAccount",
}


@dataclass
class Book:
    """The data of an association, of a QOS, or of a user or an account in a QOS.

    Attributes:
        used: (name, resource) -> use, with and without a limit.
        in_use: resource -> use by running jobs.
    """

    words: dict[str, str] = field(default_factory=dict)
    limits: list[Limit] = field(default_factory=list)
    used: dict[tuple[str, str], int] = field(default_factory=dict)
    in_use: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, text: str) -> None:
        """Add a field such as ``GrpTRES=cpu=N(26),node=4(4)``."""
        known = _NAMES.get(name)
        if known is None:
            self.words[name] = text
            return
        for resource, value in _parts(known, text):
            counted = _COUNTED.fullmatch(value)
            if counted is None:
                if value.isdecimal():
                    self.limits.append(Limit(known, resource, int(value)))
                continue
            used = int(counted[2])
            self.used[known, resource] = used
            if counted[1] != "N":
                self.limits.append(Limit(known, resource, int(counted[1]), used))
            if known in ("GrpTRES", "MaxTRESPerUser", "GrpJobs", "MaxJobsPerUser") and used:
                self.in_use[resource] = used


@dataclass
class QosBook:
    """A QOS: its own data, and those of each account and user with jobs."""

    page: Book = field(default_factory=Book)
    accounts: dict[str, Book] = field(default_factory=dict)
    users: dict[str, Book] = field(default_factory=dict)


@dataclass
class Books:
    """All data of ``scontrol show assoc_mgr``.

    Attributes:
        associations: of the requested user, and of all accounts.
        qos: by name.
    """

    associations: list[Book] = field(default_factory=list)
    qos: dict[str, QosBook] = field(default_factory=dict)

    def own(self, cluster: str | None) -> list[Book]:
        """Return the user's associations."""
        return [book for book in self._of(cluster) if _name(book.words.get("UserName", ""))]

    def account(self, name: str, cluster: str | None) -> Book | None:
        """Return the data of an account as a whole."""
        for book in self._of(cluster):
            words = book.words
            if words.get("Account") == name and not _name(words.get("UserName", "")):
                return book
        return None

    def above(self, account: str, cluster: str | None) -> Iterator[tuple[str, Book]]:
        """Yield the account, then its parents up to the root."""
        seen: set[str] = set()
        while account and account not in seen and (book := self.account(account, cluster)):
            seen.add(account)
            yield account, book
            account = _name(book.words.get("ParentAccount", ""))

    def _of(self, cluster: str | None) -> list[Book]:
        return [
            book
            for book in self.associations
            if cluster in (None, "", book.words.get("ClusterName"))
        ]


def parse_assoc_mgr(text: str) -> Books:
    """Parse ``scontrol show assoc_mgr flags=assoc,qos``, without ``--oneliner``."""
    books = Books()
    page: Book | None = None
    qos: QosBook | None = None
    owners: dict[str, Book] | None = None
    for line in text.splitlines():
        words = _WORD.findall(line)
        if line.startswith("ClusterName="):
            page, qos = Book(), None
            books.associations.append(page)
        elif line.startswith("QOS="):
            qos = QosBook()
            page = qos.page
            books.qos[_name(dict(words)["QOS"])] = qos
        elif not words and qos is not None:
            title = line.strip()
            if title in ("Account Limits", "User Limits"):
                owners = qos.accounts if title.startswith("Account") else qos.users
            elif title and owners is not None:
                page = owners.setdefault(title, Book())
            continue
        if page is not None:
            for name, value in words:
                page.add(name, value)
    return books


def user_page(users: Mapping[str, Book], user: str, uid: int | None) -> Book | None:
    """Return the user's data of a QOS, by user name or uid."""
    for owner, page in users.items():
        if owner == str(uid) or _name(owner) == user or owner.endswith(f"({uid})"):
            return page
    return None


def _parts(name: str, text: str) -> Iterator[tuple[str, str]]:
    """Split ``cpu=4(1),node=N(0)`` by resource; ``4(1)`` is a number of jobs or minutes."""
    if "TRES" not in name:
        yield (MINUTES if name.endswith("Wall") else JOBS), text
        return
    for part in text.split(","):
        resource, equals, value = part.rpartition("=")
        if equals:
            yield resource, value


def _name(text: str) -> str:
    """Return ``physics`` of ``physics(3)``."""
    return text.partition("(")[0]
