"""One pass of the mirror over all runs of a home.

The newest complete checkpoint of every run comes before any older one, then the small files that
changed, then what the rule for keeping lets go. Runs are under way side by side, each under a lock
of its own: another mirror (the daemon's, cron's, a job) works on other runs meanwhile. It may be
killed anywhere: the next one goes on.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import Final

from hpcflow.clock import Clock
from hpcflow.errors import DamagedError, HpcflowError, MirrorError
from hpcflow.mirror.checkpoint import GoneError, Local, send_checkpoint
from hpcflow.mirror.layout import RUN_JSON
from hpcflow.mirror.ours import require_ours
from hpcflow.mirror.progress import Progress
from hpcflow.mirror.records import REMOVED, record
from hpcflow.mirror.retention import remove, to_remove
from hpcflow.mirror.small_files import due_files, send_small_files
from hpcflow.mirror.stores import Stores
from hpcflow.mirror.survey import Survey, mirror_of_run, survey
from hpcflow.mirror.upload import Uploader
from hpcflow.model.run import Mirror
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.locks import mirror_lock
from hpcflow.storage.own_runs import is_others
from hpcflow.storage.unread import mark_unread

_RUNS_AT_ONCE: Final = 4
#: After so long in older checkpoints, newer ones are looked for in all runs.
_LOOK_AGAIN_S: Final = 30.0


@dataclass(frozen=True)
class Done:
    """A checkpoint that was mirrored."""

    run_id: str
    train_step: int
    size_bytes: int
    took_s: float


@dataclass
class Report:
    """What a pass did.

    Attributes:
        problems: by run id, or by the URL of a store that refused: why something was not sent.
        busy: ids of the runs that somebody else is mirroring.
    """

    mirrored: list[Done] = field(default_factory=list)
    small_files: int = 0
    removed: list[tuple[str, int]] = field(default_factory=list)
    problems: dict[str, HpcflowError] = field(default_factory=dict)
    busy: set[str] = field(default_factory=set)


class Pass:
    """One pass.

    Args:
        home: where the ledger is told to read a run again that came to rest long ago.
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

    def run(self, run_dirs: Iterable[RunDir]) -> Report:
        """Send all that is due of these runs. What goes wrong with one keeps no other waiting."""
        todo = [run_dir for run_dir in run_dirs if not is_others(run_dir)]
        with ThreadPoolExecutor(_RUNS_AT_ONCE, "run") as pool:
            wave, looked_at_s = todo, self._clock.monotonic()
            while wave:
                has_more = list(pool.map(self._send_newest, wave))
                wave = [each for each, more in zip(wave, has_more, strict=True) if more]
                if wave and self._clock.monotonic() - looked_at_s > _LOOK_AGAIN_S:
                    wave, looked_at_s = todo, self._clock.monotonic()
            list(pool.map(self._finish, todo))
        self._report.problems.update(self._stores.refused)
        return self._report

    def _send_newest(self, run_dir: RunDir) -> bool:
        """Send the newest checkpoint that is due; whether there are older ones."""

        def send(seen: Survey, uploader: Uploader) -> bool:
            if not seen.due:
                return False
            self._send_run_json(seen, uploader)
            newest, *older = seen.due
            mark_unread(self._home, run_dir)
            try:
                self._send(seen, newest, uploader)
            except GoneError:
                pass  # it was removed, by its rule or a purge: nothing is wrong
            except DamagedError as error:  # it keeps no older one back
                self._report.problems[seen.run_id] = error
            return bool(older)

        return self._with_run(run_dir, send)

    def _send_run_json(self, seen: Survey, uploader: Uploader) -> None:
        """No checkpoint is in the store without the run that it is of, or before the place is known
        that sends it."""
        files = due_files(seen.run_dir, uploader.remote.url, self._clock.now().timestamp())
        first = [each for each in files if each.name == RUN_JSON]
        if first:
            send_small_files(seen.run_dir, first, uploader, clock=self._clock)

    def _send(self, seen: Survey, local: Local, uploader: Uploader) -> None:
        require_ours(seen.run_dir, uploader.remote)
        began_s = self._clock.monotonic()
        with Progress(seen.run_dir, local.train_step, local.size_bytes, self._clock) as progress:
            send_checkpoint(
                seen.run_dir,
                local,
                seen.records,
                uploader,
                clock=self._clock,
                on_bytes=progress.add,
            )
        took_s = self._clock.monotonic() - began_s
        done = Done(seen.run_id, local.train_step, local.size_bytes, took_s)
        self._report.mirrored.append(done)
        self._on_done(done)

    def _finish(self, run_dir: RunDir) -> None:
        """The small files, and what goes from the store."""

        def finish(seen: Survey, uploader: Uploader) -> bool:
            for step, why in seen.broken.items():
                self._report.problems[seen.run_id] = DamagedError(f"checkpoint {step}: {why}")
            remote = uploader.remote
            for step in to_remove(seen.mirror, seen.records, set(seen.local), self._clock.now()):
                mark_unread(self._home, run_dir)
                remove(remote, seen.run_id, step)
                record(run_dir, self._clock, REMOVED, url=remote.url, train_step=step)
                self._report.removed.append((seen.run_id, step))
            files = due_files(run_dir, remote.url, self._clock.now().timestamp())
            send_small_files(run_dir, files, uploader, clock=self._clock)
            self._report.small_files += len(files)
            return False

        self._with_run(run_dir, finish)

    def _with_run(self, run_dir: RunDir, do: Callable[[Survey, Uploader], bool]) -> bool:
        """What ``do`` returns, which has the run for itself; False where it could not be done."""
        mirror = mirror_of_run(run_dir)
        uploader = None if mirror is None else self._stores.uploader(mirror)
        if mirror is None or uploader is None:
            return False
        try:
            with mirror_lock(run_dir) as is_ours:
                if not is_ours:
                    self._report.busy.add(run_dir.path.name)
                    return False
                seen = survey(run_dir)
                return seen is not None and do(seen, uploader)
        except HpcflowError as error:
            self._say_problem(run_dir, mirror, error)
        except OSError as error:  # a purge takes one file after the other
            if run_dir.run_json.exists():
                self._report.problems[run_dir.path.name] = HpcflowError(str(error))
        return False

    def _say_problem(self, run_dir: RunDir, mirror: Mirror, error: HpcflowError) -> None:
        if isinstance(error, MirrorError):
            self._stores.judge(mirror, error)
            if mirror.url in self._stores.refused:
                return  # said once, not for each of its runs
        elif not run_dir.run_json.exists():
            return  # it was purged while we were at it
        self._report.problems[run_dir.path.name] = error
