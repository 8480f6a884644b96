"""Options of sbatch on a line of their own, after ``#SBATCH`` or ``#SCRON``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcflow.errors import InputError, Where
from hpcflow.rendering.quoting import UnquotedError, directive


def checked_options(options: Sequence[str]) -> list[str]:
    """``options`` as they are, if each can stand on such a line.

    Raises:
        InputError: one is no option, or holds white space, quotes and the like.
    """
    for option in options:
        if not option.startswith("--") or "=" not in option:
            raise InputError(
                f"not an option of sbatch, written in one word: {option[:200]!r}",
                next_action="write it like --partition=serial, after `--`",
            )
        _check(option)
    return list(options)


def output_option(log: Path) -> str:
    """``--output`` for a log. Slurm takes ``%`` for the beginning of a pattern.

    Raises:
        InputError: the path cannot stand on such a line.
    """
    _check(str(log))
    return f"--output={str(log).replace('%', '%%')}"


def _check(text: str) -> None:
    try:
        directive(text)
    except UnquotedError:
        raise InputError(
            f"cannot stand in a job script's options: {text[:200]!r}",
            where=Where(key="HPCFLOW_HOME") if text.startswith("/") else None,
            next_action="only ASCII can, without blanks, quotes and any of # $ \\ `",
        ) from None
