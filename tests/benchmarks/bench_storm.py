"""A storm: hundreds of jobs run at once, and all of them are preempted together, again and again.

On the real development cluster, whose nodes claim more processors than there are. What is measured
is thus also the machine that runs all of these jobs beside slurmctld and the daemon.
"""

from __future__ import annotations

import json
import re
import shutil
import sys
import threading
import time
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from statistics import median
from typing import Any, Final

from hpcflow.clock import from_text
from hpcflow.testing.cluster import Cluster, User, poll
from hpcflow.testing.cluster.layouts import Size
from tests.benchmarks.timing import Row

_JOBS: Final = 300
_STORMS: Final = 3
_SIZE: Final = Size(nodes=4, cpus=512, gpus=4)
#: Starting hundreds of jobs on a small machine takes its time.
_PATIENCE_S: Final = 300
#: Slurm's commands give up after this long: then slurmctld counts as overloaded.
_MESSAGE_TIMEOUT_S: Final = 10.0

_CONFIG = """
name: storm
project: bench
script: storm_program.py
params: {{finish: {finish}}}
launch: {{framework: none, launcher: none}}
resources: {{partition: spot, cpus_per_task: 1, gpus_per_node: 0, time_limit: 30m}}
"""

_API = """
import json, sys
import hpcflow
runs = [hpcflow.submit(sys.argv[1], site="devcluster") for _ in range(int(sys.argv[2]))]
print(json.dumps([str(run.run_dir) for run in runs]))
"""


def rows(cluster: Cluster) -> list[Row]:
    """Raise storms on a cluster that is large for a while."""
    before = cluster.settings.size
    cluster.up(_SIZE)
    try:
        tree = Path(__file__).resolve().parents[2]
        software = cluster.software(tree, Path(sys.executable))
        ada, grace = cluster.user("hpcf-ada"), cluster.user("hpcf-grace")
        return _storms(cluster, ada, grace, software.python)
    finally:
        cluster.up(before)


def _storms(cluster: Cluster, ada: User, grace: User, python: Path) -> list[Row]:
    folder = ada.scratch / f"bench-{uuid.uuid4().hex[:8]}"
    ada.run(["mkdir", "-m", "700", str(folder)])
    finish = folder / "finish"
    (folder / "config.yaml").write_text(_CONFIG.format(finish=finish))
    (folder / "api.py").write_text(_API)
    shutil.copy(Path(__file__).with_name("storm_program.py"), folder)
    env = {"HPCFLOW_HOME": str(folder / "home")}
    cluster.run("sdiag", "--reset")
    began = time.monotonic()
    times_s = []
    with _Probe(cluster) as probe, _daemon(ada, env, folder / "daemon.log"):
        command = [str(python), "api.py", "config.yaml", str(_JOBS)]
        said = ada.run(command, cwd=folder, env=env, timeout=_PATIENCE_S).stdout
        runs = [Path(each) for each in json.loads(said)]
        _wait_for(runs, attempt=1)
        for storm in range(1, _STORMS + 1):
            _take_all_nodes(grace)
            at = time.monotonic()
            _wait_for(runs, attempt=storm + 1)
            times_s.append(time.monotonic() - at)
        finish.touch()
        states = poll(lambda: _all_over(ada, env), 2 * _PATIENCE_S, "they never ended", every_s=5)
        took_s = time.monotonic() - began
        calls = _calls(cluster, ada)
    return _judge(runs, states, times_s, took_s, calls, probe)


