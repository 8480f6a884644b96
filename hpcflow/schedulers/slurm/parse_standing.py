"""Parse sacctmgr, sshare and ``scontrol show assoc_mgr`` into :class:`Standing`. Pure.

Each answer may be missing; the rest is still useful. Only sacctmgr has the QOSes that an
association allows. Only slurmctld has the use of limits, and the limits of parent accounts.

All columns exist from Slurm 20.11 to 25.11. Some versions lack ``LimitFactor`` of a QOS, ``Flags``
and ``Comment`` of an association, and the short name ``MaxTRESPJ``, so they are not used.
``LevelFS`` of sshare is only valid with Fair Tree.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from typing import Final

from hpcflow.schedulers.slurm.parse_assoc_mgr import Book, Books, QosBook, user_page
from hpcflow.schedulers.slurm.units import parse_count, parse_minutes, tres_counts
from hpcflow.sites.standing import (
    JOBS,
    MINUTES,
    Association,
    FairShare,
    Limit,
    QosLimits,
    Standing,
)

#: sacctmgr's column -> the name of the limit.
_OF_BOTH: Final = {
    "maxwall": "MaxWall",
    "maxtres": "MaxTRESPerJob",
    "maxtrespernode": "MaxTRESPerNode",
    "maxtresmins": "MaxTRESMinsPerJob",
    "grpjobs": "GrpJobs",
    "grpsubmit": "GrpSubmitJobs",
    "grpwall": "GrpWall",
    "grptres": "GrpTRES",
    "grptresmins": "GrpTRESMins",
    "grptresrunmins": "GrpTRESRunMins",
}
_OF_ASSOCIATIONS: Final = {"maxjobs": "MaxJobs", "maxsubmit": "MaxSubmitJobs", **_OF_BOTH}
_OF_QOS: Final = {
    "mintres": "MinTRESPerJob",
    "maxjobspu": "MaxJobsPerUser",
    "maxsubmitpu": "MaxSubmitJobsPerUser",
    "maxtrespu": "MaxTRESPerUser",
    "maxtresrunminspu": "MaxTRESRunMinsPerUser",
    "maxjobspa": "MaxJobsPerAccount",
    "maxsubmitpa": "MaxSubmitJobsPerAccount",
    "maxtrespa": "MaxTRESPerAccount",
    "maxtresrunminspa": "MaxTRESRunMinsPerAccount",
    **_OF_BOTH,
}
#: For ``sacctmgr --noheader --parsable2 show associations`` and ``show qos``, after ``format=``.
ASSOCIATION_FIELDS: Final = (
    "cluster", "account", "partition", "defaultqos", "qos", *_OF_ASSOCIATIONS,
)  # fmt: skip
QOS_FIELDS: Final = ("name", "priority", "flags", "preempt", "usagefactor", *_OF_QOS)
#: For ``sshare --noheader --parsable2 --format``.
SHARE_FIELDS: Final = (
    "Account", "User", "Partition", "RawShares", "NormShares", "RawUsage", "NormUsage",
    "EffectvUsage", "FairShare", "LevelFS",
)  # fmt: skip


@dataclass(frozen=True)
class SlurmOutputs:
    """The output of each of Slurm's programs; None without an answer."""

    associations: str | None = None
    qos: str | None = None
    shares: str | None = None
    books: Books | None = None


def standing(
    outputs: SlurmOutputs,
    *,
    user: str,
    uid: int | None,
    cluster: str | None,
    missing: Sequence[str] = (),
) -> Standing:
    """Combine the outputs that are available."""
    associations = _associations(outputs, user, cluster)
    allowed = {name for each in associations for name in each.qos}
    qos = _qos(outputs, user, uid, associations)
    return Standing(
        user,
        associations,
        tuple(each for each in qos if not allowed or each.name in allowed),
        parse_shares(outputs.shares or ""),
        tuple(missing),
        tuple(each for each in qos if allowed and each.name not in allowed),
        is_use_known=outputs.books is not None,
    )


def _associations(outputs: SlurmOutputs, user: str, cluster: str | None) -> tuple[Association, ...]:
    pages = outputs.books.own(cluster) if outputs.books else []
    booked = {
        (page.words.get("Account", ""), page.words.get("Partition", "")): page for page in pages
    }
    if outputs.associations is None:
        found = [_booked(page, user) for page in pages]
    else:
        rows = _rows(outputs.associations, ASSOCIATION_FIELDS)
        found = [_association(row, user) for row in rows if cluster in (None, "", row["cluster"])]
    merged = []
    for each in found:
        page = booked.get((each.account, each.partition or ""))
        counted = each if page is None else _counted(each, page, user)
        merged.append(replace(counted, limits=counted.limits + _above(outputs, each, cluster)))
    return tuple(sorted(merged, key=lambda each: (each.account, each.partition or "")))


def _association(row: dict[str, str], user: str) -> Association:
    account = row["account"]
    return Association(
        account=account,
        partition=row["partition"] or None,
        default_qos=row["defaultqos"] or None,
        qos=tuple(name for name in row["qos"].split(",") if name),
        limits=_limits(row, _OF_ASSOCIATIONS, _member(user, account)),
    )


def _booked(page: Book, user: str) -> Association:
    account = page.words.get("Account", "")
    partition = page.words.get("Partition") or None
    return _counted(Association(account, partition), page, user)


