"""Fold journal records and events into the accumulators of a run. Pure: no file, clock or database.

Only the lines of one file change an accumulator, in order: the journal changes the ``journal`` of
the run and of every attempt; an event file changes its attempt's ``report``.
:mod:`hpcflow.ledger.derive` combines them. So the order and the portions in which files are read do
not matter: a ledger that followed a run line by line equals one that was rebuilt at once.

Accumulators hold only JSON values, because they are stored in the rows.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from typing import Any, Final, TypeVar

from hpcflow.clock import from_text, to_text
from hpcflow.ledger.rhythm import SIGNS, add_sign, begin
from hpcflow.ledger.rows import BY_JOB, BY_PERSON, CheckpointRow, MirroredRow
from hpcflow.model.events import finite, finite_metrics, may_be_record, parse_event
from hpcflow.model.measured import kept_of
from hpcflow.model.state import Cause
from hpcflow.runtime.reading import parse_object

#: More names than a person reads; this limits a job that reports ever new names.
MAX_METRICS: Final = 500
#: Per run: rows of checkpoints, and rows of the mirror.
MAX_CHECKPOINTS: Final = 100_000
_MAX_TEXT: Final = 10_000
#: Characters of a checkpoint path, a part of a key, which Postgres limits to 2,700 bytes.
_MAX_PATH: Final = 600
_MAX_WHY: Final = 1000
_MAX_INT: Final = 2**63 - 1
#: The records of ``mirror.jsonl`` that say whether the store has a checkpoint.
_IN_STORE: Final = frozenset({"mirrored", "failed", "removed"})
_Row = TypeVar("_Row", CheckpointRow, MirroredRow)


@dataclass(slots=True)
class AttemptFold:
    """The accumulated journal and report of one attempt."""

    journal: dict[str, Any] = field(default_factory=dict)
    report: dict[str, Any] = field(default_factory=dict)


@dataclass(slots=True)
class RunFold:
    """The accumulated journal and events of a run, without run.json.

    Attributes:
        changed_attempts: attempts with new records or events, except progress.
        progressed_attempts: attempts with new progress.
    """

    run_id: str
    journal: dict[str, Any] = field(default_factory=dict)
    attempts: dict[int, AttemptFold] = field(default_factory=dict)
    checkpoints: dict[str, CheckpointRow] = field(default_factory=dict)
    mirrored: dict[str, MirroredRow] = field(default_factory=dict)
    changed_attempts: set[int] = field(default_factory=set)
    progressed_attempts: set[int] = field(default_factory=set)


def fold_journal(fold: RunFold, lines: Iterable[bytes]) -> int:
    """Add whole lines of the journal, in order; return the number of skipped lines."""
    skipped = 0
    for line in lines:
        said = _parse_record(line)
        if said is None:
            skipped += 1
            continue
        if said["record"] != "accounted":  # its time depends on slurmdbd, not on the run
            fold.journal["at"] = max(said["at"], fold.journal.get("at", ""))
        number = said.get("attempt")
        if number is None:
            try:
                if (fold_one := _RUN_FOLDS.get(said["record"])) is not None:
                    fold_one(fold, said)
            except ValueError:
                skipped += 1
        else:
            _fold_attempt(fold, number, said)
    _limit(fold.checkpoints)
    return skipped


def _parse_record(line: bytes) -> dict[str, Any] | None:
    from hpcflow.model.journal import parse_record_or_none  # pydantic: only if a journal grew

    try:
        record = parse_record_or_none(line)
        return None if record is None else record.model_dump(mode="json", exclude_none=True)
    except (ValueError, OverflowError):
        return None


def _fold_cancel_request(fold: RunFold, said: dict[str, Any]) -> None:
    _forget_cancel(fold.journal)
    fold.journal["cancel_requested_at"] = said["at"]
    fold.journal.pop("resumed_at", None)
    if said.get("signal") == "pruned":
        fold.journal["is_pruned"] = True


def _fold_resumed(fold: RunFold, said: dict[str, Any]) -> None:
    _forget_cancel(fold.journal)
    fold.journal["resumed_at"] = said["at"]
    _reset_counts(fold)


def _fold_released(fold: RunFold, said: dict[str, Any]) -> None:
    # An attempt that still runs has not been classified yet.
    if _is_last_over(fold) and "cancel_requested_at" not in fold.journal:
        fold.journal["resumed_at"] = said["at"]
    _reset_counts(fold)


def _reset_counts(fold: RunFold) -> None:
    """Forget holds and decisions; the counts of ``retry`` restart with the next attempt to end."""
    for what in ("held_at", "decided", "delays"):
        fold.journal.pop(what, None)
    last = _last_number(fold)
    fold.journal["counted_from"] = last + 1 if _is_last_over(fold) else last


def _last_number(fold: RunFold) -> int:
    return max((n for n, each in fold.attempts.items() if not _is_void(each)), default=0)


def _is_last_over(fold: RunFold) -> bool:
    last = _last_number(fold)
    return last == 0 or "ended" in fold.attempts[last].journal


def _fold_held(fold: RunFold, said: dict[str, Any]) -> None:
    journal = fold.journal
    journal["held_at"] = said["at"]
    if said.get("why"):  # from a restore: it ends earlier requests, as in history/run.py
        _forget_cancel(journal)
        journal.pop("decided", None)
    if "standby" in journal:  # it may still be pending
        journal["standby"] = {**journal["standby"], "is_given_up": True}


def _fold_changed(fold: RunFold, said: dict[str, Any]) -> None:
    fold.journal["changed_at"] = said["at"]
    if "extends" in said:
        fold.journal["extends"] = said["extends"]


def _fold_restored(fold: RunFold, said: dict[str, Any]) -> None:
    newest = _count(said.get("newest"))  # older journals have none
    known = {} if newest is None else {"newest": newest}
    fold.journal["restored"] = {"at": said["at"], "after": said["after"], **known}
    if said.get("journal"):  # a store must not decide the memory request of the next attempt
        for number, attempt in fold.attempts.items():
            if attempt.journal.get("intended", {}).pop("mem_mb", None) is not None:
                fold.changed_attempts.add(number)


def _fold_removed_by_person(fold: RunFold, said: dict[str, Any]) -> None:
    _put_checkpoint(fold, _removed_row(fold.run_id, said, said["made_in"], BY_PERSON))


def _forget_cancel(journal: dict[str, Any]) -> None:
    journal.pop("cancel_requested_at", None)
    journal.pop("is_pruned", None)


def _fold_standby(fold: RunFold, said: dict[str, Any]) -> None:
    """Record the state of the newest standby; ``delays`` as for attempts."""
    journal, says = fold.journal, said["says"]
    kind, before = says["record"], journal.get("standby", {})
    if kind == "intended":
        standby = {"attempt": says["attempt"], "after": says.get("after")}
        if before.get("after") == standby["after"]:
            standby["delays"] = before.get("delays", 0)
        journal["standby"] = standby
    elif before.get("attempt") == says["attempt"]:
        known = {name: value for name, value in before.items() if not name.startswith("void")}
        if kind == "submitted":
            journal["standby"] = {**known, "job_id": says["job_id"]}
        else:
            void = {"void_at": says["at"], "void_for_good": not says.get("retryable", True)}
            journal["standby"] = {**known, **void, "delays": known.get("delays", 0) + 1}


def _is_void(attempt: AttemptFold) -> bool:
    """Return whether it never became a job, by the journal alone."""
    return "refused" in attempt.journal or "withdrawn" in attempt.journal


def _fold_attempt(fold: RunFold, number: int, said: dict[str, Any]) -> None:
    attempt = fold.attempts.setdefault(number, AttemptFold())
    fold.changed_attempts.add(number)
    kind = said.pop("record")
    if kind == "intended":
        attempt.journal = {"intended": said}  # a number is reused after a refusal
        fold.journal.pop("resumed_at", None)
        fold.journal.pop("decided", None)
        fold.journal.pop("restored", None)
        if fold.journal.get("standby", {}).get("attempt", number + 1) <= number:
            fold.journal.pop("standby")
    elif kind == "observed":
        # A later observation may have less: accounting has no reason, the queue no end.
        attempt.journal["observed"] = {
            **{k: v for k, v in attempt.journal.get("observed", {}).items() if k != "reason"},
            **said,
        }
    else:
        attempt.journal[kind] = said
        if kind == "ended":
            fold.journal.pop("restored", None)  # the attempt may have made more
            if said["cause"] == Cause.CANCELLED.value and fold.journal.get("is_pruned"):
                said["cause"] = Cause.PRUNED.value
        if kind == "submitted":  # found after all
            attempt.journal.pop("refused", None)
            attempt.journal.pop("withdrawn", None)
            fold.journal.pop("delays", None)
        elif kind == "withdrawn" or (kind == "refused" and said["retryable"]):
            # Consecutive delays, so that each wait can be longer.
            fold.journal["delays"] = fold.journal.get("delays", 0) + 1


_RUN_FOLDS: Final = {
    "cancel_requested": _fold_cancel_request,
    "resumed": _fold_resumed,
    "released": _fold_released,
    "standby": _fold_standby,
    "held": _fold_held,
    "decided": lambda fold, said: fold.journal.update(decided=said),
    "changed": _fold_changed,
    "restored": _fold_restored,
    "checkpoint_removed": _fold_removed_by_person,
}


def fold_mirror(fold: RunFold, lines: Iterable[bytes]) -> int:
    """Add whole lines of ``mirror.jsonl``, in order; return the number of skipped lines."""
    skipped = 0
    for line in lines:
        try:
            said = parse_object(line) if may_be_record(line) else {}
            if (state := said["what"]) not in _IN_STORE:
                continue
            train_step = _count(said["train_step"])
            if train_step is None:
                raise ValueError("not a train step")
            path = f"checkpoints/{train_step:09d}"
            fold.mirrored[path] = MirroredRow(
                run_id=fold.run_id,
                path=path,
                train_step=train_step,
                state=state,
                url=clean(str(said["url"])),
                size_bytes=_count(said.get("size_bytes")) or 0,
                at=from_text(_time(said["at"])),
            )
        except (ValueError, KeyError, TypeError, AttributeError):
            skipped += 1
    _limit(fold.mirrored)
    return skipped


def fold_events(fold: RunFold, number: int, lines: Iterable[bytes]) -> int:
    """Add whole lines of an attempt's events, in order; return the number of skipped lines."""
    report, skipped = fold.attempts.setdefault(number, AttemptFold()).report, 0
    for line in lines:
        event = parse_event(line)
        if event is None:
            skipped += 1
            continue
        kind = event["event"]
        if kind == "progress":
            fold.progressed_attempts.add(number)
            _fold_progress(report, event)
        elif kind == "usage":  # not a sign of progress
            fold.progressed_attempts.add(number)
            skipped += not _fold_usage(report, event)
        else:
            fold.changed_attempts.add(number)
            try:
                _EVENT_FOLDS[kind](fold, number, report, event)
            except ValueError:
                skipped += 1
                continue
        if kind in SIGNS:
            add_sign(report, kind, event["at"])
    _limit(fold.checkpoints)
    return skipped


