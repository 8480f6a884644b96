"""Decide which checkpoints are kept: the same rule in the job and on a login node. Pure.

:mod:`hpcflow.runtime.retention` finds and removes them.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpcflow.runtime.mirrored import MirrorState

#: Reasons to keep a checkpoint for the mirror.
BEING_MIRRORED, DUE = "it is being mirrored", "it was the best, and is not mirrored yet"

#: The reason to keep the final checkpoint from before the run was extended.
RESULT = "the result before the run was extended"

#: The states of a checkpoint, without reading its files; see :class:`Found`.
COMPLETE, TORN, FOREIGN = "complete", "torn", "foreign"

#: Names of checkpoints, see :func:`name_of`: nine digits, or more if needed.
NAMES = re.compile(r"\d{9}|[1-9]\d{9,17}", re.ASCII)


@dataclass(frozen=True)
class Rule:
    """Which checkpoints of a run to keep.

    Attributes:
        last: number of the newest.
        best: number of the best, by ``metric``; 0 for none.
        is_more_better: whether a higher value of ``metric`` is better.
        every: train steps; the first checkpoint in each such interval is kept; None for none.
    """

    last: int
    best: int = 0
    metric: str = ""
    is_more_better: bool = False
    every: int | None = None


@dataclass(frozen=True)
class Found:
    """A folder named like a checkpoint, without a look into its files.

    Attributes:
        folder: the folder that contains it.
        state: COMPLETE: it has a manifest of this run, and every file has its size; TORN: it has
            such a manifest, but a file is missing or has another size; FOREIGN: nothing proves that
            hpcflow made it for this run.
        why: the reason for the state; empty for COMPLETE.
        stranger: a file in it that the manifest does not name, such as a note of the user.
        attempt: the attempt that made it, if known.
        created_at: from its manifest.
    """

    folder: Path
    train_step: int
    state: str = COMPLETE
    why: str = ""
    stranger: str = ""
    size_bytes: int = 0
    epoch: float | None = None
    metrics: Mapping[str, float] = field(default_factory=dict)
    attempt: int | None = None
    world_size: int | None = None
    created_at: str | None = None

    @property
    def name(self) -> str:
        return name_of(self.train_step)

    @property
    def path(self) -> Path:
        """Return its path. It is not stored, because there may be 100,000 checkpoints."""
        return self.folder / self.name


def name_of(train_step: int) -> str:
    return f"{train_step:09d}"


def parse_rule(text: str) -> Rule:
    """Parse a rule: a JSON object with the attributes of :class:`Rule`.

    Raises:
        ValueError: the text is not a rule.
    """
    given = json.loads(text)
    try:
        rule = Rule(**given)
    except TypeError as error:
        raise ValueError(f"not a rule: {error}") from None
    every = 1 if rule.every is None else rule.every
    for count, least in ((rule.last, 1), (rule.best, 0), (every, 1)):
        if type(count) is not int or count < least:
            raise ValueError(f"not a rule: {count!r} is not a whole number of at least {least}")
    if rule.best and not (isinstance(rule.metric, str) and rule.metric):
        raise ValueError("not a rule: best needs a metric")
    return rule


def judge(
    found: Iterable[Found],
    rule: Rule | None,
    held: Mapping[int, str] | None = None,
    mirror: MirrorState | None = None,
    *,
    is_over: bool = True,
) -> dict[int, list[str]]:
    """Return train step -> reasons to keep its checkpoint. Without a reason it can be removed.

    Regardless of the rule, these are kept: the newest complete one; those in ``held``; those that
    the mirror needs (:func:`for_mirror`); foreign ones; and those with a file that is not
    hpcflow's. All are kept if there is no rule, if none is complete, or if none has the metric of
    ``best``.

    Args:
        found: all checkpoints of the run.
        held: train step -> why it must be kept, such as that an attempt resumed from it.
        mirror: what the run's mirror has; None without a mirror.
        is_over: whether the training has ended. Until then, more metrics may be logged for the
            newest, so it does not count among the best.
    """
    newest_first = sorted(found, key=lambda each: each.train_step, reverse=True)
    whole = [each for each in newest_first if each.state == COMPLETE]
    reasons: dict[int, list[str]] = {each.train_step: [] for each in newest_first}
    for each in newest_first:
        if each.state == FOREIGN:
            reasons[each.train_step].append(f"not known to be hpcflow's: {each.why}")
        elif each.stranger:
            reasons[each.train_step].append(f"it contains {each.stranger}, which is not hpcflow's")
        if held and each.train_step in held:
            reasons[each.train_step].append(held[each.train_step])
    for each in whole[:1]:
        reasons[each.train_step].append("newest")
    for_all = why_all(whole, rule)
    if for_all is not None or rule is None:
        all_kept = [for_all or ""]  # shared, because there may be 100,000 checkpoints
        return {train_step: why or all_kept for train_step, why in reasons.items()}
    for each in whole[1 : rule.last]:
        reasons[each.train_step].append(f"last {rule.last}")
    for place, each in enumerate(best(whole if is_over else whole[1:], rule), start=1):
        value = f"{rule.metric} {each.metrics[rule.metric]:.6g}"
        reasons[each.train_step].append(f"best: {value}" if place == 1 else f"no. {place}: {value}")
    for each in _first_in_each(whole, rule.every):
        reasons[each.train_step].append(f"every {rule.every}")
    if mirror is not None:
        rest = [each for each in whole if not reasons[each.train_step]]
        for train_step, why in for_mirror(rest, whole, rule, mirror).items():
            reasons[train_step].append(why)
    return reasons


def for_mirror(
    rest: list[Found], whole: list[Found], rule: Rule, mirror: MirrorState
) -> dict[int, str]:
    """Return train step -> why the mirror needs a checkpoint that nothing else keeps.

    A checkpoint that is being mirrored is kept until that ends. One that was the best when it was
    made is kept until the mirror has it, even if a better one exists now. Of these, at most as many
    are kept as the rule itself keeps, so a slow mirror at most doubles the space; the oldest are
    removed first, because the mirror sends the newest first.

    Args:
        rest: those that nothing else keeps, the newest first.
        whole: all complete ones.
    """
    needed: dict[int, str] = {}
    most = rule.last + rule.best
    due_steps = {each.train_step for each in _best_when_made(whole, rule)} - mirror.settled
    for train_step in (each.train_step for each in rest):
        if train_step in mirror.under_way:
            needed[train_step] = BEING_MIRRORED
        elif train_step in due_steps and len(needed.keys() - mirror.under_way) < most:
            needed[train_step] = DUE
    return needed


def why_all(whole: list[Found], rule: Rule | None) -> str | None:
    """Return why all checkpoints are kept; None if the rule applies.

    Args:
        whole: all complete ones.
    """
    if rule is None:
        return "all are kept"
    if not whole:
        return "no complete one would be left"
    if rule.best and not best(whole, rule):
        return f"none has the metric {rule.metric!r} of checkpoint.keep_best"
    return None


def best(whole: Iterable[Found], rule: Rule) -> list[Found]:
    """Return the best ``rule.best`` of these that have the metric, the best first.

    Of several with the same value only the earliest counts: until the next evaluation every
    checkpoint has the value of the last one, and the first was made closest to it.
    """
    by_value: dict[float, Found] = {}
    for each in sorted(whole, key=lambda each: each.train_step):
        if rule.metric in each.metrics:
            by_value.setdefault(each.metrics[rule.metric], each)
    values = sorted(by_value, reverse=rule.is_more_better)
    return [by_value[value] for value in values[: rule.best]]


def _best_when_made(whole: Iterable[Found], rule: Rule) -> list[Found]:
    """Return those that were among the best ``rule.best`` when they were made."""
    sign = -1 if rule.is_more_better else 1
    top: list[float] = []
    made = []
    for each in sorted(whole, key=lambda each: each.train_step):
        if rule.best and rule.metric in each.metrics:
            value = sign * each.metrics[rule.metric]
            if value not in top and (len(top) < rule.best or value < top[-1]):
                top = sorted([*top, value])[: rule.best]
                made.append(each)
    return made


def _first_in_each(whole: list[Found], every: int | None) -> list[Found]:
    """Return the first in each interval; few are at a multiple, because they are made by time."""
    first: dict[int, Found] = {}
    if every is not None:
        for each in sorted(whole, key=lambda each: each.train_step):
            if each.train_step >= every:
                first.setdefault(each.train_step // every, each)
    return list(first.values())
