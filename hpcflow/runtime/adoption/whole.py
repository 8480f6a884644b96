"""Decide whether a checkpoint of the program is complete.

While the program runs, a checkpoint without recent changes is complete. After the program was
killed, that proves nothing. Then these do: a marker, a rename after the save, or a complete file
of torch.save (since 1.6): a zip archive, whose list of contents is written last. Only that list is
read; nothing is unpacked.
"""

from __future__ import annotations

import os
import struct
import time
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from hpcflow.runtime.adoption.foreign import Foreign, read_json
from hpcflow.runtime.adoption.rule import AdoptRule
from hpcflow.runtime.files import files_below
from hpcflow.runtime.objects import ZIP
from hpcflow.runtime.reading import open_file
from hpcflow.runtime.warn import WarnOnce


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
