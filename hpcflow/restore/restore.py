"""Restore one run: fetch its files, and append to its journal.

It may be killed at any moment. A new record and a new run directory each appear with one rename,
the record first. If a part of one is left, each file appears by itself, and a repeated restore does
the rest.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from hpcflow.clock import Clock
from hpcflow.errors import StorageError
from hpcflow.history import RunHistory
from hpcflow.history.run import OLDER_HOME
from hpcflow.launch.cancel import record_kept
from hpcflow.ledger.rows import Known
from hpcflow.model.journal import CancelRequested, Held, JournalRecord, Restored
from hpcflow.ownership import NO_TRUST, Trust
from hpcflow.reconcile.attempt_events import last_event_at, last_exit
from hpcflow.restore import journals, local
from hpcflow.restore.fetching import NEWEST, NO_PROGRESS, Fetching, Outcome, Progress, Which
from hpcflow.restore.moving import Place
from hpcflow.restore.publish import merge, publish_new
from hpcflow.restore.remote_run import RemoteRun
from hpcflow.restore.staging import Staging, staging
from hpcflow.settings import Settings
from hpcflow.storage.approval import is_approved, withhold_approval
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.files import write_durably
from hpcflow.storage.journal import Journal, append_all, is_lost, write_for_jobs
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import LOCK_WAIT_S, submit_lock
from hpcflow.storage.restoring import is_cancelled
from hpcflow.storage.rundir import (
    frozen_json,
    link_run,
    make_place,
    make_record,
    params_json,
    read_run,
)
from hpcflow.storage.runtime_copy import is_whole


def restore(
    remote: RemoteRun,
    place: Place,
    *,
    settings: Settings,
    clock: Clock,
    cluster: str | None,
    trust: Trust = NO_TRUST,
    known: Known | None = None,
    which: Which = NEWEST,
    always_record: bool = False,
    progress: Progress = NO_PROGRESS,
) -> Outcome:
    """Restore a run, or what is missing of it.

    The caller must hold :func:`hpcflow.storage.restoring.restoring`.

    Args:
        cluster: the name of this cluster, if known.
        trust: which users may replace parent folders of the place.
        known: the run in the ledger: the mirror may be some minutes behind.
        always_record: write a record into the journal even if nothing was fetched, so that the
            daemon continues.

    Raises:
        StorageError: another process is restoring the run, the disk is full, or the journals here
            and in the mirror differ.
        NotFoundError: the store does not have the run, or not that checkpoint.
        MirrorError: the store failed; the next try continues where this stopped.
    """
    make_place(place.run_dir.path, trust)
    with staging(place.run_dir, settings.user) as staged:
        work = _Restoring(remote, place, staged, settings, clock, cluster, known, progress)
        outcome = work.do(which, always_record=always_record)
        staged.remove()
        return outcome


def note_nothing_there(run_dir: RunDir, url: str, *, settings: Settings, clock: Clock) -> None:
    """Record in a run's journal that the store does not have it, so that the daemon continues."""
    run = read_run(run_dir)
    with submit_lock(run_dir, wait_s=LOCK_WAIT_S, clock=clock):
        mark_dirty(settings.home, run_dir)
        said = Restored(
            at=clock.now(),
            by=settings.user,
            url=url,
            after=Journal(run_dir).history.last_job,
            newest=local.newest_whole(run_dir) or 0,
            size_bytes=0,
            site=run.site,
        )
        Journal(run_dir).append(said)


