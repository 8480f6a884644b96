"""The directories of sweeps: ``$HPCFLOW_HOME/sweeps/<sweep_id>/``. Create, find, read, append.

::

    sweep.json         the request, frozen at the start
    function.pkl       the function that its trials call, for a sweep of a Python function
    journal.jsonl      samples, results, decisions; see hpcflow/model/sweep_records.py
    tick.lock          held during a tick
    arrays/0001.json   the job names of a Slurm array's attempts

The functions raise StorageError if the home cannot be read or written.
"""

from __future__ import annotations

import difflib
import json
import os
import re
import secrets
import shutil
import stat
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.errors import NotFoundError, StorageError, shell_word
from hpcflow.model.ids import is_run_id
from hpcflow.model.sweep_records import (
    FORMAT,
    Sweep,
    SweepRecord,
    is_torn_or_newer,
    parse_sweep_record,
)
from hpcflow.resources import doc_page
from hpcflow.runtime.reading import read_lines, read_object
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.storage.files import (
    FOLDER_MODE,
    append_line_durably,
    fsync_folder,
    make_folders,
    size_of,
    write_durably,
    write_new,
)
from hpcflow.storage.layout import Home

_LISTED: Final = 8
#: One record holds everything that a run reported since the last read.
_MAX_LINE_BYTES: Final = 64 << 20
_ANEW: Final = (
    "start a new sweep under another name: hpcflow sweep start SWEEP.yaml; see the results of its "
    "trials: hpcflow ls --all; hpcflow submits no more trials of this sweep"
)
_ARRAY_FILE: Final = re.compile(r"[0-9]+\.json", re.ASCII)


class DamagedSweepError(StorageError):
    """The ``sweep.json`` of a sweep is damaged."""


@dataclass(frozen=True)
class SweepDir:
    """Paths of one sweep."""

    path: Path

    @property
    def sweep_id(self) -> str:
        return self.path.name

    @property
    def sweep_json(self) -> Path:
        return self.path / "sweep.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def lock(self) -> Path:
        return self.path / "tick.lock"

    @property
    def arrays(self) -> Path:
        return self.path / "arrays"


def create_sweep(sweep: Sweep, home: Home, files: Mapping[str, bytes] | None = None) -> SweepDir:
    """Make the directory of ``sweep`` atomically.

    Args:
        files: other files for it: name -> content.
    """
    final = home.sweeps / sweep.sweep_id
    half = home.sweeps / f".{sweep.sweep_id}.{secrets.token_hex(4)}.tmp"
    with storage_errors("write", final):
        make_folders(home.sweeps)
        half.mkdir(mode=FOLDER_MODE)
        try:
            text = json.dumps(sweep.model_dump(mode="json"), ensure_ascii=False, indent=1)
            write_new(SweepDir(half).sweep_json, text.encode())
            for name, content in (files or {}).items():
                write_new(half / name, content)
            fsync_folder(half)
            half.rename(final)
        except BaseException:
            shutil.rmtree(half, ignore_errors=True)
            raise
        fsync_folder(home.sweeps)
    return SweepDir(final)


def read_sweep(sweep_dir: SweepDir) -> Sweep:
    """Return the sweep that was frozen into ``sweep.json``.

    Raises:
        DamagedSweepError: it is damaged.
        StorageError: it is missing or not private, or was written by a newer hpcflow.
    """
    require_private(sweep_dir.path)
    path = sweep_dir.sweep_json
    try:
        content = read_object(path)
        if content.get("format", FORMAT) > FORMAT:
            raise StorageError(
                f"{path} was written by a newer hpcflow",
                next_action=f"update this hpcflow: {doc_page('installation')}",
            )
        sweep = Sweep.model_validate(content)
        _ = sweep.spec  # validates it
        if sweep.sweep_id != sweep_dir.sweep_id:
            raise ValueError(f"it belongs to another sweep: {sweep.sweep_id}")
        return sweep
    except OSError as error:
        raise storage_error("read", path, error) from error
    except (ValueError, TypeError) as error:
        raise DamagedSweepError(
            f"{path} is damaged: {str(error).splitlines()[0]}",
            next_action="start a new sweep: hpcflow sweep start SWEEP.yaml; and move this one "
            f"away: mv {shell_word(sweep_dir.path)} "
            f"{shell_word(f'{sweep_dir.path}.damaged')}",
        ) from None


def append(sweep_dir: SweepDir, records: Sequence[SweepRecord]) -> None:
    """Append records with one write, and sync it. Raise StorageError if they cannot be written."""
    if records:
        text = "".join(record.to_line() for record in records)
        append_line_durably(sweep_dir.journal, text)


