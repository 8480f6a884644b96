"""The checks of `hpcflow doctor`: each returns a result, and the next thing to type.

They are those of other commands: `site check`, `limits`, `run --dry-run` of a small run,
`daemon status`. No job is submitted. Each check has a timeout, so that a service that does not
answer does not hide the other results.
"""

from __future__ import annotations

import platform
import shutil
import sys
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpcflow import __version__
from hpcflow.cli.session import Session
from hpcflow.errors import HpcflowError, Where, shell_word
from hpcflow.model.units import counted, format_bytes, format_duration
from hpcflow.ownership import temporary_folder
from hpcflow.sites.check import Level, check
from hpcflow.sites.schema import SchedulerKind, Site

if TYPE_CHECKING:
    from hpcflow.launch.plan import Plan

TIMEOUT_S: Final = 30.0
#: A store that does not answer within this time is unreachable.
_PATIENCE_S: Final = 5.0
#: munge refuses a clock that is five minutes off; one minute shows that NTP does not work.
_CLOCK_OFF: Final = timedelta(minutes=1)
_CLOCK_REFUSED: Final = timedelta(minutes=5)
_PROGRAMS: Final = ("sbatch", "squeue", "scancel", "scontrol", "sinfo")
_OF_ACCOUNTING: Final = ("sacct", "sacctmgr")
#: The smallest run, with the defaults of the site. It has no code snapshot: its config is in the
#: home, which may be a repository.
TRIAL: Final = """\
name: trial
project: hpcflow-trial
command: [python3, -c, "print('hello from hpcflow')"]
launch: {framework: none, launcher: none}
resources: {time_limit: 2m}
code: live
"""


@dataclass(frozen=True)
class Check:
    """The result of one check.

    Attributes:
        check: the name of the check.
        next_action: what to type; None if nothing is wrong.
    """

    check: str
    level: Level
    message: str
    next_action: str | None = None


def check_all(site_name: str | None) -> list[Check]:
    """Run all checks at the same time."""
    session = Session()
    try:
        site = session.site(site_name, named_in=Where(key="--site"))
    except HpcflowError as error:
        found = _timed({"ledger": _ledger, "daemon": lambda: _daemon(session, None)})
        return [_python(), _failed("site", error), *found]
    file = Check("site", Level.OK, f"{site.name}, {site.file}")
    rest = {
        "Slurm": lambda: _slurm(session, site),
        "account": lambda: _account(session, site),
        "clock": lambda: _clock(site),
        "job": lambda: _job(session, site, site_name),
        "ledger": _ledger,
        "daemon": lambda: _daemon(session, site),
        "daemon install": lambda: _ways(session),
    }
    return [_python(), file, *_timed(rest)]


def _timed(checks: dict[str, Callable[[], Iterator[Check]]]) -> list[Check]:
    """Return all results, in this order; of a check that times out, those so far."""
    found: dict[str, list[Check]] = {name: [] for name in checks}
    threads = {}

    def run(name: str) -> None:
        try:
            found[name].extend(checks[name]())
        except HpcflowError as error:
            found[name].append(_failed(name, error))
        except Exception as error:  # it must not hide the other checks
            found[name].append(
                Check(name, Level.ERROR, f"{type(error).__name__}: {error}", "report this bug")
            )

    for name in checks:
        threads[name] = threading.Thread(target=run, args=(name,), daemon=True)
        threads[name].start()
    end = time.monotonic() + TIMEOUT_S
    for name, thread in threads.items():
        thread.join(max(0.0, end - time.monotonic()))
        if thread.is_alive():
            late = f"no answer within {TIMEOUT_S:g} s"
            found[name] = [*found[name], Check(name, Level.ERROR, late, "try again in a minute")]
    return [each for name in checks for each in found[name]]


def _failed(name: str, error: HpcflowError, level: Level = Level.ERROR) -> Check:
    return Check(name, level, error.message, error.next_action or "see: hpcflow --help")


