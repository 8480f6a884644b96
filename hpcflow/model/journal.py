"""The lines of ``journal.jsonl``: what the login side intended, submitted, saw and decided.

A record is one JSON object on one line with ``at`` (UTC) and ``record`` (its kind). The ledger is
derived only from these lines, ``run.json`` and the events.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    model_validator,
)

from hpcflow.model.bounds import (
    Amount,
    AttemptNumber,
    AttemptOrNone,
    Count,
    ExitCode,
    Moment,
    Seconds,
    Times,
)
from hpcflow.model.events import MAX_LINE_BYTES, may_be_record
from hpcflow.model.state import AttemptState, Cause

#: Limits of texts and lists, tried in this order on a record that is too long.
_CUT_TO: Final = (10_000, 1_000, 100)


class _Record(BaseModel):
    # Built on first use: a command writes only two or three of these kinds.
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    at: Moment

    def to_line(self) -> str:
        """Return the record as one line of JSON, newline included.

        Readers skip a record that is too long. A text from a store or a command can have any
        length, so texts and lists of such a record are cut.
        """
        said = self._written()
        line = _as_line(said)
        for most in _CUT_TO:
            if len(line.encode()) <= MAX_LINE_BYTES:
                break
            line = _as_line(_cut(said, most))
        return line

    def _written(self) -> dict[str, Any]:
        return self.model_dump(mode="json", exclude_none=True)


def _as_line(said: Any) -> str:
    # Without blanks: a run with a hundred attempts may take 200 kB of the home.
    text = json.dumps(said, ensure_ascii=False, separators=(",", ":"))
    # A command may print invalid UTF-8; a reader would skip such a line.
    return text.encode("utf-8", "replace").decode() + "\n"


def _cut(said: Any, most: int) -> Any:
    """Return ``said`` with at most ``most`` characters in each text and elements in each list."""
    if isinstance(said, dict):
        return {key: _cut(value, most) for key, value in said.items()}
    if isinstance(said, list):
        return [_cut(each, most) for each in said[:most]]
    return said[:most] if isinstance(said, str) else said


class Intended(_Record):
    """Attempt ``attempt`` will be submitted as ``job_name``. Durable before sbatch starts."""

    record: Literal["intended"] = "intended"
    attempt: AttemptNumber
    job_name: str
    scheduler: str = Field(description="slurm or local.")
    partition: str | None = None
    account: str | None = Field(None, description="The account that the job asks to be charged to.")
    resume_from: str | None = Field(None, description="Checkpoint, relative to the run directory.")
    cluster: str | None = Field(None, description="Name of the cluster, if known.")
    host: str | None = Field(None, description="The login node that submits it.")
    mem_mb: Count | None = Field(None, description="Memory on every node, if requested.")
    excluded: list[str] | None = Field(
        None, description="Nodes that hpcflow excludes, in addition to those that the run excludes."
    )
    restarts: Times | None = Field(
        None,
        description="Set if this attempt is the previous attempt's job, restarted by Slurm under "
        "its own id: the number of restarts of that job so far.",
    )
    mirror: str | None = Field(None, description="URL of the mirror, for a lost run directory.")
    standby: bool | None = Field(None, description="While this attempt runs, a standby is pending.")
    after: AttemptOrNone | None = Field(None, description="For a standby: the attempt to wait for.")


class Submitted(_Record):
    """The job of attempt ``attempt`` exists."""

    record: Literal["submitted"] = "submitted"
    attempt: AttemptNumber
    job_id: str
    cluster: str | None = None
    how: Literal["sbatch", "found", "claimed", "inside", "restarted", "standby"] = Field(
        "sbatch",
        description="sbatch returned its id; found by its name; read from its claim file; "
        "submitted by hand; restarted by Slurm under the same id; promoted from a standby.",
    )


class Refused(_Record):
    """The scheduler refused the attempt, which never became a job."""

    record: Literal["refused"] = "refused"
    attempt: AttemptNumber
    reason: str
    retryable: bool


class Withdrawn(_Record):
    """The job of this attempt never existed, and no process is submitting it."""

    record: Literal["withdrawn"] = "withdrawn"
    attempt: AttemptNumber
    reason: str


class Standby(_Record):
    """A record about a standby: a job that is not yet an attempt of the run.

    When the run continues with it, it becomes an attempt with records of its own.
    """

    record: Literal["standby"] = "standby"
    says: Annotated[
        Intended | Submitted | Refused | Withdrawn,
        Field(discriminator="record"),
    ]


class Observed(_Record):
    """The scheduler reported a change of an attempt."""

    record: Literal["observed"] = "observed"
    attempt: AttemptNumber
    job_id: str
    state: AttemptState
    raw_state: str
    reason: str | None = None
    nodes: list[str] | None = None
    submitted_at: Moment | None = None
    begins_at: Moment | None = Field(None, description="Earliest start.")
    started_at: Moment | None = None
    ended_at: Moment | None = None
    preempted_at: Moment | None = None
    exit_code: ExitCode | None = None
    signal: ExitCode | None = None
    last_sign: Moment | None = Field(
        None, description="For a missing job: the newest time of a file that it wrote."
    )
    host: str | None = Field(None, description="For a missing job: the host whose clock is used.")
    source: Literal["queue", "accounting", "events", "local"] = "queue"


class Ended(_Record):
    """Attempt ``attempt`` ended."""

    record: Literal["ended"] = "ended"
    attempt: AttemptNumber
    cause: Cause
    raw_state: str
    exit_code: ExitCode | None = None
    ended_at: Moment | None = None
    rule: str = Field(description="The rule that decided, for people.")
    log_digest: str | None = Field(None, description="Digest of the end of a failed attempt's log.")


class ChargeLine(BaseModel):
    """One line of an attempt's bill: see :class:`hpcflow.sites.bill.Charge`."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    kind: str
    begin: Moment
    end: Moment
    hours: Amount
    cost_usd: Amount | None = None
    cost_su: Amount | None = None


