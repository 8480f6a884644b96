"""``hpcflow sweep``: start, tick, stop, resume."""

from __future__ import annotations

import gc
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, TypedDict

import click

from hpcflow.cli.arguments import json_option, more_in, site_option, sweep_argument
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session, warn
from hpcflow.cli.sweeps.export import export_command, plot_command
from hpcflow.cli.sweeps.install import hint, install_command, remove_own_line, uninstall_command
from hpcflow.cli.sweeps.look import best_command, ls_command, status_command, trials_command
from hpcflow.cli.sweeps.objective import OfFunction, function_options, loaded_function
from hpcflow.cli.sweeps.status import report_lines
from hpcflow.errors import InputError, StorageError, Where
from hpcflow.model.units import counted
from hpcflow.terminal import echo, echo_message

if TYPE_CHECKING:
    from hpcflow.storage.sweeps import SweepDir
    from hpcflow.sweeps.round import TickReport
    from hpcflow.sweeps.starting import SweepPlan
    from hpcflow.sweeps.state import SweepProgress


class StartedSweep(TypedDict):
    """A sweep that was started."""

    sweep_id: str
    first_round: TickReport


class SweepDryRun(TypedDict):
    """What would be started, and the script of the first run; unknown values are null."""

    dry_run: bool
    parameters: int
    combinations: int | None
    sampler: str
    pruner: str
    trials: int | None
    parallel: int
    repeats: int
    partition: str
    nodes: int
    gpus_per_node: int
    time_limit_min: int | None
    estimated_cost_usd_per_run: str | None
    first_params: dict[str, Any]
    script: str


class SweepRounds(TypedDict):
    """Rounds of sweeps, each with the sweep that it is of."""

    rounds: list[TickReport]


class StoppedSweep(TypedDict):
    """A sweep that was stopped, and the round that cancelled its trials."""

    sweep_id: str
    rounds: list[TickReport]


class ResumedSweep(TypedDict):
    """A sweep that continues."""

    sweep_id: str
    round: TickReport


@click.group(
    "sweep",
    short_help="Search hyperparameters: many runs of one program.",
    epilog=more_in("sweeps", "sweep_reference"),
)
def command() -> None:
    """Search hyperparameters: many runs of one program, driven by cron or the daemon.

    Begin with: hpcflow sweep start SWEEP.yaml --dry-run
    """


for _each in (
    *(ls_command, status_command, trials_command, best_command, export_command, plot_command),
    *(install_command, uninstall_command),
):
    command.add_command(_each)


@command.command("start")
@click.argument("file", type=click.Path(path_type=Path, readable=False))
@site_option
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the sweep's file. May be given several times.",
)
@click.option("--dry-run", is_flag=True, help="Check and show everything; create nothing.")
@function_options
@json_option(StartedSweep, SweepDryRun)
def start_command(
    file: Path,
    site: str | None,
    overrides: tuple[str, ...],
    dry_run: bool,
    as_json: bool,
    **of_function: Any,
) -> int:
    """Start the sweep that FILE describes, and submit its first trials.

    FILE is a sweep's YAML, or a function in a Python file. With a function, --set base.KEY=VALUE
    changes the run of each trial.

    \b
    hpcflow sweep start sweep.yaml --set budget.trials=20
    hpcflow sweep start objective.py:objective --space '{lr: {low: 1e-5, high: 0.1, log: true}}'
      --direction minimize --set budget.trials=20 --set base.resources.time_limit=1h
    """
    from hpcflow.launch.context import LaunchContext
    from hpcflow.launch.login_check import check_on_login_node
    from hpcflow.sweeps.starting import plan_sweep, start_sweep

    session = Session()
    the_site = session.site(site, named_in=Where(key="--site"))
    function = loaded_function(file, OfFunction(**of_function), overrides)
    plan = plan_sweep(
        function[0] if function else file,
        LaunchContext(session.settings, the_site, session.connect(the_site), session.clock),
        loaded=function[1] if function else None,
        site_name=site,
        overrides=overrides,
    )
    example = replace(plan.example, document=plan.loaded.base.document)
    seen = check_on_login_node(example, session.settings, session.clock)
    for message in (*example.warnings, *seen):
        warn(message)
    if dry_run:
        _show_plan(plan, as_json=as_json)
        return 0
    sweep_dir = start_sweep(plan, session.settings)
    (report,) = _rounds(session, sweep_dir)
    if as_json:
        print_json(StartedSweep(sweep_id=sweep_dir.sweep_id, first_round=report))
    else:
        echo(sweep_dir.sweep_id, bold=True)
        echo(f"  submitted      {counted(len(report.sent), 'trial')}")
        echo(f"  look           hpcflow sweep status {sweep_dir.sweep_id}")
        if (what := hint(session)) is not None:
            echo(f"  to continue    {what}")
    _warn(report)
    return 1 if report.problems else 0