class _Restoring:
    def __init__(
        self,
        remote: RemoteRun,
        place: Place,
        staged: Staging,
        settings: Settings,
        clock: Clock,
        cluster: str | None,
        known: Known | None,
        progress: Progress,
    ) -> None:
        self._remote, self._place, self._staged = remote, place, staged
        self._settings, self._clock, self._cluster = settings, clock, cluster
        self._known = known
        self._run_dir = place.run_dir
        has_run_json = not place.is_move and local.frozen(place.run_dir) is not None
        self._is_approved = has_run_json and is_approved(place.run_dir)
        here = local.journal_of(place.run_dir)
        self._has_own = not place.is_move and bool(journals.history_of(here).records)
        self._outcome = Outcome(remote.run_id, place.run_dir, remote.url)
        self._fetching = Fetching(remote, place, staged, self._outcome, progress)

    def do(self, which: Which, *, always_record: bool) -> Outcome:
        outcome = self._outcome
        outcome.refused = self._remote.objects.refused
        outcome.is_unknown = not (self._is_approved or self._place.is_move)
        here, lines = local.journal_of(self._run_dir), self._lines()
        history = journals.history_of(lines)
        self._fetching.checkpoints(which)
        self._fetching.small(history.plus(*self._lost(history)))
        records = self._new_records(history, journals.history_of(here))
        self._write(records, always_record=always_record)
        return outcome

    def _lines(self) -> bytes:
        """Return the journal of the run: that of the home; if it is lost, the store's; if the run
        continued elsewhere, the longer one."""
        here = local.journal_of(self._run_dir)
        if self._has_own:
            return journals.whole(here)
        if not self._place.is_move:
            is_unused = not here and not is_lost(self._run_dir)
            return b"" if is_unused and not self._remote.has_journal else self._remote.journal
        line = journals.first_difference(here, self._remote.journal)
        if line is not None:
            raise StorageError(
                f"the journals of run {self._remote.run_id} here and in {self._remote.url} differ "
                f"from line {line} on, so nothing was changed",
                next_action="it may be active in two places: compare both, and move away the one "
                f"that is wrong: {self._run_dir.journal}",
            )
        return max(journals.whole(here), self._remote.journal, key=len)

    def _new_records(self, history: RunHistory, here: RunHistory) -> list[JournalRecord]:
        """Return the records to append: those that only the ledger has; for a run that moves, ends
        of its open attempts and a hold."""
        new = self._lost(history)
        is_stored = is_cancelled(self._settings.home, self._remote.run_id)
        if is_stored and not history.plus(*new).is_cancelled:
            new.append(CancelRequested(at=self._clock.now(), by=self._settings.user))
        if self._place.is_move:
            new += self._taken_over(history.plus(*new))
        return new + self._hold(history.plus(*new), here)

    def _taken_over(self, history: RunHistory) -> list[JournalRecord]:
        """Return ends of the attempts that are open on another cluster."""
        now, before = self._clock.now(), self._place.before
        staged = RunDir(self._staged.run)

        def exit_code(number: int) -> int | None:
            word = last_exit(staged, number)
            return None if word is None else word[0]

        return journals.taken_over(
            history,
            cluster=self._cluster,
            now=now,
            exit_code=exit_code,
            ended_at=partial(last_event_at, staged),
            why=f"it came from {self._remote.url}; its job on site {before.site} is not known here",
        )

    def _lost(self, history: RunHistory) -> list[JournalRecord]:
        """Return the records that only the ledger has."""
        if self._known is None or not self._is_shorter:
            return []
        return journals.only_in_ledger(history, self._known)

    def _hold(self, history: RunHistory, here: RunHistory) -> list[JournalRecord]:
        """Return a hold, unless the run may continue, is held already, or its user cancelled it.

        Args:
            history: with all other records to append.
            here: only the journal of this home.
        """
        why, is_own = self._why_held(history), self._is_own_journal
        if why is None or (history.is_cancelled and self._is_own_cancel(history, here)):
            return []
        # A hold in the store alone may be forged, and does not count.
        holds = [each.hold for each in ([history] if is_own else [history, here])]
        if all(hold is not None and hold.why == why for hold in holds):
            return []
        self._outcome.held = why
        return [Held(at=self._clock.now(), by=self._settings.user, why=why)]

    def _why_held(self, history: RunHistory) -> str | None:
        """Return why the user must approve the run before it continues; None if it may."""
        if not self._is_approved:
            return journals.UNAPPROVED
        if not self._is_own_journal:
            return journals.LOST
        if self._has_less_than_store(history) and not history.last.is_completed:
            return OLDER_HOME
        return None

    def _is_own_cancel(self, history: RunHistory, here: RunHistory) -> bool:
        """Return whether a user of this home cancelled the run; the store's lines do not count."""
        is_marked = is_cancelled(self._settings.home, self._remote.run_id)
        is_said = (history if self._is_own_journal else here).is_cancelled
        # The ledger of a run that is not approved may come from the store, too.
        known = self._known if self._is_approved else None
        is_read = known is not None and "cancel_requested_at" in known.run.journal
        return is_marked or is_said or is_read or self._run_dir.cancel.exists()

    def _has_less_than_store(self, history: RunHistory) -> bool:
        """Return whether the store has more of the journal than this home, maybe from a backup."""
        if not self._has_own or history.is_older_home_accepted:
            return False
        return self._remote.has_lines_after(self._here_bytes)

    @property
    def _here_bytes(self) -> int:
        """The size of the complete lines of the journal here."""
        return len(journals.whole(local.journal_of(self._run_dir)))

    @property
    def _is_own_journal(self) -> bool:
        """Whether no line of the journal comes from the store."""
        return self._has_own or not self._remote.has_journal

    @property
    def _is_shorter(self) -> bool:
        """Whether the ledger has read more of the journal than is here."""
        sources, name = self._known.sources if self._known else [], self._run_dir.journal.name
        read = (each.offset_bytes for each in sources if each.path == name)
        return max(read, default=0) > self._here_bytes

    def _restored(
        self, lines: bytes, records: list[JournalRecord], *, has_journal: bool
    ) -> Restored:
        before, run, is_move = self._place.before, self._place.run, self._place.is_move
        return Restored(
            at=self._clock.now(),
            by=self._settings.user,
            url=self._remote.url,
            journal=has_journal or None,
            after=journals.history_of(lines).plus(*records).last_job,
            checkpoints=sorted(self._outcome.checkpoints),
            skipped=sorted(self._outcome.skipped),
            newest=self._fetching.newest(),
            size_bytes=self._fetching.size_bytes,
            site=run.site,
            site_before=before.site if is_move else None,
            run_dir_before=before.run_dir if is_move else None,
        )

    def _write(self, records: list[JournalRecord], *, always_record: bool) -> None:
        """Write the record of the run, then add what is missing to its run directory.

        The record is first, so that a hold in it is seen before there is anything to continue.
        """
        outcome, run_dir = self._outcome, self._run_dir
        is_made = self._make_record(records)
        with submit_lock(run_dir, wait_s=LOCK_WAIT_S, clock=self._clock):
            if not is_made and not self._complete_record(records, always_record=always_record):
                self._look_for_newest()
                return
            said = journals.history_of(local.journal_of(run_dir))
            params = params_json(self._place.run) if self._is_approved else None
            attempts = said.startable_attempts
            if not run_dir.path.exists():
                outcome.is_new = publish_new(self._staged, run_dir, params, attempts)
            if not outcome.is_new:
                outcome.left = merge(self._staged, run_dir, params, attempts)
            write_for_jobs(run_dir, said)
        self._record_cancel(said)
        self._look_for_newest()

    def _make_record(self, records: list[JournalRecord]) -> bool:
        """Make the record of a run; return False if the home has one, or parts of one."""
        home, run_dir = self._settings.home, self._run_dir
        if run_dir.journal.parent.exists():
            return False
        mark_dirty(home, run_dir)
        lines = self._lines()
        new = [*records, self._restored(lines, records, has_journal=True)]
        lines += self._text(new)
        is_made = make_record(home, self._place.run, journal=lines, is_approved=False)
        self._outcome.files += 2 * is_made
        return is_made

    def _complete_record(self, records: list[JournalRecord], *, always_record: bool) -> bool:
        """Write what the record lacks; ``run.json`` last, so that a killed restore is still a move.

        Return False, with the journal unchanged, if nothing is to be restored.
        """
        outcome, run_dir, is_move = self._outcome, self._run_dir, self._place.is_move
        link_run(self._settings.home, run_dir.path)
        here = local.journal_of(run_dir)
        lines = self._lines()  # another process may have appended to it since
        is_less = not here.startswith(lines) or is_lost(run_dir)
        lacks = local.frozen(run_dir) is None
        is_due = always_record or is_less or lacks or bool(records) or is_move
        if outcome.is_nothing and not is_due and not self._lacks_files_of_jobs:
            return False
        mark_dirty(self._settings.home, run_dir)
        new = [*records, self._restored(lines, records, has_journal=is_less)]
        if is_less:
            write_durably(run_dir.journal, lines + self._text(new))
        else:
            append_all(run_dir, new)
        if is_move or lacks:
            withhold_approval(run_dir)
            write_durably(run_dir.run_json, frozen_json(self._place.run))
        if is_move:  # what was mirrored from here before is older
            run_dir.mirrored.unlink(missing_ok=True)
        outcome.files += lacks + is_less
        return True

    @property
    def _lacks_files_of_jobs(self) -> bool:
        """Whether the run directory lacks what hpcflow itself puts there for jobs."""
        run_dir = self._run_dir
        lacks_params = local.is_missing(run_dir, run_dir.params_json.name)
        return (lacks_params and self._is_approved) or not is_whole(run_dir.runtime)

    def _record_cancel(self, said: RunHistory) -> None:
        """Write the cancel request again, so that a cancelled run does not start again."""
        if said.is_cancelled and not self._run_dir.cancel.exists():
            write_durably(self._run_dir.cancel, said.cancel_signal)
        with suppress(StorageError):  # the next round records it
            user = self._settings.user
            record_kept(self._settings.home, self._run_dir, user=user, clock=self._clock)

    def _look_for_newest(self) -> None:
        with suppress(StorageError):  # only for the report
            self._outcome.newest = local.newest_whole(self._run_dir)

    @staticmethod
    def _text(records: list[JournalRecord]) -> bytes:
        return "".join(record.to_line() for record in records).encode()
