"""``hpcflow mirror``."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, TypedDict

import click

from hpcflow.cli.arguments import complete_run, json_option
from hpcflow.cli.columns import Column, print_table
from hpcflow.cli.output import ErrorJson, error_json, picked, print_error, print_json
from hpcflow.cli.session import Session, warn
from hpcflow.errors import HpcflowError, InputError, NotFoundError
from hpcflow.model.units import format_bytes, format_duration
from hpcflow.resources import doc_page
from hpcflow.storage.runs import is_gone, is_purged, list_runs
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.mirror.passes import Done, Report
    from hpcflow.mirror.status import Status
    from hpcflow.mirror.verify import Verified
    from hpcflow.storage.layout import RunDir


class RemovedCheckpoint(TypedDict):
    """A checkpoint that was removed from the store."""

    run_id: str
    train_step: int


class MirrorPass(TypedDict):
    """The results of one pass; the keys of `problems` are runs and stores."""

    mirrored: list[Done]
    small_files: int
    removed: list[RemovedCheckpoint]
    busy: list[str]
    problems: dict[str, ErrorJson]


class MirrorStatus(TypedDict):
    """How far the mirror of each run is behind."""

    runs: list[Status]


class VerifiedMirror(TypedDict):
    """The files of a run in the store; `why` is null if a checkpoint is as it was copied."""

    run_id: str
    checkpoints: list[Verified]
    lost_files: list[str]


_LEAST_URGENT: Final = 10
_BAR_CHARS: Final = 20


@click.group(
    "mirror",
    invoke_without_command=True,
    short_help="Copy checkpoints to the object store; show the progress.",
)
@click.option("--once", is_flag=True, help="Make one pass over all runs, then exit.")
@json_option(MirrorPass)
@click.pass_context
def command(ctx: click.Context, once: bool, as_json: bool) -> int:
    """Copy complete checkpoints and the runs' small files to the object store.

    The newest checkpoint of each run is copied first. `mirror` in the site file, or in the run's
    config, names the store. The daemon copies by itself; --once is for cron, and to copy now. The
    exit code is 1 if something could not be copied.
    """
    if ctx.invoked_subcommand is not None:
        if once:
            raise InputError(
                f"--once before `{ctx.invoked_subcommand}` has no effect",
                next_action=f"hpcflow mirror {ctx.invoked_subcommand} --help",
            )
        return 0
    if not once:
        raise InputError(
            "give --once or a command",
            next_action="copy what is due: hpcflow mirror --once; see the progress: hpcflow "
            "mirror status",
        )
    from hpcflow.mirror.passes import Pass
    from hpcflow.mirror.stores import Stores

    session = Session()
    with _ends_with_daemon(session), Stores(session.clock) as stores:
        home = session.settings.home
        say = partial(_print_done, as_json=as_json)
        skipped: set[str] = set()
        report = Pass(home, session.clock, stores, on_done=say).run(
            lambda: list_runs(home, skipped.add)
        )
    for text in sorted(skipped):
        warn(text)
    _print_report(report, as_json=as_json)
    return 1 if report.problems else 0


@command.command("status")
@click.argument("run", required=False, shell_complete=complete_run)
@json_option(MirrorStatus)
def status_command(run: str | None, as_json: bool) -> int:
    """Show how far the mirror of RUN, or of every run, is behind.

    It reads the run directories, not the ledger or the store. The exit code is 1 if it cannot
    read one of them.
    """
    from hpcflow.mirror.status import status_of, unknown_status
    from hpcflow.mirror.store_memory import read_problems

    session = Session()
    problems = read_problems(session.settings.home)
    found, exit_code = [], 0
    for run_dir in _runs(session, run):
        status: Status | None
        try:
            status = status_of(run_dir, session.clock.now(), problems)
        except HpcflowError as error:
            print_error(error)
            status, exit_code = unknown_status(run_dir, error.message), 1
        if status is not None:
            found.append(status)
    if as_json:
        print_json(MirrorStatus(runs=found))
    elif not found:
        echo(f"{run} is not mirrored" if run else f"no run is mirrored; see {doc_page('mirror')}")
    else:
        _print_status(found)
    return exit_code


@command.command("verify")
@click.argument("run", shell_complete=complete_run)
@click.option("--read", is_flag=True, help="Fetch every file and compute its checksum.")
@json_option(VerifiedMirror)
def verify_command(run: str, read: bool, as_json: bool) -> int:
    """Check that the store still has the files of RUN as they were copied.

    It compares the sizes and the stored checksums with the manifests; for small files, the sizes
    with those that were copied. The next pass copies a missing or changed file again, if the run
    directory still has it. The exit code is 1 if a file is missing or changed.
    """
    from hpcflow.mirror.verify import verify_mirror, verify_small_files

    session = Session()
    run_dir = _require_there(session.run_dir(run))
    results = verify_mirror(session.settings.home, run_dir, clock=session.clock, reads=read)
    lost = verify_small_files(run_dir, clock=session.clock)
    if not results and not as_json:
        echo(f"{run_dir.path.name}: the store has no checkpoint of this run")
    if as_json:
        run_id = run_dir.path.name
        print_json(VerifiedMirror(run_id=run_id, checkpoints=results, lost_files=lost))
    else:
        for each in results:
            state = "unchanged" if each.why is None else f"changed or missing: {each.why}"
            echo(f"train step {each.train_step}: {state}")
        for name in lost:
            echo(f"{name}: changed or missing")
    return 0 if not lost and all(each.why is None for each in results) else 1


def _runs(session: Session, run: str | None) -> list[RunDir]:
    if run is None:
        return [each for each in list_runs(session.settings.home, warn) if not is_gone(each)]
    return [_require_there(session.run_dir(run, newest=True))]


def _require_there(run_dir: RunDir) -> RunDir:
    """Return ``run_dir``; refuse it if it is gone, because it records what was mirrored."""
    if not is_gone(run_dir):
        return run_dir
    run_id = run_dir.path.name
    if is_purged(run_dir):
        raise NotFoundError(
            f"the run directory of {run_id} is gone: it was purged",
            next_action=f"restore it from its mirror: hpcflow restore {run_id}",
        )
    raise NotFoundError(
        f"the run directory of {run_id} is missing, because its scratch is not mounted here",
        next_action="repeat the command where that scratch is mounted; if scratch is lost: "
        f"hpcflow restore {run_id}",
    )


def _print_done(done: Done, *, as_json: bool) -> None:
    if as_json:
        return
    rate = format_bytes(round(done.size_bytes / max(done.took_s, 1e-3)))
    echo(
        f"{done.run_id}  train step {done.train_step}: {format_bytes(done.size_bytes)} mirrored "
        f"in {format_duration(done.took_s)} ({rate}/s)"
    )


def _print_report(report: Report, *, as_json: bool) -> None:
    if as_json:
        output = picked(
            MirrorPass,
            report,
            removed=[
                RemovedCheckpoint(run_id=run, train_step=step) for run, step in report.removed
            ],
            busy=sorted(report.busy),
            problems={what: error_json(why) for what, why in report.problems.items()},
        )
        print_json(output)
    else:
        for run_id, step in report.removed:
            echo(f"{run_id}  train step {step}: removed from the store, by its retention rule")
    for what, error in sorted(report.problems.items()):
        echo(f"{what}: ", nl=False, err=True)
        print_error(error)


def _print_status(found: list[Status]) -> None:
    columns = (
        *Column.plain("RUN"),
        *Column.numbers("NEWEST 2, MIRRORED 3, BEHIND, TO GO 1"),
        *Column.plain("DONE 4"),
        *Column.texts("WHY"),
    )
    rows = [
        [
            each.run_id,
            "" if each.newest is None else str(each.newest),
            "" if each.mirrored is None else str(each.mirrored),
            format_duration(each.lag_s) if each.lag_s else "",
            format_bytes(each.to_go_bytes) if each.to_go_bytes else "",
            _bar(each),
            each.problem or ("" if each.sending is None else "being sent"),
        ]
        for each in found
    ]
    print_table(columns, rows)


def _bar(status: Status) -> str:
    if not status.size_bytes:
        return "100 %"
    done = status.size_bytes - status.to_go_bytes
    full = _BAR_CHARS * done // status.size_bytes
    bar = "━" * full + "┄" * (_BAR_CHARS - full)
    return f"{bar} {100 * done // status.size_bytes} %"


@contextmanager
def _ends_with_daemon(session: Session) -> Iterator[None]:
    """If a daemon started this process, end with it at once: a pass may stop anywhere."""
    from hpcflow.requeue.mirroring import OF_DAEMON

    text = session.settings.environ.get(OF_DAEMON, "")

    def watch() -> None:
        while os.getppid() == int(text):
            time.sleep(1)
        os._exit(1)

    if text.isdecimal():
        os.nice(_LEAST_URGENT)
        threading.Thread(target=watch, daemon=True).start()
    yield
