"""Restore one run: fetch its files, and append to its journal.

It may be killed at any moment. A new run directory appears with one rename. If a part of one is
left, each file appears by itself, and a repeated restore does the rest.
"""

from __future__ import annotations

from contextlib import suppress
from functools import partial

from hpcflow.clock import Clock
from hpcflow.errors import (
    StorageError,
)
from hpcflow.history import RunHistory
from hpcflow.history.run import OLDER_HOME
from hpcflow.launch.cancel import record_kept
from hpcflow.ledger.rows import Known
from hpcflow.model.journal import CancelRequested, Held, JournalRecord, Restored, Resumed
from hpcflow.ownership import NO_TRUST, Trust
from hpcflow.reconcile.attempt_events import last_event_at, last_exit
from hpcflow.restore import journals, local
from hpcflow.restore.fetching import NEWEST, NO_PROGRESS, Fetching, Progress, Which
from hpcflow.restore.moving import Place
from hpcflow.restore.outcome import Outcome
from hpcflow.restore.publish import merge, publish_new
from hpcflow.restore.remote_run import RemoteRun
from hpcflow.restore.staging import Staging, staging
from hpcflow.runtime.reading import read_file
from hpcflow.settings import Settings
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.files import write_durably
from hpcflow.storage.frozen import is_frozen_here, matches_frozen, record_frozen
from hpcflow.storage.journal import Journal, is_lost
from hpcflow.storage.journal_copy import forget_copy, path_of, read_copy
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import LOCK_WAIT_S, submit_lock
from hpcflow.storage.restoring import is_cancelled
from hpcflow.storage.rundir import link_run, make_place, read_run
from hpcflow.storage.runs import is_gone


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
        link_run(settings.home, place.run_dir.path)
        if work.is_known:  # the same content, as this version formats it
            record_frozen(settings.home, place.run_dir)
        if place.is_move:  # the copy is older than the journal of the other place
            forget_copy(settings.home, remote.run_id)
        staged.remove()
        return outcome


