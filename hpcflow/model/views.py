"""The results of ledger queries: runs, attempts and checkpoints for the CLI and the API."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from hpcflow.model.state import AttemptState, Cause, RunState


@dataclass(frozen=True, slots=True)
class AttemptView:
    """One attempt."""

    run_id: str
    attempt: int
    job_name: str
    job_id: str | None
    state: AttemptState
    raw_state: str | None
    cause: Cause | None
    reason: str | None
    partition: str | None
    nodes: list[str]
    submitted_at: datetime | None
    started_at: datetime | None
    ended_at: datetime | None
    exit_code: int | None
    resume_from: str | None
    rule: str | None = None
    billed_by: str | None = None
    elapsed_s: float | None = None
    gpu_hours: float | None = None
    cost_usd: str | None = None
    cost_su: str | None = None


@dataclass(frozen=True, slots=True)
class LiveRun:
    """The data that is needed to query the scheduler about a run's job."""

    run_id: str
    site: str
    run_dir: str
    created_at: datetime


@dataclass(frozen=True, slots=True)
class CheckpointView:
    """One complete checkpoint."""

    run_id: str
    attempt: int
    train_step: int
    epoch: float | None
    path: str
    size_bytes: int
    metrics: dict[str, float]
    is_best: bool
    created_at: datetime
    mirrored_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class MirrorLag:
    """The lag of a run's mirror.

    Attributes:
        newest: train step of the newest checkpoint; None without one.
        mirrored: train step of the newest one in the store at ``url``.
        behind_since: when the first newer checkpoint was made; None without one.
    """

    url: str
    newest: int | None
    mirrored: int | None
    behind_since: datetime | None


@dataclass(frozen=True, slots=True)
class RunView:
    """One run, as `ls` shows it."""

    run_id: str
    name: str
    user: str
    project: str
    site: str
    framework: str
    state: RunState
    cause: Cause | None
    run_dir: str
    partition: str
    nodes: int
    gpus: int
    gpu_type: str | None
    tags: list[str]
    created_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    number_of_attempts: int
    job_id: str | None
    train_step: int | None
    total_train_steps: int | None
    epoch: float | None
    metrics: dict[str, float]
    best_metric: float | None
    final_model: str | None
    gpu_hours: float | None
    estimated_cost_usd: str | None
    cost_usd: str | None
    parent_sweep: str | None
    next_action: str | None = None
    next_rule: str | None = None
    next_why: str | None = None
    next_at: datetime | None = None
    save_error: str | None = None
    cost_su: str | None = None
    is_estimate: bool = False


@dataclass(frozen=True, slots=True)
class RunDetail:
    """One run with all its details, as `show` shows it."""

    run: RunView
    resources: dict[str, Any]
    command: list[str]
    image: str | None
    params: dict[str, Any]
    attempts: list[AttemptView] = field(default_factory=list)
    checkpoints: list[CheckpointView] = field(default_factory=list)
    mirror: MirrorLag | None = None