@command.command("tick")
@sweep_argument(required=False)
@json_option(SweepRounds)
def tick_command(sweep: str | None, as_json: bool) -> int:
    """Make one round of all sweeps, or of SWEEP alone. For cron.

    A round collects results, prunes, asks the sampler for new trials and submits them. It also
    resubmits your runs that stopped early. A daemon makes these rounds by itself.
    """
    # A round is mostly imports, which create no garbage; collection takes a tenth of its time.
    gc.disable()
    click.get_current_context().call_on_close(gc.enable)
    from hpcflow.storage.sweeps import find_sweep
    from hpcflow.sweeps.rounds import under_way

    session = Session()
    session.require_ledger_for_jobs()
    only = find_sweep(session.settings.home, sweep) if sweep else None
    if only is None and not under_way(session.settings.home):
        remove_own_line(session)
        if as_json:
            print_json(SweepRounds(rounds=[]))
        return 0
    reports = _rounds(session, only)
    if as_json:
        print_json(SweepRounds(rounds=reports))
    for report in reports:
        if not as_json:
            _print_round(session, report)
        _warn(report)
    if only is None:
        remove_own_line(session, reports)
    return 1 if any(report.problems for report in reports) else 0


@command.command("stop")
@sweep_argument()
@click.option("--cancel", is_flag=True, help="Also cancel active trials.")
@json_option(StoppedSweep)
def stop_command(sweep: str, cancel: bool, as_json: bool) -> int:
    """Start no more trials of SWEEP; active trials continue."""
    from hpcflow.model.sweep_records import StopRequested
    from hpcflow.storage.sweeps import append, find_sweep
    from hpcflow.sweeps.view import look

    session = Session()
    sweep_dir = find_sweep(session.settings.home, sweep)
    _, progress = look(sweep_dir)
    if progress.over is not None:
        raise InputError(
            f"{sweep_dir.sweep_id} is over: {progress.over.why}",
            next_action=f"see its best trial: hpcflow sweep best {sweep_dir.sweep_id}",
        )
    record = StopRequested(at=session.clock.now(), by=session.settings.user, cancel=cancel)
    try:
        append(sweep_dir, [record])
    except StorageError as error:
        if cancel:
            _end_unrecorded(session, sweep_dir, progress, error)
        raise
    reports = _rounds(session, sweep_dir) if cancel else []
    if as_json:
        print_json(StoppedSweep(sweep_id=sweep_dir.sweep_id, rounds=reports))
    else:
        echo(f"stopped; to continue: hpcflow sweep resume {sweep_dir.sweep_id}")
    for report in reports:
        _warn(report)
    return 1 if any(report.problems for report in reports) else 0


