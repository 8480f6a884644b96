"""List the partitions that a run fits, with the expected time and cost of each."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Final

from hpcflow.launch.choice import Candidate
from hpcflow.launch.expected import expected_s, interval_of
from hpcflow.launch.mtbf import mtbf_s
from hpcflow.launch.price import estimate
from hpcflow.ledger.rates import Observed
from hpcflow.model.spec import RunSpec
from hpcflow.sites.placement import Placement

#: The work of a run whose time limit nobody knows.
_WORK_MIN: Final = 24 * 60
#: Before anything was observed, an unplanned end is expected once in so many seconds: in
#: a partition whose jobs give way, and in one whose jobs do not.
_PREEMPTIBLE_S: Final = 24 * 3600.0
_SAFE_S: Final = 30 * 24 * 3600.0
#: A century: longer than that no calendar needs to count.
_LONGEST_S: Final = 100 * 366 * 24 * 3600


def candidates(
    places: Sequence[Placement],
    spec: RunSpec,
    *,
    observed: Mapping[str, Observed],
    now: datetime,
) -> list[Candidate]:
    """Each place with what the work of one time limit is expected to take and to cost there.

    How long a run trains nobody knows before; what is compared is the same work everywhere: that
    of the time limit that it asks for, or of the shortest of those that it would get.

    Args:
        observed: partition -> how often attempts were ended there.
        now: when it would begin; that decides which price holds.
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
