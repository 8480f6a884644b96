"""``hpcflow run``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from hpcflow.cli.arguments import config_argument, json_option, set_option, site_option
from hpcflow.cli.output import picked, print_json
from hpcflow.cli.session import Session, only_warned, warn
from hpcflow.model.units import format_bytes
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.launch.plan import Plan
    from hpcflow.launch.run import Launched
    from hpcflow.model.execution import Launcher


class DryRun(TypedDict):
    """What would be submitted."""

    dry_run: bool
    run_id: str
    site: str
    partition: str
    nodes: int
    gpus_per_node: int
    gpu_type: str | None
    ranks_per_node: int
    cpus_per_task: int
    mem_mb: int | None
    time_limit_min: int | None
    account: str | None
    launcher: Launcher
    run_dir: str
    working_dir: str
    estimated_cost_usd: str | None
    start_from: str | None
    script: str


@click.command("run", short_help="Submit a run.")
@config_argument
@site_option
@set_option
@click.option("--dry-run", is_flag=True, help="Check and show everything; create nothing.")
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
@json_option("hpcflow.launch.run:Launched", "hpcflow.cli.look.follow:FollowedRun", DryRun)
def command(
    config: Path,
    site: str | None,
    overrides: tuple[str, ...],
    dry_run: bool,
    follow: bool,
    wait: bool,
    as_json: bool,
) -> int:
    """Submit the run that CONFIG describes.

    \b
    hpcflow run config.yaml --set resources.nodes=2 --set params.lr=0.1
    """
    from hpcflow.launch.login_check import check_on_login_node
    from hpcflow.launch.preflight import shortage
    from hpcflow.launch.run import launch, rehearse

    session = Session()
    plan = session.plan(config, site, overrides)
    if (short := shortage(plan.run, session.settings)) is not None:
        warn(short)
    for message in check_on_login_node(plan, session.settings, session.clock):
        warn(message)
    if dry_run:
        for message in rehearse(plan, settings=session.settings, clock=session.clock):
            warn(message)
        _show_plan(plan, as_json=as_json)
        return 0
    if plan.run.started_from is not None:  # copying it may take minutes
        size = format_bytes(plan.run.started_from.size_bytes)
        echo(f"starts from {plan.run.started_from}, {size}", err=True)
    launched = launch(
        plan, settings=session.settings, scheduler=session.connect(plan.site), clock=session.clock
    )
    # Before the ledger is used: if it hangs, the submitted job must already be printed.
    if as_json and not (wait or follow):
        print_json(launched)
    elif not as_json:
        _print_launched(launched)
    with only_warned():
        session.warn_of_budgets(plan.run, plan.site)
    with only_warned():
        session.warn_if_unsupervised(plan.run, plan.site)
    if not (wait or follow):
        with only_warned():
            session.catch_up_if_shared(session.settings.home.run_dir(launched.run_dir))
        return 0
    session.catch_up(session.settings.home.run_dir(launched.run_dir))
    from hpcflow.cli.look.follow import wait_for_run

    return wait_for_run(session, launched.run_id, live=follow, as_json=as_json, launched=launched)


def _print_launched(launched: Launched) -> None:
    echo(launched.run_id, bold=True)
    echo(f"  attempt {launched.attempt}, job {launched.job_id} on {launched.site}")
    echo(f"  run directory  {launched.run_dir}")
    echo(f"  look           hpcflow show {launched.run_id}")


def _show_plan(plan: Plan, *, as_json: bool) -> None:
    run, placement = plan.run, plan.placement
    values = picked(
        DryRun,
        placement,
        dry_run=True,
        run_id=run.run_id,
        site=run.site,
        run_dir=run.run_dir,
        working_dir=run.working_dir,
        estimated_cost_usd=run.estimated_cost_usd,
        start_from=run.spec.start_from,
        script=plan.script,
    )
    if as_json:
        print_json(values)
        return
    echo("Nothing was created. This is what would be submitted:", bold=True)
    for key, value in values.items():
        if value is not None and key not in ("dry_run", "script"):
            text = getattr(value, "value", value)
            echo(f"  {key:<20} {text}")
    echo("To see the script: hpcflow render with the same arguments.")
