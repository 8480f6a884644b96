"""Upload one complete checkpoint: its files first, verified on the way, its manifest last."""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Final

from hpcflow.clock import Clock, of_file
from hpcflow.errors import DamagedError, HpcflowError, MirrorError, MissingObjectError
from hpcflow.mirror.layout import MANIFEST, checkpoint_folder
from hpcflow.mirror.records import (
    BEGAN,
    FAILED,
    MIRRORED,
    SENDING,
    Records,
    Upload,
    record,
)
from hpcflow.mirror.remote import Entry, Remote
from hpcflow.mirror.upload import PART_BYTES, Outgoing, Uploader, abort_unfinished
from hpcflow.runtime.checksum import is_checksum, sha256_of_open
from hpcflow.runtime.manifest import CheckpointError, parse_manifest
from hpcflow.runtime.reading import MAX_JSON_BYTES, open_file, read_file
from hpcflow.storage.disk_errors import storage_error
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone

#: Interval of ``began`` records while a checkpoint is sent. Its job waits longer than that.
_BEGAN_INTERVAL_S: Final = 3600.0
_LOOKS_AT_ONCE: Final = 16
#: Errors of reading a manifest that is not valid.
NO_MANIFEST: Final = (CheckpointError, ValueError, KeyError, TypeError, AttributeError)
_GONE: Final = "it was removed here while it was being sent"


class GoneError(HpcflowError):
    """The checkpoint was removed here while it was being sent."""


@dataclass(frozen=True)
class Local:
    """A complete checkpoint in a run directory, by its manifest.

    Attributes:
        files: name -> size in bytes and SHA-256, without the manifest itself.
        manifest: the bytes of the manifest.
        made_at: when the manifest was written, by the file system's clock.
    """

    path: Path
    train_step: int
    files: dict[str, tuple[int, str]]
    manifest: bytes
    manifest_sha256: str
    made_at: datetime

    @property
    def size_bytes(self) -> int:
        """Size of all files, without the manifest."""
        return sum(size for size, _ in self.files.values())


class NoManifestError(DamagedError):
    """The manifest is not valid, or of an unknown format."""

    def __init__(self, message: str, sha256: str) -> None:
        super().__init__(message)
        #: Of the bytes of the manifest.
        self.sha256 = sha256


def read_local(path: Path) -> Local:
    """Read the manifest of the checkpoint in ``path``; its files are not read.

    Raises:
        GoneError: it has no manifest (any more).
        NoManifestError: the manifest is not valid.
        DamagedError: the manifest cannot be read.
    """
    try:
        data = read_file(path / MANIFEST, MAX_JSON_BYTES)
        made_at = of_file((path / MANIFEST).stat().st_mtime)
    except FileNotFoundError:
        raise GoneError(f"{path} has no manifest") from None
    except OSError as error:
        raise DamagedError(f"{path / MANIFEST} cannot be read: {error}") from error
    try:
        manifest = parse_manifest(data)
        files = files_of(manifest)
        if manifest["train_step"] != int(path.name) or not all(map(_is_plain, files)):
            raise ValueError("of another checkpoint")
    except NO_MANIFEST as error:
        said = f"{path / MANIFEST} is not a valid manifest: {error}"
        raise NoManifestError(said, hashlib.sha256(data).hexdigest()) from error
    return Local(path, int(path.name), files, data, hashlib.sha256(data).hexdigest(), made_at)


