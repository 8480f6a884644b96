"""Find the checkpoints of a run, and remove those that the retention rule does not keep.

:func:`find` lists them, :func:`hpcflow.runtime.rule.judge` decides, :func:`remove` removes. A job
does this on rank 0 after each checkpoint (:class:`Keeper`), so that the disk does not fill;
``hpcflow checkpoint`` does the same on a login node.

A checkpoint is renamed, and the rename synced, before its files are removed::

    checkpoints/.000000400.7f3a….removed/     left by a killed process; the next one removes it

So readers see all of it or nothing, and a read under way gets an error, never a part.
"""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

from hpcflow.runtime.events import EventLog
from hpcflow.runtime.files import names_in, random_word, remove_tree, sizes_below, sync
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import NAME, CheckpointError, finite, metrics_of, read_manifest
from hpcflow.runtime.mirrored import NAME as MIRROR_NAME
from hpcflow.runtime.mirrored import MirrorState, read_mirror
from hpcflow.runtime.rule import (
    COMPLETE,
    FOREIGN,
    NAMES,
    RESULT,
    TORN,
    Found,
    Rule,
    best,
    judge,
    name_of,
)
from hpcflow.runtime.successor import require_no_successor
from hpcflow.runtime.warn import warn

_REMOVED = re.compile(r"\.(\d{9}|[1-9]\d{9,17})\.[0-9a-f]+\.removed", re.ASCII)


def find(folder: Path, run_id: str | None) -> list[Found]:
    """Return the checkpoints in ``folder``, by train step; read only their manifests.

    Args:
        run_id: the run that they must belong to.

    Raises:
        OSError: the folder cannot be read.
    """
    return [look(folder, train_step, run_id) for train_step in named(folder)]


def named(folder: Path) -> list[int]:
    """Return the train steps of all entries named like checkpoints, in order.

    Raises:
        OSError: the folder cannot be read.
    """
    return sorted(map(int, names_in(folder, NAMES)))


def look(folder: Path, train_step: int, run_id: str | None) -> Found:
    """Return the state of the checkpoint of ``train_step`` in ``folder``, without reading its data.

    There may be 100,000: this lists one folder and opens one small file.
    """
    path = f"{folder}/{name_of(train_step)}"

    def foreign(why: str) -> Found:
        return Found(folder, train_step, FOREIGN, why)

    try:
        if not stat.S_ISDIR(os.lstat(path).st_mode):
            return foreign("it is not a folder")
        manifest = read_manifest(path)
    except CheckpointError as error:
        return foreign(str(error))
    except OSError as error:
        return foreign(error.strerror or str(error))
    files, epoch = manifest.get("files"), manifest.get("epoch")
    if not isinstance(files, dict):
        return foreign("its manifest lacks files")
    if manifest.get("train_step") != train_step:
        return foreign("its manifest is of another train step")
    if manifest.get("run_id") != run_id:
        return foreign("its manifest is of another run")
    try:
        sizes = sizes_below(path)
    except OSError as error:
        return foreign(str(error))
    sizes.pop(NAME, None)
    why = _lack(files, sizes)
    return Found(
        folder,
        train_step,
        TORN if why else COMPLETE,
        why,
        stranger=min(sizes.keys() - files.keys(), default=""),
        size_bytes=sum(sizes.values()),
        epoch=finite({"epoch": epoch}).get("epoch"),
        metrics=metrics_of(manifest),
        attempt=_count(manifest.get("attempt")),
        world_size=_count(manifest.get("world_size")),
        created_at=_text(manifest.get("created_at")),
    )


def remove(found: Found, record: Callable[[Found], None]) -> bool:
    """Remove a checkpoint; return False if another process did.

    Args:
        record: records the removal. Called after the rename. If this process is killed before,
            :func:`finish_removals` calls it.

    Raises:
        OSError: the checkpoint cannot be removed.
    """
    folder = found.path.parent
    hidden = folder / f".{found.path.name}.{random_word()}.removed"
    try:
        found.path.rename(hidden)
    except FileNotFoundError:
        return False
    sync(folder)  # or after a crash of the node the old name could return without the files
    record(found)
    remove_tree(hidden)
    return True


def half_removed(folder: Path) -> list[Path]:
    """Return the folders of interrupted removals. Raise OSError if the folder cannot be read."""
    return [folder / name for name in sorted(names_in(folder, _REMOVED))]


def finish_removals(folder: Path, record: Callable[[Found], None]) -> None:
    """Finish interrupted removals, and record each, again if it was recorded before.

    Raises:
        OSError: the folder cannot be read.
    """
    for path in half_removed(folder):
        train_step = int(path.name.split(".")[1])
        # Otherwise the checkpoint was made again, and exists.
        if not os.path.lexists(f"{folder}/{name_of(train_step)}"):
            record(_rest_of(path, train_step))
        remove_tree(path)


def set_aside(folder: Path, damaged: Iterable[int], job: Job) -> None:
    """Rename the checkpoints of these train steps, found damaged, to hidden names.

    Their files have the right sizes, so the retention rule would count them as good. Skips those
    that hold a file of the user, and those of other runs. Never raises.
    """
    for train_step in sorted(damaged, reverse=True):
        found = look(folder, train_step, job.run_id)
        path = found.path
        hidden = folder / f".{path.name}.{random_word()}.broken"
        if found.state != COMPLETE or found.stranger:
            continue
        try:
            require_no_successor(job)  # a later attempt may have made it again
            path.rename(hidden)
            sync(folder)
        except OSError as error:
            warn(f"damaged checkpoint {path} could not be set aside: {error}")
        else:
            warn(f"damaged checkpoint {path} was set aside as {hidden.name}")


