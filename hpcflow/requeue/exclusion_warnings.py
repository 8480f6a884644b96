"""Warn about jobs that are pending because of the nodes that they exclude.

hpcflow decides at submission which nodes a job excludes. If other nodes go down while the job is
pending, only excluded ones may be left.
"""

from __future__ import annotations

from hpcflow.errors import shell_word
from hpcflow.ledger.rows import Known
from hpcflow.model.state import AttemptState
from hpcflow.requeue.round_context import RoundContext
from hpcflow.storage.own_runs import OwnRuns


def warn_of_exclusions(context: RoundContext, own: OwnRuns) -> list[str]:
    known = context.ledger.known(
        context.ledger.pending_for_nodes(user=context.settings.user)
    ).values()
    mine = (each for each in known if own.dir_of(each.run.run_id, each.run.run_dir) is not None)
    return [warning for each in mine if (warning := exclusion_warning(each)) is not None]


def exclusion_warning(known: Known) -> str | None:
    """Return the warning for a run that is pending for nodes; None if it excludes none. Pure.

    The text does not change while the job is pending, so that it is shown once.
    """
    last = max(known.attempts, key=lambda row: row.attempt, default=None)
    if last is None or last.state != AttemptState.QUEUED.value or last.job_id is None:
        return None
    excluded = last.journal.get("intended", {}).get("excluded")
    if not excluded:
        return None
    own = known.run.resources.get("exclude") or ""
    return (
        f"{last.run_id}: job {last.job_id} is pending for nodes that are unavailable, and excludes "
        f"{', '.join(excluded)}; to allow these nodes: scontrol update "
        f"jobid={shell_word(last.job_id)} ExcNodeList={shell_word(own) if own else ''}"
    ).rstrip()
