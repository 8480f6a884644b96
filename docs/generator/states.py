"""Generate the tables in docs/states.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from docs.generator.decisions import EXAMPLES, Example
from docs.generator.ends import ENDS, End
from hpcflow.model.state import run_state_after
from hpcflow.model.units import write_duration
from hpcflow.reconcile.classify_end import LEFT_WITHIN, LISTED_AFTER_S, VANISHED_AFTER_S
from hpcflow.requeue.policy import CRASHES_WITHIN, FORGOTTEN_AFTER, MEMORY_FACTOR, NEW_FOR

_BEGIN: Final = "<!-- Made by `python -m docs.generator` from {source}; edit that. -->"
_END: Final = "<!-- End of what is made. -->"


def states_page(docs: Path) -> str:
    """Return docs/states.md with current tables between their marks.

    Raises:
        ValueError: the marks are missing.
    """
    text = (docs / "states.md").read_text(encoding="utf-8")
    for source, table in (
        ("docs/generator/ends.py", ends_table()),
        ("docs/generator/decisions.py", rules_table()),
        ("docs/generator/states.py", numbers_table()),
    ):
        begin = _BEGIN.format(source=source)
        head, found, rest = text.partition(begin)
        _, end, tail = rest.partition(_END)
        if not found or not end:
            raise ValueError(f"docs/states.md has lost the marks around its table of {source}")
        text = f"{head}{begin}\n\n{table}\n{_END}{tail}"
    return text


def ends_table() -> str:
    lines = [
        "| Slurm says | exit code | what else is known | cause | the run becomes |",
        "|---|---|---|---|---|",
    ]
    return "\n".join([*lines, *map(_end, ENDS)]) + "\n"


def _end(end: End) -> str:
    says = f"`{end.raw_state}`" if end.raw_state else "nothing: it has no record of the job"
    code = "" if end.exit_code is None else str(end.exit_code)
    then = run_state_after(end.cause).value
    return f"| {says} | {code} | {end.told} | {end.cause.value} | {then} |"


def rules_table() -> str:
    lines = ["| the run | then | rule |", "|---|---|---|"]
    lines += [f"| {example.told} | {_then(example)} | `{example.rule}` |" for example in EXAMPLES]
    return "\n".join(lines) + "\n"


def _then(example: Example) -> str:
    if example.mem_mb is not None:
        return f"{example.action.value} with {example.mem_mb:,} MB"
    return {"none": "nothing"}.get(example.action.value, example.action.value)


def numbers_table() -> str:
    lines = ["| number | what it is | why that much |", "|---|---|---|"]
    lines += [f"| {number} | {what} | {why} |" for number, what, why in _NUMBERS]
    return "\n".join(lines) + "\n"


def _duration(seconds: float) -> str:
    return write_duration(round(seconds))


_NUMBERS: Final = (
    (
        f"{MEMORY_FACTOR:g} ×",
        "memory after `out_of_memory`, at most that of a node",
        "enough to make a difference, and still a job of about the same size, which is pending "
        "about as long; tried once (`retry.out_of_memory`), because it does not help a program "
        "that leaks memory",
    ),
    (
        _duration(FORGOTTEN_AFTER.total_seconds()),
        "if no daemon has checked a run for this long since it ended, was refused or was created, "
        "it is `forgotten`",
        "longer than a holiday without a daemon; a first daemon does not submit runs that were "
        "abandoned long ago",
    ),
    (
        _duration(NEW_FOR.total_seconds()),
        "a run that was just created is left to the process that created it (`new`)",
        "longer than `hpcflow run` takes to write its first intent, also while Slurm is slow",
    ),
    (
        _duration(CRASHES_WITHIN.total_seconds()),
        "a failure this soon after the start, before the first train step, is a crash; the second "
        "one in a row with the same last lines stops the run (`same_crash`)",
        "longer than the imports of a program on a busy file system, shorter than training that "
        "is worth a third try",
    ),
    (
        _duration(VANISHED_AFTER_S),
        "a job that neither squeue nor accounting knows has vanished",
        "slurmctld sends its records to slurmdbd in batches, and both may be restarting",
    ),
    (
        _duration(LISTED_AFTER_S),
        "a job that squeue does not know, and accounting lists as pending or running, has vanished",
        "squeue can omit a running job; accounting can keep a record that was never closed",
    ),
    (
        _duration(LEFT_WITHIN.total_seconds()),
        "at most this long after a preemption, an end counts as caused by it",
        "longer than any grace time; Slurm keeps the time of a preemption that was called off",
    ),
)
