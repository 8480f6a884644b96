"""``hpcflow cost audit``."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.costs.rows import rows, since_option, until_option, window
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session, warn
from hpcflow.model.units import counted
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.costs.audit import Audit, Unknown


@click.command("audit")
@since_option
@until_option
@json_option("hpcflow.costs.audit:Audit")
def audit_command(
    since: datetime | timedelta | None, until: datetime | timedelta | None, as_json: bool
) -> int:
    """Recompute all of your bills from accounting and current prices; list the differences.

    It also lists jobs of hpcflow in accounting that belong to no run. The exit code is 1 if it
    lists anything.
    """
    from hpcflow.costs.audit import audit

    session = Session()
    session.refresh()
    when, user = window(session, since, until), session.settings.user
    found = audit(
        session.ledger,
        rows(session, when, user_name=user),
        user=user,
        since=when.since,
        until=when.until,
        connect=session.scheduler,
        find_site=session.site,
        now=session.clock.now(),
    )
    for problem in found.problems:
        warn(problem)
    if as_json:
        print_json(found)
    else:
        _print(found)
    return 1 if found.differences or found.unknown or found.problems else 0


def _print(found: Audit) -> None:
    for each in found.differences:
        values = {"billed": each.billed, "now": each.now}
        known = ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)
        echo(
            f"{each.run_id}, attempt {each.attempt}, job {each.job_id}: {each.what}"
            f"{known and f': {known}'}"
        )
    for job in found.unknown:
        echo(
            f"job {job.job_id}, {job.job_name}, {job.raw_state}: {job.why}: "
            f"{job.hours:.2f} hours, {job.gpu_hours:.2f} GPU hours, {_usd(job)}; see it: "
            f"sacct -X -D -j {job.job_id}"
        )
    if found.helpers:
        hours = sum(job.hours for job in found.helpers)
        echo(
            f"{counted(len(found.helpers), 'job')} of hpcflow itself, without a run: "
            f"{hours:.2f} hours, in no bill"
        )
    if found.uncheckable:
        echo(f"{counted(found.uncheckable, 'bill')} not checked: no accounting record to compare")
    agree = found.checked - len({(each.run_id, each.attempt) for each in found.differences})
    if found.checked or not found.uncheckable:
        echo(f"{agree} of {counted(found.checked, 'bill')} agree with accounting")


def _usd(job: Unknown) -> str:
    return "without a price" if job.cost_usd is None else f"{float(job.cost_usd):.2f} USD"
