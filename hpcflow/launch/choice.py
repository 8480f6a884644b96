"""Which of several places is the best for a run: scores of what is known of each. Pure.

A score is a weighted product, so that only ratios count::

    cost ^ weights.cost × time ^ weights.time × 2 ^ (−weights.fair_share × factor)

Half the cost weighs as much as half the time until the run is done, with equal weights; the best
fair-share factor, 1, halves the score beside the worst, 0. A product keeps the order of two places
whatever other places there are, and needs no exchange rate between hours and money.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import Final, Literal

from hpcflow.sites.placement import Placement
from hpcflow.sites.weights import Weights

#: What is free counts as so many times cheaper than the cheapest that is not.
_FREE: Final = 10
#: Places whose scores differ by less are equal: a start is predicted to seconds, and means minutes.
_EQUAL: Final = 1.01
#: Beyond e to the power of this no float counts: the prices of a site may be absurd.
_MOST_LOG: Final = 700.0
#: What is done at once still takes some time.
_LEAST_S: Final = 60.0

Unit = Literal["USD", "SU", "GPU hours", "node hours"]


@dataclass(frozen=True)
class Start:
    """When a job that is sent now would start, at the earliest.

    Attributes:
        jobs_ahead: jobs in the queue that Slurm would start first on these nodes.
        is_estimate: whether the figure is rough: the job starts no earlier than ``at``.
        limit: the limit that is full until ``at``, in words.
    """

    at: datetime
    jobs_ahead: int = 0
    is_estimate: bool = False
    limit: str | None = None


@dataclass(frozen=True)
class Candidate:
    """A place where a run fits, and what is known of it.

    Attributes:
        account: the account that would be charged; None where nobody says.
        runs_s: seconds on the nodes until all work of one time limit is done, with what is done
            twice after preemptions and other ends: :mod:`hpcflow.launch.expected`.
        mtbf_s: mean time between such ends there.
        cost_usd, cost_su: of these seconds; None where the site has no such price.
        start: when it would start; None where nobody can say.
        waits_s: seconds until then; None as well.
        fair_share: the account's fair-share factor, from 0 to 1; None where nobody knows.
        order: of equal places that with the lowest is taken.
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
        score: how many times worse than the best; that one has 1.
        cost: what was compared, in ``unit``; None where this place alone has no price. Then it is
            taken for as dear as the dearest.
    """

    candidate: Candidate
    score: float
    cost: Decimal | None
    unit: Unit


def rank(candidates: Sequence[Candidate], weights: Weights) -> list[Ranked]:
    """The candidates, the best first; of equal ones, to a percent, one whose start is no estimate,
    then that which was named first."""
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
    """What is compared: money where any place has a price in money, else service units, else
    hours. Never is what has no price taken for free."""
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
    """The logarithm of a score. A place whose start nobody predicts is taken to make one wait as
    long as the slowest."""
    waits_s = longest_s if each.waits_s is None else each.waits_s
    time_s = max(_LEAST_S, waits_s + each.runs_s)
    standing = each.fair_share or 0.0
    return (
        weights.cost * math.log(cost)
        + weights.time * math.log(time_s)
        - weights.fair_share * standing * math.log(2)
    )
