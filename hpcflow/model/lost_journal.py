"""What hpcflow says of a run whose journal is missing. Pure.

A run is created with an empty journal. Without one, a run that is completed looks like a run that
never had a job: nothing is submitted for it before its user decides.
"""

from __future__ import annotations

from typing import Final

#: The rule by which such a run stops.
RULE: Final = "lost_journal"
WHY: Final = "its journal.jsonl is missing, and with it what became of its jobs"
#: What its user can do.
ADVICE: Final = (
    "if it was mirrored: hpcflow restore {run}; else start it again: hpcflow resume {run}"
)
