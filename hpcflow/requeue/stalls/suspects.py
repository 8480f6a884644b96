"""Read the signs of progress of one running attempt and the acts about it; return its verdict.

This reads the attempt's files and writes nothing; :mod:`.stalls` acts.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from hpcflow.errors import StorageError
from hpcflow.ledger.rhythm import Rhythm, has_begun, rhythm_of, signs_of
from hpcflow.ledger.rows import AttemptRow, Known, RunningRow
from hpcflow.model.events import MAX_LINE_BYTES
from hpcflow.model.state import Cause
from hpcflow.reconcile.attempt_events import first_notice
from hpcflow.requeue.stalls.policy import Act, Given, Terms, Verdict, Watched, judge
from hpcflow.requeue.stalls.watch import Entry, Turn
from hpcflow.storage.files import read_from, size_of
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import AttemptDir, RunDir
from hpcflow.storage.rundir import read_run


@dataclass(frozen=True)
class Suspect:
    """An attempt that may have stalled, or has an act about its silence."""

    row: RunningRow
    run_dir: RunDir
    known: Known
    attempt: AttemptRow
    entry: Entry
    watched: Watched
    verdict: Verdict | None

    @cached_property
    def journal(self) -> Journal:
        return Journal(self.run_dir)

    @property
    def files(self) -> AttemptDir:
        return self.run_dir.attempt(self.row.attempt)

    @property
    def longest_s(self) -> float:
        """Return the longest silence before the current one."""
        given, rhythm = self.watched.given, self.watched.rhythm
        return given.longest_s if given else max(rhythm.longest_s, self.watched.log_gap_s)

    @property
    def waits_for_notice(self) -> bool:
        """Return whether a notice was journaled, and neither its file nor progress seen since."""
        given = self.watched.given
        return (
            self.verdict is None
            and given is not None
            and given.act is Act.NOTICE
            and not self.entry.was_told
            and not self.watched.has_moved
            and not self.watched.is_leaving
        )


def suspect_of(
    row: RunningRow, run_dir: RunDir, known: Known, attempt: AttemptRow, entry: Entry, turn: Turn
) -> Suspect:
    """Return a running attempt with its verdict."""
    given = _given(attempt) or _heard_late(row, attempt)
    has_moved = _has_moved(attempt, entry)
    if given is not None and not has_moved:
        entry = _unless_untold(row, entry, given, turn)
    watched = replace(_watched(row, entry), given=given, has_moved=has_moved)
    return Suspect(row, run_dir, known, attempt, entry, watched, judge(watched, entry.terms))


def looked_at(entry: Entry, row: RunningRow, turn: Turn) -> Entry:
    try:
        log_bytes = _log_bytes(row) if entry.terms.log else entry.log_bytes
    except StorageError:
        # Its progress is unknown.
        return replace(entry, silent_s=0.0, since=turn.number)
    return entry.looked_at(signs_of(row.report), log_bytes, turn)


def first_look(row: RunningRow, run_dir: RunDir, known: Known, turn: Turn) -> Entry:
    """Return the first entry of a run: its settings, and the record of its earlier attempts."""
    spec = read_run(run_dir).spec
    retry = spec.retry
    terms = Terms(
        retry.stall_after_s, retry.stall_factor, retry.stall_log, spec.checkpoint.notice_s
    )
    earlier = [each for each in known.attempts if each.attempt < row.attempt]
    counted_from = known.run.journal.get("counted_from", 1)
    own = [each for each in known.attempts if each.attempt == row.attempt]
    return Entry(
        row.attempt,
        signs_of(row.report),
        terms,
        log_bytes=_log_bytes(row) if terms.log else None,
        before=sum(map(_rhythm_before_stall, earlier), Rhythm()),
        stalls=sum(
            each.cause == Cause.STALLED.value and each.attempt >= counted_from for each in earlier
        ),
        is_suspected=any("stall" in each.journal for each in own),
        since=turn.number,
    )


def _rhythm_before_stall(attempt: AttemptRow) -> Rhythm:
    """Return the attempt's rhythm, without the silence for which it was cancelled."""
    rhythm = rhythm_of([attempt.report])
    if attempt.cause != Cause.STALLED.value or "stall" not in attempt.journal:
        return rhythm
    longest_s = min(rhythm.longest_s, attempt.journal["stall"]["longest_s"])
    return replace(rhythm, longest_s=longest_s)


