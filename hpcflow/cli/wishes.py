"""What `hold` and `release` have in common: a wish in the journal of each run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session

if TYPE_CHECKING:
    from hpcflow.model.journal import Held, Released


def write_wishes(
    runs: tuple[str, ...], record: type[Held] | type[Released], word: str, *, as_json: bool
) -> int:
    """Journal ``record`` for each of ``runs``, and say so."""
    from hpcflow.errors import InputError
    from hpcflow.launch.jobs import LOCK_WAIT_S, require_journal
    from hpcflow.model.journal import Released
    from hpcflow.storage import journal
    from hpcflow.storage.locks import submit_lock
    from hpcflow.storage.unread import mark_unread

    session = Session()
    run_dirs = [session.run_dir(text) for text in runs]
    for run_dir in run_dirs:
        if record is Released:  # an end that nobody has seen yet is what is taken back
            session.refresh_run(run_dir)
        # Under the lock: a daemon that is sending it has sent it, and any other one hears of this.
        with submit_lock(run_dir, wait_s=LOCK_WAIT_S):
            known = session.known_attempts(run_dir)
            require_journal(run_dir, journal.read(run_dir), known_attempts=known)
            if record is Released and run_dir.cancel.exists():
                raise InputError(
                    f"run {run_dir.path.name} was cancelled",
                    next_action=f"send it again: hpcflow resume {run_dir.path.name}",
                )
            mark_unread(session.settings.home, run_dir)
            journal.append(run_dir, record(at=session.clock.now(), by=session.settings.user))
        if not as_json:
            click.echo(f"{run_dir.path.name}: {word}")
    if as_json:
        print_json([{"run_id": run_dir.path.name, "wish": word} for run_dir in run_dirs])
    for run_dir in run_dirs:
        session.catch_up(run_dir)
    return 0