def _end_unrecorded(
    session: Session, sweep_dir: SweepDir, progress: SweepProgress, error: StorageError
) -> NoReturn:
    """Cancel the jobs of all trials although the stop is not recorded; then raise StorageError."""
    from hpcflow.storage.sweeps import read_sweep
    from hpcflow.sweeps.trials import cancel_jobs

    scheduler = session.scheduler(read_sweep(sweep_dir).site)
    run_ids = [run_id for trial in progress.open for run_id in trial.all_runs]
    ended = cancel_jobs(run_ids, scheduler.queue(), scheduler)
    raise StorageError(
        f"the sweep could not be stopped, and its next round submits again: {error.message}; jobs "
        f"that are being cancelled: {', '.join(ended) or 'none, because none is active'}",
        next_action=f"{error.next_action}, then: hpcflow sweep stop --cancel {sweep_dir.sweep_id}",
    ) from error


@command.command("resume")
@sweep_argument()
@click.option(
    "--parallel",
    type=click.IntRange(1, 10_000),
    metavar="N",
    help="Parallel trials from now on.",
)
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="budget.KEY=VALUE",
    help="Change the budget from now on.",
)
@json_option(ResumedSweep)
def resume_command(
    sweep: str, parallel: int | None, overrides: tuple[str, ...], as_json: bool
) -> int:
    """Continue SWEEP after it was stopped, halted, or ended with its budget spent.

    \b
    hpcflow sweep resume digits-tpe --set budget.trials=120
    """
    from hpcflow.storage.sweeps import append, find_sweep, read_sweep
    from hpcflow.sweeps.changing import go_on

    session = Session()
    sweep_dir = find_sweep(session.settings.home, sweep)
    record = go_on(
        sweep_dir,
        by=session.settings.user,
        now=session.clock.now(),
        parallel=parallel,
        overrides=overrides,
        site=session.site(read_sweep(sweep_dir).site),
    )
    append(sweep_dir, [record])
    (report,) = _rounds(session, sweep_dir)
    if as_json:
        print_json(ResumedSweep(sweep_id=sweep_dir.sweep_id, round=report))
    else:
        _print_round(session, report)
        echo(f"the sweep continues; see: hpcflow sweep status {sweep_dir.sweep_id}")
        if (what := hint(session)) is not None:
            echo(f"no daemon and no cron job drives this sweep; next: {what}")
    _warn(report)
    return 1 if report.problems else 0


def _rounds(session: Session, only: SweepDir | None) -> list[TickReport]:
    """Bring all runs up to date, and make a round of the sweeps."""
    from hpcflow.sweeps.round import TickReport
    from hpcflow.sweeps.rounds import look_and_tick

    warnings, reports = look_and_tick(session.round_context(), only=only)
    for message in warnings:
        warn(message)
    if only is not None and not reports:
        busy = "another process runs a round of this sweep now; your request is recorded"
        reports = [TickReport(only.sweep_id, said=[busy])]
    return reports


def _print_round(session: Session, report: TickReport) -> None:
    for line in report_lines(report, session.clock.now()):
        echo_message(line)


def _warn(report: TickReport) -> None:
    for problem in report.problems:
        warn(f"{report.sweep_id}: {problem}")


def _show_plan(plan: SweepPlan, *, as_json: bool) -> None:
    spec, example = plan.sweep.spec, plan.example
    placement = example.placement
    combinations = spec.space.number_of_combinations()
    values = {
        "parameters": len(spec.space.parameters),
        "combinations": combinations,
        "sampler": spec.sampler.kind.value,
        "pruner": spec.pruner.kind.value,
        "trials": spec.most_trials(spec.budget),
        "parallel": spec.parallel_or_default,
        "repeats": spec.repeats,
        "partition": placement.partition,
        "nodes": placement.nodes,
        "gpus_per_node": placement.gpus_per_node,
        "time_limit_min": placement.time_limit_min,
        "estimated_cost_usd_per_run": example.run.estimated_cost_usd,
        "first_params": dict(plan.example_params),
    }
    if as_json:
        print_json({"dry_run": True, **values, "script": example.script})
        return
    echo("Nothing was created. This is what would be started:", bold=True)
    for key, value in values.items():
        if value is not None:
            echo(f"  {key:<28} {value!s}")
