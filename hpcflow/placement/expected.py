"""Estimate how long a run takes with unplanned ends, from its checkpoint interval. Pure."""

from __future__ import annotations

import math
from typing import Final

from hpcflow.model.kinds import AUTO
from hpcflow.model.spec import RunSpec

#: From the end of an attempt until the next one trains, without the time in the queue.
RESTART_S: Final = 120.0
#: The assumed interval of a program that saves when it likes, or after a number of train steps.
UNKNOWN_INTERVAL_S: Final = 1800.0
#: Limit of the exponent, against overflow.
_MOST_EXPONENT: Final = 30.0


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
