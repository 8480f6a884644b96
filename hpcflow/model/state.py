"""States and causes: two columns, never one.

A *state* says where something stands, a *cause* why an attempt ended. Slurm's own word, the *raw
state*, is stored beside them as it came. The table of Slurm's words is here and nowhere else; its
source is ``slurm.h`` (``enum job_states`` and the ``JOB_*`` flags) of Slurm 20.11 to 25.11.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class RunState(str, Enum):
    """Where a run stands."""

    CREATED = "created"  # kept, nothing was sent yet
    SUBMITTING = "submitting"  # an attempt is intended, whether its job exists is not known yet
    QUEUED = "queued"  # the attempt waits in the queue
    RUNNING = "running"
    WAITING = "waiting"  # the last attempt ended without an end of the run; `resume` goes on
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Whether nothing will change any more unless somebody asks for it."""
        return self in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)


class AttemptState(str, Enum):
    """Where an attempt, one Slurm job, stands."""

    INTENDED = "intended"  # durable before sbatch
    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"  # its processes are being cleared away; not an end yet
    ENDED = "ended"
    WITHDRAWN = "withdrawn"  # looked for everywhere: its job never existed and never will
    UNKNOWN = "unknown"  # Slurm used a word that this version does not know: wait and warn


class Cause(str, Enum):
    """Why an attempt ended."""

    COMPLETED = "completed"
    CHECKPOINTED = "checkpointed"  # it saved and left with the exit code for "send me again"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PRUNED = "pruned"  # cancelled by its sweep, whose pruner gave the trial up
    STALLED = "stalled"
    LAUNCH_FAILED = "launch_failed"
    REQUEUED = "requeued"  # Slurm or an admin restarted its job under the same id: the next attempt
    VANISHED = "vanished"  # neither the queue nor accounting knows it, and it left no word


#: The exit code of a job that says "checkpointed, send me again": EX_TEMPFAIL of sysexits.h.
RESUBMIT_EXIT_CODE: Final = 75
#: The exit code of a job that does not trust its run directory and executes nothing: EX_NOPERM.
UNTRUSTED_EXIT_CODE: Final = 77

_Q, _R, _S, _C, _E = (
    AttemptState.QUEUED,
    AttemptState.RUNNING,
    AttemptState.SUSPENDED,
    AttemptState.COMPLETING,
    AttemptState.ENDED,
)

#: Slurm's word -> state.
SLURM_STATES: Final[dict[str, AttemptState]] = {
    "PENDING": _Q,
    "CONFIGURING": _Q,
    "REQUEUED": _Q,
    "REQUEUE_FED": _Q,
    "REQUEUE_HOLD": _Q,
    "SPECIAL_EXIT": _Q,
    "RESV_DEL_HOLD": _Q,
    "POWER_UP_NODE": _Q,
    "EXPEDITING": _Q,
    "RUNNING": _R,
    "RESIZING": _R,
    "SIGNALING": _R,
    "STAGE_OUT": _C,
    "UPDATE_DB": _C,
    "COMPLETING": _C,
    "SUSPENDED": _S,
    "STOPPED": _S,
    "COMPLETED": _E,
    "CANCELLED": _E,
    "FAILED": _E,
    "TIMEOUT": _E,
    "DEADLINE": _E,
    "NODE_FAIL": _E,
    "BOOT_FAIL": _E,
    "LAUNCH_FAILED": _E,
    "RECONFIG_FAIL": _E,
    "PREEMPTED": _E,
    "OUT_OF_MEMORY": _E,
    "REVOKED": _E,
}

#: Slurm's words for a job that it holds since it ended with an error, to be released by a user: it
#: was sent with ``--requeue=expedite``, or the site's ``RequeueExitHold`` names its exit code.
HELD_FOR_ITS_EXIT: Final = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"})

#: The state, not one of Slurm's, of a job that neither the queue nor accounting knows.
MISSING: Final = "MISSING"

_RAW_CAUSES: Final[dict[str, Cause]] = {
    "COMPLETED": Cause.COMPLETED,
    "CANCELLED": Cause.CANCELLED,
    "REVOKED": Cause.CANCELLED,
    "FAILED": Cause.FAILED,
    "TIMEOUT": Cause.TIMEOUT,
    "DEADLINE": Cause.TIMEOUT,
    "NODE_FAIL": Cause.NODE_FAIL,
    "BOOT_FAIL": Cause.NODE_FAIL,
    "LAUNCH_FAILED": Cause.LAUNCH_FAILED,
    "RECONFIG_FAIL": Cause.LAUNCH_FAILED,
    "PREEMPTED": Cause.PREEMPTED,
    "OUT_OF_MEMORY": Cause.OUT_OF_MEMORY,
    # Accounting's words for what a job was before Slurm restarted it.
    "REQUEUED": Cause.REQUEUED,
    "REQUEUE_HOLD": Cause.REQUEUED,
    "SPECIAL_EXIT": Cause.REQUEUED,
}


def normalize_raw_state(raw_state: str) -> str:
    """The bare word: ``CANCELLED by 1000`` and ``CANCELLED+`` are both ``CANCELLED``."""
    words = raw_state.strip().upper().split()
    return words[0].rstrip("+") if words else ""


def attempt_state(raw_state: str) -> AttemptState:
    """The state that Slurm's word stands for; a word that nobody knows is UNKNOWN, not an end."""
    return SLURM_STATES.get(normalize_raw_state(raw_state), AttemptState.UNKNOWN)


def cause_of_end(raw_state: str, exit_code: int | None) -> Cause:
    """Why an attempt whose raw state is an end has ended.

    Args:
        raw_state: Slurm's word; empty when neither queue nor accounting knows the job any more and
            only the exit code that the job itself reported is left.
        exit_code: of the batch script, which makes RESUBMIT_EXIT_CODE of all those with which the
            run's program says "send me again"; None when nobody knows it.
    """
    word = normalize_raw_state(raw_state)
    if word in HELD_FOR_ITS_EXIT and exit_code:
        word = "FAILED"
    if word in ("FAILED", "") and exit_code == RESUBMIT_EXIT_CODE:
        return Cause.CHECKPOINTED
    if word:
        return _RAW_CAUSES.get(word, Cause.FAILED)
    if exit_code is None:
        return Cause.VANISHED
    return Cause.COMPLETED if exit_code == 0 else Cause.FAILED


def run_state_after(cause: Cause) -> RunState:
    """Where the run stands once its last attempt has ended for ``cause``, until someone resumes."""
    if cause is Cause.COMPLETED:
        return RunState.COMPLETED
    if cause in (Cause.CANCELLED, Cause.PRUNED):
        return RunState.CANCELLED
    if cause in (Cause.FAILED, Cause.OUT_OF_MEMORY, Cause.LAUNCH_FAILED):
        return RunState.FAILED
    return RunState.WAITING


#: How often accounting is asked for a bill; then the last one stands.
BILL_TRIES: Final = 9
