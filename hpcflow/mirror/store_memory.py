"""What a home remembers of its stores, in ``$HPCFLOW_HOME/mirror``; no run depends on it.

- ``problems.json``: why the last pass could not send, by run id, or by URL if a store failed.
  Problems of one checkpoint are in its run's ``mirror.jsonl``.
- ``folders.jsonl``: the URLs of plain folders that were used. If one of these does not exist, it
  is not mounted, rather than new.
"""

from __future__ import annotations

import json
import threading
from collections.abc import Container, Iterable, Mapping
from contextlib import suppress
from typing import Any, Final

from hpcflow.errors import HpcflowError, StorageError, next_step
from hpcflow.mirror.records import read_records
from hpcflow.mirror.remote import Remote
from hpcflow.mirror.small_files import was_sent
from hpcflow.model.ids import is_run_id
from hpcflow.runtime.reading import parse_json, read_file, read_object
from hpcflow.storage.files import append_line_durably, make_folders, write_durably
from hpcflow.storage.layout import Home, RunDir

_PROBLEMS: Final = "problems.json"
_FOLDERS: Final = "folders.jsonl"


def read_problems(home: Home) -> dict[str, str]:
    """Return run id, or URL of a store -> why the last pass could not send."""
    try:
        said = read_object(home.mirror / _PROBLEMS)
    except (OSError, ValueError):
        return {}
    return {what: why for what, why in said.items() if isinstance(why, str)}


class StoreMemory:
    """The same for a pass, which updates it; safe for several threads.

    Errors in writing the home are ignored.
    """

    def __init__(self, home: Home) -> None:
        self._home, self._lock = home, threading.Lock()
        self._reached: set[str] = set()

    def make_if_new(self, remote: Remote, run_dirs: Iterable[RunDir]) -> None:
        """Make a plain folder if it is new.

        A missing folder that was used before is not mounted: a new one would put copies onto the
        disk below the mount point.

        Args:
            run_dirs: runs that may have been sent there.
        """
        if remote.lacks_root() and not self._was_used(remote.url, run_dirs):
            remote.make_root()

    def reached(self, url: str, remote: Remote) -> None:
        """Remove the problem of a store that works again; remember a plain folder as used."""
        with self._lock:
            if url in self._reached:
                return
            self._reached.add(url)
            known = read_problems(self._home)
            if known.pop(url, None) is not None:
                self._write(known)
            with suppress(OSError, StorageError):
                if remote.is_folder and remote.url not in self._folders():
                    make_folders(self._home.mirror)
                    append_line_durably(self._home.mirror / _FOLDERS, json.dumps(remote.url))

    def end(self, problems: Mapping[str, HpcflowError], unchecked: Container[str]) -> None:
        """Save the problems of a pass; keep earlier ones that it could not check."""
        before = read_problems(self._home)
        kept = {
            what: why for what, why in before.items() if what in unchecked or not is_run_id(what)
        }
        now = {what: error.message + next_step(error) for what, error in problems.items()}
        if (after := {**kept, **now}) != before:
            self._write(after)

    def _was_used(self, url: str, run_dirs: Iterable[RunDir]) -> bool:
        """Return whether anything was ever sent to a plain folder, as far as this home knows."""
        try:
            if url in self._folders():
                return True
        except OSError:  # unknown: do not make a folder
            return True
        for run_dir in run_dirs:
            with suppress(StorageError):
                if was_sent(run_dir, url) or read_records(run_dir, url).is_used:
                    return True
        return False

    def _folders(self) -> set[str]:
        """Read the URLs of plain folders that were used."""
        try:
            lines = read_file(self._home.mirror / _FOLDERS).split(b"\n")[:-1]
        except FileNotFoundError:
            return set()
        return {url for line in lines if isinstance(url := _parsed(line), str)}

    def _write(self, problems: Mapping[str, str]) -> None:
        with suppress(OSError, StorageError):
            make_folders(self._home.mirror)
            write_durably(self._home.mirror / _PROBLEMS, json.dumps(problems))


def _parsed(line: bytes) -> Any:
    try:
        return parse_json(line)
    except ValueError:  # torn
        return None