def _fold_progress(report: dict[str, Any], event: dict[str, Any]) -> None:
    """Store the latest values and their time. This is by far the most frequent event."""
    train_step = _count(event.get("train_step"))
    if train_step is not None and train_step != report.get("train_step"):
        report["progress_at"] = clean(event["at"])
        report["train_step"] = train_step
    if "total_train_steps" in event and (total := _count(event["total_train_steps"])) is not None:
        report["total_train_steps"] = total
    if (epoch := finite(event.get("epoch"))) is not None:
        report["epoch"] = epoch
    if "data_wait_s" in event and (wait_s := finite(event["data_wait_s"])) is not None:
        report["data_wait_s"] = wait_s
    said = event.get("metrics")
    if isinstance(said, dict):
        metrics = report.setdefault("metrics", {})
        for name, value in said.items():
            if name not in metrics and (len(metrics) >= MAX_METRICS or len(name) > 200):
                continue
            metrics[name] = finite(value)  # None replaces it: an old loss must not hide a NaN


def _fold_usage(report: dict[str, Any], event: dict[str, Any]) -> bool:
    """Store the last usage, which covers the whole attempt; return whether it has values."""
    kept = kept_of(event)
    if kept is None:
        return False
    report["usage"] = kept
    report["usage_at"] = clean(event["at"])
    return True