def _judge(
    runs: list[Path],
    states: list[dict[str, Any]],
    times_s: list[float],
    took_s: float,
    calls: int,
    probe: _Probe,
) -> list[Row]:
    completed = sum(run["state"] == "completed" for run in states)
    told = {run["run_id"]: run for run in states}
    counted_once = sum(_is_counted_once(run, told[run.name]) for run in runs)
    sent = [_sent(run) for run in runs]
    bursts = [sorted(times[storm] for times in sent) for storm in range(1, _STORMS + 1)]
    rate = median(len(burst) / max(1e-3, _between(burst)) for burst in bursts)
    total = sum(len(times) for times in sent)
    return [
        Row(
            f"a storm: {_JOBS} running jobs preempted together, {_STORMS} times",
            f"{completed} of {_JOBS} runs completed, of {counted_once} each attempt executed and "
            f"counted once; all of them train again after {median(times_s):.0f} s "
            f"(worst {max(times_s):.0f} s)",
            "every run completes, each attempt counted once",
            completed == counted_once == len(runs) == _JOBS,
        ),
        Row(
            f"the same: {total:,} submissions",
            f"{rate:.0f} a second in a storm; {calls / took_s:.1f} calls of Slurm a second in all "
            f"({calls:,} in {took_s:.0f} s); slurmctld answered {len(probe.seconds)} probes, "
            f"in {median(probe.seconds) * 1000:.0f} ms in the median, "
            f"{max(probe.seconds):.1f} s at worst",
            f"slurmctld never silent for {_MESSAGE_TIMEOUT_S:g} s",
            not probe.failures and max(probe.seconds) < _MESSAGE_TIMEOUT_S,
        ),
    ]


@contextmanager
def _daemon(user: User, env: dict[str, str], log: Path) -> Iterator[None]:
    process = user.popen(
        ["bash", "-c", f"exec hpcflow daemon > {log} 2>&1"], env=env, stdout=None, stderr=None
    )
    try:
        yield
    finally:
        process.terminate()
        process.wait(timeout=60)


def _take_all_nodes(user: User) -> None:
    user.run(
        ["sbatch", "--partition=gpu", f"--nodes={_SIZE.nodes}", "--exclusive", "--time=1",
         "--output=/dev/null", "--wrap=sleep 1"]
    )  # fmt: skip


def _wait_for(runs: list[Path], *, attempt: int) -> None:
    """Until this attempt of every run trains."""
    left = set(runs)

    def is_over() -> bool:
        for run in list(left):
            events = run / f"attempts/{attempt:04d}/events.jsonl"
            if events.exists() and b'"train_started"' in events.read_bytes():
                left.remove(run)
        return not left

    poll(is_over, _PATIENCE_S, lambda: f"attempt {attempt} of {len(left)} runs", every_s=0.5)


def _all_over(user: User, env: dict[str, str]) -> list[dict[str, Any]]:
    """All runs, once they are completed or failed; else none."""
    said = user.run(["hpcflow", "ls", "--all", "--json"], env=env, timeout=_PATIENCE_S).stdout
    runs: list[dict[str, Any]] = json.loads(said)["runs"]
    return runs if all(run["state"] in ("completed", "failed") for run in runs) else []


def _records(run: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (run / "journal.jsonl").read_text().splitlines()]


def _sent(run: Path) -> list[datetime]:
    """When the attempts of a run were sent."""
    return [from_text(each["at"]) for each in _records(run) if each["record"] == "submitted"]


def _is_counted_once(run: Path, told: dict[str, Any]) -> bool:
    """Whether each attempt was executed once, and the ledger has each, and no other."""
    executed = (run / "executions").read_text().split()
    numbers = [str(number) for number in range(1, _STORMS + 2)]
    return executed == numbers and told["number_of_attempts"] == len(numbers) == len(_sent(run))


def _between(moments: list[datetime]) -> float:
    return (moments[-1] - moments[0]).total_seconds()


def _calls(cluster: Cluster, user: User) -> int:
    """How often the user's processes called slurmctld since the statistics were reset."""
    found = re.search(
        rf"^\s*{re.escape(user.name)}\s*\(.*?\)\s*count:(\d+)", cluster.run("sdiag"), re.MULTILINE
    )
    return int(found[1]) if found else 0


class _Probe:
    """Asks slurmctld something small every second, and notes how long the answer takes."""

    def __init__(self, cluster: Cluster) -> None:
        self.seconds: list[float] = []
        self.failures: list[str] = []
        self._cluster = cluster
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._probe, daemon=True)

    def __enter__(self) -> _Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _probe(self) -> None:
        while not self._is_over.wait(1.0):
            began = time.perf_counter()
            try:
                self._cluster.run("sinfo", "--noheader")
            except Exception as error:  # whatever it is, it is no answer
                self.failures.append(str(error))
            self.seconds.append(time.perf_counter() - began)
