"""One run in a store: its frozen spec, its journal and its checkpoints.

All data is untrusted: its size is checked before it is read, and only JSON is parsed.
Reading raises MirrorError if the store fails.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

from hpcflow.errors import DamagedError, MirrorError, NotFoundError, StorageError
from hpcflow.mirror.layout import MANIFEST, RUN_JSON
from hpcflow.mirror.remote import Entry, Remote
from hpcflow.model.run import Run
from hpcflow.restore.journals import history_of
from hpcflow.restore.objects import JOURNAL, Objects, below_files, sort_out, why_unsafe
from hpcflow.runtime.checksum import is_checksum
from hpcflow.runtime.manifest import CheckpointError, parse_manifest
from hpcflow.runtime.reading import MAX_JSON_BYTES, MAX_LINE_BYTES, MAX_RUN_JSON_BYTES
from hpcflow.storage.rundir import parse_run

#: hpcflow looks up and bills each. A run that is preempted every hour has 8,760 in a year.
MOST_ATTEMPTS: Final = 10_000
#: About 60,000 lines.
_MAX_JOURNAL_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class RemoteFile:
    """A file of a checkpoint, as its manifest describes it."""

    size_bytes: int
    sha256: str


@dataclass(frozen=True)
class RemoteCheckpoint:
    """A checkpoint that is complete in the store, by its manifest and the listing.

    Attributes:
        files: by name in its folder.
        manifest: its bytes.
    """

    train_step: int
    files: Mapping[str, RemoteFile]
    manifest: bytes

    @property
    def size_bytes(self) -> int:
        return sum(each.size_bytes for each in self.files.values())


class RemoteRun:
    """A run in a store; everything is read when it is first needed.

    Args:
        remote: the folder of all runs.
    """

    def __init__(self, remote: Remote, run_id: str) -> None:
        self.remote, self.run_id = remote, run_id

    @property
    def url(self) -> str:
        return self.remote.url_of(self.run_id)

    def name(self, of: str) -> str:
        """Return the name in the store of a file of the run directory."""
        return f"{self.run_id}/{of}"

    @cached_property
    def objects(self) -> Objects:
        begin = len(self.run_id) + 1
        listed = self.remote.names(f"{self.run_id}/")
        objects = sort_out({name[begin:]: entry for name, entry in listed.items()})
        objects.refused.extend(
            repr(name[begin:])[:200]
            for name in sorted(self.remote.left_out)
            if name.startswith(f"{self.run_id}/")
        )
        return objects

    @cached_property
    def run(self) -> Run:
        """The run as it was frozen.

        Raises:
            NotFoundError: the store has no such run.
            MirrorError: its ``run.json`` is not valid, or of another run.
        """
        if RUN_JSON not in self.objects.small:
            raise NotFoundError(
                f"{self.remote.url} has no run {self.run_id}",
                next_action="if it was mirrored to another place, name that: hpcflow restore "
                f"--from s3://BUCKET/PREFIX/{self.run_id}, with --endpoint-url URL for another "
                "server; if no copy is left, start it again: hpcflow run CONFIG",
            )
        where = self.remote.url_of(self.name(RUN_JSON))
        try:
            run = parse_run(self.run_json, where)
        except StorageError as error:
            raise MirrorError(error.message, next_action="find out who wrote it") from error
        if run.run_id != self.run_id:
            raise MirrorError(
                f"{where} is of another run: {run.run_id[:80]!r}",
                next_action="find out who wrote it",
            )
        return run

    @cached_property
    def run_json(self) -> bytes:
        return self._read(RUN_JSON, MAX_RUN_JSON_BYTES)

    @property
    def has_journal(self) -> bool:
        """Whether the store has a journal that is not empty."""
        return self.journal_bytes > 0

    @property
    def journal_bytes(self) -> int:
        """The size of the journal; 0 if the store has none."""
        return self.entry(JOURNAL).size_bytes if JOURNAL in self.objects.small else 0

    @cached_property
    def journal(self) -> bytes:
        """The complete lines of its journal.

        Raises:
            MirrorError: there is none, it has too many attempts, or the store failed.
        """
        data = self._read(JOURNAL, _MAX_JOURNAL_BYTES) if self.has_journal else b""
        whole = data[: data.rfind(b"\n") + 1]
        if not whole:
            raise MirrorError(
                f"{self.url} has no journal, so the state of the run's jobs is unknown",
                next_action="it was not mirrored completely; look at its files there, and start a "
                "new run: hpcflow run CONFIG",
            )
        numbers = history_of(whole).numbers
        if len(numbers) > MOST_ATTEMPTS or not all(1 <= each <= MOST_ATTEMPTS for each in numbers):
            raise MirrorError(
                f"{self.remote.url_of(self.name(JOURNAL))} has attempts other than 1 to "
                f"{MOST_ATTEMPTS:,}: hpcflow did not write it",
                next_action="find out who wrote it",
            )
        return whole

    def has_lines_after(self, size_bytes: int) -> bool:
        """Return whether the journal has complete lines after its first ``size_bytes``."""
        end = min(self.journal_bytes, size_bytes + MAX_LINE_BYTES)
        return b"\n" in self.remote.read_range(self.name(JOURNAL), size_bytes, end)

    def checkpoint(self, train_step: int) -> RemoteCheckpoint:
        """Read the manifest of a checkpoint and compare it with the listing.

        Raises:
            DamagedError: the manifest is not valid, or a file is missing or has another size.
        """
        listed = self.objects.checkpoints[train_step]
        folder = f"checkpoints/{train_step:09d}"
        if listed[MANIFEST].size_bytes > MAX_JSON_BYTES:
            raise DamagedError(f"its {MANIFEST} is too large")
        data = self._read(f"{folder}/{MANIFEST}", MAX_JSON_BYTES)
        try:
            manifest = parse_manifest(data)
        except CheckpointError as error:
            raise DamagedError(str(error)) from None
        files = _files(manifest, train_step, self.run_id)
        for name, file in files.items():
            if name not in listed:
                raise DamagedError(f"{name} is missing")
            if listed[name].size_bytes != file.size_bytes:
                raise DamagedError(
                    f"{name} has {listed[name].size_bytes} bytes, not {file.size_bytes}"
                )
        return RemoteCheckpoint(train_step, files, data)

    def entry(self, name: str) -> Entry:
        return self.objects.small[name]

    def _read(self, name: str, most_bytes: int) -> bytes:
        return self.remote.read(self.name(name), most_bytes)

    def too_large(self, name: str) -> MirrorError:
        """Return the error for a file that is larger than any that hpcflow writes."""
        return MirrorError(
            f"{self.remote.url_of(self.name(name))} is too large: hpcflow did not write it",
            next_action="find out who wrote it",
        )


def _files(manifest: Mapping[str, Any], train_step: int, run_id: str) -> dict[str, RemoteFile]:
    """Return the files of a manifest, after validation."""
    if manifest.get("train_step") != train_step:
        raise DamagedError(f"its {MANIFEST} is of another train step")
    if manifest.get("run_id") not in (None, run_id):
        raise DamagedError(f"its {MANIFEST} is of another run")
    files = manifest.get("files")
    if not isinstance(files, dict):
        raise DamagedError(f"its {MANIFEST} lacks files")
    found = {name: _file(name, said) for name, said in files.items()}
    if MANIFEST in found or below_files(found):
        raise DamagedError(f"its {MANIFEST} names a file twice")
    return found


def _file(name: str, said: Any) -> RemoteFile:
    if (why := why_unsafe(name)) is not None:
        raise DamagedError(f"its {MANIFEST} names {name[:200]!r}, which {why}")
    size, sha256 = (said.get(key) if isinstance(said, dict) else None for key in _OF_FILE)
    if type(size) is not int or size < 0 or not is_checksum(sha256):
        raise DamagedError(f"its {MANIFEST} lacks size or checksum of {name!r}")
    return RemoteFile(size, str(sha256))


_OF_FILE: Final = ("size_bytes", "sha256")
