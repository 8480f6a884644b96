"""``hpcflow --help`` against importing click, which it cannot do without."""

from __future__ import annotations

import sys
from pathlib import Path

from tests.benchmarks.timing import Row, in_turn, quiet, ratio, wall

_ROUNDS = 15


def rows() -> list[Row]:
    """Measure, and say whether the goal of twice ``import click`` is met."""
    hpcflow = Path(sys.executable).with_name("hpcflow")
    times = in_turn(
        {
            "help": quiet([str(hpcflow), "--help"]),
            "click": quiet([sys.executable, "-c", "import click"]),
        },
        _ROUNDS,
    )
    factor = ratio(times["help"], times["click"])
    return [
        Row(
            "`hpcflow --help`, whole process",
            f"{factor:.2f} × `python -c 'import click'` ({wall(times['help']) * 1000:.0f} ms)",
            "at most 2 ×",
            factor <= 2.0,
        )
    ]
