"""``hpcflow daemon``."""

from __future__ import annotations

import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict, TypeVar

import click

from hpcflow.cli.arguments import finite, json_option, more_in
from hpcflow.cli.control.daemon_install import install_command, uninstall_command
from hpcflow.cli.output import print_json, site_text
from hpcflow.cli.session import Session, warn
from hpcflow.cli.sweeps.status import report_lines
from hpcflow.clock import SystemClock
from hpcflow.errors import HpcflowError, InputError
from hpcflow.ledger.url import parse_url
from hpcflow.model.state import RunState
from hpcflow.settings import load_settings
from hpcflow.storage.own_runs import OwnRuns
from hpcflow.terminal import echo, echo_message

if TYPE_CHECKING:
    from datetime import datetime
    from pathlib import Path

    from hpcflow.ledger.lease import Lease
    from hpcflow.requeue.daemon.loop import ExitRequest
    from hpcflow.requeue.round_context import RoundContext
    from hpcflow.requeue.tick import Report
    from hpcflow.sweeps.round import TickReport


class Supervised(TypedDict):
    """What a daemon supervises; `runs_under_way` is null while the ledger does not answer."""

    user: str
    home: Path
    sites: list[str]
    ledger: str
    runs_under_way: int | None
    interval_s: float


class DaemonStart(TypedDict):
    """The first document of a daemon; `--once` prints none."""

    at: datetime
    supervises: Supervised


class DaemonRound(TypedDict):
    """A round in which something happened."""

    at: datetime
    round: Report


class SweepRound(TypedDict):
    """A round of a sweep in which something happened."""

    at: datetime
    sweep: TickReport


class DaemonStatus(TypedDict):
    """Which daemon supervises the runs; `lease` is that of the last one, null if there was none.

    The keys of `installed` are the options of `daemon install`; a value is null if it is not known.
    """

    is_alive: bool
    lease: Lease | None
    installed: dict[str, str | None]


Said = TypeVar("Said")
_ENDING: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


@click.group(
    "daemon",
    invoke_without_command=True,
    short_help="Supervise your runs; resubmit those that stopped early.",
    epilog=more_in("operations", "states"),
)
@click.option("--once", is_flag=True, help="Make one round, then exit. For cron.")
@click.option(
    "--interval",
    "interval_s",
    type=click.FloatRange(min=1),
    callback=finite,
    metavar="SECONDS",
    help="Time between two rounds. Default: 10.",
)
@json_option(DaemonStart, DaemonRound, SweepRound)
@click.pass_context
def command(ctx: click.Context, once: bool, interval_s: float | None, as_json: bool) -> int:
    """Supervise your runs: resubmit each that stopped early, until it is completed or a rule stops
    it.

    It also makes the rounds of your active sweeps. After a preemption, a timeout, a node failure or
    a crash, it does what `retry` in the run's config says. You can start several daemons: one acts,
    the others are spares.
    """
    if ctx.invoked_subcommand is not None:
        if once or interval_s is not None or as_json:
            raise InputError(
                f"options before `{ctx.invoked_subcommand}` have no effect",
                next_action=f"hpcflow daemon {ctx.invoked_subcommand} --help",
            )
        return 0
    if once and interval_s is not None:
        raise InputError(
            "--once and --interval exclude each other: --once makes one round",
            next_action="give only one of them; with cron, set the interval in the crontab",
        )
    from hpcflow.ledger.store import Ledger
    from hpcflow.requeue.daemon.loop import INTERVAL_S, Daemon, ExitRequest
    from hpcflow.requeue.mirroring import Mirroring

    session = Session()
    session.require_ledger_for_jobs()
    told, log = ExitRequest(session.clock), _Log(session, as_json=as_json)
    mirroring = Mirroring(session.settings, session.clock, _warn_if_possible, session.site)
    # Unless it makes only one round, it waits for a ledger that does not answer.
    ledger = None if once else Ledger(parse_url(session.settings.ledger_url), _warn_if_possible)
    around = session.round_context(ledger)
    daemon = Daemon(
        around,
        told,
        on_report=_without_os_errors(log.say),
        on_text=_warn_if_possible,
        interval_s=interval_s or INTERVAL_S,
        mirroring=None if once else mirroring,
        also=partial(_sweeps, around, log),
    )
    with _ends_on_signal(told):
        if not once:
            log_start = partial(_log_start, around, session, as_json=as_json)
            _without_os_errors(log_start)(interval_s or INTERVAL_S)
            daemon.run()
            return 0
        report = daemon.once()
    if report is None:
        return 0  # another daemon has the lease; without output, cron sends no mail
    log.say(report)
    return 1 if report.problems else 0