def _python() -> Check:
    what = f"hpcflow {__version__}, Python {platform.python_version()}, {sys.executable}"
    return Check("hpcflow", Level.OK, what)


def _slurm(session: Session, site: Site) -> Iterator[Check]:
    """Check its programs and version, and compare the site file with the cluster."""
    if site.scheduler is not SchedulerKind.SLURM:
        yield Check("Slurm", Level.OK, "not used: runs are processes on this machine")
        return
    path = session.settings.environ.get("PATH")
    wanted = (*_PROGRAMS, *(_OF_ACCOUNTING if site.has_accounting else ()))
    missing = [name for name in wanted if shutil.which(name, path=path) is None]
    if missing:
        what = f"not on PATH: {', '.join(missing)}"
        load = "log in to the cluster, or load its Slurm module: module load slurm"
        yield Check("Slurm", Level.ERROR, what, load)
        return
    info = session.connect(site).cluster_info()
    yield Check("Slurm", Level.OK, f"version {info.version}, cluster {info.name}")
    findings = check(site, info)
    see = f"correct {site.file}; see all: hpcflow site check {shell_word(site.name)}"
    for each in findings:
        if each.level is Level.ERROR:
            yield Check("site file", Level.ERROR, f"{each.key}: {each.message}", see)
    differences = sum(each.level is Level.WARNING for each in findings)
    if differences:
        what = f"{counted(differences, 'difference')} from the live cluster"
        yield Check(
            "site file", Level.WARNING, what, f"see: hpcflow site check {shell_word(site.name)}"
        )


def _account(session: Session, site: Site) -> Iterator[Check]:
    user = session.settings.user
    if site.scheduler is not SchedulerKind.SLURM:
        return
    standing = session.connect(site).standing(user)
    if standing is None:
        yield Check("account", Level.OK, "Slurm has no accounting, so jobs need no account")
        return
    accounts = sorted({each.account for each in standing.associations})
    if accounts:
        qos = ", ".join(each.name for each in standing.qos) or "none"
        yield Check("account", Level.OK, f"{', '.join(accounts)}; QOS {qos}")
    else:
        what = f"user {user} has no account in Slurm"
        yield Check("account", Level.WARNING, what, "ask the support staff of the site for one")
    for each in standing.missing:
        yield Check("account", Level.WARNING, f"unknown: {each}", "see: hpcflow limits")


def _clock(site: Site) -> Iterator[Check]:
    """Compare the clock of this host with that of the controller."""
    from hpcflow.schedulers.slurm.commands import CLUSTER_QUESTIONS
    from hpcflow.schedulers.slurm.parse_cluster import told_at
    from hpcflow.schedulers.slurm.run_command import ask

    if site.scheduler is not SchedulerKind.SLURM or shutil.which("scontrol") is None:
        return
    clock = Session().clock
    controller_now = told_at(ask(CLUSTER_QUESTIONS["config"], timeout_s=TIMEOUT_S))
    if controller_now is None:
        return
    off = abs(clock.now() - controller_now)
    if off < _CLOCK_OFF:
        yield Check("clock", Level.OK, "agrees with the controller")
        return
    what = f"{format_duration(off.total_seconds())} off the controller"
    level = Level.ERROR if off >= _CLOCK_REFUSED else Level.WARNING
    yield Check(
        "clock", level, what, "tell the support staff of the site; see this clock: timedatectl"
    )


