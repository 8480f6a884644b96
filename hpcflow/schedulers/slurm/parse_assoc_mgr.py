"""Parse ``scontrol show assoc_mgr``: every limit, and its present use. Pure.

It is slurmctld's own book, by which it lets jobs start, and the only place where Slurm tells how
far a limit is used. A limit stands there as ``12(4)``: allowed, used; ``N(4)`` is none; one that
binds a single job as ``12``. Seen on 22.05.8; from 20.11 to 25.11 the sources differ in columns
that are not read here, and in how a user of a QOS is called: ``1001``, or ``ada(1001)``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from hpcflow.sites.standing import JOBS, MINUTES, Limit

_WORD: Final = re.compile(r"([A-Za-z]\w*)=(\S*)")
_COUNTED: Final = re.compile(r"(N|\d+)\((\d+)(?:\.\d+)?\)", re.ASCII)

#: slurmctld's names -> those of sacctmgr, by which limits are known here.
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
    """One page: of an association, of a QOS, or of a user or an account in a QOS.

    Attributes:
        limits: those that are set.
        used: name and resource -> what counts, where there is a limit and where there is none.
        in_use: what running jobs have.
    """

    words: dict[str, str] = field(default_factory=dict)
    limits: list[Limit] = field(default_factory=list)
    used: dict[tuple[str, str], int] = field(default_factory=dict)
    in_use: dict[str, int] = field(default_factory=dict)

    def add(self, name: str, text: str) -> None:
        """Take down ``GrpTRES=cpu=N(26),node=4(4)`` or the like."""
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
    """A QOS: its own page, and one for each account and each user of which jobs are there."""

    page: Book = field(default_factory=Book)
    accounts: dict[str, Book] = field(default_factory=dict)
    users: dict[str, Book] = field(default_factory=dict)


@dataclass
class Books:
    """Everything that was told.

    Attributes:
        associations: of the user who was asked for, and of all accounts.
        qos: by name.
    """

    associations: list[Book] = field(default_factory=list)
    qos: dict[str, QosBook] = field(default_factory=dict)

    def own(self, cluster: str | None) -> list[Book]:
        """The user's associations."""
        return [book for book in self._of(cluster) if _name(book.words.get("UserName", ""))]

    def account(self, name: str, cluster: str | None) -> Book | None:
        """The page of an account as a whole."""
        for book in self._of(cluster):
            words = book.words
            if words.get("Account") == name and not _name(words.get("UserName", "")):
                return book
        return None

    def above(self, account: str, cluster: str | None) -> Iterator[tuple[str, Book]]:
        """The account itself, and those above it up to the root."""
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
    """``scontrol show assoc_mgr flags=assoc,qos``, without ``--oneliner``."""
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
    """The user's page of a QOS, by either way of naming them."""
    for owner, page in users.items():
        if owner == str(uid) or _name(owner) == user or owner.endswith(f"({uid})"):
            return page
    return None


def _parts(name: str, text: str) -> Iterator[tuple[str, str]]:
    """``4(1)`` is a number of jobs or minutes; ``cpu=4(1),node=N(0)`` one of each resource."""
    if "TRES" not in name:
        yield (MINUTES if name.endswith("Wall") else JOBS), text
        return
    for part in text.split(","):
        resource, equals, value = part.rpartition("=")
        if equals:
            yield resource, value


def _name(text: str) -> str:
    """``physics(3)`` -> ``physics``."""
    return text.partition("(")[0]
