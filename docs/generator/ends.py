"""The causes of ends by example: raw state, exit code and what else is known -> cause.

docs/states.md shows these rows, and the tests compare them with
:func:`hpcflow.reconcile.classify_end.classify`. For a job that was restarted under its own id see
:mod:`hpcflow.reconcile.restarts`.
"""

from __future__ import annotations

from dataclasses import dataclass
from datetime import timedelta
from typing import Final, Literal

from hpcflow.model.state import Cause

_JUST_NOW: Final = timedelta(seconds=5)


@dataclass(frozen=True)
class End:
    """A row.

    Attributes:
        raw_state: Slurm's state; None if neither the queue nor accounting knows the job any more.
        exit_code: of the batch script by Slurm, or as the job recorded it if Slurm has forgotten
            the job; None if unknown.
        told: what else is known, for people.
        preempted: how long before its end Slurm preempted the job.
        first_notice: signal of the first notice that the job reported.
        stall: the daemon's last act about a stall.
        has_finished: its program reported that it finished.
        own_word: exit code that its script recorded.
        cancel_requested: `hpcflow cancel` was requested.
        launch_failed: its node could not start the script.
        memory_when_killed: what it used when killed, if that was nearly all of its memory.
    """

    raw_state: str | None
    exit_code: int | None
    cause: Cause
    told: str = ""
    preempted: timedelta | None = None
    first_notice: Literal["TERM", "USR2"] | None = None
    stall: Literal["notice", "cancel", "withdraw"] | None = None
    has_finished: bool = False
    own_word: int | None = None
    cancel_requested: bool = False
    launch_failed: bool = False
    memory_when_killed: str | None = None


def _preempted(raw_state: str, exit_code: int | None, cause: Cause) -> End:
    told = "squeue showed that it was being preempted"
    return End(raw_state, exit_code, cause, told, preempted=_JUST_NOW)


def _done(raw_state: str) -> End:
    told = "its program had reported that it finished, and its script exited with 0"
    return End(raw_state, 0, Cause.COMPLETED, told, has_finished=True, own_word=0)


def _noticed(raw_state: str, exit_code: int | None, cause: Cause) -> End:
    told = "it had stalled, and got the notice"
    return End(raw_state, exit_code, cause, told, stall="notice")


def _ended_by_us(raw_state: str, exit_code: int | None, cause: Cause) -> End:
    told = "it had stalled, and the daemon cancelled it"
    return End(raw_state, exit_code, cause, told, stall="cancel")


def _cancelled(raw_state: str, exit_code: int | None, cause: Cause) -> End:
    return End(raw_state, exit_code, cause, "`hpcflow cancel` was requested", cancel_requested=True)


