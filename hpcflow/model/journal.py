"""The lines of ``journal.jsonl``: what the login side intended, submitted, saw and decided.

A record is one JSON object on one line with ``at`` (UTC) and ``record`` (its kind). The ledger is
a projection of these lines, of ``run.json`` and of the events, and of nothing else; so whatever the
ledger shows has a line here or there.
"""

from __future__ import annotations

import json
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import BaseModel, ConfigDict, Field, TypeAdapter, field_serializer

from hpcflow.clock import to_text
from hpcflow.model.bounds import (
    Amount,
    AttemptNumber,
    AttemptOrNone,
    Count,
    ExitCode,
    Seconds,
    Times,
)
from hpcflow.model.events import MAX_LINE_BYTES, may_be_record
from hpcflow.model.moment import Moment
from hpcflow.model.state import AttemptState, Cause

#: Tried in this order on a record that is too long.
_CUT_TO: Final = (10_000, 1_000, 100)


class _Record(BaseModel):
    # Built when it is first used: a command writes two or three of these kinds.
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    at: Moment

    def to_line(self) -> str:
        """The record as one line of JSON, newline included.

        Readers skip a record that is too long. A text from a store or a command can have any
        length, so texts and lists of such a record are cut.
        """
        said = self.model_dump(mode="json", exclude_none=True)
        line = _as_line(said)
        for most in _CUT_TO:
            if len(line.encode()) <= MAX_LINE_BYTES:
                break
            line = _as_line(_cut(said, most))
        return line

    @field_serializer(
        "at",
        "submitted_at",
        "begins_at",
        "started_at",
        "ended_at",
        "preempted_at",
        "not_before",
        "files_at",
        check_fields=False,
    )
    def _time(self, value: Any) -> str | None:
        return None if value is None else to_text(value)


def _as_line(said: Any) -> str:
    text = json.dumps(said, ensure_ascii=False)
    # Commands may print what is no UTF-8, and what cannot be read back would be lost.
    return text.encode("utf-8", "replace").decode() + "\n"


def _cut(said: Any, most: int) -> Any:
    """``said`` with at most so many characters in each text and elements in each list."""
    if isinstance(said, dict):
        return {key: _cut(value, most) for key, value in said.items()}
    if isinstance(said, list):
        return [_cut(each, most) for each in said[:most]]
    return said[:most] if isinstance(said, str) else said


class Intended(_Record):
    """Attempt ``attempt`` will be sent under ``job_name``. Durable before sbatch starts."""

    record: Literal["intended"] = "intended"
    attempt: AttemptNumber
    job_name: str
    scheduler: str = Field(description="Who it is sent to: slurm or local.")
    partition: str | None = None
    account: str | None = Field(None, description="The account that the job asks to be charged to.")
    resume_from: str | None = Field(None, description="Checkpoint, relative to the run directory.")
    cluster: str | None = Field(None, description="Name of the cluster it is sent to, if known.")
    host: str | None = Field(None, description="The login node that sends it.")
    mem_mb: Count | None = Field(
        None, description="Memory on every node, if it asks for an amount."
    )
    excluded: list[str] | None = Field(
        None, description="Nodes that hpcflow keeps it away from, beside those that the run names."
    )
    restarts: Times | None = Field(
        None,
        description="Slurm restarted the job of the attempt before, under its own id, and this is "
        "what became of it: how often that job had been restarted by then.",
    )
    mirror: str | None = Field(
        None,
        description="URL of the store that the run is mirrored to: found there, should all of its "
        "directory go.",
    )
    standby: bool | None = Field(
        None, description="While this attempt runs, another job is to wait for its end."
    )
    after: AttemptOrNone | None = Field(
        None, description="Of a standby: the attempt whose end it waits for in the queue."
    )


class Submitted(_Record):
    """The job of attempt ``attempt`` exists."""

    record: Literal["submitted"] = "submitted"
    attempt: AttemptNumber
    job_id: str
    cluster: str | None = None
    how: Literal["sbatch", "found", "claimed", "inside", "restarted", "standby"] = Field(
        "sbatch",
        description="sbatch said so; found by its name; its claim file said so; sent by hand; "
        "restarted by Slurm under the id that it had; it had waited as a standby.",
    )


class Refused(_Record):
    """The scheduler said no. The attempt never became a job."""

    record: Literal["refused"] = "refused"
    attempt: AttemptNumber
    reason: str
    retryable: bool


class Withdrawn(_Record):
    """Looked for everywhere: the job of this attempt never existed and nobody is sending it."""

    record: Literal["withdrawn"] = "withdrawn"
    attempt: AttemptNumber
    reason: str


