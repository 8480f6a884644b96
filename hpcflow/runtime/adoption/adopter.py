"""Adopt checkpoints in order: list them, and copy those that are new and complete.

Job scripts call it: ``python3 -m hpcflow.runtime adopt begin | watch PID | end EXIT_CODE``.

A new checkpoint is complete

- while all ranks of the program run: if it was renamed to its name; otherwise if it was not changed
  for ``stable_s``, and has its marker, if the rule has one;
- after the program exited successfully: always;
- after it was killed: if it had not been changed for ``stable_s`` before, or proves that it is
  complete (see completeness.py).

A copy during which a file changed is discarded.
"""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

from hpcflow.runtime.adoption.completeness import (
    Completeness,
    alive_until_ns,
    first_failure_ns,
    has_left,
    has_same_clock,
    last_sign_of_life_ns,
)
from hpcflow.runtime.adoption.copying import FOLDER, Maker, put_back
from hpcflow.runtime.adoption.foreign import Foreign, find, is_named, look, train_step_of
from hpcflow.runtime.adoption.rule import BY_COUNT, BY_NAME, AdoptRule
from hpcflow.runtime.files import random_word, sync, write_new
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import CheckpointError, read_manifest
from hpcflow.runtime.reading import JsonError, read_object, require_no_strange_link
from hpcflow.runtime.retention import find as find_checkpoints
from hpcflow.runtime.retention import set_aside
from hpcflow.runtime.rule import COMPLETE
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.successor import require_no_successor
from hpcflow.runtime.warn import WarnOnce, warn

#: Checkpoints of the program that are not to be adopted, or not again:
#: {"format": 1, "known": {"out/ckpt.pt": {"state": "9f86…", "train_step": 7}, …}}
#: If it is lost, a checkpoint may be adopted twice.
NAME = "adoption.json"
_FORMAT = 1
#: Shortest and longest interval between two looks.
_LOOK_EVERY_S = (0.2, 5.0)
#: The job script sends it: finish the current copy, and exit.
_STOP = signal.SIGUSR1


@dataclass(frozen=True)
class Known:
    """The :class:`Foreign` state in which a checkpoint was adopted, or passed over.

    ``train_step`` is None for those from before the run, and those that may be incomplete.
    """

    state: str
    train_step: int | None = None


def read_memory(path: Path) -> dict[str, Known] | None:
    """Return the known checkpoints by name; None if the file is missing or unreadable."""
    try:
        memory = read_object(path)
        if memory["format"] != _FORMAT:
            return None
        return {name: Known(**entry) for name, entry in memory["known"].items()}
    except (OSError, JsonError, LookupError, AttributeError, TypeError):
        return None


def write_memory(path: Path, known: Mapping[str, Known]) -> None:
    """Replace the file at once. Raise OSError if the disk is full or gone; the old file stays."""
    entries = {name: asdict(known[name]) for name in sorted(known)}
    text = json.dumps({"format": _FORMAT, "known": entries}, indent=1)
    half = path.with_name(f".{path.name}.{random_word()}.tmp")
    try:
        write_new(half, text.encode())
        half.replace(path)
    finally:
        if half.exists():
            half.unlink()
    sync(path.parent)


