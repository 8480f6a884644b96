"""When to look, and when to write: often at first, then ever more rarely. Pure.

A job of ten days makes about 29,000 samples, of which nothing is kept but sums, and about 500
events of some hundred bytes, 4 KiB at most: its event file does not grow by more than 2 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

#: Longest time between two samples: what is shorter than this can be missed.
EVERY_S = 30.0
#: Nothing is written of a program that ended sooner: nobody can learn from it what a job needs.
FIRST_FILE_S = 10.0
_FILE_EVERY_S = 60.0
#: A peak that grew by less is told with the next file: advice leaves a quarter of room.
_GROWTH = 1.05
_FIRST_EVENT_S = 60.0
_EVENT_GROWTH = 0.25
_EVENT_EVERY_S = 1800.0


def next_sample_s(elapsed_s: float) -> float:
    """Seconds until the next look: 1, then half of the time that has passed, 30 at most."""
    return min(EVERY_S, max(1.0, elapsed_s / 2))


def is_file_due(elapsed_s: float, written_s: float | None) -> bool:
    """Whether the node's file is to be rewritten.

    Args:
        written_s: when it was written last, on the clock of ``elapsed_s``.
    """
    if written_s is None:
        return elapsed_s >= FIRST_FILE_S
    return elapsed_s - written_s >= min(_FILE_EVERY_S, written_s)


def has_grown(peaks_mb: Sequence[int], written_mb: Sequence[int]) -> bool:
    """Whether a peak is so much higher than when the node's file was written that it is to be
    written now: the job script reads it at the end of the program, and waits for nobody.

    Args:
        peaks_mb: of the same things, in the same order; those at the end may be new.
        written_mb: what they were then.
    """
    pairs = zip_longest(peaks_mb, written_mb, fillvalue=0)
    return any(now > _GROWTH * then for now, then in pairs)


def is_event_due(elapsed_s: float, written_s: float | None) -> bool:
    """Whether an event is to be appended: after a minute, and then whenever a quarter more time
    has passed, or half an hour."""
    if written_s is None:
        return elapsed_s >= _FIRST_EVENT_S
    wait_s = max(_FIRST_EVENT_S, _EVENT_GROWTH * written_s)
    return elapsed_s - written_s >= min(_EVENT_EVERY_S, wait_s)