def _watched(row: RunningRow, entry: Entry) -> Watched:
    own = rhythm_of([row.report])
    return Watched(
        silent_s=entry.silent_s,
        has_begun=has_begun(row.report) or entry.log_grew,
        rhythm=own + entry.before,
        log_gap_s=entry.log_gap_s,
        stalls=entry.stalls,
        is_leaving=is_leaving(row),
        cancelled_s=entry.cancelled_s,
    )


def _given(attempt: AttemptRow) -> Given | None:
    """Return the last act about its silence, unless that was withdrawn."""
    record = attempt.journal.get("stall")
    if record is None or record["action"] == Act.WITHDRAW.value:
        return None
    return Given(
        Act(record["action"]), float(record["silent_s"]), float(record.get("longest_s", 0))
    )


def _heard_late(row: RunningRow, attempt: AttemptRow) -> Given | None:
    """Return hpcflow's notice if the program saw it just before its withdrawal, and is exiting.

    The withdrawn notice file is deleted. A notice of the job script is a file that stays, and one
    that Slurm sends to the program is a signal.
    """
    record = attempt.journal.get("stall")
    if record is None or record["action"] != Act.WITHDRAW.value or not is_leaving(row):
        return None
    if size_of(_files(row).notice) is not None:
        return None
    if first_notice(RunDir(Path(row.run_dir)), row.attempt) in ("TERM", "USR2"):
        return None
    return Given(Act.NOTICE, 0.0, float(record.get("longest_s", 0)))


def is_leaving(row: RunningRow) -> bool:
    """Return whether its program has reported the notice."""
    return "notice_at" in row.report


def _unless_untold(row: RunningRow, entry: Entry, given: Given, turn: Turn) -> Entry:
    """Restart the time to exit if the notice file was never written: hpcflow was killed before.

    Once the file was seen, it does not matter whether the program deletes it.
    """
    try:
        was_told = entry.was_told or size_of(_files(row).notice) is not None
    except StorageError:
        was_told = False
    if was_told:
        return replace(entry, was_told=True)
    if given.act is Act.CANCEL:
        return entry
    return replace(entry, silent_s=min(entry.silent_s, given.silent_s), since=turn.number)


def _has_moved(attempt: AttemptRow, entry: Entry) -> bool:
    """Return whether there was a sign of progress since the last act in the journal."""
    record = attempt.journal.get("stall", {})
    then = record.get("signs", entry.signs), record.get("log_bytes", entry.log_bytes)
    return bool(then != (entry.signs, entry.log_bytes))


def may_have_stalled(row: RunningRow, entry: Entry) -> bool:
    """Return whether to read more about an attempt: nearly all runs show progress."""
    after_s = entry.terms.after_s
    if after_s is None or entry.silent_s < after_s:
        return False  # no patience is shorter
    return judge(_watched(row, entry), entry.terms) is not None


def _log_bytes(row: RunningRow) -> int:
    return size_of(_files(row).log) or 0


def _files(row: RunningRow) -> AttemptDir:
    return RunDir(Path(row.run_dir)).attempt(row.attempt)


def has_news(suspect: Suspect) -> bool:
    """Return whether the job has written an event that the ledger has not read.

    Raises:
        StorageError: its events are missing or cannot be read, so its progress is unknown.
    """
    events = suspect.files.events
    name = events.relative_to(suspect.run_dir.path).as_posix()
    read = next((each.offset_bytes for each in suspect.known.sources if each.path == name), 0)
    size = size_of(events)
    if size is None or size < read:
        raise StorageError(f"{events} is missing or truncated; the progress is unknown")
    return b"\n" in read_from(events, read, MAX_LINE_BYTES)