def _fold_started(_: RunFold, __: int, report: dict[str, Any], event: dict[str, Any]) -> None:
    report.setdefault("started_at", _time(event["at"]))
    report["job_id"] = _text(event.get("job_id"))
    nodes = event.get("nodes")
    report["nodes"] = [clean(str(node)) for node in nodes] if isinstance(nodes, list) else []
    begin(report, event["at"])
    # If Slurm restarted the job, its first exit and notice no longer count.
    for what in ("exited_at", "exit_code", "notice_at", "sluid"):
        report.pop(what, None)
    if sluid := _text(event.get("sluid")):
        report["sluid"] = sluid


def _fold_train_started(_: RunFold, __: int, report: dict[str, Any], event: dict[str, Any]) -> None:
    report["resumed_from"] = _text(event.get("resumed_from"))
    report.setdefault("trained_at", _time(event["at"]))
    if (began := _count(event.get("train_step"))) is not None:
        report.setdefault("began_at", began)
    if (workers := _count(event.get("loader_workers"))) is not None:
        report["loader_workers"] = workers
    _fold_progress(report, {**event, "metrics": None})


def _checkpoint_of(said: dict[str, Any]) -> tuple[str, int]:
    """Return the path and the train step of a checkpoint event."""
    path, train_step = _text(said.get("path")), _count(said.get("train_step"))
    if not path or train_step is None or not _is_inside(path) or len(path) > _MAX_PATH:
        raise ValueError("not a checkpoint of this run")
    return path, train_step