class Adopter:
    """Adopts, in the job of one attempt, the checkpoints of its program and of earlier attempts.

    Args:
        run_dir, checkpoint_dir: those of ``job``.
        monotonic: the time in seconds, to measure ``stable_s``.
    """

    def __init__(
        self,
        job: Job,
        run_dir: Path,
        checkpoint_dir: Path,
        rule: AdoptRule,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._job = job
        self._run_dir = run_dir
        self._rule = rule
        self._warn = WarnOnce()
        self._store = CheckpointStore(checkpoint_dir)
        self._maker = Maker(job, self._store, rule, self._warn, monotonic)
        self._is_complete = Completeness(rule, self._warn, monotonic)
        self._memory = run_dir / NAME
        self._known: dict[str, Known] = {}
        self._newest = -1

    def begin(self) -> Path | None:
        """Before the program starts: adopt what is left. Return the newest checkpoint, if any.

        Raises:
            OSError: the run directory, or the folder where the program looks for its checkpoint,
                cannot be written; or a later attempt executes the run.
            CheckpointError: see :meth:`CheckpointStore.newest`.
        """
        require_no_successor(self._job)  # clean() would remove what a later attempt writes
        self._store.clean()
        whole = self._store.newest()
        if whole is not None:
            set_aside(self._store.folder, self._store.damaged, self._job)
        self._newest = whole.train_step if whole is not None else -1
        found = list(self._look_at(find(self._rule, self._warn)))
        known = read_memory(self._memory)
        self._known = self._first_known(found) if known is None else known
        alive_ns = last_sign_of_life_ns(self._run_dir, self._attempt, self._job.exit_code)
        if known is None:  # the files may be copies, whose times mean nothing
            alive_ns = 0
        failed = self._adopt_newest(found, alive_ns)
        # What was not adopted now is adopted only after a change: when the program runs again, an
        # incomplete checkpoint would look complete, because nothing changes it.
        names = [each.name for each in found if self._is_known(each)]
        self._known = {name: self._known[name] for name in names}
        self._pass_over(found, failed)
        newest = self._store.path(self._newest) if self._newest >= 0 else None
        if newest is not None and self._rule.put_back:
            self._put_back(newest, failed)
        if known is None or not self._known.items() <= known.items():  # the disk may be full
            write_memory(self._memory, self._known)
        self._maker.print_warnings()
        return newest

    def watch(self) -> None:
        """Continue after :meth:`begin`, in another process."""
        self._known = read_memory(self._memory) or {}
        self._newest = self._newest_of_attempt()

    def look(self) -> None:
        """While the program runs: adopt what is complete by now. Never raises."""
        try:
            failed_ns = first_failure_ns(self._attempt_dir)
            for foreign, train_step in self._candidates(self._look_at(self._worth_looking())):
                if failed_ns is None:
                    is_complete = self._is_complete.now(foreign)
                else:  # other ranks may run on for long, and the writer may be dead
                    is_complete = self._was_complete(foreign, failed_ns)
                if is_complete:
                    self._adopt(foreign, train_step)
        except OSError as error:  # the file system may be down for a moment
            self._warn(f"cannot look for checkpoints, the training continues: {error}")
        self._maker.print_warnings()

    def end(self, *, is_well: bool) -> None:
        """After the program has ended: adopt the newest that is complete. Never raises.

        Args:
            is_well: whether its exit code, or the file ``resubmit``, says that it exited by itself.
        """
        self.watch()
        folder = self._attempt_dir
        try:
            if (folder / "resubmit").exists():  # otherwise a config may have set the exit code
                is_well = is_well and has_left(folder, self._job.exit_code)
            is_well = is_well and first_failure_ns(folder) is None
            found = list(self._look_at(self._worth_looking()))
            failed = self._adopt_newest(found, None if is_well else alive_until_ns(folder))
            if not is_well:  # the next attempt knows less about how this one ended
                self._pass_over(found, failed)
                write_memory(self._memory, self._known)
        except OSError as error:
            self._warn(f"cannot look for checkpoints, the next attempt tries again: {error}")
        self._maker.print_warnings()

    @property
    def _attempt(self) -> int:
        return self._job.attempt or 0

    @property
    def _attempt_dir(self) -> Path:
        return self._run_dir / "attempts" / f"{self._attempt:04d}"

    def _was_complete(self, foreign: Foreign, alive_ns: int | None) -> bool:
        """Return whether it is complete, although its writer may have died after ``alive_ns``."""
        if alive_ns is not None and not has_same_clock(foreign.path, self._run_dir):
            alive_ns = 0  # not comparable with the times of its file system
        return self._is_complete.after(foreign, alive_ns)

    def _adopt_newest(self, found: Iterable[Foreign], alive_ns: int | None) -> set[str]:
        """Adopt the newest that is complete; return the names of those that failed."""
        failed = set()
        for foreign, train_step in reversed(self._candidates(found)):
            if not self._was_complete(foreign, alive_ns):
                self._warn(f"{foreign.name!r} is not adopted: it may be incomplete")
            elif self._adopt(foreign, train_step):
                break
            else:
                failed.add(foreign.name)
        return failed

    def _pass_over(self, found: Iterable[Foreign], failed: set[str]) -> None:
        """Record those that were not adopted, except ``failed``: only a change makes them new."""
        for foreign in found:
            if foreign.name not in failed and not self._is_known(foreign):
                self._known[foreign.name] = Known(foreign.state)

    def _worth_looking(self) -> list[Path]:
        """Return the paths that can be newer than the newest checkpoint, by their names."""
        paths = find(self._rule, self._warn)
        if self._rule.train_step != BY_NAME:
            return paths
        steps = ((path, train_step_of(path, self._rule)) for path in paths)
        return [path for path, step in steps if step is not None and step > self._newest]

    def _look_at(self, paths: Iterable[Path]) -> Iterator[Foreign]:
        for path in paths:
            try:
                yield look(path, self._rule)
            except FileNotFoundError:  # noqa: PERF203 - the program has removed or renamed it
                continue
            except OSError as error:
                self._warn(f"not adopted: {error}")

    def _candidates(self, found: Iterable[Foreign]) -> list[tuple[Foreign, int | None]]:
        """Return those that are new and newer than the newest checkpoint, one per train step."""
        new = [each for each in found if not self._is_known(each)]
        new.sort(key=lambda each: each.changed_ns)
        if self._rule.train_step == BY_COUNT:
            return [(each, None) for each in new]
        steps: dict[int, Foreign] = {}
        for foreign in new:
            try:
                train_step = train_step_of(foreign.path, self._rule)
            except (OSError, ValueError):
                continue  # the file with the train step is missing or incomplete
            if train_step is not None and train_step > self._newest:
                steps[train_step] = foreign
        return [(steps[train_step], train_step) for train_step in sorted(steps)]

    def _adopt(self, foreign: Foreign, train_step: int | None) -> bool:
        made = self._maker.make(foreign, train_step, self._newest)
        if made is None:
            return False
        self._newest = made
        self._known[foreign.name] = Known(foreign.state, made)
        try:
            write_memory(self._memory, self._known)
        except OSError as error:
            self._warn(f"cannot record an adoption, so it may be repeated: {error}")
        return True

    def _put_back(self, newest: Path, failed: set[str]) -> None:
        """Copy the newest checkpoint to where the program wrote it, if it is not there."""
        origin = _origin(newest)
        if origin is None or origin[0] in failed:  # the failed one is newer, and complete
            return
        if not is_named(origin[0], self._rule):  # a manifest must not choose any other path
            return
        name, train_step = origin[0], int(newest.name)
        known, target = self._known.get(name), self._rule.folder / name
        if known is not None and known.train_step == train_step:
            return
        require_no_strange_link(target.parent)
        put_back(newest / FOLDER / target.name, target)
        warn(f"{str(target)!r} was replaced by the checkpoint of train step {train_step}")
        self._known[name] = Known(look(target, self._rule).state, train_step)

    def _first_known(self, found: list[Foreign]) -> dict[str, Known]:
        """Return what not to adopt, if there is no ``adoption.json``.

        In a new run, these are all: another program wrote them. In a run with checkpoints, whose
        ``adoption.json`` was lost, these are those not newer than the newest checkpoint.
        """
        origin = _origin(self._store.path(self._newest)) if self._newest >= 0 else None
        if self._newest < 0 and found:
            names = ", ".join(repr(each.name) for each in found[:3])
            warn(f"not adopted, because older than this run: {names}")
        return {
            each.name: Known(each.state)
            for each in found
            if origin is None or each.changed_ns <= origin[1]
        }

    def _is_known(self, foreign: Foreign) -> bool:
        known = self._known.get(foreign.name)
        return known is not None and known.state == foreign.state

    def _newest_of_attempt(self) -> int:
        """Return the train step of the newest checkpoint that this attempt resumed from or made;
        others may be damaged."""
        given = self._job.resume_from
        resumed = int(given.name) if given is not None and given.name.isdecimal() else -1
        try:
            found = find_checkpoints(self._store.folder, self._job.run_id)
        except OSError:
            return resumed
        whole = (each for each in found if each.state == COMPLETE)
        own = [each.train_step for each in whole if each.attempt == self._job.attempt]
        return max([resumed, *own])


def _origin(path: Path) -> tuple[str, int] | None:
    """Return the program's name of an adopted checkpoint, and when that was last changed, in ns."""
    try:
        adopted = read_manifest(path).get("adopted")
    except CheckpointError:
        return None
    if not isinstance(adopted, dict):
        return None
    name, changed_ns = adopted.get("name"), adopted.get("changed_ns")
    if not isinstance(name, str) or type(changed_ns) is not int:
        return None
    return name, changed_ns


def begin(job: Job) -> Path | None:
    """Adopt what the earlier attempt left; return the newest checkpoint, if there is any.

    Raises:
        OSError, CheckpointError: see :meth:`Adopter.begin`.
        ValueError: this job adopts no checkpoints.
    """
    return _adopter(job)[0].begin()


def watch(job: Job, script: int) -> None:
    """Adopt complete checkpoints while the program runs, until :data:`_STOP` arrives.

    Args:
        script: process id of the job script, the parent of this process.

    Raises:
        ValueError: this job adopts no checkpoints.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {_STOP})
    adopter, rule = _adopter(job)
    adopter.watch()
    os.nice(10)  # the training goes first
    while not signal.sigtimedwait({_STOP}, _look_every_s(rule)):
        if os.getppid() != script or not (job.run_dir and job.run_dir.is_dir()):
            return  # the next process continues; or the run was removed
        adopter.look()


def end(job: Job, exit_code: int) -> None:
    """Adopt what the program has left.

    Args:
        exit_code: the exit code of the job.

    Raises:
        ValueError: this job adopts no checkpoints.
    """
    _adopter(job)[0].end(is_well=exit_code in (0, job.exit_code))


def _adopter(job: Job) -> tuple[Adopter, AdoptRule]:
    if job.adopt is None or job.run_dir is None or job.checkpoint_dir is None:
        raise ValueError("HPCFLOW_ADOPT is not set: this job adopts no checkpoints")
    return Adopter(job, job.run_dir, job.checkpoint_dir, job.adopt), job.adopt


def _look_every_s(rule: AdoptRule) -> float:
    least, most = _LOOK_EVERY_S
    return 1.0 if rule.renamed else min(most, max(least, rule.stable_s / 3))
