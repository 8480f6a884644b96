"""``hpcflow plan`` where twenty partitions fit, beside twenty bare ``sbatch --test-only``.

On the real development cluster: all nodes are taken, and a hundred jobs wait before the run.
"""

from __future__ import annotations

import subprocess
import sys
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from hpcflow.testing.cluster import Cluster, User
from tests.benchmarks.timing import Row, in_turn, ratio, wall

_PARTITIONS = 20
_WAITING = 100
_ROUNDS = 5
_GOAL_S = 2.0

_CONFIG = """
name: small
command: ["true"]
launch: {framework: none, launcher: none}
resources: {gpus_per_node: 4, time_limit: 2h}
"""
_SITE = """
name: wide
cluster_name: devcluster
gpu_types: {a100: {mem: 80G, vendor: fake}}
accounts: [physics, biology]
scratch: {path: $SCRATCH}
partitions:
"""
_PARTITION = """
  {name}: {{gpu_type: a100, gpus_per_node: 4, cpus_per_node: 8, time_limit_max: 24h,
            price: {{gpu_hour_usd: "{price}"}}}}
"""


def rows(cluster: Cluster) -> list[Row]:
    """Measure one plan, whole process."""
    cluster.software(Path(__file__).resolve().parents[2], Path(sys.executable))
    user = cluster.user("hpcf-ada")
    folder = user.scratch / f"bench-{uuid.uuid4().hex[:8]}"
    user.run(["mkdir", str(folder)])
    names = [f"wide{number:02d}" for number in range(_PARTITIONS)]
    site = _SITE + "".join(
        _PARTITION.format(name=name, price=f"{1 + number / 10:.2f}")
        for number, name in enumerate(names)
    )
    bare = "".join(
        f"sbatch --test-only -p {name} -N1 --gres=gpu:4 -t120 --wrap true 2>/dev/null\n"
        for name in names
    )
    for name, text in {"config.yaml": _CONFIG, "wide.yaml": site, "bare.sh": bare}.items():
        (folder / name).write_text(text)
        (folder / name).chmod(0o644)
    env = {"HPCFLOW_HOME": str(folder / "home")}

    def start(*argv: str) -> Callable[[], subprocess.Popen[str]]:
        null = subprocess.DEVNULL
        return lambda: user.popen(list(argv), cwd=folder, env=env, stdout=null, stderr=null)

    with _crowded(cluster, user, names):
        times = in_turn(
            {
                "plan": start("hpcflow", "plan", "config.yaml", "--site", "./wide.yaml"),
                "bare": start("bash", "bare.sh"),
            },
            _ROUNDS,
        )
    took_s = wall(times["plan"])
    return [
        Row(
            f"`hpcflow plan` with {_PARTITIONS} partitions that fit, a full cluster and "
            f"{_WAITING} waiting jobs, whole process",
            f"{took_s:.2f} s ({ratio(times['plan'], times['bare']):.1f} × {_PARTITIONS} bare "
            f"`sbatch --test-only`, {wall(times['bare']):.2f} s)",
            f"at most {_GOAL_S:.0f} s",
            took_s <= _GOAL_S,
        )
    ]


@contextmanager
def _crowded(cluster: Cluster, user: User, names: list[str]) -> Iterator[None]:
    """With these partitions, no free node, and a queue."""
    for name in names:
        cluster.run(
            *("scontrol", "create", f"partitionname={name}", "nodes=n[1-4]", "state=up"),
            *("maxtime=1440", "defaulttime=60"),
        )
    holds = ["sbatch", "-pgpu", "-N4", "--exclusive", "-t60", "-o", "/dev/null", "--wrap=sleep 999"]
    waits = ["sbatch", f"--array=1-{_WAITING}", "-pgpu", "-N1", "-t60", "-o", "/dev/null"]
    user.run(holds)
    user.run([*waits, "--gres=gpu:4", "--wrap=true"])
    try:
        yield
    finally:
        user.run(["scancel", "--me"], check=False)
        for name in names:
            cluster.run("scontrol", "delete", f"partitionname={name}")