_INSTALL: Final = "install one: hpcflow daemon install"
_SOON: Final = "the installed one makes its first round within a few minutes"

command.add_command(install_command)
command.add_command(uninstall_command)


@command.command("status")
@json_option(DaemonStatus)
def status_command(as_json: bool) -> int:
    """Show which daemon is active and what is installed; exit 1 if none is active."""
    from hpcflow.requeue.daemon.supervision import supervision
    from hpcflow.requeue.install.ways import look_around

    settings, now = load_settings(), SystemClock().now()
    seen = supervision(settings, now)
    lease, installed = seen.lease, look_around(settings)
    if as_json:
        known = {n: None if isinstance(w, HpcflowError) else w for n, w in installed.items()}
        print_json(DaemonStatus(is_alive=seen.is_alive, lease=lease, installed=known))
        return 0 if seen.is_alive else 1
    if lease is None:
        is_installed = any(isinstance(what, str) for what in installed.values())
        echo(f"no daemon has run yet; {_SOON if is_installed else _INSTALL}")
    else:
        word = "is the active daemon" if seen.is_alive else "was the last daemon"
        echo(
            f"process {lease.pid} on {lease.host} {word}; "
            f"it renewed its lease on {lease.renewed_at:%Y-%m-%d %H:%M:%S} UTC"
        )
        if seen.has_died and lease.is_alive(now):
            echo(
                "it was killed and still has the lease; another daemon can act from "
                f"{lease.expires_at:%H:%M:%S} UTC on"
            )
    for name, what in installed.items():
        text = f"unknown: {what.message}" if isinstance(what, HpcflowError) else what
        echo(f"installed by --{name}: {text}")
    return 0 if seen.is_alive else 1


@contextmanager
def _ends_on_signal(told: ExitRequest) -> Iterator[None]:
    """Let signals end the daemon between two acts: killed in one, it would keep its lease."""

    def end(_number: int, _frame: object) -> None:
        told.is_over = True

    handlers = {number: signal.getsignal(number) for number in _ENDING}
    if handlers[signal.SIGHUP] is signal.SIG_IGN:
        del handlers[signal.SIGHUP]  # nohup ignores it
    for number in handlers:
        signal.signal(number, end)
    try:
        yield
    finally:
        for number, before in handlers.items():
            signal.signal(number, before)


def _without_os_errors(say: Callable[[Said], None]) -> Callable[[Said], None]:
    """Return ``say`` without its OSErrors: a log on a full disk must not end the daemon."""

    def safe_say(what: Said) -> None:
        with suppress(OSError):
            say(what)

    return safe_say


_warn_if_possible: Final = _without_os_errors(warn)


