"""Looking at the checkpoints of a run from outside, and removing those that need not stay.

:func:`find` looks, :func:`hpcflow.runtime.rule.judge` decides, :func:`remove` acts. A job does all
of it on rank 0 whenever it has made a checkpoint (:class:`Keeper`), so that a disk does not fill
between two looks of anybody else; ``hpcflow checkpoint`` does the same on a login node.

A checkpoint that goes is renamed, on the disk, before any of its files goes::

    checkpoints/.000000400.7f3a….removed/     left by a killed process, for the next one

So a look shows all of it or nothing, and a read meanwhile gets an error, never
half.
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
    """The checkpoints in ``folder``, by train step; no file of theirs but the manifest is read.

    Args:
        run_id: whose they have to be.

    Raises:
        OSError: the folder cannot be read.
    """
    return [look(folder, train_step, run_id) for train_step in named(folder)]


def named(folder: Path) -> list[int]:
    """Return the train steps of all names that a checkpoint can have, in order.

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
    """Remove a checkpoint; False if somebody else did.

    Args:
        record: writes down that it is gone. Called when nobody sees it any more; a process that is
            killed in between leaves that to :func:`finish_removals`.

    Raises:
        OSError: it cannot be removed.
    """
    folder = found.path.parent
    hidden = folder / f".{found.path.name}.{random_word()}.removed"
    try:
        found.path.rename(hidden)
    except FileNotFoundError:
        return False
    sync(folder)  # or a crash of the node could bring back the name, and not the files
    record(found)
    remove_tree(hidden)
    return True


def half_removed(folder: Path) -> list[Path]:
    """What somebody began to remove and has not removed yet.

    Raises:
        OSError: the folder cannot be read.
    """
    return [folder / name for name in sorted(names_in(folder, _REMOVED))]


def finish_removals(folder: Path, record: Callable[[Found], None]) -> None:
    """Remove what somebody began to remove, and write it down once more: it may not have been.

    Raises:
        OSError: the folder cannot be read.
    """
    for path in half_removed(folder):
        train_step = int(path.name.split(".")[1])
        # Else it was made again, and that is what counts.
        if not os.path.lexists(f"{folder}/{name_of(train_step)}"):
            record(_what_it_was(path, train_step))
        remove_tree(path)


def set_aside(folder: Path, damaged: Iterable[int], job: Job) -> None:
    """Hide the checkpoints of these train steps, which were read and are not what was written.

    From outside they look complete, and would count for good ones whenever it is decided which can
    go. Never raises; what holds something of a person's, or is not of this run, stays as it is.
    """
    for train_step in sorted(damaged, reverse=True):
        found = look(folder, train_step, job.run_id)
        path = found.path
        hidden = folder / f".{path.name}.{random_word()}.broken"
        if found.state != COMPLETE or found.stranger:
            continue
        try:
            require_no_successor(job)  # which may have made it again
            path.rename(hidden)
            sync(folder)
        except OSError as error:
            warn(f"damaged checkpoint {path} could not be set aside: {error}")
        else:
            warn(f"damaged checkpoint {path} was set aside as {hidden.name}")


class Keeper:
    """Removes, inside the job and on rank 0, what the rule lets go.

    It works on the thread that published a checkpoint, and this must not print: see background.py.
    So :meth:`say` is for the training.
    """

    def __init__(self, job: Job, events: EventLog) -> None:
        self._job = job
        self._events = events
        self._seen: dict[int, Found] = {}
        self._said: set[str] = set()
        self._unsaid: list[str] = []

    def tidy(self, train_step: int, *, is_over: bool = False) -> None:
        """Remove what can go, now that the checkpoint of ``train_step`` was published.

        It never raises.

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

    def say(self) -> None:
        """Print the warnings there are since the last time."""
        while self._unsaid:
            warn(self._unsaid.pop(0))

    def _tidy(self, rule: Rule, folder: Path, train_step: int, *, is_over: bool) -> None:
        finish_removals(folder, self._record)
        looks = (self._look(folder, there, train_step) for there in named(folder))
        # A newer one than this is none that the program went on from: it was found damaged when the
        # training began, or is of an attempt that should be over. It must not count for a good one.
        found = [each for each in looks if each.state != COMPLETE or each.train_step <= train_step]
        whole = [each for each in found if each.state == COMPLETE]
        if train_step not in (each.train_step for each in whole):
            return  # the one that was known to be good is not there any more
        if rule.best and len(whole) > rule.last and not best(whole, rule):
            self._warn_once(
                f"no checkpoint is removed: none has the metric {rule.metric!r} that "
                f"checkpoint.keep_best is to judge by; they have {_metric_names(whole)}"
            )
        reasons = judge(found, rule, self._held(), self._mirror(), is_over=is_over)
        for each in found:
            # Looked at again, for somebody may have put a note into it: see `stranger`.
            if reasons[each.train_step]:
                continue
            if look(folder, each.train_step, self._job.run_id) == each:
                require_no_successor(self._job)  # it may go on from this one
                mirror = self._mirror()  # read again, too: it may have begun with this one
                if mirror is None or each.train_step not in mirror.under_way:
                    remove(each, self._record)

    def _look(self, folder: Path, train_step: int, newest: int) -> Found:
        """What is complete is looked at once: there may be thousands, and a save must be quick.

        Not so the newest, which may get more metrics, and those of attempts that should be over.
        """
        if train_step not in self._seen:
            found = look(folder, train_step, self._job.run_id)
            if found.state != COMPLETE or train_step >= newest:
                return found
            self._seen[train_step] = found
        return self._seen[train_step]

    def _mirror(self) -> MirrorState | None:
        """What the mirror has of this run; None if there is none."""
        if self._job.run_dir is None:
            return None
        return mirror_of(self._job.run_dir, has_mirror=self._job.has_mirror)

    def _held(self) -> dict[int, str]:
        """Results; and what the program was given to resume from: it may read that late, or bit by
        bit."""
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
        if text not in self._said:
            self._said.add(text)
            self._unsaid.append(text)


def mirror_of(run_dir: Path, *, has_mirror: bool) -> MirrorState | None:
    """What the mirror has of the run in ``run_dir``; None if there is none.

    Args:
        has_mirror: whether there is to be one. What has said something is one all the same.
    """
    if has_mirror or (run_dir / MIRROR_NAME).exists():
        return read_mirror(run_dir)
    return None


def _what_it_was(path: Path, train_step: int) -> Found:
    """What is left to be known of a checkpoint that is half removed."""
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
    """What is wrong with files of these sizes, where ``files`` should be; empty if nothing."""
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
    return ", ".join(names[:8]) or "no metrics at all"
