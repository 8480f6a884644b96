"""Print warnings: one line on stderr, which Slurm writes to ``out.log``."""

from __future__ import annotations

import sys
from typing import Final

from hpcflow.runtime.safe_text import safe_lines

#: Different texts that one :class:`WarnOnce` prints.
_MOST_TEXTS: Final = 100


def warn(text: str) -> None:
    """Print ``text`` on stderr; errors are ignored, so that the training continues."""
    try:
        print(f"hpcflow: {safe_lines(text)}", file=sys.stderr, flush=True)
    except (OSError, ValueError):
        return


class WarnOnce:
    def __init__(self) -> None:
        self._printed: set[str] = set()

    def __call__(self, text: str) -> bool:
        """Print ``text`` if it is new; return whether it was printed.

        Only the first 100 texts are printed, because other users can create any number of files.
        """
        if text in self._printed or len(self._printed) > _MOST_TEXTS:
            return False
        is_last = len(self._printed) == _MOST_TEXTS
        self._printed.add(text)
        warn("no more warnings of this kind are shown" if is_last else text)
        return not is_last
