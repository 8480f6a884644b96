"""What was found: one line each, with the seed and the try that show it again."""

from __future__ import annotations

import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random

#: Between two words of progress.
_EVERY_S = 15
#: Of one kind of finding, so many are told whole.
_TOLD = 3


@dataclass
class Findings:
    """Those of one part."""

    part: str
    seed: int
    tries: int = 0
    number: int = 0
    kinds: Counter[str] = field(default_factory=Counter)
    _began_s: float = field(default_factory=time.monotonic)
    _told_s: float = field(default_factory=time.monotonic)

    def dice(self, number: int) -> Random:
        """The chance of try ``number``, which the tries before it do not change."""
        self.number = number
        self.tries += 1
        return Random(f"{self.part} {self.seed} {number}")

    def add(self, kind: str, story: str) -> None:
        """Tell of something that must not be.

        Args:
            kind: what is wrong, in the same words for the same fault.
            story: what was done, and what came of it.
        """
        self.kinds[kind] += 1
        if self.kinds[kind] <= _TOLD:
            again = f"--seed {self.seed} --only {self.number}"
            print(f"FOUND {self.part} {again}: {kind}\n{_indented(story)}", flush=True)

    def progress(self, of: int) -> None:
        """Say now and then how far it is."""
        if time.monotonic() - self._told_s < _EVERY_S:
            return
        self._told_s = time.monotonic()
        left_s = (self._told_s - self._began_s) / self.tries * (of - self.tries)
        print(
            f"{self.part}: {self.tries} of {of} tries, {len(self.kinds)} kinds of findings, "
            f"{left_s / 60:.0f} min to go",
            file=sys.stderr,
            flush=True,
        )

    def summary(self) -> str:
        """One line."""
        took_s = time.monotonic() - self._began_s
        found = "nothing found" if not self.kinds else f"{len(self.kinds)} kinds of findings"
        said = f"{self.part}: {self.tries} tries in {took_s:.0f} s (seed {self.seed}): {found}"
        return "\n".join([said, *(f"  {n} times: {kind}" for kind, n in self.kinds.most_common())])


def _indented(text: str) -> str:
    return "\n".join(f"    {line}" for line in text.splitlines())
