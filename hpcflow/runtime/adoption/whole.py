"""Whether what the program has written is complete.

That nothing changes any more says so only while the program lives: a file that was being written
when its writer was killed never changes again either. What proves it even then is a marker, a
name that a file got when it was complete, and, of what torch saves since 1.6, the end of the file:
that is a zip archive, whose list of contents is written last. It is read, nothing is unpacked.
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
    """Judges what is there by the rule, and by what was seen of it before.

    Args:
        monotonic: the time in seconds, for how long nothing has changed.
    """

    def __init__(
        self, rule: AdoptRule, say: WarnOnce, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._rule = rule
        self._say = say
        self._monotonic = monotonic
        self._since: dict[str, tuple[str, float]] = {}  # name -> state, and since when it has it
        self._torn: dict[str, str] = {}  # name -> state in which it is not whole

    def now(self, foreign: Foreign) -> bool:
        """Whether it is complete, its program being alive; to be asked again and again."""
        now = self._monotonic()
        state, since = self._since.get(foreign.name, ("", now))
        if state != foreign.state:
            since = now
            self._since[foreign.name] = (foreign.state, now)
        if self._rule.renamed:
            return not foreign.is_empty
        return now - since >= self._rule.stable_s and self._has_all(foreign)

    def after(self, foreign: Foreign, alive_ns: int | None) -> bool:
        """Whether it is complete, its program having ended.

        Args:
            alive_ns: when that was certainly alive, in ns since 1970; None: it has ended by itself,
                and finished what it wrote.
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
        """Whether nothing says that something is missing of it."""
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
            self._say(f"{str(torn)!r} begins as an archive and has no end: not adopted")
        return torn is None

    def _is_marked(self, foreign: Foreign, marker: str) -> bool:
        """Whether its marker is there, and of this save; one in JSON has to be all there.

        In a folder that is written over, the marker of the save before lies there still.
        """
        path = foreign.path
        file = path / marker if path.is_dir() else path.with_name(path.name + marker)
        try:
            if file.suffix == ".json":
                read_json(file)
            # Refuses a marker that another user created.
            with open_file(file) as opened:
                made_ns = os.fstat(opened.fileno()).st_mtime_ns
            return foreign.changed_ns - made_ns <= self._rule.stable_s * 1e9
        except (OSError, ValueError):
            return False


def _torn_in(path: Path) -> Path | None:
    """The first file at or below ``path`` that begins as a zip archive, but has no end."""
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