class Standby(_Record):
    """What an attempt's record would say, said of a standby: a job that is no attempt of the run.

    It becomes one, with records of its own, when it is what the run goes on with.
    """

    record: Literal["standby"] = "standby"
    says: Annotated[
        Intended | Submitted | Refused | Withdrawn,
        Field(discriminator="record"),
    ]


class Observed(_Record):
    """The scheduler showed something new about an attempt. Written only when it is new."""

    record: Literal["observed"] = "observed"
    attempt: AttemptNumber
    job_id: str
    state: AttemptState
    raw_state: str
    reason: str | None = None
    nodes: list[str] | None = None
    submitted_at: Moment | None = None
    begins_at: Moment | None = Field(None, description="It waits for this time.")
    started_at: Moment | None = None
    ended_at: Moment | None = None
    preempted_at: Moment | None = None
    exit_code: ExitCode | None = None
    signal: ExitCode | None = None
    last_sign: Moment | None = Field(
        None, description="Of a missing job: the time of the file that it last wrote."
    )
    host: str | None = Field(None, description="Of a missing job: whose clock ``at`` is.")
    source: Literal["queue", "accounting", "events", "local"] = "queue"


class Ended(_Record):
    """Attempt ``attempt`` is over, and why."""

    record: Literal["ended"] = "ended"
    attempt: AttemptNumber
    cause: Cause
    raw_state: str
    exit_code: ExitCode | None = None
    ended_at: Moment | None = None
    rule: str = Field(description="Which rule said so, for people.")
    log_digest: str | None = Field(
        None,
        description="Of an attempt that failed: the same text as of another one whose log ends "
        "alike.",
    )


class ChargeLine(BaseModel):
    """One line of the bill of an attempt: see :class:`hpcflow.sites.bill.Charge`."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    kind: str
    begin: Moment
    end: Moment
    hours: Amount
    cost_usd: Amount | None = None
    cost_su: Amount | None = None

    @field_serializer("begin", "end")
    def _time(self, value: Any) -> str:
        return to_text(value)


class BillPart(BaseModel):
    """What an attempt took in one partition, charged to one account."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    partition: str | None = None
    account: str | None = None
    gpu_type: str | None = Field(None, description="Types of GPUs, with commas.")
    gpu_hours: Amount
    cost_usd: Amount | None = None
    cost_su: Amount | None = None
    on_demand_usd: Amount | None = None


class Accounted(_Record):
    """What attempt ``attempt`` took, and what that costs by the prices of its time.

    The last one counts: what the job itself told is corrected once accounting has spoken.
    """

    record: Literal["accounted"] = "accounted"
    attempt: AttemptNumber
    job_id: str
    source: Literal["accounting", "events"]
    partition: str | None = Field(
        None, description="Where it ran, by accounting: a key of the site file."
    )
    started_at: Moment | None = None
    ended_at: Moment | None = None
    elapsed_s: Amount = Field(description="Without the time that it was suspended.")
    nodes: Count = 0
    cpus: Count = 0
    mem_mb: Count = 0
    gpus: dict[str, Count] = Field(default_factory=dict)
    gpu_hours: Amount
    cost_usd: Amount | None = Field(None, description="None where the site has no such price.")
    cost_su: Amount | None = None
    on_demand_usd: Amount | None = Field(
        None, description="What it would have cost where nobody is preempted."
    )
    charges: list[ChargeLine] = Field(default_factory=list)
    parts: list[BillPart] | None = Field(
        None,
        description="The same by partition and account, where the components of the job have more "
        "than one of them.",
    )
    account: str | None = None
    qos: str | None = None
    tries: Times = Field(1, description="How often accounting was asked, in vain but for the last.")


class BeginLifted(_Record):
    """Slurm let a restarted job wait, and the daemon asked it to start the job now. Asked once."""

    record: Literal["begin_lifted"] = "begin_lifted"
    attempt: AttemptNumber
    job_id: str
    refused: str | None = Field(None, description="Slurm's words, if it would not.")


class CancelRequested(_Record):
    """Somebody wants the run to stop for good."""

    record: Literal["cancel_requested"] = "cancel_requested"
    by: str
    why: str | None = Field(None, description="Of a trial that its sweep has ended.")
    signal: Literal["pruned"] | None = Field(
        None, description="What the file `cancel` tells the program: to save nothing more."
    )


class Resumed(_Record):
    """Somebody wants the run to go on."""

    record: Literal["resumed"] = "resumed"
    by: str


