"""Read new lines in the files of one run, as a change of its rows. Writes nothing."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path

from hpcflow.errors import StorageError, shell_word
from hpcflow.ledger.codec import copied
from hpcflow.ledger.derive import derive_attempt, derive_progress, derive_run, run_row
from hpcflow.ledger.fold import AttemptFold, RunFold, fold_events, fold_journal, fold_mirror
from hpcflow.ledger.rows import BestBy, Change, Known, RunRow, SourceRow
from hpcflow.runtime.reading import MAX_LINES_FILE_BYTES, read_object
from hpcflow.storage.files import read_from, size_of
from hpcflow.storage.layout import RunDir
from hpcflow.storage.lines import Position, split_lines
from hpcflow.storage.runs import require_no_link

_PORTION_BYTES = 4 << 20
#: Errors of folding and deriving from foreign rows or unforeseen lines.
FOLD_ERRORS = (AttributeError, LookupError, TypeError, ValueError, ArithmeticError, RecursionError)


_HERE = RunDir(Path())
#: The journal's path in its run directory: the name of the file in the ledger.
JOURNAL = _HERE.journal.as_posix()


MIRROR = _HERE.mirror.as_posix()


@lru_cache(maxsize=1000)
def events_of(attempt: int) -> str:
    """Return the path of an attempt's events in the run directory."""
    return _HERE.attempt(attempt).events.as_posix()


#: As hpcflow.runtime writes them. No value can contain them: JSON escapes its quotes.
_OF_TRAINING = (b'"event": "progress"', b'"event": "checkpoint"')


class FileShrankError(Exception):
    """A file is shorter than what was read of it: it was replaced."""

    def __init__(self, path: str, *, is_journal: bool) -> None:
        super().__init__(f"{path} is shorter than what was read of it before")
        self.is_journal = is_journal


class RunChangedError(Exception):
    """``run.json`` was rewritten since it was read."""


