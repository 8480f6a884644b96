"""Find the checkpoint that a new run starts from, and copy it when the run is created.

The copy is part of the run directory from the start, so later changes of the other run do not
matter. The files of the user's own run on the same file system are hard-linked, because they never
change; all others are verified by their checksums while they are copied.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from hpcflow.clock import Clock
from hpcflow.errors import DamagedError, NotFoundError, StorageError, shell_word
from hpcflow.mirror.checkpoint import files_of
from hpcflow.mirror.download import Wanted as WantedFile
from hpcflow.mirror.download import download
from hpcflow.mirror.layout import MANIFEST
from hpcflow.mirror.remote import Options, Remote
from hpcflow.mirror.stores import open_remote, open_store
from hpcflow.mirror.survey import mirror_of_run
from hpcflow.model.start import START, StartedFrom, Wanted, wanted
from hpcflow.placement.run_paths import endpoint_of
from hpcflow.runtime.disk_quota import require_room
from hpcflow.runtime.files import sync_folders
from hpcflow.runtime.manifest import CheckpointError, Share, parse_manifest, parts_of, verify
from hpcflow.runtime.reading import MAX_JSON_BYTES, UnsafeFileError, require_no_strange_link
from hpcflow.runtime.rule import NAMES, name_of
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site
from hpcflow.storage.files import FOLDER_MODE, link_tree, write_new
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import find_run, is_gone

_LISTED = 12


@dataclass(frozen=True)
class Start:
    """A complete checkpoint to start from.

    Attributes:
        pinned: the ``start_from`` that names exactly this checkpoint.
        origin: the record for ``run.json``.
    """

    pinned: str
    origin: StartedFrom
    _remote: Remote
    _folder: str
    _manifest: bytes
    _files: Mapping[str, tuple[int, str]]
    _is_of_run: bool = False

    def copy_to(self, target: Path) -> None:
        """Copy the checkpoint to ``target``, complete and durable.

        Raises:
            StorageError: the checkpoint was removed meanwhile.
            MirrorError: a checksum differs, or the store failed.
        """
        own = _own_folder(self._remote, self._folder) if self._is_of_run else None
        if own is None:
            self._fetch(target)
            return
        try:
            link_tree(own, target)
        except FileNotFoundError:
            raise StorageError(
                f"{self.origin}, named in start_from, was removed a moment ago",
                next_action="name another one in start_from",
            ) from None

    def _fetch(self, target: Path) -> None:
        target.mkdir(mode=FOLDER_MODE, parents=True)
        require_room(target, self.origin.size_bytes)
        files = [
            WantedFile(f"{self._folder}{name}", target / name, size_bytes, sha256)
            for name, (size_bytes, sha256) in self._files.items()
        ]
        download(self._remote, files)
        write_new(target / MANIFEST, self._manifest)  # last: it makes the checkpoint complete
        sync_folders(target)


def start_of(run_dir: RunDir, *, clock: Clock) -> Start | None:
    """Return a run's copy of the checkpoint that it started from; None if it has none."""
    run = read_run(run_dir)
    if run.started_from is None or run.spec.start_from is None:
        return None
    here = open_remote(str(run_dir.path), clock=clock)
    found = _read_start(here, f"{START}/", run.spec.start_from)
    return replace(found, origin=run.started_from, _is_of_run=True)


def find_start(text: str, *, site: Site, settings: Settings, clock: Clock) -> Start:
    """Find the checkpoint that ``start_from: text`` names, and read its manifest.

    Raises:
        NotFoundError: there is no such run or checkpoint; the error lists the run's checkpoints.
        StorageError, MirrorError: it is torn, or cannot be read.
    """
    start = wanted(text)
    if start.is_path and os.path.isdir(text):  # noqa: PTH112 - Path raises for a long name
        start = Wanted(text)
    if start.is_url:
        options = Options(endpoint_url=endpoint_of(start.place, site, settings))
        return _of_place(open_remote(start.place, options, clock=clock), start)
    if start.is_path:
        return _of_place(open_remote(_folder(start.place), clock=clock), start)
    return _of_run(start, settings, clock)


def _of_run(start: Wanted, settings: Settings, clock: Clock) -> Start:
    """Find the checkpoint of a run: on scratch, else in its mirror."""
    run_dir = find_run(settings.home, start.place)
    run_id = run_dir.path.name
    seen: set[int] = set()
    if not is_gone(run_dir):
        here = open_remote(str(run_dir.path), clock=clock)
        seen.update(_train_steps(here, ""))
        if (step := _chosen(here, "", start, seen)) is not None:
            found = _read_start(here, _folder_of("", step), f"{run_id}@{step}")
            return replace(found, _is_of_run=True)
    mirror = mirror_of_run(run_dir)
    if mirror is not None:
        there, begin = open_store(mirror, clock=clock), f"{run_id}/"
        seen.update(_train_steps(there, begin))
        if (step := _chosen(there, begin, start, seen)) is not None:
            return _read_start(there, _folder_of(begin, step), f"{run_id}@{step}")
    raise _no_checkpoint(f"run {run_id}", start, seen, f"hpcflow checkpoint ls {run_id}")


