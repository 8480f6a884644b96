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
import time
from collections import deque
from collections.abc import Callable

#: The interval before anything was measured: that of a config which says nothing.
FIRST_S = 600.0
SHORTEST_S = 60.0
LONGEST_S = 3600.0

#: Of so many saves the middle one counts: the first takes longer, and so does one now and then.
_SAVES = 5

#: Of so many train steps the middle one tells how long they take while nothing is written.
_TRAIN_STEPS = 31

#: What takes so many times as long as usual is no train step that was slowed down: there was an
#: evaluation in it, for instance.
_OUTLIER = 3


def optimum_s(cost_s: float, mtbf_s: float) -> float:
    """The interval that loses least: see the top of this file.

    Args:
        cost_s: what one save costs the training.
        mtbf_s: mean time between two unplanned ends.
    """
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    x = math.sqrt(cost_s / (2 * mtbf_s))
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + x / 3 + x * x / 9) - cost_s


class AutoInterval:
    """The interval of one attempt, from what its saves have cost the training.

    That is the time that the train loop was held, and the time that train steps took longer than
    usual while the checkpoint was written behind them.

    Never below the time that writing takes, for at most one checkpoint is written at a time; and
    between :data:`SHORTEST_S` and :data:`LONGEST_S`: what was observed of a partition may be wrong,
    and an hour is what people can bear to lose.

    Attributes:
        interval_s: for the next save.
    """

    def __init__(self, mtbf_s: float, monotonic: Callable[[], float] = time.monotonic) -> None:
        self._mtbf_s = mtbf_s
        self._monotonic = monotonic
        self._costs_s: deque[float] = deque(maxlen=_SAVES)
        self._usual_s: deque[float] = deque(maxlen=_TRAIN_STEPS)
        self._began: float | None = None
        self._lost_s = 0.0
        self.interval_s = FIRST_S

    def train_step_begins(self) -> None:
        """The program has the word; :meth:`train_step_ends` when it gives it back."""
        self._began = self._monotonic()

    def train_step_ends(self, *, is_writing: bool) -> None:
        """A train step was done.

        Args:
            is_writing: whether a checkpoint was being written meanwhile.
        """
        if self._began is None:
            return
        took_s = self._monotonic() - self._began
        if not is_writing:
            self._usual_s.append(took_s)
        elif self._usual_s:
            usual_s = statistics.median(self._usual_s)
            self._lost_s += min(took_s, _OUTLIER * usual_s) - usual_s

    def measured(self, held_s: float, write_s: float) -> None:
        """A checkpoint was made. May be called by another thread than the training's.

        Args:
            held_s: how long the train loop was held.
            write_s: how long it was then written, while the training went on.
        """
        lost_s, self._lost_s = self._lost_s, 0.0
        self._costs_s.append(held_s + min(max(lost_s, 0.0), write_s))
        best_s = optimum_s(statistics.median(self._costs_s), self._mtbf_s)
        self.interval_s = min(max(best_s, SHORTEST_S, write_s), max(LONGEST_S, write_s))
