"""Advice, reasons for none, and whether measurements of an attempt are sufficient for it. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from hpcflow.model.state import Cause
from hpcflow.rightsizing.use import Use

#: An attempt measured for this long is sufficient, even if it did not complete.
_LONG_S: Final = 1800.0
#: A completed attempt is sufficient with this many samples.
_FEW_SAMPLES: Final = 5
#: Share of an attempt that must be measured for its peak to count.
_COVERED: Final = 0.9
#: The same for a running attempt, which reports whenever a quarter more time has passed.
_COVERED_SO_FAR: Final = 0.75
#: Time of a short attempt that is not measured: between two samples, and in the job script.
_MISSING_S: Final = 120.0
#: A training that has reported for this long is past its first batches and caches.
_TRAINED_S: Final = 600.0


@dataclass(frozen=True)
class Advice:
    """One thing to change.

    Attributes:
        what: memory, time limit, …
        key: the key of the config to change; None if it is not in the config.
        value: the new value of the key, as in a config.
        text: what to do and why, with numbers.
    """

    what: str
    key: str | None
    value: str | None
    text: str


@dataclass(frozen=True)
class Nothing:
    """Why there is no advice about ``what``."""

    what: str
    why: str


def is_proven(use: Use) -> bool:
    """Return whether an attempt was measured long enough, or completed."""
    if use.measured is None:
        return False
    if use.cause == Cause.COMPLETED.value and use.measured.samples >= _FEW_SAMPLES:
        return True
    return use.measured.seconds >= _LONG_S


def is_covered(use: Use) -> bool:
    """Return whether nearly all of an attempt was measured: the peak is often at its end, when it
    gathers, saves and evaluates."""
    if use.measured is None or use.elapsed_s is None:
        return False
    share = _COVERED_SO_FAR if use.is_running else _COVERED
    return use.measured.seconds >= min(share * use.elapsed_s, use.elapsed_s - _MISSING_S)


def some_nodes(uses: Sequence[Use], what: str) -> Nothing | None:
    """Return that no sufficient attempt was measured on all its nodes; None if one was.

    Other nodes are measured only if the job script starts the program there.
    """
    seen = [(use, use.measured) for use in uses if is_proven(use)]
    if any(each is not None and each.nodes >= use.nodes for use, each in seen):
        return None
    number, nodes = max(((each.nodes, use.nodes) for use, each in seen if each), default=(0, 0))
    return Nothing(
        what, f"only {number} of {nodes} nodes {'was' if number == 1 else 'were'} measured"
    )


def has_trained(use: Use) -> bool:
    """Return whether training has reported long enough to judge its waits."""
    return (use.trained_s or 0.0) >= _TRAINED_S


def unproven(uses: Sequence[Use], what: str) -> Nothing:
    """Return that no attempt was measured sufficiently."""
    if not any(use.measured for use in uses):
        return Nothing(what, "it was not measured")
    return Nothing(what, "no attempt has completed, or run for half an hour")


def uncovered(what: str) -> Nothing:
    """Return that no attempt was measured to its end."""
    return Nothing(what, "no attempt was measured to its end, where the peak often is")
