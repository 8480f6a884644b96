"""What the files of the attempts say of who is alive, by the clock of their disk."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hpcflow.runtime.reading import MAX_WORD_BYTES, read_file

#: What the shell around a rank leaves when that has failed, or was ended by a signal.
_MARKS = ("failed", "terminated")


def last_sign_of_life_ns(run_dir: Path, attempt: int, exit_code: int) -> int | None:
    """When the program of the attempt before ``attempt`` was certainly alive, in ns since 1970.

    None: it has left by itself: see :func:`has_left`. 0: no program was ever started.
    """
    for number, folder in sorted(_attempts(run_dir), reverse=True):
        if number < attempt and (folder / "program").exists():
            return None if has_left(folder, exit_code) else alive_until_ns(folder)
    return 0


def has_left(attempt_dir: Path, exit_code: int) -> bool:
    """Whether the program left by itself, with 0 or ``exit_code``, and none of its ranks failed.

    The word ``resubmit`` does not say so: one rank has left it, and another, which wrote, may have
    been killed since.
    """
    _, code = end_of_program(attempt_dir)
    return code in (0, exit_code) and first_failure_ns(attempt_dir) is None


def alive_until_ns(attempt_dir: Path) -> int:
    """Until when all ranks of the program were certainly alive, in ns since 1970; 0: nobody knows.

    Nobody knows which rank writes. So the first that failed counts, and the first node that was
    not seen any more. What launchers and other ranks print later is no sign of life.
    """
    ended_ns, _ = end_of_program(attempt_dir)
    # When each node has seen the program last: see hpcflow/runtime/sampling.
    seen_ns = list(_dates_ns((attempt_dir / ".usage").glob("*.json")))
    alive_ns = ended_ns if ended_ns and len(seen_ns) < 2 else min(seen_ns, default=0)
    failed_ns = first_failure_ns(attempt_dir)
    return alive_ns if failed_ns is None else min(alive_ns, failed_ns)


def first_failure_ns(attempt_dir: Path) -> int | None:
    """When the first of its ranks failed or was ended by a signal; None: none has."""
    return min(_dates_ns(attempt_dir / name for name in _MARKS), default=None)


def end_of_program(attempt_dir: Path) -> tuple[int, int | None]:
    """When the program of an attempt ended, in ns since 1970, and its exit code.

    0 and None where nobody lived to write that down.
    """
    path = attempt_dir / "program"
    try:
        _, code = read_file(path, MAX_WORD_BYTES).split()
        return path.stat().st_mtime_ns, int(code)
    except (OSError, ValueError):
        return 0, None


def has_same_clock(one: Path, other: Path) -> bool:
    """Whether what is at both paths was dated by the same clock: that of one file system."""
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False


def _attempts(run_dir: Path) -> Iterator[tuple[int, Path]]:
    for folder in (run_dir / "attempts").glob("*"):
        if folder.name.isdecimal():
            yield int(folder.name), folder


def _dates_ns(paths: Iterable[Path]) -> Iterator[int]:
    """When each of those that exist was written last, in ns since 1970."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield path.stat().st_mtime_ns
