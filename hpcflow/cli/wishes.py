"""What `hold` and `release` have in common: a wish in the journal of each run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session, warn

if TYPE_CHECKING:
    from hpcflow.model.journal import Held, Released
    from hpcflow.storage.layout import RunDir
    from hpcflow.storage.locks import SubmitLock


def write_wishes(
    runs: tuple[str, ...], record: type[Held] | type[Released], word: str, *, as_json: bool
) -> int:
    """Journal ``record`` for each of ``runs``, and say so."""
    from hpcflow.errors import InputError
    from hpcflow.launch.jobs import LOCK_WAIT_S, require_journal
    from hpcflow.model.journal import Held, Released
    from hpcflow.storage import journal
    from hpcflow.storage.locks import submit_lock
    from hpcflow.storage.unread import mark_unread

    session = Session()
    run_dirs = [session.run_dir(text) for text in runs]
    for run_dir in run_dirs:
        if record is Released:  # an end that nobody has seen yet is what is taken back
            session.refresh_run(run_dir)
        # Under the lock: a daemon that is sending it has sent it, and any other one hears of this.
        with submit_lock(run_dir, wait_s=LOCK_WAIT_S) as lock:
            known = session.known_attempts(run_dir)
            require_journal(run_dir, journal.read(run_dir), known_attempts=known)
            if record is Released and run_dir.cancel.exists():
                raise InputError(
                    f"run {run_dir.path.name} was cancelled",
                    next_action=f"send it again: hpcflow resume {run_dir.path.name}",
                )
            mark_unread(session.settings.home, run_dir)
            if record is Held:
                _end_standby(session, run_dir, lock)
            journal.append(run_dir, record(at=session.clock.now(), by=session.settings.user))
        if not as_json:
            click.echo(f"{run_dir.path.name}: {word}")
    if as_json:
        print_json([{"run_id": run_dir.path.name, "wish": word} for run_dir in run_dirs])
    for run_dir in run_dirs:
        session.catch_up(run_dir)
    return 0


def _end_standby(session: Session, run_dir: RunDir, lock: SubmitLock) -> None:
    """A run that is held shall not go on by itself; the caller holds its lock.

    First of all the standby is kept from ever executing anything. Its job is cancelled if Slurm can
    be asked: otherwise a daemon does that, or it leaves when it starts.
    """
    from hpcflow.errors import HpcflowError
    from hpcflow.launch.jobs import other_cluster
    from hpcflow.launch.standby import discard, give_up
    from hpcflow.launch.submission import last_attempt
    from hpcflow.storage import journal
    from hpcflow.storage.rundir import read_run

    last = last_attempt(journal.read(run_dir))
    if not last.has_standby or give_up(run_dir, last) is not None:
        return
    site = read_run(run_dir).site
    try:
        scheduler = session.scheduler(site)
        if not other_cluster(session.site(site), scheduler):
            why = "the run is held"
            discard(run_dir, scheduler=scheduler, clock=session.clock, lock=lock, why=why)
    except HpcflowError as error:
        warn(f"{run_dir.path.name}: {error.message}; its standby leaves when it starts")
