"""Verify that the store still has what was uploaded."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import Final

from hpcflow.clock import Clock
from hpcflow.errors import InputError, MissingObjectError
from hpcflow.mirror.checkpoint import NO_MANIFEST, files_of
from hpcflow.mirror.layout import MANIFEST, checkpoint_folder
from hpcflow.mirror.records import FAILED, READ, record
from hpcflow.mirror.remote import Entry, Remote
from hpcflow.mirror.small_files import forget_lost
from hpcflow.mirror.stores import open_store
from hpcflow.mirror.survey import mirror_of_run, survey
from hpcflow.resources import doc_page
from hpcflow.runtime.checksum import Checksum
from hpcflow.runtime.manifest import parse_manifest
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.layout import Home, RunDir

_PIECE_BYTES: Final = 16 << 20


@dataclass(frozen=True)
class Verified:
    """The result for one checkpoint; ``why`` is set if the store's copy is not intact."""

    train_step: int
    why: str | None


def verify_mirror(home: Home, run_dir: RunDir, *, clock: Clock, reads: bool) -> list[Verified]:
    """Compare every mirrored checkpoint of a run with its records, the newest first.

    A damaged one is recorded as failed, and is due to be sent again.

    Args:
        home: marks the run dirty there, so that the ledger reads it again.
        reads: fetch all files and compute their checksums; else only files without a stored
            checksum.

    Raises:
        InputError: the run has no mirror.
    """
    seen = survey(run_dir)
    if seen is None:
        raise InputError(
            f"{run_dir.path.name} is not mirrored",
            next_action=f"name a store in the site file or in the config: {doc_page('mirror')}",
        )
    remote = open_store(seen.mirror, clock=clock)
    results = []
    for step, sent in sorted(seen.records.mirrored.items(), reverse=True):
        folder = checkpoint_folder(seen.run_id, step)
        fetched = _Fetched(remote)
        wrong = _wrong(fetched, folder, sent.manifest_sha256, reads=reads)
        if fetched.size_bytes:  # some stores charge for it
            mark_dirty(home, run_dir)
            size_bytes = fetched.size_bytes
            record(run_dir, clock, READ, url=remote.url, train_step=step, size_bytes=size_bytes)
        why = _summary(list(wrong.values()))
        if why is not None:
            mark_dirty(home, run_dir)
            record(
                run_dir,
                clock,
                FAILED,
                url=remote.url,
                train_step=step,
                why=f"it was mirrored, but now {why}",
                manifest_sha256=sent.manifest_sha256,
                names=[name for name in wrong if name != MANIFEST],
            )
        results.append(Verified(step, why))
    return results


def verify_small_files(run_dir: RunDir, *, clock: Clock) -> list[str]:
    """Return the small files that are missing or shorter in the store; they are due again."""
    mirror = mirror_of_run(run_dir)
    return [] if mirror is None else forget_lost(run_dir, open_store(mirror, clock=clock))


class _Fetched:
    """A store, and the number of bytes read from its files."""

    def __init__(self, remote: Remote) -> None:
        self.remote = remote
        self.size_bytes = 0

    def sha256(self, name: str, entry: Entry, like: str, *, reads: bool) -> str:
        """Return the stored checksum, or compute it if there is none or ``reads`` is set."""
        known = None if reads else self.remote.stat(name)
        if known is not None and known.sha256 is not None:
            return known.sha256
        checksum = Checksum(like)
        for begin in range(0, entry.size_bytes, _PIECE_BYTES):
            piece = self.remote.read_range(name, begin, begin + _PIECE_BYTES)
            self.size_bytes += len(piece)
            checksum.update(piece)
        return checksum.text()


def _wrong(store: _Fetched, folder: str, manifest_sha256: str, *, reads: bool) -> dict[str, str]:
    """Return name -> what is wrong with the object."""
    remote = store.remote
    try:
        manifest = remote.read(folder + MANIFEST)
    except MissingObjectError:
        return {MANIFEST: "its manifest is missing"}
    if hashlib.sha256(manifest).hexdigest() != manifest_sha256:
        return {MANIFEST: "its manifest was replaced"}
    try:
        files = files_of(parse_manifest(manifest))
    except NO_MANIFEST as error:
        return {MANIFEST: f"its manifest is not valid: {error}"}
    there, wrong = remote.names(folder), {}
    for name, (size_bytes, sha256) in files.items():
        entry = there.get(folder + name)
        if entry is None:
            wrong[name] = f"{name} is missing"
        elif entry.size_bytes != size_bytes:
            wrong[name] = f"{name} has {entry.size_bytes} bytes, not {size_bytes}"
        elif store.sha256(folder + name, entry, sha256, reads=reads) != sha256:
            wrong[name] = f"{name} has the right size but another checksum"
    return wrong


def _summary(wrong: list[str]) -> str | None:
    if not wrong:
        return None
    return wrong[0] if len(wrong) == 1 else f"{wrong[0]}, and {len(wrong) - 1} more files"
