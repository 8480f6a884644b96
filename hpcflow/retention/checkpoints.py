"""List a run's checkpoints on the login side, with the reason why each is kept; prune the others.

The rule is the job's (:mod:`hpcflow.runtime.rule`). What a job knows by itself is read from the
run's files: which checkpoint a live attempt resumes from, and which is the final model. The ledger
is not needed.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath
from typing import Final

from hpcflow.clock import Clock
from hpcflow.errors import InputError, NotFoundError, StorageError
from hpcflow.ledger.rows import AttemptRow, CheckpointRow, RunRow
from hpcflow.model.checkpointing import KeepBest, Mode
from hpcflow.model.journal import CheckpointRemoved
from hpcflow.model.state import AttemptState, RunState
from hpcflow.projection.reading import FOLD_ERRORS, RunReader
from hpcflow.runtime import retention
from hpcflow.runtime.files import names_in, remove_tree
from hpcflow.runtime.manifest import CheckpointError, read_manifest, verify
from hpcflow.runtime.mirrored import MirrorState, read_mirror
from hpcflow.runtime.rule import (
    COMPLETE,
    NAMES,
    RESULT,
    TORN,
    Found,
    Rule,
    best,
    judge,
    parse_rule,
)
from hpcflow.settings import Settings
from hpcflow.storage import journal
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import size_below
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import LOCK_WAIT_S, submit_lock
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_gone

BEING_WRITTEN: Final = "being written"
LEFT_BEHIND: Final = "left behind"
SET_ASIDE: Final = "set aside"
_OVER: Final = (AttemptState.ENDED.value, AttemptState.WITHDRAWN.value)
#: Hidden names of the runtime: see hpcflow/runtime/store.py and retention.py.
_HIDDEN: Final = re.compile(r"\.(\d{1,18})\.[0-9a-f]+\.(tmp|old|broken|removed)", re.ASCII)
_WHY_HIDDEN: Final = {
    "tmp": "its save was interrupted",
    "old": "its save was interrupted",
    "broken": "it was damaged, and set aside",
    "removed": "its removal was interrupted",
}
_LISTED: Final = 12


@dataclass(frozen=True)
class Hidden:
    """A hidden folder, which no attempt resumes from.

    Attributes:
        state: BEING_WRITTEN; LEFT_BEHIND by a kill, or torn; SET_ASIDE: perhaps not hpcflow's, and
            moved away for a checkpoint.
        why: how it came to be; empty for BEING_WRITTEN.
    """

    path: Path
    train_step: int
    state: str
    why: str
    size_bytes: int


@dataclass(frozen=True)
class Survey:
    """The contents of a run's checkpoint folder.

    Attributes:
        rule: retention rule of the run's config; None if it keeps all.
        best_by: rule that selects the best checkpoint; None without a metric.
        is_live: whether an attempt may be writing there.
        is_over: whether the run is completed, so that no checkpoint gets another metric.
        held: train step -> why that checkpoint is kept, whatever a rule says.
        mirror: contents of the run's mirror; None without one.
        removed: train step -> a checkpoint that was removed.
        attempts: number of the last attempt.
    """

    run_dir: RunDir
    run_id: str
    rule: Rule | None
    best_by: Rule | None
    is_live: bool
    is_over: bool
    found: list[Found]
    hidden: list[Hidden]
    held: Mapping[int, str] = field(default_factory=dict)
    mirror: MirrorState | None = None
    removed: Mapping[int, CheckpointRow] = field(default_factory=dict)
    attempts: int = 0

    def kept(self, rule: Rule | None) -> dict[int, list[str]]:
        """Return train step -> reasons to keep its checkpoint under ``rule``; none: prune it."""
        return judge(self.found, rule, self.held, self.mirror, is_over=self.is_over)

    def best(self) -> Found:
        """Return the best complete checkpoint by the metric of the run's config.

        Raises:
            InputError: the config has no metric.
            NotFoundError: no complete checkpoint has that metric.
        """
        if self.best_by is None:
            raise InputError(
                f"the config of {self.run_id} has no checkpoint.keep_best, so no checkpoint is the "
                "best",
                next_action=f"choose one by its metrics: hpcflow checkpoint ls {self.run_id}; "
                f"then: hpcflow checkpoint export {self.run_id} TARGET --train-step N",
            )
        found = best((each for each in self.found if each.state == COMPLETE), self.best_by)
        if not found:
            raise NotFoundError(
                f"no checkpoint of {self.run_id} has the metric {self.best_by.metric!r}",
                next_action=f"see what they have: hpcflow checkpoint ls {self.run_id}",
            )
        return found[0]

    def one(self, train_step: int) -> Found:
        """Return the checkpoint of ``train_step``.

        Raises:
            NotFoundError: there is none; the error lists the others.
        """
        for each in self.found:
            if each.train_step == train_step:
                return each
        row = self.removed.get(train_step)
        was = f" any more; it was removed by a {row.removed}" if row is not None else ""
        steps = [str(each.train_step) for each in self.found]
        some = ", ".join(steps[-_LISTED:])
        if len(steps) > _LISTED:
            some = f"{len(steps)}, the last {_LISTED} of them: {some}"
        raise NotFoundError(
            f"run {self.run_id} has no checkpoint of train step {train_step}{was}",
            next_action=f"it has {some or 'none'}: hpcflow checkpoint ls {self.run_id}",
        )


@dataclass(frozen=True)
class Pruned:
    """What was removed, or would be.

    Attributes:
        kept: train step -> why its checkpoint is kept.
    """

    rule: Rule | None
    gone: list[Found]
    leftovers: list[Hidden]
    kept: Mapping[int, list[str]]

    @property
    def freed_bytes(self) -> int:
        checkpoints = sum(each.size_bytes for each in self.gone)
        return checkpoints + sum(each.size_bytes for each in self.leftovers)


def survey(run_dir: RunDir) -> Survey:
    """List the checkpoints of a run; only their manifests are read.

    Raises:
        StorageError: the run directory is missing or cannot be read.
    """
    run_id = run_dir.path.name
    if is_gone(run_dir):
        raise StorageError(
            f"{run_dir.path} is gone, and with it the checkpoints of run {run_id}",
            next_action="scratch may have been purged, or is another cluster's; to see the "
            f"ledger's record: hpcflow show {run_id}; if it was mirrored: hpcflow restore {run_id}",
        )
    run = read_run(run_dir)
    spec = run.spec.checkpoint
    attempts, removed, row = _read_files(run_dir)
    live = [row for row in attempts if row.state not in _OVER]
    held = {step: f"attempt {row.attempt} resumes from it" for row in live for step in _from(row)}
    for result in run.results:
        held.setdefault(result.train_step, RESULT)
    for step in steps_of(row.final_model):
        held.setdefault(step, "the final model")
    found: list[Found] = []
    hidden: list[Hidden] = []
    # FileNotFoundError: no checkpoint was ever made
    with storage_errors("read", run_dir.checkpoints), suppress(FileNotFoundError):
        found = retention.find(run_dir.checkpoints, run_id)
        hidden = _hidden(run_dir.checkpoints, run_id, is_live=bool(live))
    return Survey(
        run_dir,
        run_id,
        parse_rule(spec.keep) if spec.keep is not None else None,
        _best_by(spec.keep_best),
        bool(live),
        row.state == RunState.COMPLETED.value,
        found,
        hidden,
        held,
        retention.mirror_of(run_dir.path, run.mirror.url if run.mirror else None),
        removed,
        max((row.attempt for row in attempts), default=0),
    )


def _read_files(
    run_dir: RunDir,
) -> tuple[list[AttemptRow], dict[int, CheckpointRow], RunRow]:
    try:
        change = RunReader(run_dir, None, is_lenient=True, without_training=True).read()
    except FOLD_ERRORS as error:
        raise StorageError(f"the files of {run_dir.path.name} cannot be read: {error}") from error
    assert change is not None  # a read from the start is never None
    removed = {row.train_step: row for row in change.checkpoints if row.removed is not None}
    return change.attempts, removed, change.run


def _best_by(keep: KeepBest | None) -> Rule | None:
    """Return the rule for the best checkpoint; a config that keeps all may have one too."""
    if keep is None:
        return None
    return Rule(1, keep.count, keep.metric, keep.mode is Mode.MAX)


def why_not_whole(found: Found) -> str | None:
    """Read every file of a checkpoint; return what is wrong with it, or None.

    Raises:
        NotFoundError: it was removed meanwhile.
    """
    error = _read_all(found)
    return None if error is None else str(error)


def prune(
    run_dir: RunDir,
    *,
    settings: Settings,
    clock: Clock,
    keep_last: int | None = None,
    is_dry: bool = False,
    look_at: Callable[[Found], None] = lambda _: None,
) -> Pruned:
    """Remove the checkpoints of a run that its rule does not keep, and leftovers of killed jobs.

    Before anything is removed, the newest complete checkpoint is verified, because the run resumes
    from it. If it is damaged, it counts as torn, and the one before is verified. Then the decision
    is made again under the run's lock, so that no attempt is submitted meanwhile. The newest
    verified checkpoint is kept, because a pending or starting attempt resumes from it. So is the
    one that a live attempt has resumed from.

    Args:
        keep_last: overrides the run's config.
        is_dry: remove nothing.
        look_at: called with each checkpoint before it is read.

    Raises:
        StorageError: another process holds the lock.
    """
    before = survey(run_dir)
    checked = _check(before, _rule(before, keep_last), look_at)
    if is_dry:
        return _what_goes(before, checked, keep_last)
    with submit_lock(run_dir, wait_s=LOCK_WAIT_S, clock=clock):
        seen = survey(run_dir)
        pruned = _what_goes(seen, checked, keep_last)
        if not pruned.gone and not pruned.leftovers:
            return pruned
        mark_dirty(settings.home, run_dir)

        def record(found: Found) -> None:
            removed = CheckpointRemoved(
                at=clock.now(),
                by=settings.user,
                train_step=found.train_step,
                path=str(found.path.relative_to(run_dir.path)),
                size_bytes=found.size_bytes,
                made_in=min(found.attempt or seen.attempts, seen.attempts),
            )
            journal.append(run_dir, removed)

        with storage_errors("remove checkpoints in", run_dir.checkpoints):
            retention.finish_removals(run_dir.checkpoints, record)
            gone = [
                each
                for each in pruned.gone
                if each.train_step not in read_mirror(run_dir.path, None).under_way
                and retention.remove(each, record)
            ]
            for leftover in pruned.leftovers:
                _remove(leftover)
    return replace(pruned, gone=gone)


@dataclass(frozen=True)
class _Checked:
    """The result of verifying checkpoints, newest first, until one is intact."""

    damaged: list[tuple[Found, str]]
    whole: Found | None


def _rule(seen: Survey, keep_last: int | None) -> Rule | None:
    if keep_last is None:
        return seen.rule
    return Rule(keep_last) if seen.rule is None else replace(seen.rule, last=keep_last)


def _check(seen: Survey, rule: Rule | None, look_at: Callable[[Found], None]) -> _Checked:
    """Find the newest intact checkpoint; read nothing if nothing is to be removed."""
    damaged: list[tuple[Found, str]] = []
    if all(seen.kept(rule).values()) and not any(map(_is_broken, seen.hidden)):
        return _Checked(damaged, None)
    for each in reversed(seen.found):
        if each.state != COMPLETE:
            continue
        look_at(each)
        error = _read_all(each)
        if error is None:
            return _Checked(damaged, each)
        if isinstance(error.__cause__, OSError):
            raise StorageError(
                f"{each.path} cannot be verified, so nothing was removed: {error}",
                next_action="try again when the file system answers",
            )
        damaged.append((each, str(error)))
    return _Checked(damaged, None)


def _what_goes(seen: Survey, checked: _Checked, keep_last: int | None) -> Pruned:
    rule, whole = _rule(seen, keep_last), checked.whole
    found = list(seen.found)
    for damaged, why in checked.damaged:
        if damaged in found:  # else it was written again since
            found[found.index(damaged)] = replace(damaged, state=TORN, why=why)
    held = dict(seen.held)
    newest = max((each.train_step for each in found if each.state == COMPLETE), default=0)
    if whole is not None and whole.train_step < newest:  # a job has just written the newest
        held.setdefault(whole.train_step, "the newest that was verified")
    kept = judge(found, rule, held, seen.mirror, is_over=seen.is_over)
    if whole not in found:  # nothing was verified, or the verified one was removed since
        kept = {step: why or ["nothing newer was verified"] for step, why in kept.items()}
    return Pruned(
        rule,
        gone=[each for each in found if not kept[each.train_step]],
        leftovers=[
            each
            for each in seen.hidden
            if each.state == LEFT_BEHIND and (whole in found or not _is_broken(each))
        ],
        kept={step: why for step, why in kept.items() if why},
    )


def _read_all(found: Found) -> CheckpointError | None:
    try:
        train_step = verify(found.path).train_step
    except CheckpointError as error:
        if not os.path.lexists(found.path):
            raise NotFoundError(
                f"{found.path} was removed a moment ago",
                next_action="see what is there: hpcflow checkpoint ls",
            ) from None
        return error
    if train_step != found.train_step:
        return CheckpointError(f"its manifest says train step {train_step}")
    return None


def _remove(leftover: Hidden) -> None:
    """Remove a leftover. It is renamed first, so that an unknown save cannot publish a part."""
    path = leftover.path
    if path.suffix == ".tmp":
        try:
            path = path.rename(path.with_suffix(".old"))
        except FileNotFoundError:
            return
    remove_tree(path)


def _from(row: AttemptRow) -> Iterator[int]:
    """Yield the train steps that an attempt resumes from: as it reports, and as submitted."""
    yield from steps_of(row.resume_from)
    yield from steps_of(row.journal.get("intended", {}).get("resume_from"))


def steps_of(path: str | None) -> Iterator[int]:
    """Yield the train step of a checkpoint that is named by its path in the run directory."""
    parts = PurePosixPath(path or "").parts
    if len(parts) >= 2 and parts[0] == "checkpoints" and NAMES.fullmatch(parts[1]):
        yield int(parts[1])


def _is_broken(hidden: Hidden) -> bool:
    return hidden.path.suffix == ".broken"


def _hidden(folder: Path, run_id: str, *, is_live: bool) -> list[Hidden]:
    found = []
    for name in sorted(names_in(folder, _HIDDEN)):
        path, (_, step, _, kind) = folder / name, name.split(".")
        state, why = LEFT_BEHIND, _WHY_HIDDEN[kind]
        if is_live and kind == "tmp":
            state, why = BEING_WRITTEN, ""
        elif kind == "broken" and not _is_of(path, run_id):
            state, why = SET_ASIDE, "a checkpoint took its place; it may not be hpcflow's"
        found.append(Hidden(path, int(step), state, why, size_below(path)))
    return found


def _is_of(path: Path, run_id: str) -> bool:
    try:
        return read_manifest(path).get("run_id") == run_id
    except CheckpointError:
        return False
