"""Jobs that wait for nodes while hpcflow keeps them away from some. Pure.

Which nodes a job keeps away from is decided when it is sent. Others may go down while it waits, and
then it would wait for those that it was not to get.
"""

from __future__ import annotations

import shlex

from hpcflow.ledger.rows import Known
from hpcflow.model.state import AttemptState


def kept_out(known: Known) -> str | None:
    """What to tell the owner of a run of which a job waits for nodes; None where it may have all.

    The words stay the same for as long as it waits, so that they are said once.
    """
    last = max(known.attempts, key=lambda row: row.attempt, default=None)
    if last is None or last.state != AttemptState.QUEUED.value or last.job_id is None:
        return None
    excluded = last.journal.get("intended", {}).get("excluded")
    if not excluded:
        return None
    own = known.run.resources.get("exclude") or ""
    return (
        f"{last.run_id}: job {last.job_id} waits for nodes that are not there, and is kept away "
        f"from {', '.join(excluded)}; to let it have these, too: scontrol update "
        f"jobid={shlex.quote(last.job_id)} ExcNodeList={shlex.quote(own) if own else ''}"
    ).rstrip()
