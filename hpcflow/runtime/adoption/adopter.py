"""Adopting in its order: what is there, what of it is new, what is complete.

Of what is there and not known yet, that is complete which

- was renamed to its name, or has its marker and was not changed for a while, or was not changed
  for a while: as seen from beside the program, while all its ranks live;
- after the program left with an exit code that says that all is well: whatever is there;
- after it was killed: what had not been changed for that while before, and what proves itself
  (see whole.py). Of anything else nobody knows whether it is half.

A copy during which anything changed is thrown away.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

from hpcflow.runtime.adoption.copying import put_back
from hpcflow.runtime.adoption.foreign import Foreign, find, is_named, look, train_step_of
from hpcflow.runtime.adoption.making import FOLDER, Maker
from hpcflow.runtime.adoption.memory import NAME, Known, read_memory, write_memory
from hpcflow.runtime.adoption.rule import BY_COUNT, BY_NAME, AdoptRule
from hpcflow.runtime.adoption.signs import (
    alive_until_ns,
    first_failure_ns,
    has_left,
    has_same_clock,
    last_sign_of_life_ns,
)
from hpcflow.runtime.adoption.whole import Completeness
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import CheckpointError, read_manifest
from hpcflow.runtime.reading import require_no_strange_link
from hpcflow.runtime.retention import find as find_checkpoints
from hpcflow.runtime.retention import set_aside
from hpcflow.runtime.rule import COMPLETE
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.successor import require_no_successor
from hpcflow.runtime.warn import WarnOnce, warn


class Adopter:
    """Adopts, in the job of one attempt, what its program writes or that of the one before wrote.

    Args:
        run_dir, checkpoint_dir: those of ``job``.
        monotonic: the time in seconds, for how long nothing has changed.
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
        self._say = WarnOnce()
        self._store = CheckpointStore(checkpoint_dir)
        self._maker = Maker(job, self._store, rule, self._say, monotonic)
        self._is_complete = Completeness(rule, self._say, monotonic)
        self._memory = run_dir / NAME
        self._known: dict[str, Known] = {}
        self._newest = -1

    def begin(self) -> Path | None:
        """Before the program starts: adopt what nobody could yet. The newest checkpoint, if any.

        Raises:
            OSError: nothing can be written in the run directory, or where the program looks for
                its checkpoint; or a later attempt executes the run.
            CheckpointError: see :meth:`CheckpointStore.newest`.
        """
        require_no_successor(self._job)  # it would take away what that one is writing
        self._store.clean()
        whole = self._store.newest()
        if whole is not None:
            set_aside(self._store.folder, self._store.damaged, self._job)
        self._newest = whole.train_step if whole is not None else -1
        found = list(self._look_at(find(self._rule, self._say)))
        known = read_memory(self._memory)
        self._known = self._first_known(found) if known is None else known
        alive_ns = last_sign_of_life_ns(self._run_dir, self._attempt, self._job.exit_code)
        if known is None:  # the files may be copies, whose times say nothing
            alive_ns = 0
        failed = self._adopt_newest(found, alive_ns)
        # What was not adopted is so for good, until it is changed: it will not be half any longer,
        # once the program lives again, only because nothing changes it.
        names = [each.name for each in found if self._is_known(each)]
        self._known = {name: self._known[name] for name in names}
        self._pass_over(found, failed)
        newest = self._store.path(self._newest) if self._newest >= 0 else None
        if newest is not None and self._rule.put_back:
            self._put_back(newest, failed)
        if known is None or not self._known.items() <= known.items():  # a disk may be full
            write_memory(self._memory, self._known)
        self._maker.say()
        return newest

    def watch(self) -> None:
        """Go on where :meth:`begin` has ended, in another process."""
        self._known = read_memory(self._memory) or {}
        self._newest = self._newest_of_attempt()

    def look(self) -> None:
        """While the program runs: adopt what is complete by now. Never raises."""
        try:
            failed_ns = first_failure_ns(self._attempt_dir)
            for foreign, train_step in self._candidates(self._look_at(self._worth_looking())):
                if failed_ns is None:
                    is_complete = self._is_complete.now(foreign)
                else:  # other ranks may live on for long, and the one that wrote may be dead
                    is_complete = self._was_complete(foreign, failed_ns)
                if is_complete:
                    self._adopt(foreign, train_step)
        except OSError as error:  # a file system that does not answer now
            self._say(f"cannot look for checkpoints, the training continues: {error}")
        self._maker.say()

    def end(self, *, is_well: bool) -> None:
        """After the program has ended: adopt the newest that is complete. Never raises.

        Args:
            is_well: whether its exit code, or the word of a rank, says that it left by itself.
        """
        self.watch()
        folder = self._attempt_dir
        try:
            if (folder / "resubmit").exists():  # else the code may be one that a config names
                is_well = is_well and has_left(folder, self._job.exit_code)
            is_well = is_well and first_failure_ns(folder) is None
            found = list(self._look_at(self._worth_looking()))
            failed = self._adopt_newest(found, None if is_well else alive_until_ns(folder))
            if not is_well:  # the next attempt knows less of how this one has ended
                self._pass_over(found, failed)
                write_memory(self._memory, self._known)
        except OSError as error:
            self._say(f"cannot look for checkpoints; the next attempt does: {error}")
        self._maker.say()

    @property
    def _attempt(self) -> int:
        return self._job.attempt or 0

    @property
    def _attempt_dir(self) -> Path:
        return self._run_dir / "attempts" / f"{self._attempt:04d}"

    def _was_complete(self, foreign: Foreign, alive_ns: int | None) -> bool:
        """Whether it is complete although its writer may have died after ``alive_ns``."""
        if alive_ns is not None and not has_same_clock(foreign.path, self._run_dir):
            alive_ns = 0  # by the clock of its disk, nobody knows when the program was alive
        return self._is_complete.after(foreign, alive_ns)

    def _adopt_newest(self, found: Iterable[Foreign], alive_ns: int | None) -> set[str]:
        """Adopt the newest that is complete; names of those for which that did not work."""
        failed = set()
        for foreign, train_step in reversed(self._candidates(found)):
            if not self._was_complete(foreign, alive_ns):
                self._say(
                    f"{foreign.name!r} is not adopted: it is not known whether it is complete"
                )
            elif self._adopt(foreign, train_step):
                break
            else:
                failed.add(foreign.name)
        return failed

    def _pass_over(self, found: Iterable[Foreign], failed: set[str]) -> None:
        """Do not adopt what was not, unless that has ``failed``, or it is changed."""
        for foreign in found:
            if foreign.name not in failed and not self._is_known(foreign):
                self._known[foreign.name] = Known(foreign.state)

    def _worth_looking(self) -> list[Path]:
        """What can be newer than the newest, by its name: the rest need not be looked into."""
        paths = find(self._rule, self._say)
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
                self._say(f"not adopted: {error}")

    def _candidates(self, found: Iterable[Foreign]) -> list[tuple[Foreign, int | None]]:
        """Those that are not known, and newer than the newest, in their order, one a train step."""
        new = [each for each in found if not self._is_known(each)]
        new.sort(key=lambda each: each.changed_ns)
        if self._rule.train_step == BY_COUNT:
            return [(each, None) for each in new]
        steps: dict[int, Foreign] = {}
        for foreign in new:
            try:
                train_step = train_step_of(foreign.path, self._rule)
            except (OSError, ValueError):
                continue  # the file that says it is not there, or not all there
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
            self._say(f"what was adopted may be adopted once more: {error}")
        return True

    def _put_back(self, newest: Path, failed: set[str]) -> None:
        """Put the newest checkpoint to where the program wrote it, if it is not there."""
        origin = _origin(newest)
        if origin is None or origin[0] in failed:  # what is there is newer, and complete
            return
        if not is_named(origin[0], self._rule):  # a manifest does not say where else to write
            return
        name, train_step = origin[0], int(newest.name)
        known, target = self._known.get(name), self._rule.folder / name
        if known is not None and known.train_step == train_step:
            return
        require_no_strange_link(target.parent)
        put_back(newest / FOLDER / target.name, target)
        warn(f"{str(target)!r} is the checkpoint of train step {train_step} again")
        self._known[name] = Known(look(target, self._rule).state, train_step)

    def _first_known(self, found: list[Foreign]) -> dict[str, Known]:
        """What not to adopt, where nobody has written that down.

        In a new run that is all there is: others have written it. In one with checkpoints, whose
        other files were lost, what is older than the newest.
        """
        origin = _origin(self._store.path(self._newest)) if self._newest >= 0 else None
        if self._newest < 0 and found:
            names = ", ".join(repr(each.name) for each in found[:3])
            warn(f"{names}: there before this run, and not adopted")
        return {
            each.name: Known(each.state)
            for each in found
            if origin is None or each.changed_ns <= origin[1]
        }

    def _is_known(self, foreign: Foreign) -> bool:
        known = self._known.get(foreign.name)
        return known is not None and known.state == foreign.state

    def _newest_of_attempt(self) -> int:
        """What this attempt has resumed from or made; others may be there, and damaged."""
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
    """Below which name it was adopted, and when that was last changed, in ns; None: it was not."""
    try:
        said = read_manifest(path).get("adopted")
    except CheckpointError:
        return None
    if not isinstance(said, dict):
        return None
    name, changed_ns = said.get("name"), said.get("changed_ns")
    if not isinstance(name, str) or type(changed_ns) is not int:
        return None
    return name, changed_ns