class BillPart(BaseModel):
    """The usage and cost of an attempt in one partition, charged to one account."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    partition: str | None = None
    account: str | None = None
    gpu_type: str | None = Field(None, description="Types of GPUs, separated by commas.")
    gpu_hours: Amount
    cost_usd: Amount | None = None
    cost_su: Amount | None = None
    on_demand_usd: Amount | None = None


class Accounted(_Record):
    """The usage of attempt ``attempt``, and its cost by the prices of that time.

    The last record counts: values from accounting replace those that the job reported. A charge of
    the whole time is written without its times.
    """

    record: Literal["accounted"] = "accounted"
    attempt: AttemptNumber
    job_id: str
    source: Literal["accounting", "events"]
    partition: str | None = Field(
        None, description="Where it ran, from accounting: a key of the site file."
    )
    started_at: Moment | None = None
    ended_at: Moment | None = None
    elapsed_s: Amount = Field(description="Without suspended time.")
    nodes: Count = 0
    cpus: Count = 0
    mem_mb: Count = 0
    gpus: dict[str, Count] = Field(default_factory=dict)
    gpu_hours: Amount
    cost_usd: Amount | None = Field(None, description="None if the site has no such price.")
    cost_su: Amount | None = None
    on_demand_usd: Amount | None = Field(
        None, description="Its cost by the price of a partition without preemption."
    )
    charges: list[ChargeLine] = Field(default_factory=list)
    parts: list[BillPart] | None = Field(
        None, description="The same per partition and account, if the job has several of them."
    )
    account: str | None = None
    qos: str | None = None
    tries: Times = Field(1, description="Number of times that accounting was queried.")

    @model_validator(mode="before")
    @classmethod
    def _with_times(cls, said: Any) -> Any:
        if not isinstance(said, dict) or not isinstance(said.get("charges"), list):
            return said
        times = {"begin": said.get("started_at"), "end": said.get("ended_at")}
        charges = [{**times, **e} if isinstance(e, dict) else e for e in said["charges"]]
        return {**said, "charges": charges}

    def _written(self) -> dict[str, Any]:
        said = super()._written()
        own = (("begin", said.get("started_at")), ("end", said.get("ended_at")))
        said["charges"] = [
            {name: value for name, value in line.items() if (name, value) not in own}
            for line in said["charges"]
        ]
        return said


class BeginLifted(_Record):
    """The daemon asked Slurm to start a restarted job now, not after its delay. Asked once."""

    record: Literal["begin_lifted"] = "begin_lifted"
    attempt: AttemptNumber
    job_id: str
    refused: str | None = Field(None, description="Slurm's message, if it refused.")


class CancelRequested(_Record):
    """A request to stop the run for good."""

    record: Literal["cancel_requested"] = "cancel_requested"
    by: str
    why: str | None = Field(None, description="For a trial that its sweep has ended.")
    signal: Literal["pruned"] | None = Field(
        None, description="The file `cancel` tells the program to save nothing more."
    )


class Resumed(_Record):
    """A request to continue the run."""

    record: Literal["resumed"] = "resumed"
    by: str


class Held(_Record):
    """A request to submit no attempt until the run is released."""

    record: Literal["held"] = "held"
    by: str
    why: str | None = Field(
        None,
        description="Set by a restore: why a user must resume the run. Earlier requests to cancel "
        "the run and decisions to stop it have no effect.",
    )


class Released(_Record):
    """A request to end a hold, or to continue a stopped run."""

    record: Literal["released"] = "released"
    by: str


class Decided(_Record):
    """The requeue daemon's decision after attempt ``after``. Written only if it is new.

    ``cancel``: that attempt is still running, and its job is cancelled.
    """

    record: Literal["decided"] = "decided"
    after: AttemptOrNone = Field(description="The last attempt that was a job; 0 before the first.")
    action: Literal["wait", "restore", "resubmit", "stop", "cancel"]
    rule: str = Field(description="The rule that decided.")
    why: str = Field(description="The facts behind it, for people.")
    not_before: Moment | None = None
    mem_mb: Count | None = None


class Stall(_Record):
    """Attempt ``attempt`` makes no progress, or makes progress again. Written before the action."""

    record: Literal["stall"] = "stall"
    attempt: AttemptNumber
    action: Literal["notice", "cancel", "withdraw"] = Field(
        description="The program gets the notice; the job is cancelled; the notice is withdrawn."
    )
    rule: str = Field(description="The rule that decided.")
    why: str = Field(description="The facts behind it, for people.")
    silent_s: Seconds = Field(description="Observed time without progress.")
    signs: Count = Field(description="Number of progress signs so far.")
    log_bytes: Count | None = Field(
        None, description="Size of its log, if growth of the log counts as progress."
    )
    longest_s: Seconds = Field(description="Longest time between two earlier signs.")
    files_at: Moment | None = Field(None, description="For a cancel: ``at`` by the clock of files.")


class Overspent(_Record):
    """Attempt ``attempt`` must save and exit for a hard budget. Written before its notice."""

    record: Literal["overspent"] = "overspent"
    attempt: AttemptNumber
    budget: str = Field(description="Such as project:vision.")
    why: str = Field(description="For people.")


class CheckpointRemoved(_Record):
    """A person removed a checkpoint. Written once it is no longer visible, possibly twice."""

    record: Literal["checkpoint_removed"] = "checkpoint_removed"
    by: str
    train_step: int
    path: str = Field(description="Relative to the run directory.")
    size_bytes: Count
    made_in: AttemptOrNone = Field(description="The attempt that made it.")


class Changed(_Record):
    """A person changed the spec of the run. ``run.json`` was rewritten before."""

    record: Literal["changed"] = "changed"
    by: str
    overrides: list[str] = Field(description="As for --set, applied to the earlier spec.")
    extends: AttemptOrNone | None = Field(
        None,
        description="The attempt that had completed the run, if this extends the training. Its "
        "result is the last of `results` in `run.json`.",
    )


class Restored(_Record):
    """Files of the run that were missing on scratch were fetched from its mirror.

    ``checkpoints`` are those that were fetched; empty if the mirror had nothing newer. A ``newest``
    means that the mirror was searched for the newest checkpoint; it says nothing about later
    losses. ``site_before`` and ``run_dir_before`` are set if the run moved to another cluster or
    place.
    """

    record: Literal["restored"] = "restored"
    by: str
    url: str
    journal: bool | None = Field(
        None, description="The earlier lines come from the store, where others may have written."
    )
    after: AttemptOrNone = Field(description="The last attempt that was a job; 0 before the first.")
    checkpoints: list[int] = Field(default_factory=list, description="By their train steps.")
    skipped: list[int] = Field(default_factory=list, description="Damaged or altered ones.")
    newest: int | None = Field(
        default=None,
        description="The newest available train step, on scratch or in the mirror, 0 without one; "
        "None if another one was requested, or in old records.",
    )
    size_bytes: Count | None = Field(
        default=None, description="Fetched bytes, with small files; None in old records."
    )
    site: str
    site_before: str | None = None
    run_dir_before: str | None = None


JournalRecord = Annotated[
    Intended
    | Submitted
    | Refused
    | Withdrawn
    | Standby
    | Observed
    | Ended
    | Accounted
    | BeginLifted
    | CancelRequested
    | Resumed
    | Held
    | Released
    | Decided
    | Stall
    | Overspent
    | CheckpointRemoved
    | Changed
    | Restored,
    Field(discriminator="record"),
]


@cache
def _any_record() -> TypeAdapter[JournalRecord]:
    return TypeAdapter(JournalRecord)


def parse_record(line: bytes | str) -> JournalRecord:
    """Parse one line of a journal; pydantic.ValidationError for an unknown record."""
    return _any_record().validate_json(line)


def parse_record_or_none(line: bytes | str) -> JournalRecord | None:
    """Parse one line; return None if it is torn, damaged, too long, or of an unknown kind."""
    try:
        return parse_record(line) if may_be_record(line) else None
    except ValueError:
        return None
