"""The files of a sweep: ``sweep.json``, frozen at its start, and the lines of its journal.

The journal is the truth about the trials: their values, reports, decisions and ends. The Optuna
study in a database is made from it, and never read.
"""

from __future__ import annotations

import json
import re
from decimal import Decimal
from functools import cache
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    ConfigDict,
    Field,
    TypeAdapter,
    field_serializer,
    field_validator,
)

from hpcflow.model.bounds import AttemptOrNone, Count, Moment
from hpcflow.model.run import CodeSnapshot, Provenance
from hpcflow.model.spec import RunSpec, frozen, thaw
from hpcflow.model.sweep import SweepSpec
from hpcflow.runtime.reading import parse_json

#: Version of the format of sweep.json and its journal. Readers refuse newer versions.
FORMAT = 1

#: The beginning of each line of a journal; a string in it, possibly without its end.
_BEGIN: Final = b'{"record": "'
_TEXT: Final = re.compile(rb'"(?:[^"\\]|\\.)*(?:"|\Z|\\\Z)', re.DOTALL)
#: Bound of seconds, hours or money: no trial takes as much, and sums stay exact.
MOST_TAKEN: Final = 10**15
_MOST_CHARS: Final = 40
_MOST_BYTES: Final = 2**63 - 1


def _money(text: str) -> str:
    """Return an amount. Decimal raises no ValueError, and accepts NaN and 1E+999999."""
    try:
        value = Decimal(text) if len(text) <= _MOST_CHARS else None
    except ArithmeticError:
        value = None
    if (
        value is None
        or not value.is_finite()
        or not 0 <= value <= MOST_TAKEN
        or abs(int(value.as_tuple().exponent)) > _MOST_CHARS
    ):
        raise ValueError("expected an amount like 12.50")
    return text


