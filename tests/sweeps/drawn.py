"""Journals of sweeps that were never trained, for whoever draws them."""

from __future__ import annotations

import math
import random
from collections.abc import Iterator
from datetime import datetime, timedelta, timezone
from typing import Any

from hpcflow.model.space import Choice
from hpcflow.model.sweep import SweepSpec
from hpcflow.model.sweep_records import Asked, Read, SweepRecord, Told
from hpcflow.sweeps.state import SweepProgress, fold

BEGUN = datetime(2026, 1, 1, tzinfo=timezone.utc)
SPACE: dict[str, Any] = {
    "lr": {"low": 1e-5, "high": 0.1, "log": True},
    "units": {"low": 8, "high": 128, "step": 8},
    "optimizer": {"choices": ["adam", "sgd"]},
    "momentum": {"low": 0.1, "high": 0.99, "when": {"optimizer": "sgd"}},
}
ACCURACY = {"metric": "accuracy", "direction": "maximize"}
SECONDS = {"metric": "seconds", "direction": "minimize"}
#: Names of choices that are neither formulas nor HTML.
EVIL: list[Any] = [
    *("a$b$c", "$\\frac{$", "</script><script src=//x>"),
    *("</script><script>document.title='owned'</script>", "日本語", None, True),
]


def spec_of(*goals: dict[str, str], space: dict[str, Any] | None = None, **more: Any) -> SweepSpec:
    """A sweep with these objectives; the accuracy, if none is given."""
    several = goals or (ACCURACY,)
    said = {
        "name": "digits",
        "base": "config.yaml",
        "space": space or SPACE,
        "budget": {"trials": 2000},
        **({"objectives": list(several)} if len(several) > 1 else {"objective": several[0]}),
        **more,
    }
    return SweepSpec.model_validate(said, by_alias=True, by_name=False)


def records_of(
    spec: SweepSpec, trials: int, *, points: bool = True, ended: bool = True
) -> Iterator[SweepRecord]:
    """Its journal: the first trial fails, the last still runs, one in three is pruned.

    The accuracy is best at a learning rate of 0.001, and has little to do with anything else; the
    second objective is the smaller, the smaller ``units``.
    """
    chance = random.Random(0)
    for number in range(trials):
        at = BEGUN + timedelta(minutes=number)
        params = _chosen(spec, chance)
        run = f"digits-t{number}"
        yield Asked(at=at, trial=number, params=params, runs=[run])
        log = math.log10(params.get("lr", 1e-3)) + 3
        value = 0.98 - 0.05 * log**2 + chance.gauss(0, 0.002)
        is_pruned = number % 3 == 1
        if points:
            reached = 30 if is_pruned else 100
            curve = [(p, value * (1 - math.exp(-p / 20))) for p in range(1, reached + 1)]
            known = [(p, None if p == 5 else v) for p, v in curve]
            yield Read(at=at, trial=number, run=run, attempt=1, offset_bytes=1, points=known)
        if number == trials - 1 or not ended:
            continue
        if number == 0:
            yield Told(at=at, trial=number, outcome="failed", why="its run has failed")
        elif is_pruned:
            yield Told(at=at, trial=number, outcome="pruned")
        else:
            values = [value, float(params.get("units", 0)), chance.random(), chance.random()]
            yield Told(at=at, trial=number, outcome="complete", values=values[: len(spec.goals)])


def progress_of(spec: SweepSpec, trials: int, **how: bool) -> SweepProgress:
    """What that journal comes to."""
    return fold(spec, BEGUN, records_of(spec, trials, **how))


def of_one_objective() -> SweepProgress:
    """A sweep of which all figures can be drawn."""
    return progress_of(spec_of(), 30)


def of_two_objectives() -> SweepProgress:
    """A sweep with all figures for each objective, and choices with evil names."""
    return progress_of(spec_of(ACCURACY, SECONDS, space={**SPACE, "name": {"choices": EVIL}}), 40)


def _chosen(spec: SweepSpec, chance: random.Random) -> dict[str, Any]:
    params: dict[str, Any] = {}
    for each in spec.space.parameters:
        if not each.is_there(params):
            continue
        if each.name == "lr":
            params["lr"] = 10 ** chance.uniform(-5, -1)
        elif each.name == "units":
            params["units"] = chance.randrange(8, 129, 8)
        elif each.name == "momentum":
            params["momentum"] = chance.uniform(0.1, 0.99)
        else:
            assert isinstance(each.values, Choice)
            params[each.name] = chance.choice(each.values.choices)
    return params
