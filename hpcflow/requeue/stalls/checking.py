"""Check all running attempts for progress, and act on those that have stalled.

:mod:`.stall_watch` remembers the last check, :mod:`.stall_suspects` reads the signs of progress,
and :mod:`.stall_policy` decides. This module acts. Each action is journaled first; if the process
is killed in between, the next check does it:

=========  ======================================  =================================================
act        action                                  if the process is killed before it
=========  ======================================  =================================================
notice     write the attempt's notice file         the next look writes it; the time to exit counts
                                                   from then
cancel     cancel the job                          the next look cancels it if it runs and has not
                                                   moved; minutes later, with another record
withdraw   delete hpcflow's notice file, then      the next look withdraws it
           write the record
=========  ======================================  =================================================

No signal is sent with the notice: it would be a call to Slurm, and a program that does not check
the file gets TERM when its job is cancelled.

No action is taken on a job that this round's queue does not show as running, nor on a run whose
files cannot be read and written: a full or lost scratch stops the events too, so silence means
nothing, and watching starts again.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.errors import HpcflowError, StorageError, next_step
from hpcflow.launch.jobs import alive_jobs
from hpcflow.ledger.rows import RunningRow
from hpcflow.model.journal import Stall
from hpcflow.model.state import AttemptState, attempt_state
from hpcflow.projection import catch_up
from hpcflow.reconcile.attempt_events import time_there
from hpcflow.reconcile.attribute_stall import CANCEL_TAKES
from hpcflow.requeue.round_context import LeaseLostError, RoundContext
from hpcflow.requeue.run_errors import RunErrors
from hpcflow.requeue.stalls.policy import Act, Verdict
from hpcflow.requeue.stalls.suspects import (
    Suspect,
    first_look,
    has_news,
    is_leaving,
    looked_at,
    may_have_stalled,
    suspect_of,
)
from hpcflow.requeue.stalls.watch import Entry, Turn, Watch, WatchFile, pause_s
from hpcflow.runtime.reading import read_file
from hpcflow.schedulers.base import JobInfo
from hpcflow.schedulers.clusters import other_cluster
from hpcflow.sites.slurm_conf import configured_name
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import write_new
from hpcflow.storage.layout import AttemptDir, RunDir
from hpcflow.storage.own_runs import OwnRuns

#: New runs watched at one look, because their files have to be opened; the next look takes others.
_NEW_AT_ONCE: Final = 200
#: Content of hpcflow's notice file, so that no other notice is deleted.
NOTICE_WORD: Final = "stalled"


@dataclass
class Seen:
    """The result of a look.

    Attributes:
        verdicts: run id -> new verdict.
        problems: run id -> error; the next look tries again.
        has_lost_lease: whether another process has taken the lease.
    """

    verdicts: dict[str, Verdict] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    has_lost_lease: bool = False


def look_for_stalls(
    context: RoundContext,
    queue: Callable[[str], Sequence[JobInfo]],
    own: OwnRuns,
    run_errors: RunErrors,
) -> Seen:
    """Check all running attempts, unless the last look is recent, and act.

    Args:
        queue: site name -> its queue; queried only before an act.
        run_errors: of the round so far; sites that did not answer are skipped.
    """
    return _Look(context, queue, own, run_errors).go()


class _Look:
    def __init__(
        self,
        context: RoundContext,
        queue: Callable[[str], Sequence[JobInfo]],
        own: OwnRuns,
        run_errors: RunErrors,
    ) -> None:
        self._context = context
        self._own = own
        self._seen = Seen()
        # Kept apart from the round's: the watch stores them, so that each round reports them.
        self._run_errors = RunErrors(self._seen.problems, run_errors.silent_sites)
        self._queue = queue
        self._changed: list[RunDir] = []
        self._to_cancel: dict[str, dict[str, str]] = defaultdict(dict)
        self._entries: dict[str, Entry] = {}
        self._turn = Turn(0.0)
        #: Whether entries have changed since they were saved before the acts.
        self._has_changed = False

    def go(self) -> Seen:
        context, now = self._context, self._context.clock.now()
        file = WatchFile(context.settings.home, context.settings.ledger_url, configured_name())
        if (head := file.head()).is_fresh(context.host, now):
            self._seen.problems = head.problems
            return self._seen
        before = file.load()
        rows = self._running()
        turn = self._turn = before.turn(context.host, now)
        entries = self._entries = self._look_at(rows, before)
        suspects = self._suspects(rows, entries)
        for suspect in suspects:
            run_id = suspect.row.run_id
            given, has_verdict = suspect.watched.given, suspect.verdict is not None
            entries[run_id] = replace(
                suspect.entry,
                is_suspected=has_verdict or given is not None,
                was_told=suspect.entry.was_told and given is not None,
                cancelled_s=0.0 if has_verdict else suspect.entry.cancelled_s,
                since=turn.number if has_verdict else suspect.entry.since,
            )
        watch = Watch(
            pause_s(entries.values()),
            entries,
            dict(self._seen.problems),
            before.looks_after(turn, context.host, now),
        )
        try:
            # Before the acts, so that a process killed during them has recorded all.
            file.save(watch)
            try:
                self._act(suspects)
            except LeaseLostError:
                self._seen.has_lost_lease = True
            finally:
                catch_up(context.ledger, self._changed)
            if self._has_changed or self._seen.problems != watch.problems:
                file.save(replace(watch, problems=self._seen.problems))
        except StorageError as error:
            self._seen.problems["stalls"] = f"{error.message}{next_step(error)}"
        return self._seen

    def _running(self) -> list[RunningRow]:
        """Return the attempts on this cluster that are running in the scheduler."""
        rows = [
            row
            for row in self._context.ledger.running(user=self._context.settings.user)
            if self._own.has(row.run_id, row.run_dir)
        ]
        is_here = {site: self._is_here(site) for site in {row.site for row in rows}}
        return [
            row
            for row in rows
            if is_here[row.site] and attempt_state(row.raw_state or "") is AttemptState.RUNNING
        ]

    def _run_dir(self, row: RunningRow) -> RunDir:
        return self._context.settings.home.run_dir(row.run_dir)

    def _is_here(self, site: str) -> bool:
        try:
            return not other_cluster(self._context.find_site(site), self._context.connect(site))
        except HpcflowError:
            return False  # reported by the round

    def _look_at(self, rows: list[RunningRow], before: Watch) -> dict[str, Entry]:
        entries: dict[str, Entry] = {}
        new = []
        for row in rows:
            entry = before.entries.get(row.run_id)
            if entry is None or entry.attempt != row.attempt:
                new.append(row)
            else:
                with self._run_errors.of(row.run_id, row.site):
                    entries[row.run_id] = looked_at(entry, row, self._turn)
        # Runs that failed at the last look come after the others, the latest one last.
        failed = {run_id: place for place, run_id in enumerate(before.problems)}
        new.sort(key=lambda row: failed.get(row.run_id, -1))
        new, later = new[:_NEW_AT_ONCE], new[_NEW_AT_ONCE:]
        for row in later:
            if row.run_id in failed:
                self._seen.problems[row.run_id] = before.problems[row.run_id]
        known = self._context.ledger.known([row.run_id for row in new]) if new else {}
        for row in new:
            if row.run_id in known:
                with self._run_errors.of(row.run_id, row.site):
                    entries[row.run_id] = first_look(
                        row, self._run_dir(row), known[row.run_id], self._turn
                    )
        return entries

    def _suspects(self, rows: list[RunningRow], entries: dict[str, Entry]) -> list[Suspect]:
        found = []
        for row in rows:
            if (entry := entries.get(row.run_id)) is not None:
                with self._run_errors.of(row.run_id, row.site):
                    if entry.is_suspected or is_leaving(row) or may_have_stalled(row, entry):
                        found.append(row)
        known = self._context.ledger.known([row.run_id for row in found]) if found else {}
        suspects = []
        for row in found:
            of_run = known.get(row.run_id)
            attempts = of_run.attempts if of_run else []
            attempt = next((each for each in attempts if each.attempt == row.attempt), None)
            if of_run is not None and attempt is not None:
                with self._run_errors.of(row.run_id, row.site):
                    entry = entries[row.run_id]
                    run_dir = self._run_dir(row)
                    suspects.append(suspect_of(row, run_dir, of_run, attempt, entry, self._turn))
        return suspects

    def _act(self, suspects: Iterable[Suspect]) -> None:
        for suspect in suspects:
            if suspect.verdict is None and not suspect.waits_for_notice:
                continue
            if suspect.row.site in self._run_errors.silent_sites:
                continue
            self._context.require_lease()
            with self._run_errors.of(suspect.row.run_id, suspect.row.site):
                self._unless_files_fail(suspect)
        for site, jobs in self._to_cancel.items():
            self._context.require_lease()
            with self._run_errors.of(next(iter(jobs)), site):
                self._context.connect(site).cancel(list(jobs.values()))

    def _unless_files_fail(self, suspect: Suspect) -> None:
        try:
            self._one(suspect)
        except StorageError:
            self._change(suspect, silent_s=0.0)
            raise

    def _change(self, suspect: Suspect, **changes: Any) -> None:
        run_id, since = suspect.row.run_id, self._turn.number
        self._entries[run_id] = replace(self._entries[run_id], since=since, **changes)
        self._has_changed = True

    def _one(self, suspect: Suspect) -> None:
        if suspect.journal.history.is_cancelled or has_news(suspect):
            return  # cancelled, or moved since the ledger was read
        job_id = self._running_job(suspect)
        if job_id is None:
            return
        if suspect.verdict is None or suspect.verdict.act is Act.NOTICE:
            if suspect.verdict is not None:
                self._write_down(suspect, suspect.verdict)
            _give_notice(suspect.files)
            self._change(suspect, was_told=True)
        elif suspect.verdict.act is Act.WITHDRAW:
            _take_notice_back(suspect.files)
            self._write_down(suspect, suspect.verdict)
        else:
            self._record_cancel(suspect, suspect.verdict)
            self._to_cancel[suspect.row.site][suspect.row.run_id] = job_id

    def _running_job(self, suspect: Suspect) -> str | None:
        row = suspect.row
        running = [
            job
            for job in self._queue(row.site)
            if job.job_id == suspect.attempt.job_id and job.state is AttemptState.RUNNING
        ]
        if not running:
            return None
        history, scheduler = suspect.journal.history, self._context.connect(row.site)
        return next(iter(alive_jobs(row.run_id, scheduler, history, queue=running)), None)

    def _record_cancel(self, suspect: Suspect, verdict: Verdict) -> None:
        """Journal a cancel, unless that was just done. A much later retry gets a record of its own,
        so that the job's end is attributed to it."""
        last = suspect.attempt.journal.get("stall", {})
        if last.get("action") == Act.CANCEL.value:
            if abs(self._context.clock.now() - from_text(last["at"])) < CANCEL_TAKES / 2:
                return
            verdict = replace(verdict, why=last["why"])
        self._write_down(suspect, verdict)

    def _write_down(self, suspect: Suspect, verdict: Verdict) -> None:
        is_cancel = verdict.act is Act.CANCEL
        record = Stall(
            at=self._context.clock.now(),
            attempt=suspect.row.attempt,
            action=verdict.act.value,
            rule=verdict.rule,
            why=verdict.why,
            silent_s=suspect.watched.silent_s,
            signs=suspect.entry.signs,
            log_bytes=suspect.entry.log_bytes,
            longest_s=suspect.longest_s,
            files_at=time_there(suspect.run_dir, suspect.row.attempt) if is_cancel else None,
        )
        suspect.journal.append(record)
        self._changed.append(suspect.run_dir)
        self._seen.verdicts[suspect.row.run_id] = verdict


def _give_notice(files: AttemptDir) -> None:
    with storage_errors("write", files.notice), suppress(FileExistsError):
        write_new(files.notice, f"{NOTICE_WORD}\n".encode())


def _take_notice_back(files: AttemptDir) -> None:
    """Delete hpcflow's notice, unless the job script has replaced it."""
    with storage_errors("delete", files.notice), suppress(FileNotFoundError):
        if read_file(files.notice).strip() == NOTICE_WORD.encode():
            files.notice.unlink()
