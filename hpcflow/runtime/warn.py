"""How the runtime speaks to people: one line on stderr, which Slurm puts into ``out.log``."""

from __future__ import annotations

import sys

from hpcflow.runtime.safe_text import safe_lines


def warn(text: str) -> None:
    """Say ``text``; where even stderr is gone, nobody can be told, and the training goes on."""
    try:
        print(f"hpcflow: {safe_lines(text)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


class WarnOnce:
    """:func:`warn`, for what is found again and again."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> bool:
        """Say ``text``, and whether it was said for the first time."""
        is_new = text not in self._said
        if is_new:
            self._said.add(text)
            warn(text)
        return is_new
