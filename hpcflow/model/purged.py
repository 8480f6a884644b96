"""A run whose directory is gone from scratch, and that has no mirror.

The daemon stops such a run: its files exist nowhere else, as far as hpcflow knows.
"""

from __future__ import annotations

from typing import Final

#: The rule of the daemon's decision about a run whose directory is gone.
RULE: Final = "purged"
GONE: Final = "its run directory is gone"
WHY: Final = f"{GONE}, and it has no mirror"
ADVICE: Final = (
    "put the directory back, then: hpcflow resume {run}; or start a new run: hpcflow run CONFIG"
)