class RunReader:
    """Reads one run from where the ledger stopped.

    Attributes:
        lines: number of new lines so far, good and bad; ``skipped_lines``: the bad ones.
        gone: files that were read once and no longer exist.
        problems: event files that could not be read; one text for each.
    """

    def __init__(
        self,
        run_dir: RunDir,
        known: Known | None,
        *,
        limits: Mapping[str, int] | None = None,
        is_lenient: bool = False,
        without_training: bool = False,
    ) -> None:
        """Prepare the reader.

        Args:
            known: the rows in the ledger; None to begin with the first byte.
            limits: path -> read up to this byte; other files are not read.
            is_lenient: skip unreadable files, except the journal, which decides about the run.
            without_training: skip progress and checkpoint events, which are most of the lines.
        """
        self.lines = 0
        self.skipped_lines = 0
        self.gone: list[str] = []
        self.problems: list[str] = []
        self._run_dir = run_dir
        self._known = known
        self._limits = limits
        self._is_lenient = is_lenient
        self._without_training = without_training
        self._fold = RunFold(run_dir.path.name)
        self._sources: dict[str, SourceRow] = {}
        self._moved: set[str] = set()
        self._is_lost_anew = False
        self._changed_at = known.run.journal.get("changed_at") if known is not None else None
        if known is not None:
            self._fold.journal = known.run.journal
            for row in known.attempts:
                self._fold.attempts[row.attempt] = AttemptFold(row.journal, row.report)
            self._sources = {row.path: row for row in known.sources}

    def read(self) -> Change | None:
        """Read every file to its end; return None if nothing is new.

        Raises:
            FileShrankError, RunChangedError: read this run again from its start.
        """
        self._read_file(JOURNAL, partial(fold_journal, self._fold))
        is_changed = self._fold.journal.get("changed_at") != self._changed_at
        if is_changed and self._known is not None:
            raise RunChangedError
        for number in sorted(self._fold.attempts):
            self._read_events(number)
        self._read_leniently(MIRROR, partial(fold_mirror, self._fold))
        if self._known is not None and not self._moved and not self._is_lost_anew:
            return None
        return self._change()

    def _read_events(self, number: int) -> None:
        self._read_leniently(events_of(number), partial(self._fold_events, number))

    def _fold_events(self, number: int, lines: list[bytes]) -> int:
        if self._without_training:
            lines = [line for line in lines if not any(kind in line for kind in _OF_TRAINING)]
        return fold_events(self._fold, number, lines)

    def _read_leniently(self, name: str, fold: Callable[[list[bytes]], int]) -> None:
        try:
            self._read_file(name, fold)
        except StorageError as error:
            if not self._is_lenient:
                raise
            self.problems.append(error.message)

    def _read_file(self, name: str, fold: Callable[[list[bytes]], int]) -> None:
        # A text, not a path: this runs for ten thousand runs in a round.
        record = self._run_dir.record if name == JOURNAL else None
        path = f"{record or self._run_dir.path}/{name}"
        source = self._sources.get(name) or SourceRow(self._fold.run_id, name, 0, False, 0)
        if source.offset_bytes < 0:  # hpcflow never wrote this row
            raise RunChangedError
        end = size_of(path)
        if name == JOURNAL:
            is_missing = end is None and not source.offset_bytes
            # If run.json is missing too, the record of the run is gone.
            has_run = is_missing and size_of(str(self._run_dir.run_json)) is not None
            self._note_lost_journal(is_lost=has_run)
        if self._limits is not None:
            end = min(end or 0, self._limits.get(name, 0))
        elif end is None:
            if source.offset_bytes:
                self.gone.append(name)
            return
        elif end < source.offset_bytes:
            raise FileShrankError(str(path), is_journal=name == JOURNAL)
        elif end > MAX_LINES_FILE_BYTES:
            raise StorageError(
                f"cannot read {path}: it has {end} bytes; the limit is "
                f"{MAX_LINES_FILE_BYTES} bytes",
                next_action=f"look at its content: less {shell_word(path)}",
            )
        if source.offset_bytes >= end:
            return  # as for most files of a run
        if name != JOURNAL:
            require_no_link(self._run_dir)
        at = Position(source.offset_bytes, source.in_long_line, 0)
        bad = 0
        while at.offset_bytes < end:
            wanted = min(_PORTION_BYTES, end - at.offset_bytes)
            data = read_from(path, at.offset_bytes, wanted)
            lines, after = split_lines(data, at)
            if after == at:
                break  # the rest of a line is not written yet
            at = after
            self.lines += len(lines)
            bad += fold(lines) if lines else 0
        if at.offset_bytes != source.offset_bytes:
            bad += at.skipped_lines
            self.lines += at.skipped_lines
            self.skipped_lines += bad
            self._moved.add(name)
            self._sources[name] = SourceRow(
                source.run_id,
                name,
                at.offset_bytes,
                at.in_long_line,
                source.skipped_lines + bad,
            )

    def _note_lost_journal(self, *, is_lost: bool) -> None:
        """Record whether the journal is lost: every run is created with one."""
        if is_lost == self._fold.journal.get("is_lost", False):
            return
        self._is_lost_anew = True
        if is_lost:
            self._fold.journal["is_lost"] = True
        else:
            del self._fold.journal["is_lost"]

    def _change(self) -> Change:
        known, fold = self._known, self._fold
        checkpoints = list(fold.checkpoints.values())
        if known is None:
            row, best_by = self._frozen()
        else:
            row = copied(known.run)
            best_by = _best_by(self._run_dir) if checkpoints else None
        attempts = {old.attempt: old for old in known.attempts} if known else {}
        is_of_journal = JOURNAL in self._moved or self._is_lost_anew
        is_progress = known is not None and not is_of_journal and not fold.changed_attempts
        if is_progress:
            changed = fold.progressed_attempts
            derive_progress(row, [attempts[number] for number in sorted(attempts)])
        else:
            changed = fold.changed_attempts | fold.progressed_attempts
            for number in changed:
                attempts[number] = derive_attempt(fold.run_id, number, fold.attempts[number])
            derive_run(row, fold, [attempts[number] for number in sorted(attempts)])
        if known is None and best_by is not None:
            best = best_by.find(checkpoints)
            checkpoints = [replace(each, is_best=each is best) for each in checkpoints]
            row.best_metric = best.metrics[best_by.metric] if best is not None else None
        row.bytes_read = sum(source.offset_bytes for source in self._sources.values())
        return Change(
            run=row,
            attempts=[attempts[number] for number in sorted(changed)],
            checkpoints=checkpoints,
            sources=[self._sources[name] for name in sorted(self._moved)],
            bytes_before=known.run.bytes_read if known else None,
            is_progress=is_progress,
            best_by=best_by,
            mirrored=list(fold.mirrored.values()),
        )

    def _frozen(self) -> tuple[RunRow, BestBy | None]:
        """Return the row from ``run.json``, and how to find the best of its checkpoints, if any."""
        from hpcflow.storage.rundir import read_run  # pydantic: only for a new run

        run = read_run(self._run_dir)
        keep = run.spec.checkpoint.keep_best
        if keep is None or not self._fold.checkpoints:
            return run_row(run), None
        return run_row(run), BestBy(keep.metric, keep.mode == "max")


def _best_by(run_dir: RunDir) -> BestBy | None:
    """Return how to find the best checkpoint of a known run; None if the config does not say.

    Read without the model, which would take longer than everything else. If run.json is
    lost, the run continues without a best checkpoint.
    """
    try:
        said = read_object(run_dir.run_json)["spec"]["checkpoint"]["keep_best"]
        return BestBy(str(said["metric"]), said["mode"] == "max")
    except (OSError, ValueError, KeyError, TypeError):
        return None
