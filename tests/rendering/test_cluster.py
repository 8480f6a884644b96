"""The scripts on real Slurm: accepted, executed, over two nodes, told to save, sent again."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from hpcflow.model.events import parse_event
from hpcflow.model.state import AttemptState, attempt_state
from hpcflow.rendering.job import IntegrityCheck
from hpcflow.resources import resource_dir
from hpcflow.runtime import rank_process
from hpcflow.runtime.reading import read_lines
from hpcflow.sites.loader import load_site
from hpcflow.storage.layout import AttemptDir, RunDir
from hpcflow.storage.runtime_copy import runtime_sum
from hpcflow.testing.cluster import Cluster, Software, User
from tests.cluster_fixture import poll
from tests.rendering.golden import cases
from tests.rendering.samples import RUN_ID, a_run, a_spec, script_of

pytestmark = pytest.mark.cluster

RANK = Path(__file__).parent / "programs" / "rank.py"
WEIRD = "it's $(touch owned); \"here\" & 'there' *\n#SBATCH --nodes=4\n"


@dataclass
class Desk:
    """Where a user's runs of one test lie, and how they are sent."""

    user: User
    folder: Path
    python: Path
    runtime_sum: str = ""

    def run_dir(self) -> RunDir:
        return RunDir(self.folder / "runs" / RUN_ID)

    def attempt(self) -> AttemptDir:
        return self.run_dir().attempt(1)

    def said(self, rank: int) -> dict[str, Any]:
        """What the program of ``rank`` found around it."""
        found: dict[str, Any] = json.loads((self.folder / "out" / f"{rank}.json").read_text())
        return found

    def signals(self, rank: int) -> set[str]:
        return set((self.folder / "out" / f"{rank}.signals").read_text().split())

    def submit(self, *words: str, seconds: float = 0, **changes: Any) -> str:
        """Send a run of the test program; returns the job id."""
        changes["environment"] = {"venv": str(self.python.parent.parent), **changes.pop("env", {})}
        program = ["python3", str(self.folder / "rank.py"), str(self.folder / "out"), str(seconds)]
        spec = a_spec(script=None, command=[*program, *words], **changes)
        run = a_run(
            spec, run_dir=str(self.run_dir().path), working_dir=str(self.folder), site="devcluster"
        )
        site = load_site("devcluster", search=[resource_dir("site_configs")])
        check = IntegrityCheck(runtime_sum=self.runtime_sum)
        self.attempt().script.write_text(script_of(run, site, integrity=check))
        leaked = {"SLURM_CPU_BIND": "mask_cpu:0x1", "SLURM_NTASKS": "7", "SLURM_MEM_PER_CPU": "1"}
        sent = self.user.run(
            ["sbatch", "--parsable", str(self.attempt().script)],
            cwd=self.attempt().path,
            env=leaked,
        )
        return sent.stdout.strip()

    def wait(self, cluster: Cluster, job_id: str) -> str:
        """The final state of a job, as the controller has it."""

        def final() -> str:
            state = cluster.run("squeue", "-h", "-t", "all", "-j", job_id, "-o", "%T").strip()
            return state if attempt_state(state) is AttemptState.ENDED else ""

        return poll(final, 120, self.log)

    def wait_for(self, ranks: int, *, suffix: str = "json") -> None:
        names = [self.folder / "out" / f"{rank}.{suffix}" for rank in range(ranks)]
        poll(lambda: all(name.exists() for name in names), 120, self.log)

    def log(self) -> str:
        log = self.attempt().log
        return log.read_text(errors="replace") if log.exists() else "no log yet"

    def events(self) -> list[dict[str, Any]]:
        events = [parse_event(line) for line in read_lines(self.attempt().events, any_owner=True)]
        assert None not in events
        return [event for event in events if event is not None]


@pytest.fixture
def desk(ada: User, software: Software, tmp_path: Path) -> Iterator[Desk]:
    folder = ada.scratch / "rendering" / tmp_path.name / WEIRD
    desk = Desk(ada, folder, software.python)
    for path in (folder / "out", desk.attempt().path):
        path.mkdir(parents=True)
    shutil.copy(RANK, folder)
    runtime = desk.run_dir().runtime / "hpcflow" / "runtime"
    runtime.mkdir(parents=True)
    shutil.copy(rank_process.__file__, runtime)
    desk.runtime_sum = runtime_sum(desk.run_dir().runtime)  # before it is another user's
    _give(ada, ada.scratch / "rendering")
    yield desk
    shutil.rmtree(ada.scratch / "rendering" / tmp_path.name)


