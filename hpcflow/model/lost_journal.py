"""The rule and the texts for a run whose journal is missing. Pure.

A run is created with an empty journal. Without a journal, a completed run looks like one that never
had a job. So hpcflow submits nothing for it until the user resumes it.
"""

from __future__ import annotations

from typing import Final

RULE: Final = "lost_journal"
WHY: Final = "its journal.jsonl is missing, so the state of its jobs is unknown"
ADVICE: Final = (
    "if it was mirrored: hpcflow restore {run}; else start it again: hpcflow resume {run}"
)
