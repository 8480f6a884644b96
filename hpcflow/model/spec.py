"""The schema of a run's YAML.

The reference page in docs/ and the JSON Schema for editors are made from the fields, their
descriptions and examples; :mod:`hpcflow.config` reads files into it. The keys of the YAML are the
aliases (``time_limit``); the names in the code carry the unit (``time_limit_min``). Sections are in
:mod:`~hpcflow.model.execution`, :mod:`~hpcflow.model.checkpointing` and
:mod:`~hpcflow.model.retry`; the kinds of values in :mod:`hpcflow.model.kinds`.
"""

from __future__ import annotations

from typing import Any, Final, cast

from pydantic import Field, model_validator

from hpcflow.model.adopt import Adopt
from hpcflow.model.checkpointing import Checkpoint
from hpcflow.model.execution import CodeMode, Environment, Launch, Resources
from hpcflow.model.kinds import (
    Command,
    Name,
    Params,
    Path,
    Section,
    StoreUrlOrNever,
    Words,
    WrongKey,
    parsed,
)
from hpcflow.model.retry import Retry
from hpcflow.model.run_budget import RunBudget
from hpcflow.model.start import StartFrom
from hpcflow.model.units import write_duration, write_memory


class RunSpec(Section):
    """One run as its user requested it."""

    name: Name = Field(
        description="Name of the run; a run id is made from it.", examples=["digits"]
    )
    project: Name = Field(
        "default",
        description="Project of the run; also the name of a folder on scratch.",
        examples=["vision"],
    )
    command: Command | None = Field(
        None,
        min_length=1,
        description="Program and arguments, as a list or as one text that is split like a shell "
        "command. No shell runs it.",
        examples=["./simulate --threads 8"],
    )
    script: Path | None = Field(
        None,
        description="A Python script, relative to the file that names it; run by the "
        "environment's python3. A run has either a script or a command.",
        examples=["train.py"],
    )
    code: CodeMode = Field(
        CodeMode.SNAPSHOT,
        description="`snapshot`: all attempts execute the code as it was when the run was created. "
        "`live`: each attempt reads the code when it starts. "
        "See [code.md](code.md).",
        examples=["live"],
    )
    args: Words = Field(
        default_factory=list,
        description="Arguments of the script or command. `{{ params.NAME }}`, `{{ run.id }}`, "
        "`{{ run.dir }}` and `{{ run.code }}` are filled in; put such an item in quotes.",
        examples=[["--lr", "{{ params.lr }}"]],
    )
    resume_args: Words = Field(
        default_factory=list,
        description="Arguments that follow `args` only if there is a checkpoint to resume from. In "
        "them, `{{ resume.path }}` is filled in, too: the checkpoint or, if it was adopted, the "
        "file or folder that the program wrote.",
        examples=[["--resume", "{{ resume.path }}"]],
    )
    before: list[Command] = Field(
        default_factory=list,
        description="Commands that each attempt runs before the program, in order, on the first "
        "node, in the environment but outside a container. If one fails, so does the attempt.",
        examples=[["python3 unpack.py --to /tmp/data"]],
    )
    after: list[Command] = Field(
        default_factory=list,
        description="Commands that an attempt runs in the same way after the program has "
        "completed.",
        examples=[["python3 evaluate.py"]],
    )
    start_from: StartFrom | None = Field(
        None,
        description="A checkpoint of another run. The run starts with its weights, at train step "
        "0. It is a run id or name, a path, or an `s3://`, `gs://` or `az://` URL: of a run, for "
        "its newest complete checkpoint, or of one checkpoint. `@TRAIN_STEP` at the end chooses "
        "another one, unless a folder has that name. hpcflow copies it when you submit the run. "
        "See [training.md](training.md#starting-from-another-run).",
        examples=["pretrain-20260301-abcdefgh@4000"],
    )
    params: Params = Field(
        default_factory=dict,
        description="Parameters: in `runtime.params`, in the file that $HPCFLOW_PARAMS names, "
        "and in `args`. Anything that JSON can hold; `null` is a value here.",
        examples=[{"lr": 0.1, "layers": [64, 64]}],
    )
    resources: Resources = Field(default_factory=Resources, description=Resources.__doc__)
    launch: Launch = Field(default_factory=Launch, description=Launch.__doc__)
    environment: Environment = Field(default_factory=Environment, description=Environment.__doc__)
    checkpoint: Checkpoint = Field(default_factory=Checkpoint, description=Checkpoint.__doc__)
    retry: Retry = Field(
        default_factory=Retry, description=Retry.__doc__, examples=[{"failures": 0}]
    )
    budget: RunBudget | None = Field(None, description=RunBudget.__doc__)
    mirror: StoreUrlOrNever | None = Field(
        None,
        description="Where hpcflow copies completed checkpoints and the run's small files: an "
        "`s3://`, `gs://` or `az://` URL, or an absolute folder; it fills in `$USER` and other "
        "variables. `never`: no mirror. Default: the site's. See [mirror.md](mirror.md).",
        examples=["s3://lab-checkpoints/$USER"],
    )
    tags: list[Name] = Field(
        default_factory=list, description="Words to find the run by.", examples=[["baseline"]]
    )

    @model_validator(mode="after")
    def _one_program(self) -> RunSpec:
        if self.command is None and self.script is None:
            raise ValueError("nothing to run: give either `script` or `command`")
        if self.command is not None and self.script is not None:
            raise WrongKey("give either `script` or `command`, not both", "command")
        if self.command is not None and not self.command[0]:
            raise WrongKey("the program has no name", "command", 0)
        for key, commands in (("before", self.before), ("after", self.after)):
            for index, words in enumerate(commands):
                if not words or not words[0]:
                    raise WrongKey("the command names no program", key, index)
        return self

    @property
    def program(self) -> list[str]:
        """Return the words to run, without `args`."""
        if self.command is not None:
            return list(self.command)
        assert self.script is not None
        return ["python3", "-u", self.script]


