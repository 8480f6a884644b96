"""Whether an attempt has shown what it needs, and was measured to its end. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from hpcflow.model.state import Cause
from hpcflow.rightsizing.use import Use
from hpcflow.rightsizing.words import Nothing

#: Watched so long, an attempt has shown what it needs, even if it did not complete.
_LONG_S: Final = 1800.0
#: A completed one has, if it was looked at so often.
_FEW_SAMPLES: Final = 5
#: Share of its time that an attempt must have been watched, for its highest to be the highest.
_COVERED: Final = 0.9
#: The same of one that still runs: it tells whenever a quarter more time has passed.
_COVERED_SO_FAR: Final = 0.75
#: What is missing of a short one: between two looks, and what the job script does itself.
_MISSING_S: Final = 120.0
#: Training that was told of for so long is past its first batches and caches.
_TRAINED_S: Final = 600.0


def is_proven(use: Use) -> bool:
    """Whether an attempt has shown what it needs."""
    if use.measured is None:
        return False
    if use.cause == Cause.COMPLETED.value and use.measured.samples >= _FEW_SAMPLES:
        return True
    return use.measured.seconds >= _LONG_S


def is_covered(use: Use) -> bool:
    """Whether an attempt was watched nearly all of its time: the most is often needed at its end,
    to gather, save and evaluate."""
    if use.measured is None or use.elapsed_s is None:
        return False
    share = _COVERED_SO_FAR if use.is_running else _COVERED
    return use.measured.seconds >= min(share * use.elapsed_s, use.elapsed_s - _MISSING_S)


def some_nodes(uses: Sequence[Use], what: str) -> Nothing | None:
    """That nothing is advised, for no attempt that proves anything was seen on all of its nodes;
    None where one was. What others do is seen only where the job script starts the program there.
    """
    seen = [(use, use.measured) for use in uses if is_proven(use)]
    if any(each is not None and each.nodes >= use.nodes for use, each in seen):
        return None
    number, nodes = max(((each.nodes, use.nodes) for use, each in seen if each), default=(0, 0))
    return Nothing(what, f"only {number} of {nodes} nodes {'was' if number == 1 else 'were'} seen")


def has_trained(use: Use) -> bool:
    """Whether training was told of for long enough to say what it waits for."""
    return (use.trained_s or 0.0) >= _TRAINED_S


def unproven(uses: Sequence[Use], what: str) -> Nothing:
    """That nothing is advised, for no attempt has shown what it needs."""
    if not any(use.measured for use in uses):
        return Nothing(what, "it was not measured")
    return Nothing(what, "no attempt has completed, or run for half an hour")


def uncovered(what: str) -> Nothing:
    """That nothing is advised, for the end of every attempt is missing."""
    return Nothing(what, "no attempt was watched to its end, where the most is often needed")