def _fold_checkpoint(
    fold: RunFold, number: int, report: dict[str, Any], event: dict[str, Any]
) -> None:
    _, train_step = _checkpoint_of(event)
    # A program may always save to one path; the row below is then only its last attempt's.
    report["saved"] = max(train_step, report.get("saved", 0))
    report["saved_at"] = saved_at = _time(event["at"])
    report.pop("save_error", None)
    _put_checkpoint(fold, _checkpoint_row(fold.run_id, event, number, saved_at))


def _fold_checkpoint_metrics(
    fold: RunFold, number: int, _: dict[str, Any], event: dict[str, Any]
) -> None:
    """Store the whole row: this file may be read before that of the attempt that made it."""
    made_at = _time(str(event.get("created_at", event["at"])))
    _put_checkpoint(fold, _checkpoint_row(fold.run_id, event, number, made_at))


def _checkpoint_row(run_id: str, said: dict[str, Any], attempt: int, made_at: str) -> CheckpointRow:
    path, train_step = _checkpoint_of(said)
    return CheckpointRow(
        run_id=run_id,
        path=path,
        attempt=attempt,
        train_step=train_step,
        epoch=finite(said.get("epoch")),
        size_bytes=_count(said.get("size_bytes")) or 0,
        metrics=dict(finite_metrics(said.get("metrics"))),
        is_best=False,
        created_at=from_text(made_at),
    )


def _fold_checkpoint_failed(
    _: RunFold, __: int, report: dict[str, Any], event: dict[str, Any]
) -> None:
    train_step, why = _count(event.get("train_step")), _text(event.get("why"))
    if train_step is None or not why:
        raise ValueError("not a failed save")
    report["save_error"] = f"train step {train_step}: {why[:_MAX_WHY]}"


