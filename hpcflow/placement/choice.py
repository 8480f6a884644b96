"""List the places of a run with expected time and cost; rank them by a score. Pure.

A score is a weighted product, so that only ratios count::

    cost ^ weights.cost × time ^ weights.time × 2 ^ (−weights.fair_share × factor)

The best fair-share factor, 1, gives half the score of the worst, 0. In a product, the order of two
places does not depend on others, and hours and money need no exchange rate.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final, Literal

from hpcflow.ledger.ends import Observed
from hpcflow.model.kinds import AUTO
from hpcflow.model.spec import RunSpec
from hpcflow.placement.mtbf import mtbf_s
from hpcflow.placement.price import estimate
from hpcflow.sites.placement import Placement
from hpcflow.sites.schema import Weights

#: The assumed work of a run without a time limit.
_WORK_MIN: Final = 24 * 60
#: Mean time between unplanned ends before anything was observed, in preemptible and other
#: partitions.
_PREEMPTIBLE_S: Final = 24 * 3600.0
_SAFE_S: Final = 30 * 24 * 3600.0
#: A century, so that dates do not overflow.
_LONGEST_S: Final = 100 * 366 * 24 * 3600
#: From the end of an attempt until the next one trains, without the time in the queue.
RESTART_S: Final = 120.0
#: The assumed interval of a program that saves when it likes, or after a number of train steps.
UNKNOWN_INTERVAL_S: Final = 1800.0
#: Limit of the exponent, against overflow.
_MOST_EXPONENT: Final = 30.0


def candidates(
    places: Sequence[Placement],
    spec: RunSpec,
    *,
    observed: Mapping[str, Observed],
    now: datetime,
) -> list[Candidate]:
    """Return each place with the expected time and cost of the same work.

    The length of a training is unknown. So the work of one time limit is compared: the requested
    one, or the shortest of these places.

    Args:
        observed: partition -> unplanned ends and hours observed there.
        now: when the run would begin, which selects the price.
    """
    limits = [place.time_limit_min for place in places if place.time_limit_min is not None]
    work_s = 60.0 * min(limits, default=_WORK_MIN)
    return [
        replace(_candidate(place, spec, work_s, observed, now), order=order)
        for order, place in enumerate(places)
    ]


def _candidate(
    place: Placement,
    spec: RunSpec,
    work_s: float,
    observed: Mapping[str, Observed],
    now: datetime,
) -> Candidate:
    prior_s = _PREEMPTIBLE_S if place.options.preemptible else _SAFE_S
    mean_s = mtbf_s(observed.get(place.partition, Observed()), prior_s)
    runs_s = round(expected_s(work_s, mean_s, interval_of(spec)))
    bill = estimate(place, now, timedelta(seconds=min(runs_s, _LONGEST_S)))
    return Candidate(
        placement=place,
        account=place.account,
        runs_s=runs_s,
        mtbf_s=mean_s,
        cost_usd=bill.cost_usd,
        cost_su=bill.cost_su,
        gpu_hours=bill.gpu_hours,
        node_hours=Decimal(place.nodes * runs_s) / 3600,
    )


def interval_of(spec: RunSpec) -> float | None:
    """Return the seconds of work between two checkpoints of a run; None if it saves none, or is not
    resubmitted."""
    checkpoint = spec.checkpoint
    if spec.retry.preemptions == 0:
        return None
    if isinstance(checkpoint.interval_s, int | float):
        return float(checkpoint.interval_s)
    saves_somehow = (
        checkpoint.interval_s == AUTO or checkpoint.every_train_steps or checkpoint.adopt
    )
    return UNKNOWN_INTERVAL_S if saves_somehow else None


def expected_s(work_s: float, mtbf_s: float, interval_s: float | None) -> float:
    """Return the seconds on the nodes for ``work_s`` seconds of work, including repeated work.

    Interruptions are random, once in ``mtbf_s`` on average, and lose the work since the last
    checkpoint. This is equation 20 in J. T. Daly, "A higher order estimate of the optimum
    checkpoint interval for restart dumps", Future Generation Computer Systems 22 (2006), with
    checkpoints that take no time::

        mtbf × e^(restart / mtbf) × (e^(interval / mtbf) − 1) × work / interval

    Args:
        interval_s: None for no checkpoints: then all work is one interval.
    """
    interval = min(interval_s or work_s, work_s)
    if interval <= 0:
        return 0.0
    once = mtbf_s * math.expm1(min(interval / mtbf_s, _MOST_EXPONENT))
    return math.exp(RESTART_S / mtbf_s) * once * work_s / interval


#: A free place counts as this many times cheaper than the cheapest other one.
_FREE: Final = 10
#: Scores closer than this are equal: predicted starts have seconds, but are accurate to minutes.
_EQUAL: Final = 1.01
#: Limit of the exponent, against overflow by absurd prices.
_MOST_LOG: Final = 700.0
#: The least time, because a ratio to zero means nothing.
_LEAST_S: Final = 60.0

Unit = Literal["USD", "SU", "GPU hours", "node hours"]


@dataclass(frozen=True)
class Start:
    """The earliest start of a job that is submitted now.

    Attributes:
        jobs_ahead: pending jobs that Slurm would start first on these nodes.
        is_estimate: whether ``at`` is only a lower bound.
        limit: the limit that is full until ``at``, as text.
    """

    at: datetime
    jobs_ahead: int = 0
    is_estimate: bool = False
    limit: str | None = None


@dataclass(frozen=True)
class Candidate:
    """A place where a run fits.

    Attributes:
        account: the account that would be charged; None if unknown.
        runs_s: seconds on the nodes for the work of one time limit, with the work repeated after
            unplanned ends: :func:`expected_s`.
        mtbf_s: mean time between unplanned ends there.
        cost_usd, cost_su: of these seconds; None if the site has no such price.
        start: expected start; None if unknown.
        waits_s: seconds until then; None if unknown.
        fair_share: the account's fair-share factor, from 0 to 1; None if unknown.
        order: the lowest wins between equal places.
    """

    placement: Placement
    account: str | None
    runs_s: float
    mtbf_s: float
    cost_usd: Decimal | None
    cost_su: Decimal | None
    gpu_hours: Decimal
    node_hours: Decimal
    start: Start | None = None
    waits_s: float | None = None
    fair_share: float | None = None
    order: int = 0


@dataclass(frozen=True)
class Ranked:
    """A candidate and its score.

    Attributes:
        score: how many times worse than the best, which has 1.
        cost: the compared cost, in ``unit``; None if only this place has no price: it is ranked as
            if it cost as much as the most expensive one.
    """

    candidate: Candidate
    score: float
    cost: Decimal | None
    unit: Unit


def rank(candidates: Sequence[Candidate], weights: Weights) -> list[Ranked]:
    """Return the candidates, the best first. Scores within a percent are equal; then a start that
    is no estimate comes first, then the lower ``order``."""
    if not candidates:
        return []
    unit, costs = _costs(candidates)
    known = [cost for cost in costs if cost is not None]
    dearest = max(known, default=Decimal(1))
    free = min((cost for cost in known if cost), default=Decimal(_FREE)) / _FREE
    longest = max((each.waits_s for each in candidates if each.waits_s is not None), default=0.0)
    scores = [
        _score(each, (dearest if cost is None else cost) or free, longest, weights)
        for each, cost in zip(candidates, costs, strict=True)
    ]
    best = min(scores)
    ranked = [
        Ranked(each, math.exp(min(score - best, _MOST_LOG)), cost, unit)
        for each, cost, score in zip(candidates, costs, scores, strict=True)
    ]
    return sorted(
        ranked,
        key=lambda each: (
            1.0 if each.score <= _EQUAL else each.score,
            each.candidate.start is not None and each.candidate.start.is_estimate,
            each.candidate.order,
        ),
    )


def _costs(candidates: Sequence[Candidate]) -> tuple[Unit, list[Decimal | None]]:
    """Return the costs to compare: in money if any place has such a price, else in service units,
    else in hours. A place without a price is never free."""
    usd = [each.cost_usd for each in candidates]
    if any(cost is not None for cost in usd):
        return "USD", usd
    su = [each.cost_su for each in candidates]
    if any(cost is not None for cost in su):
        return "SU", su
    if any(each.gpu_hours for each in candidates):
        return "GPU hours", [each.gpu_hours for each in candidates]
    return "node hours", [each.node_hours for each in candidates]


def _score(each: Candidate, cost: Decimal, longest_s: float, weights: Weights) -> float:
    """Return the logarithm of a score. An unknown start counts as late as the latest known one."""
    waits_s = longest_s if each.waits_s is None else each.waits_s
    time_s = max(_LEAST_S, waits_s + each.runs_s)
    standing = each.fair_share or 0.0
    return (
        weights.cost * math.log(cost)
        + weights.time * math.log(time_s)
        - weights.fair_share * standing * math.log(2)
    )
