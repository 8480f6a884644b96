"""Decide when to sample and when to write: often at first, then more rarely. Pure.

A job of ten days takes about 29,000 samples, of which only sums are kept, and writes about 500
events of some hundred bytes, at most 4 KiB: its event file grows by at most 2 MiB.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import zip_longest

#: Longest time between two samples: a shorter peak can be missed.
EVERY_S = 30.0
#: Nothing is written for a program that ended sooner: it does not show what a job needs.
FIRST_FILE_S = 10.0
_FILE_EVERY_S = 60.0
#: A peak that grew by less waits for the next file: advice has a margin of a quarter.
_GROWTH = 1.05
_FIRST_EVENT_S = 60.0
_EVENT_GROWTH = 0.25
_EVENT_EVERY_S = 1800.0


def next_sample_s(elapsed_s: float) -> float:
    """Return the seconds until the next sample: half of the elapsed time, from 1 to 30."""
    return min(EVERY_S, max(1.0, elapsed_s / 2))


def is_file_due(elapsed_s: float, written_s: float | None) -> bool:
    """Return whether to rewrite the node's file.

    Args:
        written_s: when it was last written, on the clock of ``elapsed_s``.
    """
    if written_s is None:
        return elapsed_s >= FIRST_FILE_S
    return elapsed_s - written_s >= min(_FILE_EVERY_S, written_s)


def has_grown(peaks_mb: Sequence[int], written_mb: Sequence[int]) -> bool:
    """Return whether a peak grew so much that the node's file must be written now.

    The job script reads that file at the end of the program, without waiting.

    Args:
        peaks_mb: the current peaks; those at the end may be new.
        written_mb: the peaks in the file.
    """
    pairs = zip_longest(peaks_mb, written_mb, fillvalue=0)
    return any(now > _GROWTH * then for now, then in pairs)


def is_event_due(elapsed_s: float, written_s: float | None) -> bool:
    """Return whether to append an event: after a minute, and then whenever a quarter more time
    has passed, or half an hour."""
    if written_s is None:
        return elapsed_s >= _FIRST_EVENT_S
    wait_s = max(_FIRST_EVENT_S, _EVENT_GROWTH * written_s)
    return elapsed_s - written_s >= min(_EVENT_EVERY_S, wait_s)
