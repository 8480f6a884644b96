"""``make bench``: measures every performance goal and prints the table of docs/benchmarks.md."""

from __future__ import annotations

import sys
from pathlib import Path

from hpcflow.testing.cluster import Cluster, Progress
from tests.benchmarks import bench_help, bench_ledger, bench_submit
from tests.benchmarks.timing import Row

#: A cluster of its own: a thousand queued jobs are nobody's idea of a quiet development cluster.
_FOLDER = Path("/var/tmp/hpcflow-bench-cluster")


def main() -> int:
    """Measure everything; 0 if every goal is met that is more than an aim."""
    rows: list[Row] = [*bench_help.rows(), *bench_ledger.rows()]
    cluster = Cluster(_FOLDER, progress=Progress(sys.stderr))
    cluster.up()
    try:
        rows += bench_submit.rows(cluster)
    finally:
        cluster.down()
    print("| what | measured | goal | met |")
    print("|---|---|---|---|")
    for row in rows:
        print(f"| {row.what} | {row.measured} | {row.goal} | {'yes' if row.is_met else 'no'} |")
    return 0 if all(row.is_met or row.is_aim for row in rows) else 1


if __name__ == "__main__":
    sys.exit(main())