def _of_place(remote: Remote, start: Wanted) -> Start:
    """Find the checkpoint in the folder of a run, or of one checkpoint."""
    if remote.exists(MANIFEST):
        found = _read_start(remote, "", start.place)
        if start.train_step not in (None, found.origin.train_step):
            raise _no_checkpoint(start.place, start, {found.origin.train_step})
        return found
    steps = set(_train_steps(remote, ""))
    step = _chosen(remote, "", start, steps)
    if step is None:
        raise _no_checkpoint(start.place, start, steps)
    return _read_start(remote, _folder_of("", step), f"{start.place}@{step}")


def _folder(path: str) -> str:
    """Return the real path of ``path``, which is a directory that this user may enter."""
    try:
        if not os.path.isdir(os.stat(path) and path):  # noqa: PTH112, PTH116 - a path as text
            raise NotADirectoryError
        require_no_strange_link(Path(path))
    except UnsafeFileError as error:
        raise StorageError(
            f"{path} cannot be used: {error.filename}: {error.strerror}",
            next_action="name the folder by its path without links",
        ) from None
    except PermissionError:
        raise NotFoundError(
            f"you may not read {path}",
            next_action="ask its owner for a copy: hpcflow checkpoint export RUN FOLDER",
        ) from None
    except OSError as error:
        raise NotFoundError(
            f"{path} is not a directory"
            if isinstance(error, NotADirectoryError)
            else f"{path}: {error.strerror}",
            next_action="correct the path; it is relative to the file that names it",
        ) from None
    return os.path.realpath(path)


def _train_steps(remote: Remote, begin: str) -> list[int]:
    """Return the train steps of a run's checkpoint folders, complete or not, newest first."""
    names = remote.folders(f"{begin}checkpoints/")
    return sorted((int(name) for name in names if NAMES.fullmatch(name)), reverse=True)


def _chosen(remote: Remote, begin: str, start: Wanted, steps: set[int]) -> int | None:
    """Return the wanted train step among ``steps``; remove the incomplete ones from ``steps``."""
    for step in sorted(steps, reverse=True):
        if start.train_step in (None, step):
            if remote.exists(_folder_of(begin, step) + MANIFEST):
                return step
            steps.discard(step)
    return None


def _folder_of(begin: str, train_step: int) -> str:
    return f"{begin}checkpoints/{name_of(train_step)}/"


def _no_checkpoint(
    what: str, start: Wanted, steps: set[int], look: str | None = None
) -> NotFoundError:
    ordered = [str(step) for step in sorted(steps)]
    some = ", ".join(ordered[-_LISTED:])
    if len(ordered) > _LISTED:
        some = f"{len(ordered)}, the last {_LISTED} of them: {some}"
    wanted_step = "" if start.train_step is None else f" of train step {start.train_step}"
    has = (
        f"it has {some or 'none'}"
        if ordered or start.train_step is not None
        else "wait for its first one, or start from another run"
    )
    return NotFoundError(
        f"{what} has no complete checkpoint{wanted_step}",
        next_action=f"{has}: {look}" if look else has,
    )


def _read_start(remote: Remote, folder: str, pinned: str) -> Start:
    """Read the complete checkpoint in ``folder`` by its manifest."""
    url = remote.url_of(folder).rstrip("/")
    data = remote.read(folder + MANIFEST, MAX_JSON_BYTES)
    try:
        manifest = parse_manifest(data)
        files = files_of(manifest)
        for name in files:
            parts_of(name)
        train_step, run_id = manifest["train_step"], manifest.get("run_id")
        if type(train_step) is not int or train_step < 0 or MANIFEST in files:
            raise ValueError("it has no train step")
        own = _own_folder(remote, folder)
        if own is not None:
            verify(own, Share(sizes_only=True))
    except (CheckpointError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise DamagedError(
            f"{url} is not a complete checkpoint: {error}",
            next_action=f"see what it has: ls -la {shell_word(url)}; or name another one",
        ) from None
    origin = StartedFrom(
        place=url,
        run_id=run_id if isinstance(run_id, str) else None,
        train_step=train_step,
        size_bytes=sum(size_bytes for size_bytes, _ in files.values()),
        manifest_sha256=hashlib.sha256(data).hexdigest(),
    )
    return Start(pinned, origin, remote, folder, data, files)


def _own_folder(remote: Remote, folder: str) -> Path | None:
    """Return the checkpoint's folder, if it is on this machine and owned by this user."""
    if not remote.is_folder:
        return None
    path = Path(remote.url, folder)
    try:
        return path if path.stat().st_uid == os.geteuid() else None
    except OSError:
        return None