def _counted(association: Association, page: Book, user: str) -> Association:
    """Return the association with slurmctld's limits, which are the enforced ones."""
    holder = _member(user, association.account)
    return replace(
        association,
        limits=tuple(replace(limit, holder=holder) for limit in page.limits),
        in_use=dict(page.in_use),
        is_default=page.words.get("DefAssoc") == "Yes",
    )


def _above(
    outputs: SlurmOutputs, association: Association, cluster: str | None
) -> tuple[Limit, ...]:
    """Return the group limits of the account and its parents; the user inherits the others."""
    if outputs.books is None:
        return ()
    return tuple(
        replace(limit, holder=f"account {name}")
        for name, page in outputs.books.above(association.account, cluster)
        for limit in page.limits
        if limit.name.startswith("Grp")
    )


def _member(user: str, account: str) -> str:
    return f"user {user} in account {account}"


def _qos(
    outputs: SlurmOutputs, user: str, uid: int | None, associations: Sequence[Association]
) -> tuple[QosLimits, ...]:
    accounts = list(dict.fromkeys(each.account for each in associations))
    books = outputs.books.qos if outputs.books else {}
    if outputs.qos is None:
        named = [QosLimits(name, limits=tuple(book.page.limits)) for name, book in books.items()]
    else:
        named = parse_qos(outputs.qos)
    return tuple(_held(each, books.get(each.name), user, uid, accounts) for each in named)


def parse_qos(text: str) -> list[QosLimits]:
    """Return the QOSes, with their limits, of ``sacctmgr show qos`` with ``QOS_FIELDS``."""
    return [_named(row) for row in _rows(text, QOS_FIELDS)]


def _named(row: dict[str, str]) -> QosLimits:
    return QosLimits(
        name=row["name"],
        priority=parse_count(row["priority"]) or 0,
        flags=tuple(flag for flag in row["flags"].split(",") if flag),
        limits=_limits(row, _OF_QOS, ""),
        preempts=tuple(name for name in row["preempt"].split(",") if name),
        usage_factor=_decimal(row["usagefactor"]),
    )


def _held(
    qos: QosLimits, book: QosBook | None, user: str, uid: int | None, accounts: Sequence[str]
) -> QosLimits:
    """Return the QOS with the holder and the use of each limit."""
    mine = user_page(book.users, user, uid) if book else None
    limits: list[Limit] = []
    for limit in qos.limits:
        if limit.name.endswith("PerUser"):
            limits.append(_used(limit, book, mine, f"user {user} in QOS {qos.name}"))
        elif limit.name.endswith("PerAccount"):
            limits += [
                _used(
                    limit,
                    book,
                    book.accounts.get(account) if book else None,
                    f"account {account} in QOS {qos.name}",
                )
                for account in accounts
            ]
        elif limit.name.startswith("Grp"):
            limits.append(_used(limit, book, book.page if book else None, f"QOS {qos.name}"))
        else:
            limits.append(replace(limit, holder=f"a job in QOS {qos.name}"))
    return replace(qos, limits=tuple(limits), in_use=dict(mine.in_use) if mine else {})


def _used(limit: Limit, book: QosBook | None, page: Book | None, holder: str) -> Limit:
    """Return the limit with its use: 0 if slurmctld knows the QOS but not the holder."""
    if page is not None:
        used: int | None = page.used.get((limit.name, limit.resource), 0)
    else:
        used = None if book is None else 0
    return replace(limit, used=used, holder=holder)


def _limits(row: dict[str, str], columns: dict[str, str], holder: str) -> tuple[Limit, ...]:
    found: list[Limit] = []
    for column, name in columns.items():
        text = row[column]
        if "tres" in column:
            counts = tres_counts(text)
            found += [
                Limit(name, resource, count, holder=holder) for resource, count in counts.items()
            ]
            continue
        allowed = parse_minutes(text) if name.endswith("Wall") else parse_count(text)
        if allowed is not None:
            resource = MINUTES if name.endswith("Wall") else JOBS
            found.append(Limit(name, resource, allowed, holder=holder))
    return tuple(found)


def _rows(text: str, fields: Sequence[str]) -> list[dict[str, str]]:
    lines = (line.split("|") for line in text.splitlines())
    return [dict(zip(fields, line, strict=True)) for line in lines if len(line) == len(fields)]


def _decimal(text: str) -> Decimal | None:
    try:
        return Decimal(text)
    except InvalidOperation:
        return None


def parse_shares(text: str) -> tuple[FairShare, ...]:
    """Parse sshare's output; keep its order, which is that of the account tree."""
    found = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split("|")]
        if len(values) != len(SHARE_FIELDS) or not values[0]:
            continue
        row = dict(zip(SHARE_FIELDS, values, strict=True))
        user = row["User"] or None
        found.append(
            FairShare(
                account=row["Account"],
                user=user,
                partition=row["Partition"] or None,
                raw_shares=parse_count(row["RawShares"]),
                norm_shares=_number(row["NormShares"]),
                raw_usage=parse_count(row["RawUsage"]),
                norm_usage=_number(row["NormUsage"]),
                effective_usage=_number(row["EffectvUsage"]),
                # For accounts, 22.05 prints nothing, and other versions 0.
                factor=_number(row["FairShare"]) if user else None,
                level_fs=_number(row["LevelFS"]),
            )
        )
    return tuple(found)


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if number != number else number
