"""How the runtime speaks to people: one line on stderr, which Slurm puts into ``out.log``."""

from __future__ import annotations

import sys


def warn(text: str) -> None:
    """Say ``text``; where even stderr is gone, nobody can be told, and the training goes on."""
    try:
        print(f"hpcflow: {text}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return
