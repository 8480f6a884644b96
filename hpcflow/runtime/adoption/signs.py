"""What the files of the attempts say of who is alive, by the clock of their disk."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from hpcflow.runtime.reading import MAX_WORD_BYTES, read_file


def last_sign_of_life_ns(run_dir: Path, attempt: int, exit_code: int) -> int | None:
    """When the program of the attempt before ``attempt`` was certainly alive, in ns since 1970.

    None: it has left by itself: see :func:`has_left`. 0: no program was ever started.
    """
    for number, folder in sorted(_attempts(run_dir), reverse=True):
        if number < attempt and (folder / "program").exists():
            if has_left(folder, exit_code):
                return None
            return end_of_program(folder)[0] or _last_word_ns(folder)
    return 0


def has_left(attempt_dir: Path, exit_code: int) -> bool:
    """Whether the program left by itself, with 0 or ``exit_code``, and none of its ranks failed.

    The word ``resubmit`` does not say so: one rank has left it, and another, which wrote, may have
    been killed since.
    """
    _, code = end_of_program(attempt_dir)
    return code in (0, exit_code) and not (attempt_dir / "failed").exists()


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


def _last_word_ns(attempt_dir: Path) -> int:
    """When it, or what belongs to its job, has written anything for the last time."""
    last = 0
    for name in ("program", "out.log", "events.jsonl"):
        try:
            last = max(last, (attempt_dir / name).stat().st_mtime_ns)
        except OSError:  # noqa: PERF203 - three files
            continue
    return last