def send_checkpoint(
    run_dir: RunDir,
    local: Local,
    records: Records,
    uploader: Uploader,
    *,
    clock: Clock,
    on_bytes: Callable[[int], object],
    on_record: Callable[[], object] = lambda: None,
) -> None:
    """Upload ``local``, so that a reader of the store sees all of it or nothing.

    Objects of an earlier try, with the right size and checksum, are not sent again.

    Args:
        on_record: called before each record in ``mirror.jsonl``, so that the ledger reads it.

    Raises:
        DamagedError: it is damaged here. Recorded: it is not tried again.
        GoneError: it was removed here meanwhile; its objects were deleted.
        MirrorError: the store failed. Recorded, to be tried again.
        StorageError: the run directory cannot be read or written. Recorded, to be tried again.
    """
    remote = uploader.remote
    sending = _Sending(run_dir, local, records, remote, clock, on_record)

    def sent(size_bytes: int) -> None:
        on_bytes(size_bytes)
        sending.repeat_began()

    try:
        sending.begin()
        todo = sending.missing()
        on_bytes(local.size_bytes - sum(each.size_bytes for each in todo))
        uploader.send(todo, on_bytes=sent)
        sending.require_found()
        remote.put_bytes(local.manifest, sending.folder + MANIFEST, sha256=local.manifest_sha256)
        sending.end()
    except (OSError, DamagedError) as error:
        if not (local.path / MANIFEST).is_file():
            sending.delete_incomplete()
            raise GoneError(f"{local.path} was removed while it was being sent") from error
        sending.fail(error, is_final=isinstance(error, DamagedError))
        if isinstance(error, DamagedError):
            raise
        raise storage_error("read", local.path, error) from error
    except MirrorError as error:
        sending.fail(error, is_final=False)
        raise


def delete_incomplete(remote: Remote, folder: str) -> None:
    there = remote.names(folder)
    if folder + MANIFEST not in there:  # else the store has a complete one
        remote.delete(list(there))
    abort_unfinished(remote, folder)


def delete_forgotten(run_dir: RunDir, train_step: int, remote: Remote, clock: Clock) -> None:
    """Delete an incomplete checkpoint that was removed here after its upload was killed."""
    delete_incomplete(remote, checkpoint_folder(run_dir.path.name, train_step))
    record(run_dir, clock, FAILED, url=remote.url, train_step=train_step, why=_GONE)