def _log_start(around: RoundContext, session: Session, interval_s: float, *, as_json: bool) -> None:
    settings, own = session.settings, OwnRuns(session.settings.home)
    under_way = [state for state in RunState if not state.is_final]
    count, sites = None, set[str]()
    with suppress(HpcflowError):  # the first round reports it
        sites.add(session.site(None).name)
    with suppress(HpcflowError):
        runs = [
            run for run in around.ledger.runs(states=under_way) if own.has(run.run_id, run.run_dir)
        ]
        count = len(runs)
        sites.update(site_text(run.site) for run in runs)
    if as_json:
        supervises = Supervised(
            user=settings.user,
            home=settings.home.path,
            sites=sorted(sites),
            ledger=str(around.ledger.url),
            runs_under_way=count,
            interval_s=interval_s,
        )
        print_json(DaemonStart(at=session.clock.now(), supervises=supervises), indent=None)
        return
    echo(
        f"{session.clock.now():%Y-%m-%d %H:%M:%S}  supervising the runs of {settings.user} in "
        f"{settings.home.path}, on {', '.join(sorted(sites)) or 'no known site'}, "
        f"{'an unknown number' if count is None else count} active; ledger {around.ledger.url}; "
        f"a round every {interval_s:g} s"
    )


def _sweeps(around: RoundContext, log: _Log) -> None:
    from hpcflow.storage.sweeps import sweep_ids

    if not sweep_ids(around.settings.home):
        return
    from hpcflow.sweeps.rounds import tick_all

    for report in tick_all(around):
        log.log_sweep(report)


class _Log:
    """Log the rounds in which something happened, and each problem once."""

    def __init__(self, session: Session, *, as_json: bool) -> None:
        self._session, self._as_json = session, as_json
        self._of_sweeps: dict[str, list[str]] = {}
        self._warnings: list[str] = []
        self._problems: dict[str, str] = {}

    def say(self, report: Report) -> None:
        """Print what is new in ``report``."""
        problems = dict(report.problems.items() - self._problems.items())
        for message in report.warnings:
            if message not in self._warnings:
                warn(message)
        for run_id, problem in problems.items():
            warn(f"{run_id}: {problem}")
        self._warnings, self._problems = report.warnings, report.problems
        now, lines = self._session.clock.now(), list(self._lines(report))
        if self._as_json and (lines or problems):
            print_json(DaemonRound(at=now, round=report), indent=None)
        for line in () if self._as_json else lines:
            echo(f"{now:%Y-%m-%d %H:%M:%S}  {line}")

    def log_sweep(self, report: TickReport) -> None:
        """Print what is new in a round of a sweep."""
        known = self._of_sweeps.get(report.sweep_id, [])
        for problem in report.problems:
            if problem not in known:
                warn(f"{report.sweep_id}: {problem}")
        self._of_sweeps[report.sweep_id] = report.problems
        now = self._session.clock.now()
        if not report.has_news:
            return
        if self._as_json:
            print_json(SweepRound(at=now, sweep=report), indent=None)
        for line in () if self._as_json else report_lines(report, now):
            echo_message(line)

    @staticmethod
    def _lines(report: Report) -> Iterator[str]:
        """Yield a line for each decision and act; none if nothing happened."""
        for run_id, job_id in report.lifted.items():
            why = "restarted: Slurm restarted its job with a later begin time"
            yield f"{run_id}  start now  ({why}), job {job_id}"
        for run_id, each in report.decisions.items():
            then = f", job {report.sent[run_id]}" if run_id in report.sent else ""
            until = f" until {each.not_before:%Y-%m-%d %H:%M:%S} UTC" if each.not_before else ""
            yield f"{run_id}  {each.action.value}{until}  ({each.rule}: {each.why}){then}"
        for run_id, job_id in report.standbys.items():
            why = "wanted: it waits for the end of the running attempt"
            yield f"{run_id}  standby  ({why}), job {job_id}"
        for run_id, each in report.restores.items():
            if run_id not in report.decisions:
                yield f"{run_id}  {each.action.value}  ({each.rule}: {each.why})"
        for run_id, verdict in report.stalls.items():
            yield f"{run_id}  {verdict.act.value}  ({verdict.rule}: {verdict.why})"
        for run_id, why in report.overspent.items():
            yield f"{run_id}  notice  (over_budget: {why})"
