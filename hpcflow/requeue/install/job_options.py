"""Parse options of sbatch from a line of their own, after ``#SBATCH`` or ``#SCRON``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hpcflow.errors import InputError, Where

#: What the chain of jobs, or its log, hangs on; or what makes another job of it than the one sent.
_OURS: Final = (
    *("--job-name", "--dependency", "--array", "--export", "--export-file", "--wrap", "--begin"),
    *("--clusters", "--output", "--open-mode", "--signal"),
)


def checked_options(options: Sequence[str]) -> list[str]:
    """``options`` as they are, if each can stand on such a line.

    Raises:
        InputError: one is no option, holds white space, quotes and the like, or is one that our
            own job cannot do without.
    """
    for option in options:
        if not option.startswith("--") or "=" not in option:
            raise InputError(
                f"not an option of sbatch, written in one word: {option[:200]!r}",
                next_action="write it like --partition=serial, after `--`",
            )
        _check(option)
        name = option.partition("=")[0]
        # sbatch takes a beginning for the whole, where it can mean one thing only.
        ours = next((each for each in _OURS if each.startswith(name)), None)
        if ours is not None:
            raise InputError(
                f"{name} cannot be chosen: with another {ours} its jobs would not follow each "
                "other, or not be found again",
                next_action="leave it out; partition, account, qos, time, mem and the like can be",
            )
    return list(options)


def output_option(log: Path) -> str:
    """``--output`` for a log. Slurm takes ``%`` for the beginning of a pattern.

    Raises:
        InputError: the path cannot stand on such a line.
    """
    _check(str(log))
    return f"--output={str(log).replace('%', '%%')}"


def _check(text: str) -> None:
    from hpcflow.rendering.quoting import UnquotedError, directive  # jinja2: only to install

    try:
        directive(text)
    except UnquotedError:
        raise InputError(
            f"cannot stand in a job script's options: {text[:200]!r}",
            where=Where(key="HPCFLOW_HOME") if text.startswith("/") else None,
            next_action="only ASCII can, without blanks, quotes and any of # $ \\ `",
        ) from None
