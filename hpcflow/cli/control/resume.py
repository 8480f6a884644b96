"""``hpcflow resume``."""

from __future__ import annotations

import click

from hpcflow.cli.arguments import json_option, run_argument, set_option
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session, only_warned, warn
from hpcflow.terminal import echo


@click.command("resume", short_help="Resubmit a run from its last complete checkpoint.")
@run_argument
@set_option
@click.option(
    "--follow",
    is_flag=True,
    help="Show the progress until no attempt is pending or running, and no active daemon or "
    "standby may continue the run.",
)
@click.option(
    "--wait",
    is_flag=True,
    help="Wait until no attempt is pending or running, and no active daemon or standby may "
    "continue the run; exit 0 if completed.",
)
@json_option("hpcflow.launch.run:Launched", "hpcflow.cli.look.follow:FollowedRun")
def command(run: str, overrides: tuple[str, ...], follow: bool, wait: bool, as_json: bool) -> int:
    """Resubmit RUN from its last complete checkpoint, or submit it if it has no attempt yet.

    --set changes the config of RUN from now on: other nodes, another partition, more time. To train
    a completed run further, change its params or args, such as --set params.epochs=10. hpcflow
    never removes the checkpoint that the run was completed with.
    """
    from hpcflow.cli.control.hold_release import require_there
    from hpcflow.cli.look.follow import wait_for_run
    from hpcflow.launch.context import LaunchContext
    from hpcflow.launch.preflight import shortage
    from hpcflow.launch.resume import resume
    from hpcflow.storage.rundir import read_run

    session = Session()
    run_dir = session.run_dir(run)
    frozen = read_run(run_dir)
    require_there(run_dir)
    session.refresh_run(run_dir)  # records an end that is not in the journal yet
    if (short := shortage(frozen, session.settings)) is not None:
        warn(short)
    site = session.site(frozen.site)
    scheduler = session.scheduler(frozen.site)
    launched = resume(
        LaunchContext(session.settings, site, scheduler, session.clock),
        run_dir,
        known_attempts=session.known_attempts(run_dir),
        avoid=session.to_avoid(frozen),
        overrides=overrides,
        warn=warn,
    )
    # Before the ledger is used: if it hangs, the submitted job must already be printed.
    if as_json and not (wait or follow):
        print_json(launched)
    elif not as_json:
        echo(
            f"{launched.run_id}: attempt {launched.attempt} is job {launched.job_id} "
            f"on {launched.site}"
        )
    with only_warned():
        session.warn_of_budgets(read_run(run_dir), site)
    with only_warned():
        session.warn_if_unsupervised(read_run(run_dir), site)
    with only_warned():
        session.catch_up(run_dir)
    if not (wait or follow):
        return 0
    return wait_for_run(session, launched.run_id, live=follow, as_json=as_json, launched=launched)
