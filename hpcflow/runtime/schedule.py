"""Decide when a save is due: by count, by time, and with ``interval: auto``."""

from __future__ import annotations

import math
import statistics
import time
from collections import deque
from collections.abc import Callable

#: The interval before the first measurement: the default of ``checkpoint.interval``.
FIRST_S = 600.0
SHORTEST_S = 60.0
LONGEST_S = 3600.0

#: The cost is the median of this many saves, because the first and some others take longer.
_SAVES = 5

#: The usual time of a train step is the median of this many without a write.
_TRAIN_STEPS = 31

#: A train step counts as at most this many usual ones: it may include an evaluation, for instance.
_OUTLIER = 3


class Schedule:
    """A save is due every ``interval_s`` seconds, and after ``every_train_steps`` train steps."""

    def __init__(
        self,
        interval_s: float | None,
        every_train_steps: int | None,
        monotonic: Callable[[], float] = time.monotonic,
    ) -> None:
        self._interval_s = interval_s
        self._every_train_steps = every_train_steps
        self._monotonic = monotonic
        self._since = monotonic()
        self._is_asked_for = False

    def is_due_by_time(self) -> bool:
        """Return whether the interval has passed; true only once until :meth:`restart`."""
        if self._interval_s is None or self._is_asked_for:
            return False
        self._is_asked_for = self._monotonic() - self._since >= self._interval_s
        return self._is_asked_for

    def is_due_by_count(self, train_step: int) -> bool:
        """Return whether to save after ``train_step``; the same on all ranks."""
        return self._every_train_steps is not None and train_step % self._every_train_steps == 0

    def change_interval(self, interval_s: float) -> None:
        """Set the interval. May be called by another thread."""
        self._interval_s = interval_s

    def restart(self) -> None:
        """Begin a new interval, after a save or when training begins."""
        self._since = self._monotonic()
        self._is_asked_for = False


def optimum_s(cost_s: float, mtbf_s: float) -> float:
    """Return the interval that loses the least time, from the end of a save to the next.

    Each save takes time; too few saves mean more training to repeat after an unplanned end. The
    optimum is that of Young (A first order approximation to the optimum checkpoint interval,
    Communications of the ACM 17(9), 1974): ``sqrt(2 * cost * mtbf)``, as Daly refined it (A higher
    order estimate of the optimum checkpoint interval for restart dumps, Future Generation Computer
    Systems 22(3), 2006).

    Args:
        cost_s: what one save costs the training.
        mtbf_s: mean time between two unplanned ends.
    """
    if cost_s >= 2 * mtbf_s:
        return mtbf_s
    x = math.sqrt(cost_s / (2 * mtbf_s))
    return math.sqrt(2 * cost_s * mtbf_s) * (1 + x / 3 + x * x / 9) - cost_s


class AutoInterval:
    """The interval of one attempt, from the cost of its saves.

    The cost is the time for which the train loop waits, plus the slowdown of train steps while a
    checkpoint is written in the background.

    The interval is at least the time of a write, because only one checkpoint is written at a time.
    It is between :data:`SHORTEST_S` and :data:`LONGEST_S`, because the observed failures of a
    partition may mislead, and more than an hour is too much to lose.

    Attributes:
        interval_s: until the next save.
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
        """Start the clock of a train step; :meth:`train_step_ends` stops it."""
        self._began = self._monotonic()

    def train_step_ends(self, *, is_writing: bool) -> None:
        """Record the time of a train step.

        Args:
            is_writing: whether a checkpoint was written meanwhile.
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
        """Update the interval after a save. May be called by another thread than the training's.

        Args:
            held_s: how long the train loop waited.
            write_s: how long the write then took, while the training continued.
        """
        lost_s, self._lost_s = self._lost_s, 0.0
        self._costs_s.append(held_s + min(max(lost_s, 0.0), write_s))
        best_s = optimum_s(statistics.median(self._costs_s), self._mtbf_s)
        self.interval_s = min(max(best_s, SHORTEST_S, write_s), max(LONGEST_S, write_s))