def _give(user: User, folder: Path) -> None:
    if os.geteuid() == 0:
        subprocess.run(["chown", "-R", user.name, str(folder)], check=True)


@pytest.mark.parametrize("name", [name for name in cases() if name.startswith("devcluster")])
def test_sbatch_accepts_the_golden_scripts(name: str, ada: User) -> None:
    ada.run(["sbatch", "--test-only"], input=cases()[name]())


TWO_NODES = {"nodes": 2, "gpus_per_node": 2, "cpus_per_task": 1, "time_limit": "10m"}


def test_torchrun_over_two_nodes(cluster: Cluster, desk: Desk) -> None:
    """Ranks find each other, compute together, hear the notice, and leave with the word."""
    job_id = desk.submit("allreduce", "a  b\n$HOME", seconds=60, resources=TWO_NODES)
    desk.wait_for(4, suffix="sum")
    assert {(desk.folder / "out" / f"{rank}.sum").read_text() for rank in range(4)} == {"6.0"}
    cluster.run("scancel", "--batch", "--signal=USR2", job_id)
    assert desk.wait(cluster, job_id) == "FAILED", desk.log()

    for rank in range(4):
        said = desk.said(rank)
        assert said["argv"] == ["allreduce", "a  b\n$HOME"]
        assert said["usr2_ignored"], "an agent, or a rank that does not listen, would die of USR2"
        assert said["environ"]["WORLD_SIZE"] == "4"
        assert said["environ"]["LOCAL_RANK"] == str(rank % 2)
        assert said["environ"]["HPCFLOW_RUN_DIR"] == str(desk.run_dir().path)
        assert said["environ"].get("SLURM_CPU_BIND") != "mask_cpu:0x1"
    assert desk.attempt().notice.read_text() == "USR2\n"
    assert all("SIGUSR2" in desk.signals(rank) for rank in range(4))
    started, exited = desk.events()
    assert started["job_id"] == job_id
    assert len(set(started["nodes"])) == 2
    assert exited["exit_code"] == 75, "the ranks' request to be sent again is lost"


def test_one_srun_task_per_rank_over_two_nodes(cluster: Cluster, desk: Desk) -> None:
    """The same by srun, where the exit code of a rank is the exit code of the job."""
    job_id = desk.submit("allreduce", seconds=60, resources=TWO_NODES, launch={"launcher": "srun"})
    desk.wait_for(4, suffix="sum")
    assert {(desk.folder / "out" / f"{rank}.sum").read_text() for rank in range(4)} == {"6.0"}
    cluster.run("scancel", "--batch", "--signal=USR2", job_id)
    desk.wait(cluster, job_id)
    for rank in range(4):
        environ = desk.said(rank)["environ"]
        assert environ["RANK"] == environ["SLURM_PROCID"] == str(rank)
        assert environ["LOCAL_RANK"] == str(rank % 2)
        assert environ["LOCAL_WORLD_SIZE"] == "2"
    assert desk.events()[-1]["exit_code"] == 75


def test_term_leaves_the_ranks_their_time(cluster: Cluster, desk: Desk) -> None:
    """Preemption and scancel: Slurm tells the ranks itself; the script must not hurry them."""
    job_id = desk.submit(
        seconds=60,
        launch={"launcher": "srun"},
        resources={"tasks_per_node": 2, "cpus_per_task": 1, "time_limit": "10m"},
    )
    desk.wait_for(2)
    cluster.run("scancel", job_id)
    assert desk.wait(cluster, job_id) == "CANCELLED"
    # Slurm calls it CANCELLED before its processes have left.
    poll(lambda: all("SIGTERM" in desk.signals(rank) for rank in range(2)), 120, "nobody was told")
    poll(lambda: "exit_code" in desk.events()[-1], 120, "the script never left")
    assert desk.events()[-1]["exit_code"] == 75, desk.log()


@pytest.mark.soak
def test_the_notice_comes_before_the_time_limit(cluster: Cluster, desk: Desk) -> None:
    """By Slurm itself, in the partition of two minutes."""
    job_id = desk.submit(
        seconds=110,
        launch={"launcher": "none", "framework": "none"},
        resources={"partition": "short", "cpus_per_task": 1, "time_limit": "1m"},
    )
    assert desk.wait(cluster, job_id) == "FAILED", desk.log()
    assert (desk.folder / "out" / "none.signals").read_text().split()[0] == "SIGUSR2"
    assert desk.events()[-1]["exit_code"] == 75
