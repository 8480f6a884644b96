"""Let a job that Slurm has restarted start at once, without the wait that Slurm sets."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Final

from hpcflow.clock import from_text
from hpcflow.errors import HpcflowError, LedgerError, next_step
from hpcflow.ledger.rows import AttemptRow, Known
from hpcflow.model.journal import BeginLifted
from hpcflow.model.state import AttemptState
from hpcflow.model.units import format_duration
from hpcflow.projection import catch_up
from hpcflow.requeue.round_context import RoundContext
from hpcflow.requeue.run_errors import RunErrors
from hpcflow.schedulers.clusters import other_cluster
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.own_runs import OwnRuns

#: Slurm's reason of a job that is pending until its begin time.
REASON: Final = "BeginTime"

#: A wait too short for a call; and the tolerance of Slurm's times, which are in whole seconds.
_SOON: Final = timedelta(seconds=2)


@dataclass
class Lifted:
    """The result of lifting begin times.

    Attributes:
        jobs: run id -> job id, for each job that may start now.
        warnings: what Slurm refused.
    """

    jobs: dict[str, str] = field(default_factory=dict)
    warnings: list[str] = field(default_factory=list)


def lift_begin_times(context: RoundContext, own: OwnRuns, run_errors: RunErrors) -> Lifted:
    """Let jobs that Slurm has restarted start now. The next round repeats what was interrupted."""
    run_ids = context.ledger.waiting_for(REASON, user=context.settings.user)
    by_site: dict[str, list[tuple[AttemptRow, RunDir]]] = defaultdict(list)
    for each in context.ledger.known(run_ids).values():
        run_dir = own.dir_of(each.run.run_id, each.run.run_dir)
        if run_dir is None:
            continue
        with run_errors.of(each.run.run_id, each.run.site):
            attempt = to_be_lifted(each, context.clock.now())
            if attempt is not None:
                by_site[each.run.site].append((attempt, run_dir))
    lifted = Lifted()
    for site, waiting in by_site.items():
        if not context.may_act():
            break
        if context.queues.is_silent(site):
            continue
        try:
            _lift(context, site, waiting, lifted, run_errors)
        except LedgerError:
            raise
        except HpcflowError as error:
            lifted.warnings.append(f"{site}: {error.message}{next_step(error)}")
    return lifted


def _lift(
    context: RoundContext,
    site: str,
    waiting: Sequence[tuple[AttemptRow, RunDir]],
    lifted: Lifted,
    run_errors: RunErrors,
) -> None:
    scheduler = context.connect(site)
    if other_cluster(context.find_site(site), scheduler):
        return
    delay_s = scheduler.restart_delay_s()
    waiting = [each for each in waiting if _waits_s(each[0]) <= delay_s + _SOON.total_seconds()]
    refused = scheduler.start_now([row.job_id or "" for row, _ in waiting]) if waiting else {}
    for row, run_dir in waiting:
        if not context.may_act():
            break  # scontrol may have taken long; another process repeats the rest
        job_id = row.job_id or ""
        why = refused.get(job_id)
        with run_errors.of(row.run_id, site):
            now = context.clock.now()
            record = BeginLifted(at=now, attempt=row.attempt, job_id=job_id, refused=why)
            journal.append(run_dir, record)
        if why is None:
            lifted.jobs[row.run_id] = job_id
        else:
            lifted.warnings.append(
                f"{row.run_id}: job {job_id} was restarted and starts after "
                f"{format_duration(_waits_s(row))}: Slurm refused an earlier begin time: {why}"
            )
    catch_up(context.ledger, [run_dir for _, run_dir in waiting])


def to_be_lifted(known: Known, now: datetime) -> AttemptRow | None:
    """Return the attempt whose job was restarted and waits for its begin time, once. Pure.

    A job that was not restarted waits for the time that its owner chose.
    """
    last = max(known.attempts, key=lambda row: row.attempt, default=None)
    if last is None or last.state != AttemptState.QUEUED.value or last.job_id is None:
        return None
    records = last.journal
    observed = records.get("observed", {})
    if not records.get("intended", {}).get("restarts") or "begin_lifted" in records:
        return None
    if observed.get("reason") != REASON or "begins_at" not in observed:
        return None
    return last if from_text(observed["begins_at"]) - now > _SOON else None


def _waits_s(row: AttemptRow) -> float:
    """Return how long a restarted job has to wait; longer than Slurm's delay if a user moved it."""
    begins_at = from_text(row.journal["observed"]["begins_at"])
    return (begins_at - (row.submitted_at or begins_at)).total_seconds()