ENDS: Final[tuple[End, ...]] = (
    End("COMPLETED", 0, Cause.COMPLETED),
    End("FAILED", 1, Cause.FAILED),
    End("FAILED", 75, Cause.CHECKPOINTED),
    End("PREEMPTED", 75, Cause.PREEMPTED),
    End("PREEMPTED", None, Cause.PREEMPTED),
    End("TIMEOUT", 0, Cause.TIMEOUT),
    End("DEADLINE", 0, Cause.TIMEOUT),
    End("NODE_FAIL", 0, Cause.NODE_FAIL),
    End("BOOT_FAIL", None, Cause.NODE_FAIL),
    End("OUT_OF_MEMORY", 125, Cause.OUT_OF_MEMORY),
    *(
        End(
            "FAILED",
            exit_code,
            Cause.OUT_OF_MEMORY,
            "it was killed with signal 9, and had used 90 % of its memory or more",
            memory_when_killed="killed when it used 190 of 200 MB",
        )
        for exit_code in (None, 137)
    ),
    End("FAILED", 137, Cause.FAILED, "it was killed with signal 9, and had used less"),
    End("LAUNCH_FAILED", None, Cause.LAUNCH_FAILED),
    End("RECONFIG_FAIL", None, Cause.LAUNCH_FAILED),
    End("CANCELLED by 1000", 0, Cause.CANCELLED),
    End("CANCELLED+", 0, Cause.CANCELLED),
    End("REVOKED", None, Cause.CANCELLED),
    End(
        "CANCELLED",
        None,
        Cause.LAUNCH_FAILED,
        "squeue counts a restart that did not happen, and the script wrote nothing",
        launch_failed=True,
    ),
    End(
        "CANCELLED by 0",
        None,
        Cause.LAUNCH_FAILED,
        "the job had nodes, its script wrote nothing, and hpcflow does not run as root",
        launch_failed=True,
    ),
    _preempted("FAILED", 1, Cause.PREEMPTED),
    _preempted("FAILED", None, Cause.PREEMPTED),
    _preempted("FAILED", 75, Cause.PREEMPTED),
    _preempted("TIMEOUT", 0, Cause.PREEMPTED),
    _preempted("COMPLETED", 0, Cause.COMPLETED),
    _preempted("CANCELLED", None, Cause.CANCELLED),
    _preempted("OUT_OF_MEMORY", 125, Cause.OUT_OF_MEMORY),
    End(
        "FAILED",
        1,
        Cause.FAILED,
        "squeue showed a preemption two hours before, which Slurm called off",
        preempted=timedelta(hours=2),
    ),
    End(
        "FAILED",
        75,
        Cause.PREEMPTED,
        "its first notice was a TERM that hpcflow did not send",
        first_notice="TERM",
    ),
    _done("TIMEOUT"),
    _done("PREEMPTED"),
    End("FAILED", 75, Cause.CHECKPOINTED, "its first notice was hpcflow's", first_notice="USR2"),
    _noticed("FAILED", 75, Cause.STALLED),
    _noticed("FAILED", 1, Cause.FAILED),
    _noticed("CANCELLED by 1000", None, Cause.CANCELLED),
    End(
        "FAILED",
        75,
        Cause.PREEMPTED,
        "it had stalled, and got the notice, but TERM came first",
        first_notice="TERM",
        stall="notice",
    ),
    _ended_by_us("CANCELLED by 1000", None, Cause.STALLED),
    _ended_by_us("FAILED", 143, Cause.STALLED),
    _ended_by_us("COMPLETED", 0, Cause.COMPLETED),
    _ended_by_us("PREEMPTED", None, Cause.PREEMPTED),
    _ended_by_us("NODE_FAIL", None, Cause.NODE_FAIL),
    End(
        "FAILED",
        75,
        Cause.STALLED,
        "it had stalled, and the daemon cancelled it; it exited on that TERM",
        first_notice="TERM",
        stall="cancel",
    ),
    End(
        "CANCELLED by 1000",
        None,
        Cause.COMPLETED,
        "it had stalled, and the daemon cancelled it; but it had reported that it finished",
        stall="cancel",
        has_finished=True,
    ),
    End(
        "FAILED",
        75,
        Cause.CHECKPOINTED,
        "it had stalled, and the notice or cancel was withdrawn",
        stall="withdraw",
    ),
    End(
        "CANCELLED by 1000",
        None,
        Cause.CANCELLED,
        "it had stalled, and the notice or cancel was withdrawn",
        stall="withdraw",
    ),
    _cancelled("FAILED", 143, Cause.CANCELLED),
    _cancelled("TIMEOUT", None, Cause.CANCELLED),
    _cancelled("PREEMPTED", None, Cause.CANCELLED),
    _cancelled("COMPLETED", 0, Cause.COMPLETED),
    End(None, 0, Cause.COMPLETED, "the job itself recorded this exit code"),
    End(None, 1, Cause.FAILED, "the job itself recorded this exit code"),
    End(None, 75, Cause.CHECKPOINTED, "the job itself recorded this exit code"),
    End(None, None, Cause.VANISHED, "the job recorded nothing, and three minutes have passed"),
)
