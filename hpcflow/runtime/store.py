"""The folder ``checkpoints/``: how a checkpoint appears in it all at once, and which is the newest.

::

    checkpoints/
      000000400/  manifest.json  model.pt …      complete
      .000000500.7f3a….tmp/                      being written, or left behind by a kill
      .000000400.19bc….broken/                   found damaged: see retention.set_aside

A checkpoint is written and synced to disk under a hidden name, described by its manifest, and
renamed: a look shows all of it or nothing. One process, rank 0, calls what is here; what the
ranks do together is in :mod:`hpcflow.runtime.saving`.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from hpcflow.runtime import quota, room
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
        damaged: train steps of those that were read here and are not what was written.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.damaged: set[int] = set()
        self._known_good: set[int] = set()
        self._sizes: dict[int, int] = {}  # as manifests say; what they say may be wrong
        self._last_bytes: int | None = None  # of the last that was made here, or is known good

    def path(self, train_step: int) -> Path:
        """Where the checkpoint of ``train_step`` is, or would be."""
        return self.folder / name_of(train_step)

    def staging_path(self, train_step: int, token: int) -> Path:
        """The hidden folder that all ranks write their files of this checkpoint into."""
        return self.folder / f".{train_step:09d}.{token:016x}.tmp"

    def stage(self, train_step: int, token: int, size_bytes: int | None = None) -> Path:
        """Create the hidden folder.

        Args:
            size_bytes: what is to be written into it; if None, as much as the last checkpoint
                that this process has made or verified, if there is one.

        Raises:
            OSError: the disk is full or gone, or has no room for as much.
        """
        # Nothing above it: a run directory that was deleted does not come back as a part of one.
        self.folder.mkdir(exist_ok=True)
        if size_bytes is None:
            size_bytes = self._last_bytes
        if size_bytes is not None:
            room.require_room(self.folder, size_bytes)
        path = self.staging_path(train_step, token)
        path.mkdir()
        return path

    def require_quota(self) -> None:
        """Whether the quotas leave room for one as large as the last; takes its time.

        Raises:
            OSError: no.
        """
        if self._last_bytes is not None:
            quota.require_quota(self.folder, self._last_bytes)

    def has(self, train_step: int) -> bool:
        """Whether a whole checkpoint of ``train_step`` exists; reads it, unless that was done."""
        if train_step not in self._known_good:
            try:
                self.check(self.path(train_step))
            except CheckpointError:
                return False
        return True

    def knows(self, train_step: int) -> bool:
        """Whether this process has made, or verified, the checkpoint of ``train_step``.

        One that appeared since is of an attempt that should be over, and gives way to ours.
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
        """Make the files in ``staged`` the checkpoint of ``train_step``, visible all at once.

        Args:
            files: all of them, each on disk already, by their names below ``staged``.
            require_right: raises OSError, which goes on to the caller, if a later attempt executes
                the run. Asked last, for what comes before it may take seconds.

        Raises:
            OSError: the disk is full or gone, or a later attempt has made it; nothing became
                visible.
        """
        size_bytes = write_manifest(staged, files, train_step=train_step, **facts)
        sync_folders(staged)
        path = self.path(train_step)
        require_right()
        if path.is_symlink() or path.exists():
            _require_not_later(path, facts.get("attempt"))
            # After a kill between these two, clean() helps.
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
        """Replace the manifest of a checkpoint by one that has ``metrics``, too, and ``attempt``.

        A metric that is no number any more is left out.

        Args:
            run_id: whose it has to be.
            require_right: as in :meth:`publish`.

        Raises:
            NotThere: there is none of ``train_step``.
            CheckpointError: it is not this run's, or would be unreadable.
            OSError: the disk is full or gone, or a later attempt has made it; it is as it was.
        """
        path = self.path(train_step)
        self.check(path, NOTHING)
        # Should another take its place meanwhile, this folder has another name then.
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
        """The newest checkpoint that is whole; each newer one that is not gets a warning.

        Raises:
            CheckpointError: none is known to be, and one that may be cannot be read now.
            OSError: the folder is there, and cannot be read.
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
            raise CheckpointError(f"none could be read that may be whole: {unreadable}")
        return None

    def train_steps(self) -> Iterator[int]:
        """Of what checkpoints there seem to be, newest first; none of them was looked at.

        Raises:
            OSError: the folder is there, and cannot be read.
        """
        return iter(sorted(map(int, self._names(NAMES)), reverse=True))

    def check(self, path: Path, share: Share = ALL) -> Checkpoint:
        """The checkpoint at ``path``, once the files of ``share`` were read and found whole.

        Raises:
            CheckpointError: it is not complete, or not whole, or not of this train step.
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
        """The checkpoint of ``train_step`` is whole: all shares of it were checked."""
        self._known_good.add(train_step)
        self._last_bytes = self._sizes.get(train_step)

    def clean(self, require_right: Callable[[], None] = lambda: None) -> None:
        """Remove what a killed save left behind; publish what lacked nothing but the last rename.

        That one may have hidden another already, of the same name. What is removed is renamed
        first: should that save still be alive somewhere, it can no longer publish half.

        Args:
            require_right: raises OSError, which goes on to the caller, if a later attempt may be
                writing. Asked once it is known what there is: nothing of that is its own then.

        Raises:
            OSError: the folder is there, and cannot be read.
        """
        left = [self.folder / name for name in self._names(_LEFT_BEHIND)]
        require_right()
        for path in left:
            doomed = self._hidden(path.name.split(".")[1], "old")
            try:
                if self._has_published(path):
                    continue
                path.rename(doomed)
            except OSError:  # what cannot be read now may be all there
                continue
            remove_tree(doomed)

    def _has_published(self, hidden: Path) -> bool:
        """Whether what lies there was all on disk, and nothing in its place, so it is visible now.

        Its bytes are compared when somebody goes on from it, as those of any other.

        Raises:
            OSError: it cannot be read, or renamed.
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
        except FileNotFoundError:  # anything else does not say that there are none
            return []

    def _hidden(self, stem: str, suffix: str) -> Path:
        return self.folder / f".{stem}.{random_word()}.{suffix}"


def _require_not_later(path: Path, attempt: int | None) -> None:
    """Make sure that what lies there was not made by an attempt after ``attempt``.

    Raises:
        OSError: it was.
    """
    try:
        made_in = read_manifest(path).get("attempt")
    except CheckpointError:
        return
    if attempt is not None and type(made_in) is int and made_in > attempt:
        raise OSError(f"attempt {made_in} has made it, and attempt {attempt} should be over")


def _is_all_there(folder: Path, train_step: int) -> bool:
    """Whether ``folder`` has a manifest of ``train_step``, and all files in their sizes.

    Raises:
        OSError: it cannot be read.
    """
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
    said = {
        name: entry.get("size_bytes") for name, entry in files.items() if isinstance(entry, dict)
    }
    return said == sizes