def _fold_checkpoint_removed(
    fold: RunFold, number: int, _: dict[str, Any], event: dict[str, Any]
) -> None:
    _put_checkpoint(fold, _removed_row(fold.run_id, event, number, BY_JOB))


def _removed_row(run_id: str, said: dict[str, Any], attempt: int, by: str) -> CheckpointRow:
    """Return the row of a removed checkpoint, from this line alone.

    The line about its creation may be read before, after, or never.
    """
    row = _checkpoint_row(run_id, said, attempt, _time(said["at"]))
    return replace(row, epoch=None, metrics={}, removed=by)


def _put_checkpoint(fold: RunFold, row: CheckpointRow) -> None:
    before = fold.checkpoints.get(row.path)
    if before is None or outdates(row, before):
        fold.checkpoints[row.path] = row


def outdates(new: CheckpointRow, old: CheckpointRow) -> bool:
    """Return whether ``new``, read after ``old``, is the valid row of one path.

    A later attempt wins; of one attempt, the later line. A removal by a person is in another file,
    so it always counts as last: an attempt does not make the same checkpoint twice.
    """
    if new.attempt != old.attempt:
        return new.attempt > old.attempt
    return new.removed == BY_PERSON or old.removed != BY_PERSON


def newest(rows: Iterable[_Row]) -> list[_Row]:
    """Return at most ``MAX_CHECKPOINTS`` of ``rows``: removed ones go first, then the oldest."""
    return sorted(rows, key=_retention_key)[-MAX_CHECKPOINTS:]


def _retention_key(row: CheckpointRow | MirroredRow) -> tuple[bool, int, str]:
    removed = row.state == "removed" if isinstance(row, MirroredRow) else row.removed is not None
    return not removed, row.train_step, row.path


def _limit(rows: dict[str, _Row]) -> None:
    if len(rows) > MAX_CHECKPOINTS:
        kept = newest(rows.values())
        rows.clear()
        rows.update((row.path, row) for row in kept)


def _fold_notice(_: RunFold, __: int, report: dict[str, Any], event: dict[str, Any]) -> None:
    report["notice_at"] = _time(event["at"])


def _fold_finished(_: RunFold, __: int, report: dict[str, Any], event: dict[str, Any]) -> None:
    report["finished_at"] = _time(event["at"])
    report["model"] = _text(event.get("model"))
    _fold_progress(report, event)


def _fold_exited(_: RunFold, __: int, report: dict[str, Any], event: dict[str, Any]) -> None:
    code = event.get("exit_code")
    report["exited_at"] = _time(event["at"])
    report["exit_code"] = code if type(code) is int and abs(code) < 2**31 else None


_EVENT_FOLDS: Final = {
    "started": _fold_started,
    "train_started": _fold_train_started,
    "checkpoint": _fold_checkpoint,
    "checkpoint_metrics": _fold_checkpoint_metrics,
    "checkpoint_removed": _fold_checkpoint_removed,
    "checkpoint_failed": _fold_checkpoint_failed,
    "notice": _fold_notice,
    "finished": _fold_finished,
    "exited": _fold_exited,
}


def clean(text: str) -> str:
    """Return ``text`` as every database stores it: no NUL, valid Unicode, limited length."""
    if text.isascii() and text.isprintable() and len(text) <= _MAX_TEXT:  # as nearly all are
        return text
    return text[:_MAX_TEXT].replace("\0", "�").encode("utf-8", "replace").decode()


def _text(value: object) -> str | None:
    return clean(value) if isinstance(value, str) else None


def _time(text: str) -> str:
    """Return ``text`` in the one form of all times; ValueError if it is not a time."""
    return to_text(from_text(text))


def _count(value: object) -> int | None:
    return value if type(value) is int and 0 <= value <= _MAX_INT else None


def _is_inside(path: str) -> bool:
    return not path.startswith("/") and ".." not in path.split("/")
