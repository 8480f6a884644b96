"""Explain why a job is pending: every reason of slurm.h, with the next thing to try. Pure.

Codes are spelt as squeue prints them (job_reason_string in slurm_protocol_defs.c, later in
job_state_reason.c). reason_words.py has the table, reason_limits.py parses reasons that name a
limit. Slurm may add text to a code, or print a sentence. An unknown reason is shown unchanged.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache

from hpcflow.schedulers.slurm.reason_limits import NamedLimit, named_limit
from hpcflow.schedulers.slurm.reason_words import (
    CODES,
    FULL,
    LIMITS,
    SENTENCES,
    STAFF,
    USED_UP,
    Kind,
)

__all__ = ["Kind", "Reason", "exceeded", "explain"]


@dataclass(frozen=True)
class Reason:
    """A pending reason.

    Attributes:
        code: Slurm's whole text.
        words: the reason in plain words.
        advice: what to type or do next, with placeholders ``{run}``, ``{job}``, ``{partition}``.
    """

    code: str
    kind: Kind
    words: str
    advice: str
    limit: NamedLimit | None = None

    @property
    def can_start(self) -> bool:
        """Return whether the job can start without a change."""
        return self.kind not in (Kind.NEVER, Kind.TOO_LARGE, Kind.HELD, Kind.ENDED)


@lru_cache(maxsize=1024)  # a queue of thousands of jobs has some ten different reasons
def explain(text: str | None) -> Reason:
    """Explain Slurm's reason.

    Args:
        text: as in squeue: a code, a code with more text after a comma or a colon, or a sentence.
    """
    full = (text or "None").strip().strip("()")
    # Older versions print underscores in place of blanks.
    flat = full.replace("_", " ")
    for part, (kind, words, advice) in SENTENCES.items():
        if part in flat:
            return Reason(full, kind, words, advice)
    for code in dict.fromkeys((full, full.partition(",")[0], full.partition(":")[0])):
        if code in CODES:
            return Reason(full, *CODES[code])
        if (limit := named_limit(code)) is not None:
            return _of_limit(full, limit)
    return Reason(full, Kind.UNKNOWN, f"Slurm says: {full}", "look it up: man squeue; " + STAFF)


def _of_limit(code: str, limit: NamedLimit) -> Reason:
    if limit.passes:
        is_budget = limit.name.endswith("Mins") or limit.name == "GrpWall"
        is_budget = is_budget and not limit.name.endswith("RunMins")
        return Reason(code, Kind.LIMIT, limit.words, USED_UP if is_budget else FULL, limit)
    return _too_large(code, limit, limit.words)


def exceeded(reason: Reason, words: str) -> Reason:
    """Return ``reason`` for a job that exceeds the limit by itself; Slurm has one code for both."""
    assert reason.limit is not None
    return _too_large(reason.code, reason.limit, words)


def _too_large(code: str, limit: NamedLimit, words: str) -> Reason:
    return Reason(code, Kind.TOO_LARGE, words, LIMITS, limit)