def read_journal(sweep_dir: SweepDir) -> Iterator[SweepRecord]:
    """Yield the complete records that this version knows, oldest first.

    A line that a crash or a full disk truncated is skipped: it had no effect. The records are not
    kept in a list, which Python's garbage collector would pass over again and again.

    Raises:
        StorageError: the journal cannot be read, is damaged, or is not private: a sampler's state
            in it can execute code when it is read.
    """
    require_private(sweep_dir.path)
    require_private(sweep_dir.journal)
    with storage_errors("read", sweep_dir.journal), suppress(FileNotFoundError):
        lines = read_lines(sweep_dir.journal, max_line_bytes=_MAX_LINE_BYTES)
        for number, line in enumerate(lines, 1):
            record = parse_sweep_record(line)
            if record is not None:
                yield record
            elif not is_torn_or_newer(line):
                raise _damaged(sweep_dir, number)


def lost_journal(sweep_dir: SweepDir, runs: Sequence[str]) -> StorageError:
    """Return the error for ``runs`` whose trials the sweep's journal lacks."""
    what = "has lost records" if size_of(sweep_dir.journal) else "is gone"
    some = f"{runs[0]} and {len(runs) - 1} more" if len(runs) > 1 else runs[0]
    return StorageError(
        f"the journal of sweep {sweep_dir.sweep_id} {what}: it lacks the trials of {some}",
        next_action=f"restore {shell_word(sweep_dir.journal)} from a backup; else {_ANEW}",
    )


def _damaged(sweep_dir: SweepDir, number: int) -> StorageError:
    return StorageError(
        f"the journal of sweep {sweep_dir.sweep_id} is damaged: line {number} of "
        f"{sweep_dir.journal} is not a record",
        next_action=f"restore it from a backup; else {_ANEW}",
    )


def journal_size(sweep_dir: SweepDir) -> int:
    """Return the size of the journal in bytes. Raise StorageError if it cannot be read."""
    return size_of(sweep_dir.journal) or 0


def require_private(path: Path) -> None:
    """Raise StorageError if ``path`` is a link, or another user owns it or can write to it."""
    try:
        status = path.lstat()
    except OSError:
        return  # the reader says why
    if stat.S_ISLNK(status.st_mode):
        raise StorageError(
            f"{path} is a link to {path.readlink()}",
            next_action="replace it by its target if that is yours; else remove it: "
            f"rm {shell_word(path)}",
        )
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        raise StorageError(
            f"{path} belongs to another user, or other users can write to it",
            next_action=f"see its owner: ls -ld {shell_word(path)}; if it is yours: chmod go-w "
            f"{shell_word(path)}",
        )


def next_array(sweep_dir: SweepDir) -> int:
    with storage_errors("read", sweep_dir.arrays), suppress(FileNotFoundError):
        names = [path.name for path in sweep_dir.arrays.iterdir()]
        return max((int(name[:-5]) for name in names if _ARRAY_FILE.fullmatch(name)), default=0) + 1
    return 1


def write_array(sweep_dir: SweepDir, number: int, name: str, job_names: Sequence[str]) -> None:
    """Write and sync the job names of the attempts of an array."""
    with storage_errors("write", sweep_dir.arrays):
        sweep_dir.arrays.mkdir(mode=FOLDER_MODE, exist_ok=True)
    text = json.dumps({"name": name, "jobs": list(job_names)})
    write_durably(sweep_dir.arrays / f"{number:04d}.json", text)


def sweep_ids(home: Home) -> list[str]:
    with storage_errors("read", home.sweeps), suppress(FileNotFoundError):
        return sorted(path.name for path in home.sweeps.iterdir() if is_run_id(path.name))
    return []


def list_sweeps(home: Home) -> list[SweepDir]:
    """Return the directories of all sweeps of this home, sorted by id."""
    return [SweepDir(home.sweeps / sweep_id) for sweep_id in sweep_ids(home)]


def find_sweep(home: Home, text: str) -> SweepDir:
    """Return the sweep that ``text`` names: its id, its name, or a unique beginning of its id.

    If several sweeps have the name, return the newest.

    Raises:
        NotFoundError: no sweep matches, or several do.
    """
    ids = sweep_ids(home)
    if text in ids:
        return SweepDir(home.sweeps / text)
    named = [each for each in ids if each.rsplit("-", 2)[0] == text]
    if named:
        return SweepDir(max((home.sweeps / each for each in named), key=_made_ns))
    begin = [each for each in ids if text and each.startswith(text)]
    if len(begin) == 1:
        return SweepDir(home.sweeps / begin[0])
    if begin:
        some = ", ".join(begin[:_LISTED])
        raise NotFoundError(
            f"{text!r} matches {len(begin)} sweeps: {some}",
            next_action="type an id: hpcflow sweep ls",
        )
    near = difflib.get_close_matches(
        text[:200], [*ids, *(each.rsplit("-", 2)[0] for each in ids)], n=3
    )
    hint = f"; did you mean {' or '.join(dict.fromkeys(near))}?" if near else ""
    raise NotFoundError(
        f"no sweep {text[:200]!r}{hint}", next_action="list yours: hpcflow sweep ls --all"
    )


def _made_ns(path: Path) -> int:
    try:
        return (path / "sweep.json").stat().st_mtime_ns
    except OSError:
        return 0
