"""States and causes, in separate columns.

A *state* says where something stands, a *cause* why an attempt ended. Slurm's own word, the *raw
state*, is stored unchanged beside them. Slurm's words are listed only here; the source is
``slurm.h`` (``enum job_states`` and the ``JOB_*`` flags) of Slurm 20.11 to 25.11.
"""

from __future__ import annotations

from enum import Enum
from typing import Final


class RunState(str, Enum):
    CREATED = "created"  # stored; nothing was submitted yet
    SUBMITTING = "submitting"  # an attempt is intended; whether its job exists is not known yet
    QUEUED = "queued"  # the attempt is pending
    RUNNING = "running"
    WAITING = "waiting"  # the last attempt ended, the run did not; `resume` continues it
    COMPLETED = "completed"
    FAILED = "failed"
    CANCELLED = "cancelled"

    @property
    def is_final(self) -> bool:
        """Return whether the state is final unless a person resumes the run."""
        return self in (RunState.COMPLETED, RunState.FAILED, RunState.CANCELLED)


class AttemptState(str, Enum):
    INTENDED = "intended"  # durable before sbatch
    QUEUED = "queued"
    RUNNING = "running"
    SUSPENDED = "suspended"
    COMPLETING = "completing"  # its processes are being cleaned up; not an end yet
    ENDED = "ended"
    WITHDRAWN = "withdrawn"  # searched everywhere: its job never existed and never will
    UNKNOWN = "unknown"  # Slurm's word is unknown to this version: wait and warn


class Cause(str, Enum):
    """Why an attempt ended."""

    COMPLETED = "completed"
    CHECKPOINTED = "checkpointed"  # it saved and exited with the exit code for "resubmit me"
    PREEMPTED = "preempted"
    TIMEOUT = "timeout"
    NODE_FAIL = "node_fail"
    OUT_OF_MEMORY = "out_of_memory"
    FAILED = "failed"
    CANCELLED = "cancelled"
    PRUNED = "pruned"  # cancelled by its sweep, whose pruner ended the trial
    STALLED = "stalled"
    LAUNCH_FAILED = "launch_failed"
    REQUEUED = "requeued"  # Slurm or an admin restarted its job under the same id: the next attempt
    VANISHED = "vanished"  # unknown to the queue and to accounting; it reported no end


#: The exit code of a job for "checkpointed, resubmit me": EX_TEMPFAIL of sysexits.h.
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

#: Slurm's words for a job that ended with an error and is held until a user releases it: it was
#: submitted with ``--requeue=expedite``, or the site's ``RequeueExitHold`` lists its exit code.
HELD_FOR_ITS_EXIT: Final = frozenset({"REQUEUE_HOLD", "SPECIAL_EXIT"})

#: hpcflow's own state for a job that neither the queue nor accounting knows.
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
    # Accounting's words for the part of a job before Slurm restarted it.
    "REQUEUED": Cause.REQUEUED,
    "REQUEUE_HOLD": Cause.REQUEUED,
    "SPECIAL_EXIT": Cause.REQUEUED,
}


def normalize_raw_state(raw_state: str) -> str:
    """Return the bare word: ``CANCELLED`` for ``CANCELLED by 1000`` and ``CANCELLED+``."""
    words = raw_state.strip().upper().split()
    return words[0].rstrip("+") if words else ""


def attempt_state(raw_state: str) -> AttemptState:
    """Return the state for Slurm's word; UNKNOWN, which is not an end, for an unknown word."""
    return SLURM_STATES.get(normalize_raw_state(raw_state), AttemptState.UNKNOWN)


def cause_of_end(raw_state: str, exit_code: int | None) -> Cause:
    """Return why an attempt in a final raw state ended.

    Args:
        raw_state: Slurm's word; empty if neither queue nor accounting knows the job any more and
            only the exit code that the job itself reported is left.
        exit_code: of the batch script, which maps all exit codes in the run's
            ``resubmit_exit_codes`` to RESUBMIT_EXIT_CODE; None if unknown.
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
    """Return a run's state after its last attempt ended, until a person resumes it."""
    if cause is Cause.COMPLETED:
        return RunState.COMPLETED
    if cause in (Cause.CANCELLED, Cause.PRUNED):
        return RunState.CANCELLED
    if cause in (Cause.FAILED, Cause.OUT_OF_MEMORY, Cause.LAUNCH_FAILED):
        return RunState.FAILED
    return RunState.WAITING


#: How often accounting is queried for a bill; then the last answer is final.
BILL_TRIES: Final = 9
