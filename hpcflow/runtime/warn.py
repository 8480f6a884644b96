"""How the runtime speaks to people: one line on stderr, which Slurm puts into ``out.log``."""

from __future__ import annotations

import sys
from typing import Final

from hpcflow.runtime.safe_text import safe_lines

#: Different texts that one watcher prints.
_MOST_TEXTS: Final = 100


def warn(text: str) -> None:
    """Say ``text``; where even stderr is gone, nobody can be told, and the training continues."""
    try:
        print(f"hpcflow: {safe_lines(text)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


class WarnOnce:
    """:func:`warn`, for what is found again and again."""

    def __init__(self) -> None:
        self._said: set[str] = set()

    def __call__(self, text: str) -> bool:
        """Say ``text``, and whether it was said for the first time.

        Only the first 100 texts are printed: other users can create any number of files.
        """
        if text in self._said or len(self._said) > _MOST_TEXTS:
            return False
        is_last = len(self._said) == _MOST_TEXTS
        self._said.add(text)
        warn("no more warnings of this kind are shown" if is_last else text)
        return not is_last