def _job(session: Session, site: Site, site_name: str | None) -> Iterator[Check]:
    """Plan the smallest run, as `hpcflow run --dry-run` does."""
    from hpcflow.launch.connecting import reference
    from hpcflow.launch.login_check import check_on_login_node
    from hpcflow.launch.plan import make_plan
    from hpcflow.launch.run import rehearse

    settings, clock = session.settings, session.clock
    with temporary_folder() as folder:
        config = Path(folder, "trial.yaml")
        config.write_text(TRIAL)
        plan = make_plan(
            config,
            settings=settings,
            clock=clock,
            site=site,
            site_reference=reference(site, site_name or settings.site),
            chooser=session.chooser(site, site_name),
        )
        for message in check_on_login_node(plan, settings, clock):
            yield _check_of_warning("environment", message)
        yield from _mirror(session, plan)
        try:
            yield _scratch(session, plan)
        except HpcflowError as error:  # a submission would raise the same
            yield _failed("scratch", error)
            return
        messages = rehearse(plan, settings=settings, clock=clock)
    for message in messages:
        yield _check_of_warning("job", message)
    if not messages:
        where = f"partition {plan.run.partition}"
        account = plan.placement.account
        what = f"accepted, {where}" + (f", account {account}" if account else "")
        yield Check("job", Level.OK, what)


def _scratch(session: Session, plan: Plan) -> Check:
    from hpcflow.launch.preflight import shortage
    from hpcflow.storage.disk_space import look
    from hpcflow.storage.rundir import require_room

    require_room(plan.run, session.settings.home, plan.trust)
    folder = Path(plan.run.run_dir).parents[1]
    short = shortage(plan.run, session.settings)
    if short is not None:
        return _check_of_warning("scratch", short)
    space = look(folder, session.settings.user)
    left = f", {format_bytes(space.left_bytes)} left" if space is not None else ""
    return Check("scratch", Level.OK, f"{folder}{left}")


def _mirror(session: Session, plan: Plan) -> Iterator[Check]:
    from hpcflow.mirror.stores import open_store

    mirror = plan.run.mirror
    if mirror is None:
        return
    try:
        store = open_store(mirror, clock=session.clock, patience_s=_PATIENCE_S)
        is_there = not store.lacks_root()
        if is_there:
            store.exists("hpcflow-doctor")
    except HpcflowError as error:  # training continues without a mirror
        yield _failed("mirror", error, Level.WARNING)
        return
    if is_there:
        yield Check("mirror", Level.OK, f"{mirror.url} answers")
    else:
        what = f"{mirror.url} does not exist: not mounted, or nothing was mirrored yet"
        yield Check("mirror", Level.WARNING, what, f"look: ls -ld {shell_word(mirror.url)}")


def _ledger() -> Iterator[Check]:
    with Session().ledger as ledger:  # SQLite binds a connection to its thread
        ledger.runs(limit=1)
        yield Check("ledger", Level.OK, f"{ledger.url} answers")


def _daemon(session: Session, site: Site | None) -> Iterator[Check]:
    from hpcflow.requeue.daemon.supervision import supervision, warning

    seen = supervision(session.settings, session.clock.now())
    if seen.is_alive and seen.lease is not None:
        what = f"process {seen.lease.pid} on {seen.lease.host} supervises your runs"
        yield Check("daemon", Level.OK, what)
    elif seen.has_rounds:
        yield Check("daemon", Level.OK, "cron or Slurm's crontab starts the rounds of the daemon")
    else:
        is_needed = site is None or any(each.preemptible for each in site.partitions.values())
        level = Level.ERROR if is_needed else Level.WARNING
        yield _check_of_warning("daemon", warning(session.settings), level)


def _ways(session: Session) -> Iterator[Check]:
    from hpcflow.requeue.install.ways import allowed_ways

    try:
        allowed = ", ".join(f"--{name}" for name in allowed_ways(session.settings))
    except HpcflowError as error:
        yield _failed("daemon install", error, Level.WARNING)
        return
    yield Check("daemon install", Level.OK, f"allowed here: {allowed}")


def _check_of_warning(name: str, message: str, level: Level = Level.WARNING) -> Check:
    """Return a check from a warning, whose next action follows an arrow."""
    what, _, action = message.partition(" → ")
    return Check(name, level, what, action or "see: hpcflow run CONFIG --dry-run")
