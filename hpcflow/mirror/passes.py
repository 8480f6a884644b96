"""One pass of the mirror over all runs of a home.

Order: first the newest complete checkpoint of every run, latest first; then changed small files and
removals by retention; then older checkpoints, latest first. Several runs are mirrored at once, each
under its own lock, so another mirror (of the daemon, cron or a job) can work on other runs. A pass
may be killed anywhere; the next one continues.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import datetime
from heapq import heapify, heappop, heappush
from pathlib import Path
from typing import Any, Final

from hpcflow.clock import CONFIRMED_AFTER, Clock
from hpcflow.errors import DamagedError, HpcflowError, MirrorError
from hpcflow.mirror.checkpoint import GoneError, Local, delete_forgotten, send_checkpoint
from hpcflow.mirror.records import DUE, FAILED, REMOVED, record
from hpcflow.mirror.retention import remove, to_remove
from hpcflow.mirror.small_files import due_files, send_run_json, send_small_files
from hpcflow.mirror.status import Progress
from hpcflow.mirror.store_memory import StoreMemory
from hpcflow.mirror.stores import Stores
from hpcflow.mirror.survey import Survey, mirror_of_run, survey
from hpcflow.mirror.upload import Uploader
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.locks import try_lock
from hpcflow.storage.own_runs import is_others
from hpcflow.storage.runs import is_gone

_RUNS_AT_ONCE: Final = 4
#: While checkpoints are sent, all runs are checked this often for newer ones and small files.
_LOOK_AGAIN_S: Final = 30.0
#: Failures of the store with checkpoints of one run after which its others wait for the next pass.
_MOST_REFUSALS: Final = 2
#: The work of a turn, by priority.
_OVERDUE_FILES, _NEWEST, _FILES, _OLDER, _LAST_FILES = range(5)
#: One of these, then the order among equals.
_Urgency = tuple[int, int, float]


@dataclass(frozen=True)
class Done:
    """A checkpoint that was mirrored."""

    run_id: str
    train_step: int
    size_bytes: int
    took_s: float


@dataclass
class Report:
    """The results of a pass.

    Attributes:
        problems: run id, or URL of a store that failed -> why something was not sent.
        busy: ids of runs that another process is mirroring.
    """

    mirrored: list[Done] = field(default_factory=list)
    small_files: int = 0
    removed: list[tuple[str, int]] = field(default_factory=list)
    problems: dict[str, HpcflowError] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)


@dataclass
class _Run:
    """One run in a pass.

    Attributes:
        files: priority of its small files; None if they are done.
        tried: checksums of manifests that were tried; failed ones wait for the next pass.
        newest_sent: how often its newest checkpoint was tried.
        refusals: how often the store failed with its checkpoints.
    """

    run_dir: RunDir
    files: int | None = _FILES
    tried: set[str] = field(default_factory=set)
    newest_sent: int = 0
    refusals: int = 0

    def next(self, seen: Survey) -> Local | None:
        """Return the newest checkpoint that is due; None after too many failures."""
        due = (each for each in seen.due if each.manifest_sha256 not in self.tried)
        return next(due, None) if self.refusals < _MOST_REFUSALS else None

    def urgency(self, seen: Survey) -> _Urgency | None:
        """Return the priority of its next work, the smallest first; None if nothing is left."""
        turns: list[_Urgency] = []
        if (local := self.next(seen)) is not None:
            newer_first = -local.made_at.timestamp()
            if local.train_step == max(seen.local):
                # A run that makes new ones faster than they can be sent must not block others.
                turns.append((_NEWEST, self.newest_sent, newer_first))
            else:
                turns.append((_OLDER, 0, newer_first))
        if self.files is not None:
            turns.append((self.files, 0, 0.0))
        return min(turns, default=None)


class Pass:
    """One pass.

    Args:
        home: marks runs dirty there, so that the ledger reads them again.
        on_done: called when a checkpoint was mirrored, by several threads.
    """

    def __init__(
        self,
        home: Home,
        clock: Clock,
        stores: Stores,
        *,
        on_done: Callable[[Done], object] = lambda _: None,
    ) -> None:
        self._home, self._clock, self._stores, self._on_done = home, clock, stores, on_done
        self._report = Report()
        self._runs: dict[Path, _Run] = {}
        self._memory = StoreMemory(home)

    def run(self, list_runs: Callable[[], Iterable[RunDir]]) -> Report:
        """Send all that is due of these runs; an error in one does not stop the others.

        Args:
            list_runs: called again in a long pass, for new runs.
        """
        with ThreadPoolExecutor(_RUNS_AT_ONCE, "run") as pool:
            waiting = self._look(pool, list_runs(), ())
            sending_since_s: float | None = None
            under_way: dict[Future[_Urgency | None], tuple[_Run, bool]] = {}
            while waiting or under_way:
                while waiting and len(under_way) < _RUNS_AT_ONCE:
                    (what, *_), path = heappop(waiting)
                    run = self._runs[path]
                    is_sending = what in (_NEWEST, _OLDER)
                    under_way[pool.submit(self._turn, run)] = run, is_sending
                    if sending_since_s is None and is_sending:
                        sending_since_s = self._clock.monotonic()
                for ended in wait(under_way, _LOOK_AGAIN_S, FIRST_COMPLETED).done:
                    (run, _), urgency = under_way.pop(ended), ended.result()
                    if urgency is not None:
                        heappush(waiting, (urgency, run.run_dir.path))
                now_s = self._clock.monotonic()
                is_full = len(under_way) == _RUNS_AT_ONCE  # no thread is free for new work
                is_time = sending_since_s is not None and now_s - sending_since_s >= _LOOK_AGAIN_S
                if is_time and not is_full:
                    busy = [run for run, _ in under_way.values()]
                    waiting = self._look(pool, list_runs(), busy)
                    is_sending = any(is_sending for _, is_sending in under_way.values())
                    sending_since_s = now_s if is_sending else None
        self._report.problems.update(self._stores.refused)
        self._memory.end(self._report.problems, self._unchecked())
        return self._report

    def _look(
        self, pool: ThreadPoolExecutor, run_dirs: Iterable[RunDir], but: Collection[_Run]
    ) -> list[tuple[_Urgency, Path]]:
        """Return the work on all runs but those in ``but``: a heap, the most urgent first."""
        busy = {run.run_dir.path for run in but}
        todo = []
        for run_dir in run_dirs:
            if not is_others(run_dir):
                run = self._runs.get(run_dir.path)
                if run is None:
                    run = self._runs[run_dir.path] = _Run(run_dir)
                else:
                    run.files = _OVERDUE_FILES
                if run_dir.path not in busy:
                    todo.append(run)
        found = zip(pool.map(self._urgency, todo), todo, strict=True)
        waiting = [(urgency, run.run_dir.path) for urgency, run in found if urgency is not None]
        heapify(waiting)
        return waiting

    def _urgency(self, run: _Run) -> _Urgency | None:
        try:
            seen = survey(run.run_dir)
        except HpcflowError as error:
            self._report_problem(run.run_dir, None, error)
            return None
        except Exception as error:  # a run's files may have come from anywhere
            self._report_unexpected(run, error)
            return None
        return None if seen is None else run.urgency(seen)

    def _turn(self, run: _Run) -> _Urgency | None:
        """Do the most urgent work of a run; return the priority of the next."""
        seen: Survey | None = None
        try:
            with try_lock(run.run_dir.mirror_lock) as lock:
                if lock is None:
                    self._report.busy.add(run.run_dir.path.name)
                    return None
                seen = survey(run.run_dir)
                if seen is not None:
                    self._do(run, seen)
        except HpcflowError as error:
            if isinstance(error, MirrorError) and not isinstance(error, DamagedError):
                run.refusals += 1
            self._report_problem(run.run_dir, seen, error)
        except OSError as error:  # a purge takes one file after the other
            if not is_gone(run.run_dir):
                self._report.problems[run.run_dir.path.name] = HpcflowError(str(error))
        except Exception as error:  # as above
            self._report_unexpected(run, error)
            return None
        return None if seen is None else run.urgency(seen)

    def _do(self, run: _Run, seen: Survey) -> None:
        urgency, local = run.urgency(seen), run.next(seen)
        if urgency is None:
            return
        if urgency[0] not in (_NEWEST, _OLDER) or local is None:
            run.files = None
            self._finish(seen)
            return
        if urgency[0] == _NEWEST:
            run.newest_sent += 1
        if run.files is None:
            run.files = _LAST_FILES
        run.tried.add(local.manifest_sha256)
        uploader = self._open(seen)
        if uploader is None:
            run.refusals = _MOST_REFUSALS  # else each of its checkpoints would be tried in vain
            return
        send_run_json(seen.run_dir, uploader, clock=self._clock)
        self._memory.reached(seen.mirror.url, uploader.remote)
        with suppress(GoneError):  # removed by its retention or a purge: no error
            self._send(seen, local, uploader)

    def _send(self, seen: Survey, local: Local, uploader: Uploader) -> None:
        began_s = self._clock.monotonic()
        with Progress(seen.run_dir, local.train_step, local.size_bytes, self._clock) as progress:
            send_checkpoint(
                seen.run_dir,
                local,
                seen.records,
                uploader,
                clock=self._clock,
                on_bytes=progress.add,
                on_record=lambda: mark_dirty(self._home, seen.run_dir),
            )
        took_s = self._clock.monotonic() - began_s
        done = Done(seen.run_id, local.train_step, local.size_bytes, took_s)
        self._report.mirrored.append(done)
        self._on_done(done)

    def _finish(self, seen: Survey) -> None:
        """Send small files, and remove checkpoints from the store."""
        self._report_broken(seen)
        now = self._clock.now()
        gone = self._to_remove(seen, now)
        files = due_files(seen.run_dir, seen.mirror.url.rstrip("/"), now.timestamp())
        known = seen.records.mirrored
        # Opening a store takes longer than all else for a run at rest.
        incomplete = [step for step in seen.records.began if not _is_here(seen, step)]
        uploader = self._open(seen) if gone or files or incomplete else None
        if uploader is None:
            return
        if gone or incomplete:  # only the place that mirrors the run may remove anything
            send_run_json(seen.run_dir, uploader, clock=self._clock)
        for step in incomplete:
            mark_dirty(self._home, seen.run_dir)
            delete_forgotten(seen.run_dir, step, uploader.remote, self._clock)
        for step in gone:
            mark_dirty(self._home, seen.run_dir)
            facts: dict[str, Any] = {"url": uploader.remote.url, "train_step": step}
            if remove(uploader.remote, seen.run_id, step, known[step].manifest_sha256):
                record(seen.run_dir, self._clock, REMOVED, **facts)
                self._report.removed.append((seen.run_id, step))
            else:
                why = "the store has another checkpoint of this train step, made elsewhere"
                record(seen.run_dir, self._clock, FAILED, **facts, why=why)
        sent = send_small_files(seen.run_dir, files, uploader, clock=self._clock)
        self._report.small_files += sent
        self._memory.reached(seen.mirror.url, uploader.remote)

    def _to_remove(self, seen: Survey, now: datetime) -> list[int]:
        """Return the train steps to remove from the store now.

        Removal by age needs two passes, with a ``due`` record of the first: a clock can be years
        ahead for a while, and the store may have the last copy.
        """
        gone = to_remove(seen.run_dir, seen.mirror, seen.records, set(seen.local), now)
        if seen.mirror.keep_for_s is None:
            return gone
        due = {step: at for step, at in seen.records.due.items() if at <= now}
        for step in gone:
            if step not in due:
                url = seen.mirror.url.rstrip("/")
                record(seen.run_dir, self._clock, DUE, url=url, train_step=step)
        return [step for step in gone if due.get(step, now) <= now - CONFIRMED_AFTER]

    def _report_broken(self, seen: Survey) -> None:
        """Report and record manifests that are not valid, each once."""
        for step, broken in seen.broken.items():
            if seen.needs_no_record(step):
                continue
            self._report.problems[seen.run_id] = DamagedError(f"checkpoint {step}: {broken.why}")
            if broken.sha256 is not None:  # else it may be readable next time
                mark_dirty(self._home, seen.run_dir)
                facts: dict[str, Any] = {"why": broken.why, "manifest_sha256": broken.sha256}
                url = seen.mirror.url.rstrip("/")
                facts |= {"url": url, "train_step": step, "is_final": True}
                record(seen.run_dir, self._clock, FAILED, **facts)

    def _open(self, seen: Survey) -> Uploader | None:
        """Return the uploader for the store of a run; None if the store has failed."""
        uploader = self._stores.uploader(seen.mirror)
        if uploader is not None:
            run_dirs = [run.run_dir for run in list(self._runs.values())]
            self._memory.make_if_new(uploader.remote, run_dirs)
        return uploader

    def _unchecked(self) -> set[str]:
        """Return ids of runs that this pass could not check: busy, or their store has failed."""
        ids = set(self._report.busy)
        for run in self._runs.values():
            mirror = mirror_of_run(run.run_dir)
            if mirror is not None and mirror.url in self._stores.refused:
                ids.add(run.run_dir.path.name)
        return ids

    def _report_unexpected(self, run: _Run, error: Exception) -> None:
        said = f"the mirror failed unexpectedly: {type(error).__name__}: {error}"
        self._report.problems[run.run_dir.path.name] = HpcflowError(said)

    def _report_problem(self, run_dir: RunDir, seen: Survey | None, error: HpcflowError) -> None:
        if isinstance(error, MirrorError) and seen is not None:
            self._stores.judge(seen.mirror, error)
            if seen.mirror.url in self._stores.refused:
                return  # reported once for the store, not for each run
        elif is_gone(run_dir):
            return  # it was purged meanwhile
        self._report.problems[run_dir.path.name] = error


def _is_here(seen: Survey, train_step: int) -> bool:
    """Return whether the run directory has this checkpoint, complete or not."""
    return train_step in seen.local or (seen.run_dir.checkpoints / f"{train_step:09d}").exists()
