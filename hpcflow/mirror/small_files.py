"""Upload the small files of a run, and again when they have changed; never over newer ones.

Small files are ``run.json``, the journal, and all files in the run directory except checkpoints,
the copy of the runtime, locks and hidden files. ``.mirror-sent.json`` remembers size and mtime of
each sent file; without it, all are sent again.

The store has more if the home was restored from an old backup, or if the run moved to another
cluster, which mirrors it to the same folder: docs/mirror.md, section "Whose folder it is".
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import threading
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Final

from hpcflow.clock import Clock
from hpcflow.errors import MirrorError, MissingObjectError, StorageError, shell_word
from hpcflow.history import RunHistory
from hpcflow.mirror.layout import RUN_JSON
from hpcflow.mirror.remote import Remote
from hpcflow.mirror.upload import PART_BYTES, Outgoing, Uploader, abort_unfinished
from hpcflow.model.journal import parse_record_or_none
from hpcflow.runtime.reading import (
    MAX_LINE_BYTES,
    MAX_RUN_JSON_BYTES,
    JsonError,
    parse_object,
    read_file,
    read_object,
)
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.storage.files import write_durably
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone

_LEFT_OUT: Final = frozenset({"checkpoints", "runtime", "submit.lock", "mirror.lock"})
#: Files that only grow: if the store has more, a purge took the local one.
_GROWS: Final = re.compile(r"mirror\.jsonl|attempts/\d+/(?:events\.jsonl|out\.log)", re.ASCII)
#: A growing file is sent again after one second for each this many bytes of it,
_BYTES_FOR_A_SECOND: Final = 1 << 20
#: or once it has not changed for this long.
_AT_REST_S: Final = 60.0


@dataclass(frozen=True)
class SmallFile:
    """A file as it is now; ``name`` is relative to the run directory."""

    name: str
    path: Path
    size_bytes: int
    mtime_ns: int


def due_files(run_dir: RunDir, url: str, now_s: float) -> list[SmallFile]:
    """Return the files that changed since they were sent to ``url``, ``run.json`` first.

    Args:
        now_s: seconds since the epoch.
    """
    sent = _read_sent(run_dir, url)
    due = [each for each in _files(run_dir) if _is_due(each, sent.get(each.name), now_s)]
    return sorted(due, key=lambda each: (each.name != RUN_JSON, each.name))


def send_small_files(
    run_dir: RunDir, files: list[SmallFile], uploader: Uploader, *, clock: Clock
) -> int:
    """Send these files and return how many; remember those sent, even if another one fails.

    A file that was removed meanwhile is skipped. If the store has lost the run, all are sent.

    Args:
        files: from :func:`due_files`.

    Raises:
        MirrorError: the store has more of the journal, or another place mirrors the run.
    """
    if not files:
        return 0
    if not require_same_place(run_dir, uploader.remote):
        run_dir.mirror_sent.unlink(missing_ok=True)
        files = due_files(run_dir, uploader.remote.url, clock.now().timestamp())
    if journal := next((each for each in files if each.path == run_dir.journal), None):
        lines = require_no_less(run_dir, uploader.remote)
        note_mirrored(run_dir, lines[: journal.size_bytes])
    _send(run_dir, files, uploader, clock=clock)
    return len(files)


def _send(run_dir: RunDir, files: list[SmallFile], uploader: Uploader, *, clock: Clock) -> None:
    sent, lock = _read_sent(run_dir, uploader.remote.url), threading.Lock()
    now_s = clock.now().timestamp()

    def remember(each: SmallFile) -> None:
        with lock:
            sent[each.name] = [each.size_bytes, each.mtime_ns, now_s]

    def outgoing(each: SmallFile) -> Outgoing:
        name, on_sent = f"{run_dir.path.name}/{each.name}", partial(remember, each)
        return Outgoing(each.path, name, each.size_bytes, on_sent=on_sent, may_change=True)

    def is_less(each: SmallFile) -> bool:
        if _GROWS.fullmatch(each.name) is None:
            return False
        there = uploader.remote.stat(f"{run_dir.path.name}/{each.name}")
        if there is None or there.size_bytes <= each.size_bytes:
            return False
        remember(each)  # so that the store is asked once, until the file changes
        return True

    # First, because the rest is useless without it.
    first = [each for each in files if each.name == RUN_JSON]
    try:
        uploader.send(map(outgoing, first))
        uploader.send(
            outgoing(each) for each in files if each.name != RUN_JSON and not is_less(each)
        )
        for each in files:
            if each.size_bytes > PART_BYTES:
                abort_unfinished(uploader.remote, f"{run_dir.path.name}/{each.name}")
    finally:
        _write_sent(run_dir, uploader.remote.url, sent)


def send_run_json(run_dir: RunDir, uploader: Uploader, *, clock: Clock) -> None:
    """Send ``run.json`` if it is due, before any checkpoint; check that no other place mirrors it.

    Raises:
        MirrorError: another place mirrors the run there.
    """
    if not require_same_place(run_dir, uploader.remote):
        run_dir.mirror_sent.unlink(missing_ok=True)
    with storage_errors("look at", run_dir.run_json):
        status = run_dir.run_json.stat()
    frozen = SmallFile(RUN_JSON, run_dir.run_json, status.st_size, status.st_mtime_ns)
    sent = _read_sent(run_dir, uploader.remote.url).get(RUN_JSON)
    if _is_due(frozen, sent, clock.now().timestamp()):
        _send(run_dir, [frozen], uploader, clock=clock)


def was_sent(run_dir: RunDir, url: str) -> bool:
    """Return whether any small file was ever sent to ``url``."""
    return bool(_read_sent(run_dir, url))


def forget_lost(run_dir: RunDir, remote: Remote) -> list[str]:
    """Return files that are missing or shorter in the store, sorted; they are due again."""
    sent = _read_sent(run_dir, remote.url)
    there = remote.names(f"{run_dir.path.name}/")
    lost = [
        name
        for name, (size_bytes, *_) in sorted(sent.items())
        if (entry := there.get(f"{run_dir.path.name}/{name}")) is None
        or entry.size_bytes < size_bytes
    ]
    if lost:
        kept = {name: said for name, said in sent.items() if name not in lost}
        _write_sent(run_dir, remote.url, kept)
    return lost


def _files(run_dir: RunDir) -> Iterator[SmallFile]:
    """Yield the small files; links are not followed, because their targets are outside the run."""
    kept = {path.name: path for path in (run_dir.run_json, run_dir.journal)}
    for name, kept_at in kept.items():
        with suppress(OSError):
            status = kept_at.lstat()
            yield SmallFile(name, kept_at, status.st_size, status.st_mtime_ns)
    waiting = [(str(run_dir.path), "")]
    while waiting:  # no recursion: a program may nest a thousand folders
        path, prefix = waiting.pop()
        try:
            entries = list(os.scandir(path))
        except OSError:
            continue
        for entry in entries:
            name = prefix + entry.name
            if entry.name.startswith(".") or name in _LEFT_OUT or name in kept:
                continue
            if not _is_text(name):
                continue
            try:
                status = entry.stat(follow_symlinks=False)
            except OSError:
                continue
            if stat.S_ISDIR(status.st_mode):
                waiting.append((entry.path, f"{name}/"))
            elif stat.S_ISREG(status.st_mode):
                yield SmallFile(name, Path(entry.path), status.st_size, status.st_mtime_ns)


def _is_text(name: str) -> bool:
    """Return whether a name is valid Unicode, which stores require."""
    return name.encode("utf-8", "replace").decode() == name


def _is_due(file: SmallFile, sent: Any, now_s: float) -> bool:
    try:
        size_bytes, mtime_ns, sent_s = sent
        if (size_bytes, mtime_ns) == (file.size_bytes, file.mtime_ns):
            return False
        is_at_rest = now_s - file.mtime_ns / 1e9 > _AT_REST_S
        return is_at_rest or now_s - sent_s >= file.size_bytes / _BYTES_FOR_A_SECOND
    except (TypeError, ValueError):  # never sent, or the record is not valid
        return True


def _write_sent(run_dir: RunDir, url: str, sent: dict[str, Any]) -> None:
    if not is_gone(run_dir):
        write_durably(run_dir.mirror_sent, json.dumps({"url": url, "files": sent}))


def _read_sent(run_dir: RunDir, url: str) -> dict[str, Any]:
    try:
        said = read_object(run_dir.mirror_sent)
        return dict(said["files"]) if said["url"] == url else {}
    except (OSError, ValueError, KeyError, TypeError):
        return {}


def require_same_place(run_dir: RunDir, remote: Remote) -> bool:
    """Check that no other place mirrors the run to this store.

    Returns:
        Whether the store has a readable ``run.json`` of the run; if not, the rest is useless.

    Raises:
        MirrorError: another place mirrors it there.
    """
    run_id = run_dir.path.name
    name = f"{run_id}/{RUN_JSON}"
    if name not in remote.names(name):  # a listing, because its errors on S3 are precise
        return False
    try:
        there = parse_object(remote.read_range(name, 0, MAX_RUN_JSON_BYTES))
    except (MissingObjectError, JsonError):
        return False
    here = _frozen(run_dir)
    if _place(there) in (_place(here), here.get("place_before")):
        return True
    run_there, site_there = (repr(str(there.get(key))[:200]) for key in ("run_dir", "site"))
    where = f"{run_there} on site {site_there}"
    raise MirrorError(
        f"{remote.url_of(run_id)} is mirrored from another place now: {where}",
        next_action=f"two clusters must not train it at once: hpcflow hold {shell_word(run_id)}; "
        "to continue here from the mirror: hpcflow restore --from "
        f"{shell_word(remote.url_of(run_id))}",
    )


def require_no_less(run_dir: RunDir, remote: Remote) -> bytes:
    """Check that the journal has all lines of the journal in the store, and return it.

    A journal in the store that does not begin with what hpcflow last sent was changed by others,
    and is replaced.

    Raises:
        MirrorError: it lacks some.
    """
    here = _journal(run_dir)
    there = _of_store(run_dir, remote, len(here) + MAX_LINE_BYTES)
    if not here.startswith(there) and not _was_changed(run_dir, there) and not _is_accepted(here):
        run_id = run_dir.path.name
        raise MirrorError(
            f"{remote.url_of(run_id)} has more of the run's journal than {run_dir.journal}",
            next_action="the home may be an old backup; see both: "
            f"hpcflow restore {run_id}; if that holds the run, continue with the local journal: "
            f"hpcflow resume {run_id}",
        )
    return here


def note_mirrored(run_dir: RunDir, lines: bytes) -> None:
    """Record length and checksum of the journal that is about to be sent. Raise StorageError."""
    lines = lines[: lines.rfind(b"\n") + 1]
    write_durably(run_dir.mirrored, f"{len(lines)} {hashlib.sha256(lines).hexdigest()}\n".encode())


def _was_changed(run_dir: RunDir, there: bytes) -> bool:
    """Return whether the store's journal does not begin with what was last sent there."""
    try:
        size_bytes, _, checksum = read_file(run_dir.mirrored).decode().strip().partition(" ")
        return hashlib.sha256(there[: int(size_bytes)]).hexdigest() != checksum
    except (OSError, ValueError):
        return False


