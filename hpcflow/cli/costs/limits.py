"""``hpcflow limits``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import click

from hpcflow.cli.arguments import json_option, site_option
from hpcflow.cli.columns import Column, print_table
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session, warn
from hpcflow.errors import SchedulerUnavailable, Where
from hpcflow.pending.bounds import amount_words
from hpcflow.pending.limits import (
    AccountLine,
    PartitionLine,
    QosLine,
    account_lines,
    in_use_words,
    partition_lines,
    qos_lines,
)
from hpcflow.terminal import Styled, echo

if TYPE_CHECKING:
    from collections.abc import Sequence

    from hpcflow.schedulers.base import Scheduler
    from hpcflow.sites.standing import Limit, Standing


@dataclass(frozen=True)
class Limits:
    """What a user may use of a cluster; unknown values are null, and named in `missing`."""

    site: str
    user: str
    has_accounting: bool = False
    accounts: Sequence[AccountLine] = ()
    qos: Sequence[QosLine] = ()
    partitions: Sequence[PartitionLine] | None = ()
    limits_enforced: bool | None = None
    missing: Sequence[str] = ()


@click.command("limits", short_help="Show your accounts, QOS, limits, use and fair share.")
@site_option
@json_option(Limits)
def command(site: str | None, as_json: bool) -> int:
    """Show your accounts, QOS and limits on a cluster, and how much of them is in use.

    Accounts are sorted by their fair-share factor, the highest first. If two jobs differ only in
    their account, the one with the higher factor starts first. A limit that is reached is marked.
    """
    session = Session()
    the_site = session.site(site, named_in=Where(key="--site"))
    scheduler = session.connect(the_site)
    standing = scheduler.standing(session.settings.user)
    if standing is None:
        found = Limits(the_site.name, session.settings.user)
    else:
        for each in standing.missing:
            warn(f"unknown: {each}")
        found = Limits(
            the_site.name,
            standing.user,
            has_accounting=True,
            accounts=account_lines(standing),
            qos=qos_lines(standing),
            partitions=_partitions(standing, scheduler),
            limits_enforced=standing.are_limits_enforced,
            missing=standing.missing,
        )
    if as_json:
        print_json(found)
    elif standing is None:
        echo(
            f"{the_site.name} has no accounting, or it does not answer: no accounts, limits or "
            "fair shares to show; see its partitions: hpcflow site show"
        )
    else:
        _print(found)
    return 0


def _partitions(standing: Standing, scheduler: Scheduler) -> Sequence[PartitionLine] | None:
    try:
        return partition_lines(standing, scheduler.cluster_info())
    except SchedulerUnavailable as error:
        warn(f"unknown: the limits of partitions: {error.message}")
        return None


def _print(found: Limits) -> None:
    if not found.accounts:
        echo(f"{found.user} has no account in Slurm; jobs need one only if Slurm enforces them")
    else:
        _print_accounts(found.accounts)
    for line in found.accounts:
        if line.meaning:
            echo(line.meaning)
    if not found.limits_enforced:
        echo("this cluster does not enforce limits: they do not delay jobs")
    for line in found.accounts:
        where = f", partition {line.partition}" if line.partition else ""
        _limits(f"account {line.account}{where}", line.limits)
    if found.qos:
        echo()
        _print_qos(found.qos)
    for each in found.qos:
        _limits(f"QOS {each.name}", each.limits)
    for part in found.partitions or ():
        _limits(f"partition {part.name}, by its QOS {part.qos}", part.limits)


def _print_accounts(lines: Sequence[AccountLine]) -> None:
    columns = Column.plain("ACCOUNT") + Column.numbers("FAIR SHARE")
    columns += Column.texts("QOS 1, IN USE NOW")
    rows = [
        [
            line.account
            + (f" ({line.partition})" if line.partition else "")
            + (" (default)" if line.is_default else ""),
            "?" if line.factor is None else f"{line.factor:.3f}",
            ", ".join(line.qos),
            in_use_words(line.in_use) or "nothing",
        ]
        for line in lines
    ]
    print_table(columns, rows)


def _print_qos(lines: Sequence[QosLine]) -> None:
    columns = Column.plain("QOS") + Column.numbers("PRIORITY, USAGE FACTOR 2")
    columns += Column.texts("PREEMPTS 1, FLAGS 3, IN USE NOW")
    rows = [
        [
            line.name,
            str(line.priority),
            f"{line.usage_factor} x" if line.usage_factor else "?",
            ", ".join(line.preempts) or "-",
            ", ".join(line.flags) or "-",
            in_use_words(line.in_use) or "nothing",
        ]
        for line in lines
    ]
    print_table(columns, rows)


def _limits(of: str, limits: Sequence[Limit] | None) -> None:
    known = ": limits unknown" if limits is None else "" if limits else ": no limits"
    echo()
    echo(Styled(of, bold=True), known)
    if limits is None:
        return
    width = max((len(limit.name) for limit in limits), default=0)
    for limit in limits:
        full = Styled("  full", fg="red") if limit.is_full else ""
        echo(
            f"  {limit.name:<{width}}  {amount_words(limit)}  ({limit.holder})",
            full,
        )