class _Sending:
    """One try to send one checkpoint."""

    def __init__(
        self,
        run_dir: RunDir,
        local: Local,
        records: Records,
        remote: Remote,
        clock: Clock,
        on_record: Callable[[], object],
    ) -> None:
        self._on_record = on_record
        self._run_dir, self._local, self._records = run_dir, local, records
        self._remote, self._clock = remote, clock
        self.folder = checkpoint_folder(run_dir.path.name, local.train_step)
        self._recorded_at_s = self._began_at_s = clock.monotonic()
        self._found: list[str] = []
        self._are_files_sent = False

    def begin(self) -> None:
        self._note(BEGAN, size_bytes=self._local.size_bytes)

    def repeat_began(self) -> None:
        if self._clock.monotonic() - self._recorded_at_s > _BEGAN_INTERVAL_S:
            self._recorded_at_s = self._clock.monotonic()
            self.begin()

    def missing(self) -> list[Outgoing]:
        """Return the files to send; delete objects of another checkpoint of this train step.

        A manifest of the same files stays until the new one replaces it: the store may have a
        complete checkpoint, with fewer metrics in its manifest. Damaged objects are replaced one by
        one.
        """
        there = self._remote.names(self.folder)
        is_whole = there.pop(self.folder + MANIFEST, None) is not None
        has_same_files = is_whole and self._compare_manifests()
        wanted = {self.folder + name: name for name in self._local.files}
        foreign = [name for name in there if name not in wanted]
        with ThreadPoolExecutor(_LOOKS_AT_ONCE, "look") as pool:  # there may be ten thousand
            are_right = pool.map(
                lambda full: full in there and self._is_right(full, there[full], wanted[full]),
                wanted,
            )
            is_found = dict(zip(wanted.values(), are_right, strict=True))
        if is_whole and not has_same_files:
            self._require_whole()  # before the other one, which may be good, is deleted
            self._remote.delete([self.folder + MANIFEST])
        self._remote.delete(foreign)
        self._found = [name for name, is_right in is_found.items() if is_right]
        return [self._outgoing(name) for name, is_right in is_found.items() if not is_right]

    def require_found(self) -> None:
        """Check that objects found before are still there: sending the rest may take hours."""
        there = self._remote.names(self.folder) if self._found else {}
        for name in self._found:
            if self.folder + name not in there:
                raise MirrorError(
                    f"{self._remote.url_of(self.folder + name)} disappeared during the upload",
                    next_action="hpcflow uploads it again; if that repeats, find out what deletes "
                    "objects there: a lifecycle rule of the bucket, or a user",
                )

    def _compare_manifests(self) -> bool:
        """Return whether the manifest in the store names the same files.

        If that manifest was sent from here, its files were too, and need no check.
        """
        try:
            data = self._remote.read(self.folder + MANIFEST)
            has_same_files = files_of(parse_manifest(data)) == self._local.files
        except (MissingObjectError, *NO_MANIFEST):
            return False
        sent = self._records.mirrored.get(self._local.train_step)
        was_sent = sent is not None and sent.manifest_sha256 == hashlib.sha256(data).hexdigest()
        self._are_files_sent = has_same_files and was_sent
        return has_same_files

    def _require_whole(self) -> None:
        """Verify the checksums of all local files."""
        for name, (size_bytes, sha256) in self._local.files.items():
            path = self._local.path / name
            with open_file(path) as file:
                found = os.fstat(file.fileno()).st_size, sha256_of_open(file.fileno(), sha256)
            if found != (size_bytes, sha256):
                raise DamagedError(f"{path} is not what was written: its checksum differs")

    def _is_right(self, full: str, entry: Entry, name: str) -> bool:
        size_bytes, sha256 = self._local.files[name]
        rotten = self._records.rotten.get(self._local.train_step, ())
        if entry.size_bytes != size_bytes or name in rotten:
            return False
        if self._are_files_sent:
            return True
        known = self._remote.stat(full)
        return known is not None and known.sha256 == sha256

    def _outgoing(self, name: str) -> Outgoing:
        size_bytes, sha256 = self._local.files[name]

        def begun(upload: Upload) -> None:
            self._note(SENDING, name=name, **asdict(upload))

        return Outgoing(
            self._local.path / name,
            self.folder + name,
            size_bytes,
            sha256,
            known=self._records.uploads.get(f"{self._local.train_step}/{name}"),
            on_begin=begun,
        )

    def end(self) -> None:
        self._note(
            MIRRORED,
            size_bytes=self._local.size_bytes,
            manifest_sha256=self._local.manifest_sha256,
            took_s=round(self._clock.monotonic() - self._began_at_s, 3),
        )
        if any(size_bytes > PART_BYTES for size_bytes, _ in self._local.files.values()):
            abort_unfinished(self._remote, self.folder)  # of earlier tries

    def fail(self, error: Exception, *, is_final: bool) -> None:
        why = error.message if isinstance(error, HpcflowError) else str(error)
        self._note(FAILED, why=why, is_final=is_final, manifest_sha256=self._local.manifest_sha256)

    def delete_incomplete(self) -> None:
        delete_incomplete(self._remote, self.folder)
        if not is_gone(self._run_dir):
            self.fail(GoneError(_GONE), is_final=False)

    def _note(self, what: str, **facts: Any) -> None:
        self._on_record()
        record(
            self._run_dir,
            self._clock,
            what,
            url=self._remote.url,
            train_step=self._local.train_step,
            **facts,
        )


def files_of(manifest: Mapping[str, Any]) -> dict[str, tuple[int, str]]:
    """Return the files of a manifest: name -> size in bytes and SHA-256.

    Raises:
        ValueError, KeyError, TypeError, AttributeError: it is not valid.
    """
    return {name: (_size(said), _sha256(said)) for name, said in manifest["files"].items()}


def _size(said: Any) -> int:
    size = said["size_bytes"]
    if type(size) is not int or size < 0:
        raise ValueError(f"{size!r} is not a size")
    return size


def _sha256(said: Any) -> str:
    text = said["sha256"]
    if not is_checksum(text):
        raise ValueError(f"{text!r} is not a checksum")
    return str(text)


def _is_plain(name: str) -> bool:
    try:
        name.encode()
    except UnicodeEncodeError:
        raise ValueError(f"{name!r} cannot name an object: it is not UTF-8") from None
    return name != MANIFEST and not {"", ".", ".."} & set(name.split("/")) and "\0" not in name
