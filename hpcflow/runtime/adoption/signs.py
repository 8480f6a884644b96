"""Find until when a program was alive, from files of attempts, by their file system's clock."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import suppress
from pathlib import Path

from hpcflow.runtime.reading import MAX_WORD_BYTES, read_file

#: Files that the shell around a rank creates if the rank failed or was ended by a signal.
_MARKS = ("failed", "terminated")


def last_sign_of_life_ns(run_dir: Path, attempt: int, exit_code: int) -> int | None:
    """Return when the program of the last attempt before ``attempt`` was certainly alive.

    In ns since 1970. None if it exited by itself (see :func:`has_left`); 0 if no program was
    started.
    """
    for number, folder in sorted(_attempts(run_dir), reverse=True):
        if number < attempt and (folder / "program").exists():
            return None if has_left(folder, exit_code) else alive_until_ns(folder)
    return 0


def has_left(attempt_dir: Path, exit_code: int) -> bool:
    """Return whether the program exited with 0 or ``exit_code``, and no rank failed.

    The file ``resubmit`` does not prove that: one rank created it, and another, which wrote, may
    have been killed since.
    """
    _, code = end_of_program(attempt_dir)
    return code in (0, exit_code) and first_failure_ns(attempt_dir) is None


def alive_until_ns(attempt_dir: Path) -> int:
    """Return until when all ranks of the program were certainly alive, in ns since 1970; 0 if
    unknown.

    Any rank may be the writer. So the first failed rank counts, and the first node whose samples
    ended. Later output of launchers and other ranks is not a sign of life.
    """
    ended_ns, _ = end_of_program(attempt_dir)
    # The last sample of each node: see hpcflow/runtime/sampling.
    seen_ns = list(_dates_ns((attempt_dir / ".usage").glob("*.json")))
    alive_ns = ended_ns if ended_ns and len(seen_ns) < 2 else min(seen_ns, default=0)
    failed_ns = first_failure_ns(attempt_dir)
    return alive_ns if failed_ns is None else min(alive_ns, failed_ns)


def first_failure_ns(attempt_dir: Path) -> int | None:
    """Return when the first rank failed or was ended by a signal, in ns; None if none."""
    return min(_dates_ns(attempt_dir / name for name in _MARKS), default=None)


def end_of_program(attempt_dir: Path) -> tuple[int, int | None]:
    """Return when the program of an attempt ended, in ns since 1970, and its exit code.

    0 and None if the job script was killed before it could write that.
    """
    path = attempt_dir / "program"
    try:
        _, code = read_file(path, MAX_WORD_BYTES).split()
        return path.stat().st_mtime_ns, int(code)
    except (OSError, ValueError):
        return 0, None


def has_same_clock(one: Path, other: Path) -> bool:
    """Return whether both paths are on one file system, so that its clock dated both."""
    try:
        return one.stat().st_dev == other.stat().st_dev
    except OSError:
        return False


def _attempts(run_dir: Path) -> Iterator[tuple[int, Path]]:
    for folder in (run_dir / "attempts").glob("*"):
        if folder.name.isdecimal():
            yield int(folder.name), folder


def _dates_ns(paths: Iterable[Path]) -> Iterator[int]:
    """Yield when each existing path was last changed, in ns since 1970."""
    for path in paths:
        with suppress(FileNotFoundError):
            yield path.stat().st_mtime_ns