def _is_accepted(lines: bytes) -> bool:
    found = (parse_record_or_none(line) for line in lines.split(b"\n") if line)
    return RunHistory.of(each for each in found if each is not None).is_older_home_accepted


def _of_store(run_dir: RunDir, remote: Remote, most_bytes: int) -> bytes:
    """Read the complete lines of the journal in the store, up to ``most_bytes``."""
    name = f"{run_dir.path.name}/{run_dir.journal.name}"
    if name not in remote.names(name):
        return b""
    try:
        said = remote.read_range(name, 0, most_bytes)
    except MissingObjectError:
        return b""
    return said[: said.rfind(b"\n") + 1]


def _journal(run_dir: RunDir) -> bytes:
    with storage_errors("read", run_dir.journal), suppress(FileNotFoundError):
        return read_file(run_dir.journal)
    return b""


def _frozen(run_dir: RunDir) -> dict[str, Any]:
    try:
        return read_object(run_dir.run_json)
    except OSError as error:
        raise storage_error("read", run_dir.run_json, error) from error
    except JsonError as error:
        raise StorageError(f"{run_dir.run_json} is damaged: {error}") from error


def _place(said: Mapping[str, Any]) -> str:
    """Return :attr:`hpcflow.model.run.Run.place_id`, without validating the whole run."""
    return str(said.get("place") or said.get("run_dir"))
