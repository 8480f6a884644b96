"""How often to save, where the config says ``interval: auto``.

A save too many costs what it takes, a save too few costs what has to be trained again after the
next end. The optimum between them is that of Young (A first order approximation to the optimum
checkpoint interval, Communications of the ACM 17(9), 1974)::

    interval = sqrt(2 * cost * mtbf)

as Daly refined it (A higher order estimate of the optimum checkpoint interval for restart dumps,
Future Generation Computer Systems 22(3), 2006)::

    interval = sqrt(2 * cost * mtbf) * (1 + x / 3 + x**2 / 9) - cost
             = mtbf    if cost >= 2 * mtbf

where x = sqrt(cost / (2 * mtbf)). It is the time from the end of one save to the begin of the next.
"""

from __future__ import annotations

import math
import statistics
from collections import deque

#: The interval before anything was measured: that of a config which says nothing.
FIRST_S = 600.0
SHORTEST_S = 60.0
LONGEST_S = 3600.0

#: What a training is taken to lose of the time that its checkpoint is written behind it. Nobody
#: measures it: an assumption, and the root makes little of an error in it.
SLOWDOWN = 0.1

#: Of so many saves the middle one counts: the first takes longer, and so does one now and then.
_REMEMBERED = 5


def optimum_s(cost_s: float, mtbf_s: float) -> float:
    """The interval that loses least: see the top of this file.

    Args:
        cost_s: what one save costs the training.
        mtbf_s: mean time between two ends that nobody wished.
    """
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    x = math.sqrt(cost_s / (2 * mtbf_s))
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + x / 3 + x * x / 9) - cost_s


class AutoInterval:
    """The interval of one attempt, from what its saves have cost.

    Never below the time that writing takes, for at most one checkpoint is written at a time; and
    between :data:`SHORTEST_S` and :data:`LONGEST_S`: what was observed of a partition may be wrong,
    and an hour is what people can bear to lose.

    Attributes:
        interval_s: for the next save.
    """

    def __init__(self, mtbf_s: float) -> None:
        self._mtbf_s = mtbf_s
        self._costs_s: deque[float] = deque(maxlen=_REMEMBERED)
        self.interval_s = FIRST_S

    def measured(self, held_s: float, write_s: float) -> None:
        """A checkpoint was made.

        Args:
            held_s: how long the train loop was held.
            write_s: how long it was then written, while the training went on.
        """
        self._costs_s.append(held_s + SLOWDOWN * write_s)
        best_s = optimum_s(statistics.median(self._costs_s), self._mtbf_s)
        self.interval_s = min(max(best_s, SHORTEST_S, write_s), max(LONGEST_S, write_s))