class Keeper:
    """Removes, in the job and on rank 0, the checkpoints that the rule does not keep.

    It works on the thread that published a checkpoint, which must not print (see background.py). So
    the thread that trains calls :meth:`print_warnings`.
    """

    def __init__(self, job: Job, events: EventLog) -> None:
        self._job = job
        self._events = events
        self._seen: dict[int, Found] = {}
        self._warned: set[str] = set()
        self._to_print: list[str] = []

    def tidy(self, train_step: int, *, is_over: bool = False) -> None:
        """Apply the rule after the checkpoint of ``train_step`` was published. Never raises.

        Args:
            is_over: see :func:`hpcflow.runtime.rule.judge`.
        """
        job = self._job
        if job.keep is None or job.checkpoint_dir is None:
            return
        try:
            self._tidy(job.keep, job.checkpoint_dir, train_step, is_over=is_over)
        except OSError as error:
            self._warn_once(
                f"old checkpoints could not be removed, the training continues: {error}"
            )

    def print_warnings(self) -> None:
        """Print the warnings since the last call."""
        while self._to_print:
            warn(self._to_print.pop(0))

    def _tidy(self, rule: Rule, folder: Path, train_step: int, *, is_over: bool) -> None:
        finish_removals(folder, self._record)
        looks = (self._look(folder, there, train_step) for there in named(folder))
        # The training did not resume from a newer one: it was damaged, or is of an attempt that
        # should have ended. It must not count as good.
        found = [each for each in looks if each.state != COMPLETE or each.train_step <= train_step]
        whole = [each for each in found if each.state == COMPLETE]
        if train_step not in (each.train_step for each in whole):
            return  # the one that is known to be good is missing
        if rule.best and len(whole) > rule.last and not best(whole, rule):
            self._warn_once(
                f"no checkpoint is removed: none has the metric {rule.metric!r} of "
                f"checkpoint.keep_best; they have {_metric_names(whole)}"
            )
        reasons = judge(found, rule, self._held(), self._mirror(), is_over=is_over)
        for each in found:
            if reasons[each.train_step]:
                continue
            # Again, because the user may have put a file into it meanwhile: see `stranger`.
            if look(folder, each.train_step, self._job.run_id) == each:
                require_no_successor(self._job)  # a later attempt may resume from this one
                mirror = self._mirror()  # again, because it may have begun with this one
                if mirror is None or each.train_step not in mirror.under_way:
                    remove(each, self._record)

    def _look(self, folder: Path, train_step: int, newest: int) -> Found:
        """Look at a checkpoint; once for each complete one, since there may be thousands.

        The newest, which may get more metrics, and later ones are looked at again.
        """
        if train_step not in self._seen:
            found = look(folder, train_step, self._job.run_id)
            if found.state != COMPLETE or train_step >= newest:
                return found
            self._seen[train_step] = found
        return self._seen[train_step]

    def _mirror(self) -> MirrorState | None:
        """Return what the mirror has of this run; None if there is no mirror."""
        if self._job.run_dir is None:
            return None
        return mirror_of(self._job.run_dir, self._job.mirror_url)

    def _held(self) -> dict[int, str]:
        """Return why to keep results, and the checkpoint resumed from: it may still be read."""
        held = dict.fromkeys(self._job.results, RESULT)
        given = self._job.resume_from
        if given is None or given.parent != self._job.checkpoint_dir or not given.name.isdecimal():
            return held
        return {**held, int(given.name): "this attempt resumed from it"}

    def _record(self, found: Found) -> None:
        self._events.append(
            "checkpoint_removed",
            train_step=found.train_step,
            path=self._job.relative(found.path),
            size_bytes=found.size_bytes,
        )

    def _warn_once(self, text: str) -> None:
        if text not in self._warned:
            self._warned.add(text)
            self._to_print.append(text)


def mirror_of(run_dir: Path, mirror_url: str | None) -> MirrorState | None:
    """Return what the mirror has of the run in ``run_dir``; None if there is no mirror.

    Args:
        mirror_url: its mirror now; None without one. If it had one before, its file counts.
    """
    if mirror_url is not None or (run_dir / MIRROR_NAME).exists():
        return read_mirror(run_dir, mirror_url)
    return None


def _rest_of(path: Path, train_step: int) -> Found:
    """Return what is still known of a half removed checkpoint."""
    try:
        manifest = read_manifest(path)
    except CheckpointError as error:
        return Found(path.parent, train_step, TORN, str(error))
    files = manifest.get("files")
    entries = files.values() if isinstance(files, dict) else ()
    return Found(
        path.parent,
        train_step,
        TORN,
        "half removed",
        size_bytes=sum(_size(entry) or 0 for entry in entries),
        attempt=_count(manifest.get("attempt")),
    )


def _lack(files: dict[str, Any], sizes: dict[str, int]) -> str:
    """Return how files of these sizes differ from ``files``; empty if they do not."""
    for name, entry in files.items():
        if name not in sizes:
            return f"{name} is missing"
        if sizes[name] != _size(entry):
            return f"{name} has {sizes[name]} bytes, not {_size(entry)}: it is torn"
    return ""


def _size(entry: object) -> int | None:
    return _count(entry.get("size_bytes")) if isinstance(entry, dict) else None


def _count(value: object) -> int | None:
    return value if type(value) is int and value >= 0 else None


def _text(value: object) -> str | None:
    return value if isinstance(value, str) else None


def _metric_names(found: list[Found]) -> str:
    names = sorted({name for each in found for name in each.metrics})
    return ", ".join(names[:8]) or "no metrics"
