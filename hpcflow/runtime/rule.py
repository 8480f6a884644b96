"""Which checkpoints stay and which go. Pure: the same rule in the job and on a login node.

What there is to judge comes from :mod:`hpcflow.runtime.retention`, which also acts.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from hpcflow.runtime.mirrored import MirrorState

#: Why the mirror needs a checkpoint that the rule does not keep.
BEING_MIRRORED, DUE = "it is being mirrored", "it was the best, and is not mirrored yet"

#: Why a checkpoint stays that was the final one before the run was extended.
RESULT = "the result before the run was extended"

#: What a checkpoint can look like without reading its files.
COMPLETE, TORN, FOREIGN = "complete", "torn", "foreign"

#: Names of checkpoints, see :func:`name_of`: nine digits, or more if needed.
NAMES = re.compile(r"\d{9}|[1-9]\d{9,17}", re.ASCII)


@dataclass(frozen=True)
class Rule:
    """What to keep of the checkpoints of a run.

    Attributes:
        last: how many of the newest.
        best: how many of the best, by ``metric``; 0 for none.
        is_more_better: whether a higher value of ``metric`` is the better one.
        every: the first checkpoint in each so many train steps; None for none.
    """

    last: int
    best: int = 0
    metric: str = ""
    is_more_better: bool = False
    every: int | None = None


@dataclass(frozen=True)
class Found:
    """A folder that has the name of a checkpoint, as it looks from outside.

    Attributes:
        folder: what it lies in, under :func:`name_of` its train step.
        state: COMPLETE: it has a manifest of this run, and every file in it has its size; TORN: it
            has such a manifest, but not such files; FOREIGN: nothing proves that hpcflow made it
            for this run.
        why: what is wrong with it; empty for COMPLETE.
        stranger: something in it that is not of the checkpoint, such as a person's note.
        attempt: the one that made it, where that is known.
        created_at: as its manifest says.
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
        """The name in ``folder``."""
        return name_of(self.train_step)

    @property
    def path(self) -> Path:
        """The path. It is not stored, because there may be 100,000 of them."""
        return self.folder / self.name


def name_of(train_step: int) -> str:
    """Return the name of the checkpoint folder of ``train_step``."""
    return f"{train_step:09d}"


def parse_rule(text: str) -> Rule:
    """The rule that ``text`` says: a JSON object with the attributes of :class:`Rule`.

    Raises:
        ValueError: it says none.
    """
    said = json.loads(text)
    try:
        rule = Rule(**said)
    except TypeError as error:
        raise ValueError(f"not a rule: {error}") from None
    every = 1 if rule.every is None else rule.every
    for count, least in ((rule.last, 1), (rule.best, 0), (every, 1)):
        if type(count) is not int or count < least:
            raise ValueError(f"not a rule: {count!r}, where a whole number from {least} should be")
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
    """Train step -> why its checkpoint stays. Where there is no reason, it goes.

    Whatever the rule says, these stay: the newest complete one; what is held; what the mirror is
    about to have (:func:`for_mirror`); what nobody can prove to be hpcflow's own, and what holds
    something that is not. All of them stay while there is no rule, none is complete, or none has
    the metric of the best: nobody knows yet which that is.

    Args:
        found: all checkpoints there are.
        held: train step -> why it must not go: it is being resumed from, for instance.
        mirror: what the run's mirror has; None where it has no mirror.
        is_over: whether the training is over. Until then, more metrics may be logged for the
            newest, so it takes no place among the best.
    """
    newest_first = sorted(found, key=lambda each: each.train_step, reverse=True)
    whole = [each for each in newest_first if each.state == COMPLETE]
    reasons: dict[int, list[str]] = {each.train_step: [] for each in newest_first}
    for each in newest_first:
        if each.state == FOREIGN:
            reasons[each.train_step].append(f"not known to be hpcflow's: {each.why}")
        elif each.stranger:
            reasons[each.train_step].append(f"{each.stranger} is in it, which is not hpcflow's")
        if held and each.train_step in held:
            reasons[each.train_step].append(held[each.train_step])
    for each in whole[:1]:
        reasons[each.train_step].append("newest")
    for_all = why_all(whole, rule)
    if for_all is not None or rule is None:
        all_kept = [for_all or ""]  # one for the 100,000 that there may be
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
    """Train step -> why the mirror needs a checkpoint that nothing else keeps.

    What it reads now, it can read to its end. What was the best is due, and stays until the mirror
    has it, though a better one may have come. These are no more than the rule itself keeps: a
    mirror that is slower than the training at most doubles what lies on the disk. Of more, the
    oldest go, for the mirror takes the newest first and would come to them last.

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
    """Why all checkpoints stay; None when they are judged one by one.

    Args:
        whole: those that are complete.
    """
    if rule is None:
        return "all are kept"
    if not whole:
        return "no complete one would be left"
    if rule.best and not best(whole, rule):
        return f"none has the metric {rule.metric!r} to find the best by"
    return None


def best(whole: Iterable[Found], rule: Rule) -> list[Found]:
    """The best ``rule.best`` of these, the best first; those without the metric do not count.

    Of several with the same value the earliest counts, and no other: between two evaluations every
    checkpoint carries the value of the one before, and the first was made closest to it.
    """
    by_value: dict[float, Found] = {}
    for each in sorted(whole, key=lambda each: each.train_step):
        if rule.metric in each.metrics:
            by_value.setdefault(each.metrics[rule.metric], each)
    values = sorted(by_value, reverse=rule.is_more_better)
    return [by_value[value] for value in values[: rule.best]]


def _best_when_made(whole: Iterable[Found], rule: Rule) -> list[Found]:
    """Those that were among the best ``rule.best`` of all that were there when they were made."""
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
    """Checkpoints are made by the clock, so their train steps are seldom multiples of anything."""
    first: dict[int, Found] = {}
    if every is not None:
        for each in sorted(whole, key=lambda each: each.train_step):
            if each.train_step >= every:
                first.setdefault(each.train_step // every, each)
    return list(first.values())