class Held(_Record):
    """Somebody wants the run not to be sent again for now."""

    record: Literal["held"] = "held"
    by: str
    why: str | None = Field(
        None,
        description="Set by a restore: why a user must resume the run. Earlier requests to cancel "
        "the run and decisions to stop it have no effect.",
    )


class Released(_Record):
    """Somebody takes the hold back, or wants a run that was stopped to go on."""

    record: Literal["released"] = "released"
    by: str


class Decided(_Record):
    """What the requeue daemon means to do after attempt ``after``. Written when it is new.

    ``cancel``: that attempt is not over, and its job is ended.
    """

    record: Literal["decided"] = "decided"
    after: AttemptOrNone = Field(description="The last attempt that was a job; 0 before the first.")
    action: Literal["wait", "restore", "resubmit", "stop", "cancel"]
    rule: str = Field(description="Which rule said so.")
    why: str = Field(description="The facts that it went by, for people.")
    not_before: Moment | None = None
    mem_mb: Count | None = None


class Stall(_Record):
    """Attempt ``attempt`` shows no progress, or does again. Written before anything is done."""

    record: Literal["stall"] = "stall"
    attempt: AttemptNumber
    action: Literal["notice", "cancel", "withdraw"] = Field(
        description="Its program gets the notice; its job is cancelled; the notice is withdrawn."
    )
    rule: str = Field(description="Which rule said so.")
    why: str = Field(description="The facts that it went by, for people.")
    silent_s: Seconds = Field(description="How long it has been watched without progress.")
    signs: Count = Field(description="How many signs of progress there had been.")
    log_bytes: Count | None = Field(None, description="Size of its log, where that is watched.")
    longest_s: Seconds = Field(
        description="The longest that it had taken between two signs before."
    )
    files_at: Moment | None = Field(
        None, description="Of a cancel: ``at`` by the clock that the times of files come from."
    )


class Overspent(_Record):
    """A hard budget is reached, and attempt ``attempt`` is told to save and leave for that. Written
    before its notice."""

    record: Literal["overspent"] = "overspent"
    attempt: AttemptNumber
    budget: str = Field(description="Which one: project:vision.")
    why: str = Field(description="In words, for people.")


class CheckpointRemoved(_Record):
    """A person had a checkpoint removed. Written when nobody sees it any more, maybe twice."""

    record: Literal["checkpoint_removed"] = "checkpoint_removed"
    by: str
    train_step: int
    path: str = Field(description="Where it was, relative to the run directory.")
    size_bytes: Count
    made_in: AttemptOrNone = Field(description="The attempt that made it.")


class Changed(_Record):
    """A person has changed what the run asks for. ``run.json`` was rewritten before."""

    record: Literal["changed"] = "changed"
    by: str
    overrides: list[str] = Field(description="As for --set, over what was frozen until then.")
    extends: AttemptOrNone | None = Field(
        None,
        description="The attempt that had completed the run, where it trains on since: what it had "
        "come to is the last of `results` in `run.json`.",
    )


class Restored(_Record):
    """What of the run was gone from scratch, or never there, was fetched from its mirror.

    ``checkpoints`` are those that were fetched; none where the mirror had nothing newer. ``newest``
    says that the mirror was searched for the newest, which is no word on what is lost later on.
    Where the run went to another cluster, or place, ``site_before`` and ``run_dir_before`` say from
    where.
    """

    record: Literal["restored"] = "restored"
    by: str
    url: str
    journal: bool | None = Field(
        None,
        description="Lines of the journal before this one came from the store, where others may "
        "have written them.",
    )
    after: AttemptOrNone = Field(description="The last attempt that was a job; 0 before the first.")
    checkpoints: list[int] = Field(default_factory=list, description="By their train steps.")
    skipped: list[int] = Field(
        default_factory=list, description="Those that are not what was written any more."
    )
    newest: int | None = Field(
        default=None,
        description="The newest train step that could be had, here or there, 0 without one; None "
        "where another was asked for, or where nobody wrote it down.",
    )
    size_bytes: Count | None = Field(
        default=None,
        description="Bytes that were fetched from the store: of these checkpoints, and of small "
        "files; None where nobody wrote it down.",
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
    """One line of a journal.

    Raises:
        pydantic.ValidationError: not a record that this version knows.
    """
    return _any_record().validate_json(line)


def parse_record_or_none(line: bytes | str) -> JournalRecord | None:
    """The same; None when it is torn, damaged, too long, or of a kind that this version does not
    know."""
    try:
        return parse_record(line) if may_be_record(line) else None
    except ValueError:
        return None