def note_nothing_there(run_dir: RunDir, url: str, *, settings: Settings, clock: Clock) -> None:
    """Record in the journal of a run that the store does not have it, so that the daemon continues.

    Raises:
        StorageError: the journal cannot be written.
    """
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
        self.is_known = self._is_frozen_here = False
        self._copy = None if place.is_move else read_copy(settings.home, remote.run_id)
        self._lines_bytes = 0
        self._outcome = Outcome(remote.run_id, place.run_dir, remote.url)
        self._fetching = Fetching(remote, place, staged, self._outcome, progress)

    def do(self, which: Which, *, always_record: bool) -> Outcome:
        outcome = self._outcome
        outcome.refused = self._remote.objects.refused
        here, lines = local.journal_of(self._run_dir), self._lines()
        self._lines_bytes = len(lines)
        history = journals.history_of(lines)
        self._fetching.checkpoints(which)
        self._fetching.small(history.plus(*self._lost(history)))
        records = self._new_records(history, journals.history_of(here))
        if is_gone(self._run_dir) and not self._run_dir.path.exists():
            everything = lines + self._text(
                [*records, self._restored(lines, records, has_journal=True)]
            )
            said = journals.history_of(everything)
            outcome.is_new = publish_new(
                self._staged,
                self._run_dir,
                self._place.run,
                everything,
                said.startable_attempts,
                is_known=self._is_frozen_here,
            )
            if outcome.is_new:
                self._record_cancel(said)
                self._look_for_newest()
                return outcome
        self._merge(records, always_record=always_record)
        return outcome

    def _lines(self) -> bytes:
        """Return the journal of the run, merged from scratch and the home's copy or the store."""
        here, copy = local.journal_of(self._run_dir), self._copy
        if here and copy is None and not self._remote.has_journal:
            return here
        there = self._remote.journal if copy is None else copy
        try:
            return journals.joined(here, there)
        except journals.DivergedError as error:
            other = (
                self._remote.url
                if copy is None
                else path_of(self._settings.home, self._remote.run_id)
            )
            raise StorageError(
                f"the journals of run {self._remote.run_id} here and in {other} differ from line "
                f"{error.line} on, so nothing was changed",
                next_action="it may be active in two places: compare both, and move away the one "
                f"that is wrong: {self._run_dir.journal}",
            ) from None

    def _new_records(self, history: RunHistory, here: RunHistory) -> list[JournalRecord]:
        """Return the records to append: those that only the ledger has; for a run that moves, ends
        of its open attempts and a hold."""
        new = self._lost(history)
        if is_cancelled(self._settings.home, self._remote.run_id):
            new.append(CancelRequested(at=self._clock.now(), by=self._settings.user))
        if not self._place.is_move:
            return new + self._held_unless_known(history.plus(*new), here)
        now, before = self._clock.now(), self._place.before
        staged = RunDir(self._staged.run)

        def exit_code(number: int) -> int | None:
            word = last_exit(staged, number)
            return None if word is None else word[0]

        new += journals.taken_over(
            history.plus(*new),
            cluster=self._cluster,
            now=now,
            exit_code=exit_code,
            ended_at=partial(last_event_at, staged),
            why=f"it came from {self._remote.url}; its job on site {before.site} is not known here",
        )
        said = history.plus(*new)
        return new + self._decide(said, here, why="what it executes comes from a store")

    def _lost(self, history: RunHistory) -> list[JournalRecord]:
        """Return the records that only the ledger has."""
        if self._known is None or not self._is_shorter:
            return []
        return journals.only_in_ledger(history, self._known)

    def _held_unless_known(self, history: RunHistory, here: RunHistory) -> list[JournalRecord]:
        """Return a hold if the run's commands come from the store and were not frozen here.

        A line from the store also never resumes a run that was stopped here.
        """
        home, run_id = self._settings.home, self._remote.run_id
        is_here = local.frozen(self._run_dir) is not None
        has_new = len(history.records) > len(here.records)
        has_new = has_new or not (self._is_own_journal or here.records)
        has_new = has_new or self._has_less_than_store(history)
        data = read_file(self._run_dir.run_json) if is_here else self._remote.run_json
        is_known = matches_frozen(home, run_id, data)
        self.is_known, self._is_frozen_here = is_known and not is_here, is_known
        why = ""
        if not is_known:
            is_ours = history.hold is not None and history.hold.why is not None
            is_changed = is_frozen_here(home, run_id)
            self._outcome.is_unknown = not is_here or has_new or is_ours or is_changed
            why = "what it executes comes from the store, and no user of this home has approved it"
        if not has_new and (is_known or is_here):
            return []
        return self._decide(history, here, why=why)

    def _decide(self, history: RunHistory, here: RunHistory, *, why: str) -> list[JournalRecord]:
        """Return the records to append after ``history``: a hold if a user must approve the run
        first, or that it was resumed."""
        home, run_id = self._settings.home, self._remote.run_id
        now, by, is_own = self._clock.now(), self._settings.user, self._is_own_journal
        is_marked = is_cancelled(home, run_id) or self._run_dir.cancel.exists()
        if history.is_cancelled:
            is_own_cancel = (history if is_own else here).is_cancelled
            is_own_cancel = is_own_cancel or self._is_cancelled_in_ledger
            if is_marked or (is_own_cancel and not self._was_resumed(history)):
                return []
        if not why and is_own and history.last.is_completed:
            return []
        if not why and self._has_less_than_store(history):
            why = OLDER_HOME
        if not why and not is_own:
            why = "its journal comes from the store, because this home has no copy of it"
        if why:
            # A hold in the store alone may be forged, and does not count.
            holds = [each.hold for each in ([history] if is_own else [history, here])]
            if all(hold is not None and hold.why == why for hold in holds):
                return []
            self._outcome.held = why
            return [Held(at=now, by=by, why=why)]
        return [Resumed(at=now, by=by)] if self._was_resumed(history) else []

    @property
    def _is_cancelled_in_ledger(self) -> bool:
        """Whether the ledger has the user's cancel, and the run was frozen in this home."""
        known = self._known
        return (
            self._is_frozen_here
            and known is not None
            and "cancel_requested_at" in known.run.journal
        )

    def _has_less_than_store(self, history: RunHistory) -> bool:
        """Return whether the store has more of the journal than this home, maybe from a backup."""
        if self._copy is None or history.is_older_home_accepted:
            return False
        known_bytes = max(len(self._copy), self._read_bytes, self._here_bytes)
        return self._remote.has_lines_after(known_bytes)

    @property
    def _here_bytes(self) -> int:
        """The size of the complete lines of the journal here."""
        return len(journals.whole(local.journal_of(self._run_dir)))

    @property
    def _is_own_journal(self) -> bool:
        """Whether no line of the journal comes from the store."""
        return self._copy is not None or not self._remote.has_journal

    def _was_resumed(self, history: RunHistory) -> bool:
        """Return whether ``history`` stops the run, but the ledger has read later that it was
        resumed."""
        known = self._known
        if known is None or not self._is_shorter:
            return False
        return self._read_bytes >= self._lines_bytes and journals.was_resumed(history, known)

    @property
    def _read_bytes(self) -> int:
        """The number of bytes of the journal that the ledger has read."""
        sources, name = self._known.sources if self._known else [], self._run_dir.journal.name
        return max((each.offset_bytes for each in sources if each.path == name), default=0)

    @property
    def _is_shorter(self) -> bool:
        """Whether the ledger has read more of the journal than is here."""
        return self._read_bytes > self._here_bytes

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

    def _merge(self, records: list[JournalRecord], *, always_record: bool) -> None:
        """Add what is missing to the existing run directory."""
        outcome, run_dir = self._outcome, self._run_dir
        with submit_lock(run_dir, wait_s=LOCK_WAIT_S, clock=self._clock):
            here = local.journal_of(run_dir)
            lines = self._lines()  # another process may have appended to it since
            is_less = not here.startswith(lines) or is_lost(run_dir)
            lacks = local.frozen(run_dir) is None
            is_move = self._place.is_move
            if outcome.is_nothing and not (always_record or is_less or lacks or records or is_move):
                self._look_for_newest()
                return
            mark_dirty(self._settings.home, run_dir)
            new = [*records, self._restored(lines, records, has_journal=is_less)]
            said = journals.history_of(lines).plus(*new)
            outcome.left = merge(
                self._staged,
                run_dir,
                self._place.run,
                said.startable_attempts,
                is_move=is_move,
                is_known=self._is_frozen_here,
                lines=lines + self._text(new) if is_less else None,
                records=new,
            )
            outcome.files += lacks + is_less
        self._record_cancel(said)
        self._look_for_newest()

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
