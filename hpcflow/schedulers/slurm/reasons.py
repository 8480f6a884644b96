"""Explain why a job is pending: every reason of slurm.h, with the next thing to try. Pure.

Codes are spelt as squeue prints them (job_reason_string in slurm_protocol_defs.c, later in
job_state_reason.c). The table is in reason_words.py; reasons that name a limit are read in
reason_limits.py. Some come with more words than their code, or as a sentence. One that is not known
is shown as it is.
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
    """A reason.

    Attributes:
        code: Slurm's; the whole text where it is not known.
        words: what it says of the job, as the end of the sentence "It waits: …".
        advice: what to type or do; ``{run}``, ``{job}`` and ``{partition}`` stand for theirs.
        limit: that it names.
    """

    code: str
    kind: Kind
    words: str
    advice: str
    limit: NamedLimit | None = None

    @property
    def can_start(self) -> bool:
        """Whether it starts some time if nobody changes the job."""
        return self.kind not in (Kind.NEVER, Kind.TOO_LARGE, Kind.HELD, Kind.ENDED)


@lru_cache(maxsize=1024)  # in a queue of thousands there are some ten different ones
def explain(text: str | None) -> Reason:
    """What Slurm's reason means.

    Args:
        text: as squeue prints it: a code, a code and more after a comma or a colon, or a sentence.
    """
    said = (text or "None").strip().strip("()")
    # Older versions write blanks of a sentence as underscores.
    flat = said.replace("_", " ")
    for part, (kind, words, advice) in SENTENCES.items():
        if part in flat:
            return Reason(said, kind, words, advice)
    for code in dict.fromkeys((said, said.partition(",")[0], said.partition(":")[0])):
        if code in CODES:
            return Reason(said, *CODES[code])
        if (limit := named_limit(code)) is not None:
            return _of_limit(said, limit)
    return Reason(said, Kind.UNKNOWN, f"Slurm says: {said}", "look it up: man squeue; " + STAFF)


def _of_limit(code: str, limit: NamedLimit) -> Reason:
    if limit.passes:
        is_budget = limit.name.endswith("Mins") or limit.name == "GrpWall"
        is_budget = is_budget and not limit.name.endswith("RunMins")
        return Reason(code, Kind.LIMIT, limit.words, USED_UP if is_budget else FULL, limit)
    return _too_large(code, limit, limit.words)


def exceeded(reason: Reason, words: str) -> Reason:
    """The same where the job exceeds the limit by itself: Slurm has one word for both."""
    assert reason.limit is not None
    return _too_large(reason.code, reason.limit, words)


def _too_large(code: str, limit: NamedLimit, words: str) -> Reason:
    return Reason(code, Kind.TOO_LARGE, words, LIMITS, limit)