_Taken = Annotated[float, Field(ge=0, le=MOST_TAKEN, allow_inf_nan=False)]
_Trial = Annotated[int, Field(ge=0, le=MOST_TAKEN)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


class Sweep(BaseModel):
    """One sweep. Written once, before the first trial; never changed."""

    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    format: int = FORMAT
    sweep_id: str
    user: str
    site: str
    created_at: Moment
    sweep_path: str | None = Field(description="The sweep's file.")
    working_dir: str
    umask: str = Field(pattern="^0[0-7]{3}$", description="For the programs of all its trials.")
    said: dict[str, Any] = Field(description="The sweep's YAML, as it was read.")
    base: RunSpec = Field(description="The run of each trial, without its name and params.")
    code: CodeSnapshot | None = Field(None, description="None with `code: live`.")
    provenance: Provenance

    @property
    def spec(self) -> SweepSpec:
        return _spec(json.dumps(self.said))

    @field_validator("base", mode="before")
    @classmethod
    def _thaw(cls, value: object) -> object:
        return thaw(value) if isinstance(value, dict) else value

    @field_serializer("base")
    def _freeze(self, base: RunSpec) -> dict[str, Any]:
        return frozen(base)


@cache
def _spec(said: str) -> SweepSpec:
    return SweepSpec.model_validate_json(said, by_alias=True, by_name=False)


class _Record(BaseModel):
    model_config = ConfigDict(extra="ignore", frozen=True, defer_build=True)

    at: Moment
    record: str

    def to_line(self) -> str:
        """Return the record as one line of JSON, newline included."""
        said = {"record": self.record, **self.model_dump(mode="json", exclude_defaults=True)}
        text = json.dumps(said, ensure_ascii=False)
        return text.encode("utf-8", "replace").decode() + "\n"


class Asked(_Record):
    """Trial ``trial`` exists, with these values and run ids.

    Durable before anything of it is made or submitted, so that the sampler is asked only once.
    """

    record: Literal["asked"] = "asked"
    trial: _Trial
    params: dict[str, Any] = Field(description="The chosen values, without the constants.")
    runs: list[str] = Field(min_length=1, description="The ids of its runs: one for each repeat.")
    attrs: dict[str, Any] = Field(
        default_factory=dict, description="Data of the sampler about the trial."
    )
    study_attrs: dict[str, Any] = Field(
        default_factory=dict, description="Data of the sampler about the study, if changed."
    )
    how: Literal["sampler", "grid", "start_from", "population"] = "sampler"
    replaces: _Trial | None = Field(None, description="The ended trial that it replaces.")
    source: _Trial | None = Field(None, description="The trial whose checkpoint it starts from.")
    source_run: str | None = Field(None, description="The run of that trial.")
    start: _Trial | None = Field(None, description="Its index in `start_from`.")


class Retried(_Record):
    """A run of ``trial`` failed finally and is trained again as another run."""

    record: Literal["anew"] = "anew"
    trial: _Trial
    failed: str
    run: str


class Read(_Record):
    """New values in the events of one run since the last read.

    ``points`` are pairs: progress of the run in the unit of the pruner, and the objective there,
    null if it was not a number. ``last`` has the newest value of each objective.
    """

    record: Literal["read"] = "read"
    trial: _Trial
    run: str
    attempt: AttemptOrNone
    offset_bytes: int = Field(ge=0, le=_MOST_BYTES)
    total: Count | None = Field(None, description="Train steps of the whole training, once known.")
    points: list[tuple[Count, _Finite | None]] = Field(default_factory=list)
    last: dict[str, _Finite | None] = Field(default_factory=dict)
    others: list[str] = Field(default_factory=list, description="Other metrics that it reported.")
    finished: bool = Field(False, description="The program reported its end.")


class Judged(_Record):
    """The pruner has judged ``trial`` up to point ``to``."""

    record: Literal["judged"] = "judged"
    trial: _Trial
    to: Count
    attrs: dict[str, Any] = Field(
        default_factory=dict, description="Data of the pruner about the trial."
    )
    prune: bool = False


class Told(_Record):
    """The final outcome of ``trial``; later reports change nothing."""

    record: Literal["told"] = "told"
    trial: _Trial
    outcome: Literal["complete", "pruned", "failed"]
    values: list[_Finite] = Field(default_factory=list, description="One for each objective.")
    why: str | None = None
    stopped: bool = Field(
        False, description="A user stopped the sweep: the outcome says nothing about the values."
    )


class Closed(_Record):
    """No run of ``trial`` is active any more; what its runs used."""

    record: Literal["closed"] = "closed"
    trial: _Trial
    seconds: _Taken = Field(0.0, description="Run time of its attempts, summed.")
    gpu_hours: _Taken = 0.0
    cost_usd: Annotated[str, AfterValidator(_money)] | None = Field(
        None, description="Decimal; None if the site has no price."
    )


class Halted(_Record):
    """The sweep asks for no more trials until a user has looked."""

    record: Literal["halted"] = "halted"
    why: str
    next_action: str


class Late(_Record):
    """The deadline has passed by the clock of a round. No trial is started from then on.

    It takes effect once a round an hour later finds the same, because a clock may be ahead for a
    time.
    """

    record: Literal["late"] = "late"


class StopRequested(_Record):
    """A request for no more trials; with ``cancel``, also to cancel active ones."""

    record: Literal["stop_requested"] = "stop_requested"
    by: str
    cancel: bool = False


class GoOn(_Record):
    """A request to continue a stopped or halted sweep, possibly with another budget."""

    record: Literal["go_on"] = "go_on"
    by: str
    parallel: int | None = Field(None, ge=1, le=2**31 - 1)
    budget: dict[str, Any] | None = Field(None, description="As in the YAML.")


class Over(_Record):
    """All trials are closed, and no more will be asked."""

    record: Literal["over"] = "over"
    why: str


SweepRecord = Annotated[
    Asked | Retried | Read | Judged | Told | Closed | Halted | Late | StopRequested | GoOn | Over,
    Field(discriminator="record"),
]


@cache
def _any_record() -> TypeAdapter[SweepRecord]:
    return TypeAdapter(SweepRecord)


def parse_sweep_record(line: bytes | str) -> SweepRecord | None:
    """Parse one line of a sweep's journal; return None if it is torn, damaged or newer."""
    try:
        return _any_record().validate_json(line)
    except ValueError:
        return None


def is_torn_or_newer(line: bytes) -> bool:
    """Return whether a newer version wrote an unknown line, or a crash or a full disk tore it.

    Such a line may be skipped: a torn line never had an effect.
    """
    try:
        said = parse_json(line)
    except ValueError:
        is_begun = line[: len(_BEGIN)] == _BEGIN[: len(line)]
        bare = _TEXT.sub(b"", line)
        opened = bare.count(b"{") + bare.count(b"[") - bare.count(b"}") - bare.count(b"]")
        return is_begun and (opened > 0 or not line)
    kind = said.get("record") if isinstance(said, dict) else None
    return isinstance(kind, str) and kind not in _known_kinds()


@cache
def _known_kinds() -> frozenset[str]:
    return frozenset(kind.model_fields["record"].default for kind in _Record.__subclasses__())
