"""A daemon's process that ticks when it is told to: one line in, one tick, one line of JSON out.

Its memory is its own from its first instruction on: what the benchmark itself has used does not
count, as it would if this were a function of it.
"""

from __future__ import annotations

import json
import re
import sys
import time
from dataclasses import replace
from pathlib import Path

from hpcflow.cli.session import Session
from hpcflow.requeue.round_context import RoundContext
from hpcflow.requeue.tick import tick
from hpcflow.settings import load_settings


def main() -> int:
    """Tick once for each line that comes in."""
    session = Session(replace(load_settings(), user=sys.argv[1]))
    around = RoundContext(
        session.ledger,
        session.settings,
        session.clock,
        connect=session.scheduler,
        find_site=session.site,
    )
    for _ in sys.stdin:
        began = time.perf_counter()
        report = tick(around)
        took_s = time.perf_counter() - began
        said = {
            "took_s": took_s,
            "peak_mb": _peak_mb(),
            "sent": len(report.sent),
            "trouble": [*report.warnings, *report.problems.values()],
        }
        print(json.dumps(said), flush=True)
    return 0


def _peak_mb() -> float:
    """The most memory that this process ever had, in MB."""
    status = Path("/proc/self/status").read_text()
    found = re.search(r"^VmHWM:\s+(\d+) kB", status, re.MULTILINE)
    assert found is not None
    return int(found[1]) * 1024 / 1e6


if __name__ == "__main__":
    sys.exit(main())
