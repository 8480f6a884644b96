"""Follow a job that Slurm restarts under its own id: each restart begins another attempt.

hpcflow submits with ``--no-requeue``, but an admin, a plugin of the site or the owner can restart a
job all the same. Its script then continues as the attempt whose number is higher by the number of
restarts (templates/parts/claim.j2), unless that attempt was submitted or claimed by another job.
The login side computes the same numbers here, and journals them. If it misses a restart, the claim
decides.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Final

from hpcflow.clock import Clock
from hpcflow.history import LastAttempt
from hpcflow.launch.submission import read_claim
from hpcflow.model.ids import parse_job_name
from hpcflow.model.journal import Ended, JournalRecord, Submitted
from hpcflow.model.state import AttemptState, Cause
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir

#: A higher count is an error, and each restart costs work. templates/parts/names.j2 has the same
#: number; after more restarts, a job continues by its claims.
MAX_RESTARTS: Final = 1000


def restarts_of(job: JobInfo) -> int:
    """Return how often a job was restarted, at most :data:`MAX_RESTARTS`."""
    return min(job.restarts or 0, MAX_RESTARTS)


def follow(
    last: LastAttempt, ends: Iterable[Sequence[JournalRecord]], now: datetime
) -> list[JournalRecord]:
    """Return the records to journal when the job of ``last`` was restarted after each of ``ends``.

    Args:
        last: the newest attempt of the journal; it has a job.
        ends: the records of the end of ``last``, and of the attempts after it, oldest first; none
            for an end that the journal has.
    """
    assert last.job_id is not None
    records: list[JournalRecord] = []
    for more, end in enumerate(ends, start=1):
        records += end
        records += _begun(last, last.number + more, last.job_id, last.restarts + more, now)
    return records


def is_free(run_dir: RunDir, number: int, job_id: str) -> bool:
    """Return whether attempt ``number`` is free for a restart of ``job_id``, or claimed by it."""
    attempt = run_dir.attempt(number)
    holder = read_claim(run_dir, number)
    if holder is not None or attempt.claim.exists():  # a sealed claim has no holder
        return holder == job_id
    return not attempt.script.exists()


def claims_after(run_dir: RunDir, number: int, job_id: str) -> int:
    count = 0
    while read_claim(run_dir, number + count + 1) == job_id:
        count += 1
    return count


def adopt_restarted(journal: Journal, queue: Sequence[JobInfo], clock: Clock) -> Submitted | None:
    """Make the restarted job of an ended attempt the next attempt; journaled.

    The caller holds the run's submit lock.

    Returns:
        None if there is no such job; or the run is completed or cancelled, or the next attempt has
        another job: then the restarted job exits by itself.
    """
    run_dir, history = journal.run_dir, journal.history
    last = history.last
    if last.cause in (None, Cause.COMPLETED) or history.is_cancelled or last.job_id is None:
        return None
    restarts = max(
        (
            restarts_of(job)
            for job in queue
            if job.job_id == last.job_id
            and job.state is not AttemptState.ENDED
            and _is_of_run(job, run_dir)
        ),
        default=0,
    )
    if restarts <= last.restarts or not is_free(run_dir, last.number + 1, last.job_id):
        return None
    now = clock.now()
    ended = [
        Ended(
            at=now,
            attempt=last.number + more,
            cause=Cause.REQUEUED,
            raw_state="REQUEUED",
            rule=f"job {last.job_id} was restarted again before hpcflow saw it",
        )
        for more in range(1, restarts - last.restarts)
    ]
    return _append(journal, follow(last, [(), *((each,) for each in ended)], now))


def adopt_claimed(journal: Journal, clock: Clock) -> Submitted | None:
    """Journal the job that has claimed the next attempt as its job; None if there is none.

    It is a restarted job of an earlier attempt, which may have ended again. The caller holds the
    run's submit lock.
    """
    last = journal.history.last
    number = last.next_number
    holder = read_claim(journal.run_dir, number)
    if holder is None or last.intent is None:
        return None
    return _append(journal, _begun(last, number, holder, last.restarts + 1, clock.now()))


def _begun(
    last: LastAttempt, number: int, job_id: str, restarts: int, now: datetime
) -> list[JournalRecord]:
    """Return the records of an attempt begun by a restart; the job keeps its name and request."""
    assert last.intent is not None
    intent = last.intent.model_copy(
        update={
            "at": now,
            "attempt": number,
            "host": socket.gethostname(),
            "resume_from": None,
            "restarts": restarts,
        }
    )
    submitted = Submitted(
        at=now, attempt=number, job_id=job_id, cluster=intent.cluster, how="restarted"
    )
    return [intent, submitted]


def _append(journal: Journal, records: list[JournalRecord]) -> Submitted:
    """Append ``records``; return the submission of the newest attempt."""
    journal.append(*records)
    history = journal.history
    return history.attempt(history.last.number).submissions[-1]


def _is_of_run(job: JobInfo, run_dir: RunDir) -> bool:
    """Return whether a job may be of the run: ids are reused, but a user may have renamed it."""
    named = parse_job_name(job.job_name.strip())
    return named is None or named[0] == run_dir.path.name
