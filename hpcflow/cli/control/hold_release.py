"""`hold` and `release`: append a request to the journal of each run."""

from __future__ import annotations

from typing import TYPE_CHECKING, TypedDict

from hpcflow.cli.output import ErrorJson, error_json, exit_code_of, print_error, print_json
from hpcflow.cli.session import Session, warn
from hpcflow.errors import HpcflowError, InputError, StorageError
from hpcflow.storage.runs import is_gone, is_purged
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.history import RunHistory
    from hpcflow.model.journal import Held, Released
    from hpcflow.storage.journal import Journal
    from hpcflow.storage.layout import RunDir
    from hpcflow.storage.locks import HeldLock


class RequestedRun(TypedDict):
    """The result for one run; `run_id` is the typed text if there is no such run."""

    run_id: str
    request: str | None
    error: ErrorJson | None


class Requested(TypedDict):
    """The result for each run."""

    runs: list[RequestedRun]


def append_requests(
    runs: tuple[str, ...], record: type[Held] | type[Released], word: str, *, as_json: bool
) -> int:
    """Append a ``record`` to the journal of each run; an error with one does not affect others."""
    session = Session()
    run_dirs: list[RunDir] = []
    results: list[RequestedRun] = []
    codes: set[int] = set()
    for text in dict.fromkeys(runs):
        run_id = text
        try:
            run_dir = session.run_dir(text)
            run_id = run_dir.path.name
            _write(session, run_dir, record)
        except HpcflowError as error:
            codes.add(error.exit_code)
            results.append({"run_id": run_id, "request": None, "error": error_json(error)})
            if not as_json:
                print_error(error)
        else:
            codes.add(0)
            run_dirs.append(run_dir)
            results.append({"run_id": run_id, "request": word, "error": None})
            if not as_json:
                echo(f"{run_id}: {word}")
    if as_json:
        print_json(Requested(runs=results))
    for run_dir in run_dirs:
        session.catch_up(run_dir)
    return exit_code_of(codes)


def _write(session: Session, run_dir: RunDir, record: type[Held] | type[Released]) -> None:
    from hpcflow.launch.jobs import require_journal
    from hpcflow.model.journal import Held, Released
    from hpcflow.storage.approval import approve
    from hpcflow.storage.dirty_marks import mark_dirty
    from hpcflow.storage.journal import Journal
    from hpcflow.storage.locks import LOCK_WAIT_S, submit_lock
    from hpcflow.storage.rundir import read_run, renew_params

    require_there(run_dir)
    if record is Released:  # it takes back an end that may not be in the journal yet
        session.refresh_run(run_dir)
    # Under the lock no daemon is submitting the run, and the next one sees this record.
    with submit_lock(run_dir, wait_s=LOCK_WAIT_S) as lock:
        journal = Journal(run_dir)
        require_journal(journal, known_attempts=session.known_attempts(run_dir))
        _require_effect(run_dir.path.name, journal.history, scancel_counts=record is Held)
        mark_dirty(session.settings.home, run_dir)
        if record is Held:
            _end_standby(session, journal, lock)
        else:  # the user has accepted what the run executes
            approve(run_dir)
            renew_params(run_dir, read_run(run_dir))
        journal.append(record(at=session.clock.now(), by=session.settings.user))


def require_there(run_dir: RunDir) -> None:
    """Raise StorageError if the run directory is gone, or its scratch is not mounted here."""
    run_id = run_dir.path.name
    if is_purged(run_dir):
        raise StorageError(
            f"the run directory of {run_id} is gone; hpcflow submits no job until it is restored",
            next_action=f"if it was mirrored: hpcflow restore {run_id}; to stop the run, and a job "
            f"of it that still runs: hpcflow cancel {run_id}; to train it again as a new run: "
            "hpcflow run CONFIG",
        )
    if is_gone(run_dir):
        raise StorageError(
            f"{run_dir.path.parents[1]} is missing, and so is the run directory of {run_id}",
            next_action="repeat the command where that scratch is mounted",
        )


def _require_effect(run_id: str, history: RunHistory, *, scancel_counts: bool) -> None:
    """Refuse what would change nothing.

    Args:
        scancel_counts: whether scancel by a user counts as a cancel; `release` takes it back.
    """
    if history.last.is_completed:
        raise InputError(
            f"run {run_id} is completed, and hpcflow submits no more jobs for it",
            next_action="train it again as a new run: hpcflow run CONFIG",
        )
    if history.is_cancelled or (scancel_counts and history.is_ended_by_hand):
        raise InputError(
            f"run {run_id} was cancelled, and hpcflow submits no more jobs for it",
            next_action=f"resubmit it: hpcflow resume {run_id}",
        )


def _end_standby(session: Session, journal: Journal, lock: HeldLock) -> None:
    """End the standby of a run that is held; the caller has its lock.

    First prevent the standby from executing anything. Then cancel its job if Slurm answers: else a
    daemon cancels it, or it exits when it starts.
    """
    from hpcflow.launch.standby import discard, give_up
    from hpcflow.schedulers.clusters import other_cluster
    from hpcflow.storage.rundir import read_run

    run_dir, last = journal.run_dir, journal.history.last
    if not last.has_standby or give_up(run_dir, last) is not None:
        return
    site = read_run(run_dir).site
    try:
        scheduler = session.scheduler(site)
        if not other_cluster(session.site(site), scheduler):
            why = "the run is held"
            discard(journal, scheduler=scheduler, clock=session.clock, lock=lock, why=why)
    except HpcflowError as error:
        warn(f"{run_dir.path.name}: {error.message}; its standby exits when it starts")
