"""The folder ``checkpoints/``: publish a checkpoint in it at once, and find the newest.

::

    checkpoints/
      000000400/  manifest.json  model.pt …      complete
      .000000500.7f3a….tmp/                      being written, or its save was killed
      .000000400.19bc….broken/                   found damaged: see retention.set_aside

A checkpoint is written under a hidden name, gets its manifest, is synced, and renamed: readers see
all of it or nothing. Only rank 0 uses this module; :mod:`hpcflow.runtime.saving` has what the ranks
do together.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcflow.runtime import disk_quota
from hpcflow.runtime.files import (
    Written,
    names_in,
    opened_folder,
    random_bits,
    random_word,
    remove_tree,
    sizes_below,
    sync,
    sync_folders,
    write_new,
)
from hpcflow.runtime.manifest import (
    ALL,
    NAME,
    NOTHING,
    Checkpoint,
    CheckpointError,
    DamagedError,
    Share,
    finite,
    manifest_bytes,
    metrics_of,
    parse_manifest,
    read_manifest,
    verify,
    write_manifest,
)
from hpcflow.runtime.rule import NAMES, name_of
from hpcflow.runtime.warn import warn

_LEFT_BEHIND = re.compile(r"\.\d+\.[0-9a-f]+\.(tmp|old)", re.ASCII)


class CheckpointStore:
    """The checkpoints of one run.

    Attributes:
        damaged: train steps of the checkpoints that this process found damaged.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged: set[int] = set()
        self._known_good: set[int] = set()
        self._sizes: dict[int, int] = {}  # from manifests, not verified
        self._last_bytes: int | None = None  # of the last that was made or verified here

    def path(self, train_step: int) -> Path:
        return self.folder / name_of(train_step)

    def staging_path(self, train_step: int, token: int) -> Path:
        """Return the hidden folder into which all ranks write their files of this checkpoint."""
        return self.folder / f".{train_step:09d}.{token:016x}.tmp"

    def stage(self, train_step: int, token: int, size_bytes: int | None = None) -> Path:
        """Create the hidden folder.

        Args:
            size_bytes: the size to be written; if None, the size of the last checkpoint that this
                process has made or verified, if any.

        Raises:
            OSError: the disk is full or gone, or has no room for that size.
        """
        # Without its parents: a deleted run directory must not reappear with this folder alone.
        self.folder.mkdir(exist_ok=True)
        if size_bytes is None:
            size_bytes = self._last_bytes
        if size_bytes is not None:
            disk_quota.require_room(self.folder, size_bytes)
        path = self.staging_path(train_step, token)
        path.mkdir()
        return path

    def require_quota(self) -> None:
        """Check that the quotas have room for a checkpoint as large as the last; this is slow.

        Raises:
            OSError: they have not.
        """
        if self._last_bytes is not None:
            disk_quota.require_quota(self.folder, self._last_bytes)

    def has(self, train_step: int) -> bool:
        """Return whether an intact checkpoint of ``train_step`` exists; verify it if necessary."""
        if train_step not in self._known_good:
            try:
                self.check(self.path(train_step))
            except CheckpointError:
                return False
        return True

    def knows(self, train_step: int) -> bool:
        """Return whether this process has made or verified the checkpoint of ``train_step``.

        Any other is of an attempt that should have ended, and is replaced by the new one.
        """
        return train_step in self._known_good

    def publish(
        self,
        staged: Path,
        train_step: int,
        files: Mapping[str, Written],
        require_right: Callable[[], None] = lambda: None,
        **facts: Any,
    ) -> Checkpoint:
        """Publish the files in ``staged`` at once as the checkpoint of ``train_step``.

        Args:
            files: all files, synced, by their names below ``staged``.
            require_right: raises OSError if a later attempt executes the run. Called last, because
                the steps before it may take seconds.

        Raises:
            OSError: the disk is full or gone, or a later attempt has made this checkpoint; nothing
                became visible.
        """
        size_bytes = write_manifest(staged, files, train_step=train_step, **facts)
        sync_folders(staged)
        path = self.path(train_step)
        require_right()
        if path.is_symlink() or path.exists():
            _require_not_later(path, facts.get("attempt"))
            # After a kill between the two renames, clean() does the second.
            path.rename(self._hidden(path.name, "broken"))
        staged.rename(path)
        sync(self.folder)
        self._known_good.add(train_step)
        self._last_bytes = size_bytes
        return Checkpoint(
            path, train_step, size_bytes, facts.get("epoch"), facts.get("metrics") or {}
        )

    def add_metrics(
        self,
        train_step: int,
        metrics: Mapping[str, float],
        require_right: Callable[[], None] = lambda: None,
        *,
        run_id: str | None,
        attempt: int | None,
    ) -> Checkpoint:
        """Add ``metrics`` to the manifest of a checkpoint, and set its ``attempt``.

        A metric whose new value is not finite is removed.

        Args:
            run_id: the run that the checkpoint must belong to.
            require_right: as in :meth:`publish`.

        Raises:
            NotThere: there is no checkpoint of ``train_step``.
            CheckpointError: it is of another run, or its manifest would be unreadable.
            OSError: the disk is full or gone, or a later attempt has made it; it is unchanged.
        """
        path = self.path(train_step)
        self.check(path, NOTHING)
        # If another checkpoint replaces this one meanwhile, this folder has another name.
        with opened_folder(path) as folder:
            manifest = read_manifest(path)
            if manifest.get("run_id") != run_id:
                raise CheckpointError("its manifest is of another run")
            _require_not_later(path, attempt)
            changed = {**manifest, "metrics": finite({**metrics_of(manifest), **metrics})}
            if attempt is not None:
                changed["attempt"] = attempt
            if changed != manifest:
                self._replace_manifest(folder, train_step, manifest_bytes(changed), require_right)
        return self.check(path, NOTHING)

    def _replace_manifest(
        self, folder: Path, train_step: int, data: bytes, require_right: Callable[[], None]
    ) -> None:
        parse_manifest(data)
        staged = self.stage(train_step, random_bits(62), len(data))
        try:
            write_new(staged / NAME, data)
            require_right()
            (staged / NAME).rename(folder / NAME)
            sync(folder)
        finally:
            remove_tree(staged)

    def newest(self) -> Checkpoint | None:
        """Return the newest intact checkpoint; warn about each newer one that is not.

        Raises:
            CheckpointError: none is intact, but one cannot be read now and may be.
            OSError: the folder exists, but cannot be read.
        """
        unreadable = None
        for train_step in self.train_steps():
            path = self.path(train_step)
            try:
                return self.check(path)
            except CheckpointError as error:
                warn(f"skipped checkpoint {path}: {error}")
                if isinstance(error.__cause__, OSError):
                    unreadable = error
        if unreadable is not None:
            raise CheckpointError(f"a checkpoint may be intact, but cannot be read: {unreadable}")
        return None

    def train_steps(self) -> Iterator[int]:
        """Return the train steps of all folders named like checkpoints, newest first.

        Raises:
            OSError: the folder exists, but cannot be read.
        """
        return iter(sorted(map(int, self._names(NAMES)), reverse=True))

    def check(self, path: Path, share: Share = ALL) -> Checkpoint:
        """Verify the files of ``share`` in the checkpoint at ``path``, and return it.

        Raises:
            CheckpointError: it is incomplete, damaged, or of another train step.
        """
        try:
            checkpoint = verify(path, share)
        except DamagedError:
            self.damaged.add(int(path.name))
            raise
        if self.path(checkpoint.train_step) != path:
            raise CheckpointError(f"its manifest says train step {checkpoint.train_step}")
        self._sizes[checkpoint.train_step] = checkpoint.size_bytes
        if share == ALL:
            self.trust(checkpoint.train_step)
        return checkpoint

    def trust(self, train_step: int) -> None:
        """Record that all shares of the checkpoint of ``train_step`` were verified."""
        self._known_good.add(train_step)
        self._last_bytes = self._sizes.get(train_step)

    def clean(self, require_right: Callable[[], None] = lambda: None) -> None:
        """Remove what killed saves left; publish a checkpoint that lacks only the last rename.

        Its save may already have hidden the checkpoint that it replaces. Folders are renamed before
        their removal, so that a save that is still alive cannot publish a part.

        Args:
            require_right: raises OSError if a later attempt executes the run. Called after the
                listing, so that no folder in it is of that attempt.

        Raises:
            OSError: the folder exists, but cannot be read.
        """
        left = [self.folder / name for name in self._names(_LEFT_BEHIND)]
        require_right()
        for path in left:
            doomed = self._hidden(path.name.split(".")[1], "old")
            try:
                if self._has_published(path):
                    continue
                path.rename(doomed)
            except OSError:  # a folder that cannot be read now may be complete
                continue
            remove_tree(doomed)

    def _has_published(self, hidden: Path) -> bool:
        """Publish a hidden checkpoint if it is complete and its name is free; return whether so.

        Checksums are compared when a job resumes from it.
        """
        train_step = int(hidden.name.split(".")[1])
        path = self.path(train_step)
        is_taken = path.is_symlink() or path.exists()
        if hidden.suffix != ".tmp" or is_taken or not _is_all_there(hidden, train_step):
            return False
        hidden.rename(path)
        sync(self.folder)
        return True

    def _names(self, pattern: re.Pattern[str]) -> list[str]:
        try:
            return names_in(self.folder, pattern)
        except FileNotFoundError:  # other errors do not prove that there are none
            return []

    def _hidden(self, stem: str, suffix: str) -> Path:
        return self.folder / f".{stem}.{random_word()}.{suffix}"


def _require_not_later(path: Path, attempt: int | None) -> None:
    """Raise OSError if the checkpoint at ``path`` is of an attempt after ``attempt``."""
    try:
        made_in = read_manifest(path).get("attempt")
    except CheckpointError:
        return
    if attempt is not None and type(made_in) is int and made_in > attempt:
        raise OSError(f"attempt {made_in} made it; attempt {attempt} should have ended")


def _is_all_there(folder: Path, train_step: int) -> bool:
    """Return whether ``folder`` has a manifest of ``train_step``, and all files in their sizes."""
    try:
        manifest = read_manifest(folder)
    except CheckpointError as error:
        if isinstance(error.__cause__, OSError):
            raise error.__cause__ from error
        return False
    files = manifest.get("files")
    if manifest.get("train_step") != train_step or not isinstance(files, dict):
        return False
    sizes = sizes_below(folder)
    sizes.pop(NAME, None)
    expected = {
        name: entry.get("size_bytes") for name, entry in files.items() if isinstance(entry, dict)
    }
    return expected == sizes
