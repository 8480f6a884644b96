"""How often a run is sent again: a section of a run's YAML.

The whole of it is in :mod:`hpcflow.model.spec`; what becomes of it, in
:mod:`hpcflow.requeue.policy`.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hpcflow.model.kinds import Count, IntervalOrNever, Kind, Seconds, Section
from hpcflow.model.state import RESUBMIT_EXIT_CODE

Budget = Annotated[int, Field(strict=True, ge=0, le=10_000), Kind("whole number from 0")]


class Retry(Section):
    """How often, and how soon, the requeue daemon sends a run again, by the cause of its end.

    What was used up is counted from the last time that a person said `hpcflow resume` or
    `hpcflow release`.
    """

    resubmit_exit_codes: list[
        Annotated[int, Field(strict=True, ge=1, le=255), Kind("whole number from 1 to 255")]
    ] = Field(
        default=[RESUBMIT_EXIT_CODE],
        description='Exit codes of the command that mean "checkpointed, send me again".',
        examples=[[75, 85]],
    )
    preemptions: Budget | None = Field(
        None,
        description="Times that a run is sent again after a preemption; any number if absent.",
        examples=[20],
    )
    timeouts: Budget | None = Field(
        None,
        description="Times after the time limit, or after it left by itself with a checkpoint; any "
        "number if absent.",
        examples=[100],
    )
    node_failures: Budget = Field(
        10,
        description="Times after a node failed, the launch failed, or the job vanished without a "
        "word.",
        examples=[3],
    )
    failures: Budget = Field(
        3,
        description="Times after the program failed. hpcflow does not resubmit a program that "
        "crashes twice in a row, each time within two minutes and before its first train step, "
        "with the same last lines.",
        examples=[0],
    )
    stalls: Budget = Field(
        3, description="Times after it made no progress and was ended for that.", examples=[1]
    )
    out_of_memory: Budget = Field(
        1,
        description="Times after it ran out of memory; each with more memory, where it asked for "
        "an amount and the partition's nodes have more.",
        examples=[2],
    )
    without_checkpoint: Count = Field(
        3,
        description="Stop when so many attempts in a row that ran brought no new checkpoint, "
        "whatever the budgets say.",
        examples=[5],
    )
    backoff_s: Seconds = Field(
        30,
        alias="backoff",
        description="How long to wait after the first failure in a row; twice as long after each "
        "further one, with up to a quarter more by chance. Preemptions, time limits and "
        "checkpoints wait for nothing.",
        examples=["1m"],
    )
    backoff_max_s: Seconds = Field(
        3600, alias="backoff_max", description="The longest such wait.", examples=["15m"]
    )
    stall_after_s: IntervalOrNever = Field(
        1800,
        alias="stall_after",
        description="An attempt that shows no progress for so long has stalled: it is told to save "
        "and leave, and cancelled when it has not after `checkpoint.notice`. It is given longer "
        "where its own rhythm is slower: `stall_factor` times the median time between two progress "
        "events, three times the longest; twice as long before the first one, and again after each "
        "attempt that stalled. `never` leaves it to the time limit. A run that never wrote a "
        "progress event is left alone, unless `stall_log` is set.",
        examples=["2h"],
    )
    stall_factor: Count = Field(
        20,
        description="How many median times between two progress events without one are a stall, "
        "if that is longer than `stall_after`.",
        examples=[50],
    )
    stall_log: bool = Field(
        False,
        description="Take the growth of the attempt's log for progress, too: for programs that "
        "only print.",
        examples=[True],
    )
    avoid_bad_nodes: bool = Field(
        True,
        description="Whether an attempt that is sent again keeps away from nodes that have failed "
        "several runs of late (`hpcflow nodes` shows which, and why).",
        examples=[False],
    )
    standby: bool = Field(
        False,
        description="While an attempt runs, let the next one wait in the queue for its end "
        "(`--dependency=afterany`), so that the run goes on after a preemption or a time limit "
        "even where no daemon lives by then. A daemon sends it, once an attempt runs. It "
        "is one more job in the queue for each run, and counts toward limits of submitted jobs. "
        "Meanwhile its priority grows with age only where the site has set "
        "`PriorityFlags=ACCRUE_ALWAYS`; elsewhere it begins to age when the attempt ends. It "
        "leaves at once where the attempt completed, failed or was cancelled. Slurm only.",
        examples=[True],
    )
    deadline_s: Seconds | None = Field(
        None,
        alias="deadline",
        description="Send nothing any more when so much time has passed since the run was made.",
        examples=["7d"],
    )
