"""Options of sbatch without a key: ``resources.sbatch``, and ``sbatch`` of a partition."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

from pydantic import AfterValidator, BeforeValidator, WithJsonSchema

from hpcflow.model.kinds import Kind, Matching, WrongKey
from hpcflow.model.scalars import number_as_text

#: Options that hpcflow cannot supervise: they make several jobs or none, delay the start, or change
#: the log, environment, name or end of the job.
DEPENDED_ON: Final = frozenset({
    "array", "wrap", "test-only", "help", "usage", "version", "wait", "hold", "dependency",
    "begin", "chdir", "input", "output", "error", "open-mode", "export", "export-file",
    "get-user-env", "job-name", "requeue", "no-requeue", "signal", "clusters", "uid", "gid",
    "ignore-pbs", "parsable",
})  # fmt: skip
#: Option -> the key of a config for it.
_KEYS: Final = {
    "account": "resources.account",
    "array": "sweep",
    "begin": "resources.begin",
    "constraint": "resources.constraint",
    "cpus-per-gpu": "resources.cpus_per_task",
    "cpus-per-task": "resources.cpus_per_task",
    "dependency": "resources.dependency",
    "exclude": "resources.exclude",
    "export": "environment.variables",
    "gpus": "resources.gpus_per_node",
    "gpus-per-node": "resources.gpus_per_node",
    "gpus-per-socket": "resources.gpus_per_node",
    "gpus-per-task": "resources.gpus_per_node",
    "job-name": "name",
    "mem": "resources.mem",
    "mem-per-cpu": "resources.mem",
    "mem-per-gpu": "resources.mem",
    "nice": "resources.nice",
    "nodes": "resources.nodes",
    "ntasks": "resources.tasks_per_node",
    "ntasks-per-core": "resources.tasks_per_node",
    "ntasks-per-gpu": "resources.tasks_per_node",
    "ntasks-per-node": "resources.tasks_per_node",
    "ntasks-per-socket": "resources.tasks_per_node",
    "partition": "resources.partition",
    "priority": "resources.nice",
    "qos": "resources.qos",
    "requeue": "retry",
    "signal": "checkpoint.notice",
    "tasks-per-node": "resources.tasks_per_node",
    "time": "resources.time_limit",
    "wrap": "command",
}
_OWN: Final = sorted(DEPENDED_ON | _KEYS.keys())


def _value(value: object) -> object:
    if value is True:
        return ""
    if value is False or value is None:
        raise ValueError("`true` is for options without a value; to leave an option out, remove it")
    if isinstance(value, (int, float)):
        return number_as_text(value)
    return value


def _check(options: dict[str, str]) -> dict[str, str]:
    for name, value in options.items():
        # Slurm's programs accept every unique prefix of an option.
        own = name if name in _OWN else next((each for each in _OWN if each.startswith(name)), None)
        if own is not None:
            key = _KEYS.get(own)
            instead = f"write `{key}`" if key else "no config can change it"
            raise WrongKey(f"hpcflow sets --{own}; {instead}", name)
        if name == "gres" and "gpu" in value:
            raise WrongKey("write `resources.gpus_per_node` for GPUs", name)
    return options


_NAME: Final = Matching(
    r"[a-z][a-z0-9-]*",
    "not a long option of sbatch without its dashes, such as mail-type",
)
_VALUE: Final = Matching(
    r"[A-Za-z0-9_.,:+/&|*()\[\]%@=!-]*",
    "hpcflow passes only letters, digits and _.,:+/&|*()[]%@=!- to sbatch",
    1000,
)
#: The empty text means an option without a value.
SbatchOptions = Annotated[
    dict[
        Annotated[str, _NAME],
        Annotated[
            str,
            BeforeValidator(_value),
            _VALUE,
            WithJsonSchema({"anyOf": [{"type": ["string", "number"]}, {"const": True}]}),
            Kind("text, number or `true`"),
        ],
    ],
    AfterValidator(_check),
]


def as_options(options: Mapping[str, Any]) -> list[str]:
    """Return the options as they follow ``#SBATCH``."""
    return [f"--{name}={value}" if value else f"--{name}" for name, value in options.items()]
