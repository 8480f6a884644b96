"""List the partitions that a run fits, with the expected time and cost of each."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from hpcflow.ledger.ends import Observed
from hpcflow.model.kinds import AUTO
from hpcflow.model.spec import RunSpec
from hpcflow.placement.choice import Candidate
from hpcflow.placement.mtbf import mtbf_s
from hpcflow.placement.price import estimate
from hpcflow.sites.placement import Placement

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
