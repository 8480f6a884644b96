"""The rows of the ledger as plain values. ``tables.py`` describes the same columns to a database.

The ``metadata`` of a field names its kind in a database if it is not its own type: ``TIME`` (aware
UTC), ``JSON`` (a list or an object), ``MONEY`` (a decimal number, as text) or ``BOOL``.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Final

from hpcflow.model.state import AttemptState

#: Who removed a checkpoint: its job, by the config's rule; or a person, with a command.
BY_JOB: Final = "job"
BY_PERSON: Final = "person"
#: The states of an attempt that has ended, or never was a job.
OVER: Final = frozenset({AttemptState.ENDED.value, AttemptState.WITHDRAWN.value})

TIME: Final = {"kind": "time"}
JSON: Final = {"kind": "json"}
MONEY: Final = {"kind": "money"}
BOOL: Final = {"kind": "bool"}


@dataclass(slots=True)
class RunRow:
    """A run. Columns above the line are from run.json; those below, from journal and events."""

    run_id: str
    name: str
    user_name: str
    project: str
    site: str
    framework: str
    run_dir: str
    partition: str
    nodes: int
    gpus: int
    gpu_type: str | None
    image: str | None
    parent_sweep: str | None
    mirror_url: str | None
    estimated_cost_usd: str | None = field(metadata=MONEY)
    created_at: datetime = field(metadata=TIME)
    resources: dict[str, Any] = field(metadata=JSON)
    command: list[str] = field(metadata=JSON)
    params: dict[str, Any] = field(metadata=JSON)
    data: dict[str, str] = field(metadata=JSON)
    tags: list[str] = field(metadata=JSON)
    # ---
    state: str = "created"
    cause: str | None = None
    started_at: datetime | None = field(default=None, metadata=TIME)
    completed_at: datetime | None = field(default=None, metadata=TIME)
    attempts: int = 0
    job_id: str | None = None
    train_step: int | None = None
    total_train_steps: int | None = None
    epoch: float | None = None
    metrics: dict[str, float] = field(default_factory=dict, metadata=JSON)
    best_metric: float | None = None
    final_model: str | None = None
    save_error: str | None = None
    gpu_hours: float | None = None
    cost_usd: str | None = field(default=None, metadata=MONEY)
    cost_su: str | None = field(default=None, metadata=MONEY)
    is_estimate: bool = field(default=False, metadata=BOOL)
    next_action: str | None = None
    next_rule: str | None = None
    next_why: str | None = None
    next_at: datetime | None = field(default=None, metadata=TIME)
    journal: dict[str, Any] = field(default_factory=dict, metadata=JSON)
    journal_at: datetime | None = field(default=None, metadata=TIME)
    bytes_read: int = 0


@dataclass(slots=True)
class PartRow:
    """The usage and cost of an attempt in one partition and account; names as in AttemptRow."""

    partition: str | None
    account: str | None
    gpu_type: str | None
    gpu_hours: float | None
    cost_usd: str | None = field(metadata=MONEY)
    cost_su: str | None = field(metadata=MONEY)
    on_demand_usd: str | None = field(metadata=MONEY)


@dataclass(slots=True)
class AttemptRow:
    """An attempt. ``journal`` and ``report`` hold the sources; other columns are derived.

    ``account``: from its bill; before that, the requested one.
    ``billed_by``: ``accounting`` or, as an estimate, ``events``; None before there is a bill.
    ``gpu_type``: from its bill, possibly not the run's first; several with commas, ``?`` if Slurm
    does not tell the type, empty without GPUs; None before there is a bill.
    ``wasted_s``: of ``elapsed_s``, the time before training, and after the last checkpoint.
    ``on_demand_usd``: for a preemptible attempt, its cost without preemption.
    ``bill_due_at``: when to query accounting.
    ``parts``: usage by partition and account for a job in more than one; else None.
    """

    run_id: str
    attempt: int
    job_name: str
    job_id: str | None
    state: str
    raw_state: str | None
    cause: str | None
    reason: str | None
    rule: str | None
    partition: str | None
    nodes: list[str] = field(metadata=JSON)
    submitted_at: datetime | None = field(metadata=TIME)
    started_at: datetime | None = field(metadata=TIME)
    ended_at: datetime | None = field(metadata=TIME)
    exit_code: int | None
    resume_from: str | None
    journal: dict[str, Any] = field(metadata=JSON)
    report: dict[str, Any] = field(metadata=JSON)
    # --- its bill
    billed_by: str | None = None
    elapsed_s: float | None = None
    gpu_type: str | None = None
    gpu_hours: float | None = None
    cost_usd: str | None = field(default=None, metadata=MONEY)
    cost_su: str | None = field(default=None, metadata=MONEY)
    on_demand_usd: str | None = field(default=None, metadata=MONEY)
    wasted_s: float | None = None
    bill_due_at: datetime | None = field(default=None, metadata=TIME)
    account: str | None = None
    parts: list[PartRow] | None = field(default=None, metadata=JSON)


@dataclass(slots=True)
class CheckpointRow:
    """A complete checkpoint. A path holds one checkpoint: the last that was written there.

    A checkpoint that was removed on purpose keeps its row, so that a late line about its creation
    does not restore it. ``removed`` names who removed it; ``attempt`` is then the attempt that
    removed it, or the maker if a person removed it.
    """

    run_id: str
    path: str
    attempt: int
    train_step: int
    epoch: float | None
    size_bytes: int
    metrics: dict[str, float] = field(metadata=JSON)
    is_best: bool = field(metadata=BOOL)
    created_at: datetime = field(metadata=TIME)
    removed: str | None = None


@dataclass(slots=True)
class MirroredRow:
    """The last reported state of a checkpoint in an object store.

    ``mirrored``: present; ``failed``: absent or altered; ``removed``: deleted by the retention
    rule.

    A table of its own, because it comes from another file than the checkpoint, and the two are read
    in any order.
    """

    run_id: str
    path: str
    train_step: int
    state: str
    url: str
    size_bytes: int
    at: datetime = field(metadata=TIME)


@dataclass(slots=True)
class MirrorLagRow:
    """The lag of a run's mirror: a read-only view.

    ``newest`` and ``mirrored`` are train steps; ``behind_since`` is when the first checkpoint was
    made that is newer than all in the store.
    """

    run_id: str
    url: str
    newest: int | None
    mirrored: int | None
    behind_since: datetime | None = field(metadata=TIME)


@dataclass(slots=True)
class SourceRow:
    """How far a file was read; ``path`` is relative to the run directory."""

    run_id: str
    path: str
    offset_bytes: int
    in_long_line: bool = field(metadata=BOOL)
    skipped_lines: int


@dataclass(slots=True)
class Known:
    """The stored rows of a run that folding continues from."""

    run: RunRow
    attempts: list[AttemptRow] = field(default_factory=list)
    sources: list[SourceRow] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class DueBill:
    """An ended attempt for which accounting must be queried.

    Attributes:
        partition: of its run.
        tries: number of queries without a result.
    """

    attempt: AttemptRow
    site: str
    run_dir: str
    partition: str
    tries: int


@dataclass(slots=True)  # frozen, a hundred thousand of them take twice as long to make
class BilledRow:
    """An ended attempt with its bill, if any, and the columns to group it by."""

    run_id: str
    attempt: int
    project: str
    user: str
    site: str
    sweep: str | None
    partition: str | None
    account: str | None
    gpu_type: str | None
    cause: str | None
    ended_at: datetime | None
    billed_by: str | None
    elapsed_s: float | None
    gpu_hours: float | None
    cost_usd: str | None
    cost_su: str | None
    on_demand_usd: str | None
    wasted_s: float | None
    parts: Sequence[PartRow] | None = None


@dataclass(frozen=True, slots=True)
class JobRow:
    """An attempt that is or was a job."""

    run_id: str
    attempt: int
    job_id: str
    job_name: str
    site: str
    submitted_at: datetime | None


@dataclass(frozen=True, slots=True)
class StoringRow:
    """A run with the owners and places of its checkpoints."""

    run_id: str
    project: str
    user: str
    site: str
    sweep: str | None
    run_dir: str
    mirror_url: str | None


@dataclass(frozen=True, slots=True)
class SpendingRow:
    """An attempt, its known usage, and the columns to group it by."""

    run_id: str
    attempt: int
    state: str
    job_id: str | None
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    billed_by: str | None
    elapsed_s: float | None
    gpu_hours: float | None
    cost_usd: str | None
    cost_su: str | None
    bill_due_at: datetime | None
    account: str | None
    project: str
    user: str
    site: str
    run_dir: str
    sweep: str | None
    gpus: int
    next_action: str | None

    @property
    def is_over(self) -> bool:
        """Return whether it ended, or never was a job."""
        return self.state in OVER

    @property
    def is_billed_for_good(self) -> bool:
        """Return whether its bill is final."""
        return self.billed_by is not None and self.bill_due_at is None


@dataclass(frozen=True, slots=True)
class RunningRow:
    """A running attempt with its progress."""

    run_id: str
    site: str
    run_dir: str
    attempt: int
    raw_state: str | None
    report: dict[str, Any]


@dataclass(slots=True)
class HowFar:
    """How far the files of a run were read, by path relative to its directory.

    Unread files are missing. ``attempts`` are the known ones.
    """

    offsets: dict[str, int] = field(default_factory=dict)
    attempts: list[int] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class BestBy:
    """The metric that determines the best checkpoint: ``checkpoint.keep_best`` of a config."""

    metric: str
    is_more_better: bool

    def find(self, rows: Iterable[CheckpointRow]) -> CheckpointRow | None:
        """Return the best checkpoint not removed; of equals the earliest, as in the job's rule."""
        sign = -1 if self.is_more_better else 1
        found = [row for row in rows if row.removed is None and self.metric in row.metrics]
        return min(
            found,
            key=lambda row: (sign * row.metrics[self.metric], row.train_step, row.path),
            default=None,
        )


@dataclass(slots=True)
class Change:
    """New rows of one run, and the state that they were computed from.

    Attributes:
        bytes_before: ``run.bytes_read`` of the row that this change continues from; None without
            one.
        from_zero: all files were read again; all other rows of the run are deleted.
        is_progress: only progress was read, and few columns differ. Nearly all changes are such,
            and they take a third of the work.
        best_by: how to find the best checkpoint, if one was added or removed.
    """

    run: RunRow
    attempts: list[AttemptRow]
    checkpoints: list[CheckpointRow]
    sources: list[SourceRow]
    bytes_before: int | None
    from_zero: bool = False
    is_progress: bool = False
    best_by: BestBy | None = None
    mirrored: list[MirroredRow] = field(default_factory=list)


#: Table name -> its row type, in the order of insertion.
ROWS: Final = {
    "run": RunRow,
    "attempt": AttemptRow,
    "checkpoint": CheckpointRow,
    "mirrored": MirroredRow,
    "source": SourceRow,
}
