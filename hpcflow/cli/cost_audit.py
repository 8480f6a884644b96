"""``hpcflow cost audit``: whether the bills are what accounting says."""

from __future__ import annotations

from datetime import datetime, timedelta

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.cost_rows import rows, since_option, until_option, window
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session, warn


@click.command("audit")
@since_option
@until_option
@json_option
def audit_command(
    since: datetime | timedelta | None, until: datetime | timedelta | None, as_json: bool
) -> int:
    """Compute all of your bills anew, from accounting and the prices of now, and list what differs.

    The exit code is 1 where anything does.
    """
    from hpcflow.costs.audit import audit

    session = Session()
    session.refresh()
    found = audit(
        session.ledger,
        rows(session, window(session, since, until), user_name=session.settings.user),
        connect=session.scheduler,
        find_site=session.site,
        now=session.clock.now(),
    )
    for problem in found.problems:
        warn(problem)
    if as_json:
        print_json(found)
    else:
        for each in found.differences:
            click.echo(
                f"{each.run_id}, attempt {each.attempt}, job {each.job_id}: {each.what}: billed "
                f"{each.billed}, now {each.now}"
            )
        agree = found.checked - len({(each.run_id, each.attempt) for each in found.differences})
        click.echo(f"{agree} of {found.checked} bills agree with accounting")
    return 1 if found.differences or found.problems else 0
