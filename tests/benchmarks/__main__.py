"""``make bench``: measures every performance goal and prints the table of docs/benchmarks.md.

``python -m tests.benchmarks tick recovery`` measures only these.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from pathlib import Path
from typing import Final

from hpcflow.testing.cluster import Cluster, Progress
from tests.benchmarks import (
    bench_budget,
    bench_checkpoints,
    bench_costs,
    bench_efficiency,
    bench_gpt,
    bench_help,
    bench_keeping,
    bench_ledger,
    bench_mirror,
    bench_plan,
    bench_recovery,
    bench_resume,
    bench_saving,
    bench_search,
    bench_slots,
    bench_storm,
    bench_submit,
    bench_sweep,
    bench_tick,
)
from tests.benchmarks.timing import Row

#: A cluster of its own: a thousand queued jobs are nobody's idea of a quiet development cluster.
_FOLDER = Path("/var/tmp/hpcflow-bench-cluster")

_ALONE: Final[dict[str, Callable[[], list[Row]]]] = {
    "help": bench_help.rows,
    "ledger": bench_ledger.rows,
    "costs": bench_costs.rows,
    "keeping": bench_keeping.rows,
    "checkpoints": bench_checkpoints.rows,
    "tick": bench_tick.rows,
    "saving": bench_saving.rows,
    "resume": bench_resume.rows,
    "gpt": bench_gpt.rows,
    "mirror": bench_mirror.rows,
    "sweep": bench_sweep.rows,
    "search": bench_search.rows,
    "efficiency": bench_efficiency.rows,
    "budget": bench_budget.rows,
}
_ON_CLUSTER: Final[dict[str, Callable[[Cluster], list[Row]]]] = {
    "submit": bench_submit.rows,
    "recovery": bench_recovery.rows,
    "storm": bench_storm.rows,
    "slots": bench_slots.rows,
    "plan": bench_plan.rows,
}


def main() -> int:
    """Measure what was named, or everything; 0 if every goal is met that is more than an aim."""
    names = sys.argv[1:] or [*_ALONE, *_ON_CLUSTER]
    if unknown := set(names) - {*_ALONE, *_ON_CLUSTER}:
        print(f"no benchmark {', '.join(sorted(unknown))}; there are: "
              f"{', '.join([*_ALONE, *_ON_CLUSTER])}", file=sys.stderr)  # fmt: skip
        return 2
    print("| part | what | measured | goal | met |")
    print("|---|---|---|---|---|", flush=True)
    rows: list[Row] = []
    for name, bench in _ALONE.items():
        if name in names:
            rows += _printed(name, bench())
    if on_cluster := {name: bench for name, bench in _ON_CLUSTER.items() if name in names}:
        cluster = Cluster(_FOLDER, progress=Progress(sys.stderr))
        cluster.up()
        try:
            for name, run in on_cluster.items():
                rows += _printed(name, run(cluster))
        finally:
            cluster.down()
    return 0 if all(row.is_met or row.is_aim for row in rows) else 1


def _printed(name: str, rows: list[Row]) -> list[Row]:
    """Each part is told when it is measured: hours may be behind it when another one fails."""
    for row in rows:
        met = "yes" if row.is_met else "no"
        print(f"| {name} | {row.what} | {row.measured} | {row.goal} | {met} |", flush=True)
    return rows


if __name__ == "__main__":
    sys.exit(main())
