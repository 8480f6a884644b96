"""Parse options of sbatch from a line of their own, after ``#SBATCH`` or ``#SCRON``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hpcflow.errors import InputError, Where

#: Options that hpcflow sets: the chain of jobs and the log depend on them.
_OURS: Final = (
    *("--job-name", "--dependency", "--array", "--export", "--export-file", "--wrap", "--begin"),
    *("--clusters", "--output", "--open-mode", "--signal"),
)


def checked_options(options: Sequence[str]) -> list[str]:
    """Return ``options``, if each can be written on such a line.

    Raises:
        InputError: one is not an option, has white space, quotes and the like, or is one that
            hpcflow sets.
    """
    for option in options:
        if not option.startswith("--") or "=" not in option:
            raise InputError(
                f"not an sbatch option in one word: {option[:200]!r}",
                next_action="write it like --partition=serial, after `--`",
            )
        _check(option)
        name = option.partition("=")[0]
        # sbatch accepts unique prefixes of options.
        ours = next((each for each in _OURS if each.startswith(name)), None)
        if ours is not None:
            raise InputError(
                f"{name} cannot be set: with another {ours} its jobs would not follow each "
                "other, or not be found again",
                next_action="leave it out; allowed: partition, account, qos, time, mem and others",
            )
    return list(options)


def output_option(log: Path) -> str:
    """Return ``--output`` for a log, with ``%`` escaped: it begins a pattern in Slurm.

    Raises:
        InputError: the path cannot be written on such a line.
    """
    _check(str(log))
    return f"--output={str(log).replace('%', '%%')}"


def _check(text: str) -> None:
    from hpcflow.rendering.quoting import UnquotedError, directive  # jinja2: only to install

    try:
        directive(text)
    except UnquotedError:
        raise InputError(
            f"cannot be written in a job script's options: {text[:200]!r}",
            where=Where(key="HPCFLOW_HOME") if text.startswith("/") else None,
            next_action="use only ASCII, without blanks, quotes and any of # $ \\ `",
        ) from None
