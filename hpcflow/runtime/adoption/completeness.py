"""Decide whether a checkpoint of the program is complete.

While the program runs, a checkpoint without recent changes is complete. After the program was
killed, that proves nothing. Then these do: a marker, a rename after the save, or a complete file
of torch.save (since 1.6): a zip archive, whose list of contents is written last. Only that list is
read; nothing is unpacked.

The file system's clock says until when the program was alive, by files of its attempt.
"""

from __future__ import annotations

import os
import struct
import time
import zipfile
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import BinaryIO

from hpcflow.runtime.adoption.foreign import Foreign, read_json
from hpcflow.runtime.adoption.rule import AdoptRule
from hpcflow.runtime.files import files_below
from hpcflow.runtime.objects import ZIP
from hpcflow.runtime.reading import MAX_WORD_BYTES, open_file, read_file
from hpcflow.runtime.warn import WarnOnce

#: Files that the shell around a rank creates if the rank failed or was ended by a signal.
_MARKS = ("failed", "terminated")


class Completeness:
    """Decides by the rule, and by the states seen before.

    Args:
        monotonic: the time in seconds, to measure ``stable_s``.
    """

    def __init__(
        self, rule: AdoptRule, warn: WarnOnce, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._rule = rule
        self._warn = warn
        self._monotonic = monotonic
        self._since: dict[str, tuple[str, float]] = {}  # name -> state, and since when it has it
        self._torn: dict[str, str] = {}  # name -> state in which it is incomplete

    def now(self, foreign: Foreign) -> bool:
        """Return whether it is complete while its program runs; to be called repeatedly."""
        now = self._monotonic()
        state, since = self._since.get(foreign.name, ("", now))
        if state != foreign.state:
            since = now
            self._since[foreign.name] = (foreign.state, now)
        if self._rule.renamed:
            return not foreign.is_empty
        return now - since >= self._rule.stable_s and self._has_all(foreign)

    def after(self, foreign: Foreign, alive_ns: int | None) -> bool:
        """Return whether it is complete after its program has ended.

        Args:
            alive_ns: until when the program was certainly alive, in ns since 1970; None if it
                exited by itself, and so finished its writes.
        """
        stable_ns = int(self._rule.stable_s * 1e9)
        if alive_ns is None or foreign.changed_ns + stable_ns <= alive_ns:
            return self._has_all(foreign)
        if self._rule.renamed or self._rule.marker is not None:
            return self._has_all(foreign)
        try:
            with open_file(foreign.path) as opened:
                proves_itself = _is_zip(opened)
        except OSError:  # a folder, too
            return False
        return proves_itself and self._has_all(foreign)

    def _has_all(self, foreign: Foreign) -> bool:
        """Return whether no part of it is known to be missing."""
        if foreign.is_empty or self._torn.get(foreign.name) == foreign.state:
            return False
        if self._rule.marker is not None and not self._is_marked(foreign, self._rule.marker):
            return False
        if self._rule.renamed:
            return True
        try:
            torn = _torn_in(foreign.path)
        except OSError:
            return False  # it is being removed
        if torn is not None:
            self._torn[foreign.name] = foreign.state
            self._warn(f"{str(torn)!r} is an incomplete zip archive: not adopted")
        return torn is None

    def _is_marked(self, foreign: Foreign, marker: str) -> bool:
        """Return whether its marker exists, is of this save, and, if it is JSON, is complete.

        A folder that is overwritten still has the marker of the save before.
        """
        path = foreign.path
        file = path / marker if path.is_dir() else path.with_name(path.name + marker)
        try:
            if file.suffix == ".json":
                read_json(file)
            with open_file(file) as opened:  # refuses a marker of another user
                made_ns = os.fstat(opened.fileno()).st_mtime_ns
            return foreign.changed_ns - made_ns <= self._rule.stable_s * 1e9
        except (OSError, ValueError):
            return False


def _torn_in(path: Path) -> Path | None:
    """Return the first incomplete zip archive at or below ``path``."""
    files = files_below(path) if path.is_dir() else [("", path)]
    for _, file in files:
        with open_file(file) as opened:
            try:
                if _is_zip(opened):
                    zipfile.ZipFile(opened).close()
            except (zipfile.BadZipFile, ValueError, EOFError, NotImplementedError, struct.error):
                return file
    return None


def _is_zip(opened: BinaryIO) -> bool:
    return opened.read(len(ZIP)) == ZIP


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