#: Path of a section -> its model, and its fields whose YAML values carry a unit.
_WITH_UNIT: Final[dict[tuple[str, ...], tuple[type[Section], tuple[str, ...]]]] = {
    ("resources",): (Resources, ("mem_mb", "time_limit_min")),
    ("checkpoint",): (Checkpoint, ("interval_s", "notice_s")),
    ("checkpoint", "adopt"): (Adopt, ("stable_s",)),
    ("retry",): (Retry, ("backoff_s", "backoff_max_s", "stall_after_s", "deadline_s")),
}


def frozen(spec: RunSpec) -> dict[str, Any]:
    """Return ``spec`` as JSON values, under the names with units, for run.json."""
    return spec.model_dump(mode="json")


def as_config(spec: RunSpec) -> dict[str, Any]:
    """Return ``spec`` as the values of a config, under the keys of the YAML, for overrides."""
    data = spec.model_dump(mode="json", by_alias=True)
    for way, (model, names) in _WITH_UNIT.items():
        data = _marked(data, way, tuple(model.model_fields[name].alias or name for name in names))
    return data


def as_yaml_config(spec: RunSpec) -> dict[str, Any]:
    """Return ``spec`` for a YAML file: only values that differ from the default, with units."""
    data = spec.model_dump(mode="json", by_alias=True, exclude_defaults=True)
    for way, (model, names) in _WITH_UNIT.items():
        section = cast(Any, data)
        for key in way:
            section = section.get(key) if isinstance(section, dict) else None
        for name in names if isinstance(section, dict) else ():
            alias = model.model_fields[name].alias or name
            if alias in section:
                section[alias] = _with_unit(section[alias], name)
    checkpoint = data.get("checkpoint")
    if checkpoint is not None and checkpoint.get("keep_last", 0) is None:
        checkpoint["keep_last"] = "all"
    return data


def _with_unit(value: Any, name: str) -> Any:
    """Return an integer as text with the unit that its field name ends in; ``never`` for None."""
    if value is None:
        return "never"
    if type(value) is not int:
        return value
    if name.endswith("_mb"):
        return write_memory(value)
    return write_duration(value * 60 if name.endswith("_min") else value)


def thaw(data: dict[str, Any]) -> RunSpec:
    """Return the spec that :func:`frozen` wrote; pydantic.ValidationError for other data."""
    for way, (_, names) in _WITH_UNIT.items():
        data = _marked(data, way, names)
    return RunSpec.model_validate(data)


def _marked(data: dict[str, Any], way: tuple[str, ...], names: tuple[str, ...]) -> dict[str, Any]:
    """Return ``data`` with the named integers of one section marked as :func:`parsed`."""
    if way:
        inner = data.get(way[0])
        return {**data, way[0]: _marked(inner, way[1:], names)} if isinstance(inner, dict) else data
    return {
        name: parsed(value) if name in names and type(value) is int else value
        for name, value in data.items()
    }
