"""How often a run is resubmitted: a section of a run's YAML.

:mod:`hpcflow.requeue.policy` applies it.
"""

from __future__ import annotations

from typing import Annotated

from pydantic import Field

from hpcflow.model.kinds import Count, IntervalOrNever, Kind, Seconds, Section
from hpcflow.model.state import RESUBMIT_EXIT_CODE

Budget = Annotated[int, Field(strict=True, ge=0, le=10_000), Kind("whole number from 0")]


class Retry(Section):
    """How often, and how soon, the daemon resubmits a run, by the cause of its end.

    `hpcflow resume` and `hpcflow release` reset the counts.
    """

    resubmit_exit_codes: list[
        Annotated[int, Field(strict=True, ge=1, le=255), Kind("whole number from 1 to 255")]
    ] = Field(
        default=[RESUBMIT_EXIT_CODE],
        description='Exit codes of the command that mean "checkpointed, resubmit me".',
        examples=[[75, 85]],
    )
    preemptions: Budget | None = Field(
        None,
        description="Resubmissions after a preemption. Default: no limit.",
        examples=[20],
    )
    timeouts: Budget | None = Field(
        None,
        description="Resubmissions after the time limit, or after the program saved and exited by "
        "itself. Default: no limit.",
        examples=[100],
    )
    node_failures: Budget = Field(
        10,
        description="Resubmissions after a node failed, the launch failed, or the job vanished "
        "without reporting its end.",
        examples=[3],
    )
    failures: Budget = Field(
        3,
        description="Resubmissions after the program failed. hpcflow does not resubmit a program "
        "that crashes twice in a row, each time within two minutes and before its first train "
        "step, with the same last lines.",
        examples=[10],
    )
    stalls: Budget = Field(
        3,
        description="Resubmissions after hpcflow ended an attempt that made no progress.",
        examples=[1],
    )
    out_of_memory: Budget = Field(
        1,
        description="Resubmissions after the job ran out of memory. Each requests more memory, if "
        "the config has an amount and the nodes of the partition have more.",
        examples=[2],
    )
    without_checkpoint: Count = Field(
        3,
        description="Stop the run after so many attempts in a row without a new checkpoint, "
        "even if the other keys allow more. Attempts that did not run do not count.",
        examples=[5],
    )
    backoff_s: Seconds = Field(
        30,
        alias="backoff",
        description="Wait before resubmission after the first failure in a row. It doubles with "
        "each further failure, plus a random part of up to a quarter. There is no wait after "
        "preemptions, time limits and checkpoints.",
        examples=["1m"],
    )
    backoff_max_s: Seconds = Field(
        3600, alias="backoff_max", description="The longest such wait.", examples=["15m"]
    )
    stall_after_s: IntervalOrNever = Field(
        1800,
        alias="stall_after",
        description="An attempt without progress for this time has stalled. hpcflow tells it to "
        "save and exit, and cancels it if it still runs after `checkpoint.notice`. For slow "
        "attempts, the time is longer: at least `stall_factor` times the median time between two "
        "progress events, and three times the longest. It doubles before the first event, and "
        "after each attempt that stalled. `never`: only the time limit ends it. hpcflow ignores a "
        "run that never wrote a progress event, unless `stall_log` is set.",
        examples=["2h"],
    )
    stall_factor: Count = Field(
        20,
        description="An attempt has stalled after so many median times between two progress "
        "events, if that is longer than `stall_after`.",
        examples=[50],
    )
    stall_log: bool = Field(
        False,
        description="Count growth of the attempt's log as progress, for programs that only print.",
        examples=[True],
    )
    avoid_bad_nodes: bool = Field(
        True,
        description="Whether resubmitted attempts exclude nodes that failed several runs lately "
        "(`hpcflow nodes` shows which, and why).",
        examples=[False],
    )
    standby: bool = Field(
        False,
        description="While an attempt runs, keep the next one pending until its end "
        "(`--dependency=afterany`). So the run continues after a preemption or a time limit even "
        "without a daemon. The daemon submits this standby when an attempt runs. It is one more "
        "job for each run, and counts toward limits of submitted jobs. Its priority grows with "
        "age only if the site has `PriorityFlags=ACCRUE_ALWAYS`; otherwise it grows from the end "
        "of the attempt. The standby exits at once if the attempt completed, failed or was "
        "cancelled. Slurm only.",
        examples=[True],
    )
    deadline_s: Seconds | None = Field(
        None,
        alias="deadline",
        description="Submit no attempt when this much time has passed since the run was created.",
        examples=["7d"],
    )
