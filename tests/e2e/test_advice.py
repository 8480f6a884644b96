"""Every change that `why`, `plan` and the words of a reason name is made, and helps as they say."""

from __future__ import annotations

import re
import shlex
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from hpcflow.schedulers.slurm.reasons import explain
from hpcflow.testing.cluster import Cluster, User, poll
from tests import crowd
from tests.e2e.conftest import Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PROGRAM = """
name: {name}
command: [sleep, "3000"]
launch: {{framework: none, launcher: {launcher}}}
resources: {{account: {account}, time_limit: {time}, mem: 200M{more}}}
"""


@contextmanager
def of_account(cluster: Cluster, limit: str) -> Iterator[None]:
    change = ("sacctmgr", "-i", "modify", "account", "physics", "set")
    cluster.run(*change, limit)
    try:
        yield
    finally:
        cluster.run(*change, f"{limit.rpartition('=')[0]}=-1", check=False)


class Researcher:
    """Sends runs, asks why they wait, and does what is said, word by word."""

    def __init__(self, hpcflow: Hpcflow) -> None:
        self._hpcflow = hpcflow

    def send(
        self,
        name: str,
        account: str = "physics",
        *,
        time: str = "1h",
        more: str = "",
        launcher: str = "none",
    ) -> Any:
        text = PROGRAM.format(name=name, launcher=launcher, account=account, time=time, more=more)
        config = self._hpcflow.write_config(f"{name}.yaml", text)
        return self._hpcflow.json("run", config, "--site", "devcluster")

    def why(self, run: Any) -> Any:
        return self._hpcflow.json("why", run["run_id"])

    def until(self, run: Any, is_it: Callable[[Any], bool]) -> Any:
        told: list[Any] = []

        def looks() -> bool:
            told.append(self.why(run))
            return is_it(told[-1])

        poll(looks, 150, lambda: f"last told: {told[-1]}", every_s=2)
        return told[-1]

    def until_pending_for(self, run: Any, reason: str) -> None:
        poll(lambda: any(each.startswith(reason) for _, each in self._queued(run)), 150, reason)
        self.until(run, lambda told: str(told.get("reason")).startswith(reason))

    def _queued(self, run: Any) -> list[tuple[str, str]]:
        """State and reason of the run's jobs. Slurm's own command is the cheapest look."""
        command = ["squeue", "--me", "--states=all", "--noheader", "--format=%j|%T|%r"]
        lines = self._hpcflow.user.run(command).stdout.splitlines()
        rows = [line.split("|") for line in lines if line.startswith(run["run_id"])]
        return [(state, reason) for _, state, reason in rows]

    def _is(self, run: Any, state: str) -> bool:
        alive = {each for each, _ in self._queued(run)} & {"PENDING", "RUNNING", "COMPLETING"}
        if alive != ({"RUNNING"} if state == "running" else set()):
            return False
        return bool(self._hpcflow.json("show", run["run_id"])["state"] == state)

    def runs(self, run: Any) -> None:
        poll(partial(self._is, run, "running"), 60, lambda: f"not yet: {self.why(run)}")

    def end(self, *runs: Any) -> None:
        for run in runs:
            self._hpcflow("cancel", run["run_id"])
        for run in runs:
            poll(partial(self._is, run, "cancelled"), 60, "it is cancelled")

    def follows(self, run: Any, key: str) -> str:
        """The advice about this key of ``resources``: it is said to start the run now, and does."""
        change = f"--set resources.{key}="
        is_said = "it would start now.*" + re.escape(change)
        told = self.until(run, lambda told: any(re.search(is_said, x) for x in told["next"]))
        advice: str = next(each for each in told["next"] if change in each)
        cancel, resume = advice[advice.index("hpcflow cancel") :].split(", then ")
        self._hpcflow(*shlex.split(cancel)[1:])
        poll(partial(self._is, run, "cancelled"), 60, "it is cancelled")
        self._hpcflow(*shlex.split(resume)[1:])
        self.runs(run)
        self.end(run)
        return advice


@pytest.fixture
def researcher(hpcflow: Hpcflow) -> Researcher:
    return Researcher(hpcflow)


@pytest.mark.soak
def test_what_why_says_is_done_and_the_run_starts(
    researcher: Researcher, cluster: Cluster, ada: User
) -> None:
    with crowd.limits(cluster, ada), of_account(cluster, "GrpTRES=gres/gpu=2"):
        # The account has as many GPUs as it may; nodes are idle.
        held = researcher.send("held", more=", gpus_per_node: 2")
        researcher.runs(held)
        run = researcher.send("other-account", more=", gpus_per_node: 2")
        researcher.until_pending_for(run, "AssocGrpGRES")
        researcher.follows(run, "account")
        # What asks for more than the limit ever allows is told what it allows.
        large = researcher.send("large", more=", gpus_per_node: 4")
        assert researcher.until(large, lambda told: told.get("kind") == "too_large")
        researcher.end(held)
        researcher.follows(large, "gpus_per_node")

    with crowd.limits(cluster, ada):
        of_qos = f", gpus_per_node: 4, qos: {crowd.QOS}"
        held = researcher.send("first-of-qos", "biology", more=of_qos)
        researcher.runs(held)
        run = researcher.send("other-qos", "biology", more=of_qos)
        researcher.until_pending_for(run, "QOSMaxGRES")
        researcher.follows(run, "qos")
        researcher.end(held)

        with crowd.reservations(cluster):
            run = researcher.send("into-maintenance", "biology", time="7h")
            researcher.until(run, lambda told: told.get("kind") == "reservation")
            researcher.follows(run, "time_limit")

        # Three nodes are taken for half an hour, and a job of all four waits: what ends before
        # that may start now, and a job that would end later is told so.
        running = [crowd.send(ada, *whole) for whole in [WHOLE] * 3]
        poll(lambda: all(crowd.reason(cluster, each) == "None" for each in running), 60, "they run")
        wide = crowd.send(ada, *WHOLE[:1], "--nodes=4", "--time=30", "--account=biology")
        start = ("squeue", "--start", "--noheader", "--format=%S", "--job", wide)
        poll(lambda: cluster.run(*start).strip() not in ("", "N/A"), 60, "a start is known")
        run = researcher.send("behind", "biology", time="2h", more=", cpus_per_task: 8")
        researcher.until(run, lambda told: told.get("kind") in ("turn", "room", "reservation"))
        advice = researcher.follows(run, "time_limit")
        assert re.search(r"with a time limit of 2\dm it would start now, .* sooner", advice)
        cluster.run("scancel", *running, wide)


@pytest.mark.parametrize("key", ["partition", "nodes"])
def test_a_change_of_partition_or_nodes_starts_the_run(
    researcher: Researcher, cluster: Cluster, ada: User, key: str
) -> None:
    with crowd.limits(cluster, ada), crowd.partition_qos(cluster, "spot"):
        # The QOS of this partition limits each user to four GPUs.
        held = researcher.send("held", "biology", more=", partition: spot, gpus_per_node: 2")
        researcher.runs(held)
        wide = ", partition: spot, nodes: 2, gpus_per_node: 2"
        run = researcher.send("wide", "biology", more=wide, launcher="srun")
        researcher.until_pending_for(run, "QOSMaxGRES")
        researcher.follows(run, key)
        researcher.end(held)


WHOLE = ("--exclusive", "--nodes=1", "--mem=0", "--time=30", "--account=biology")

#: A reason, the options with which a job waits for it, and a command before, as the staff or ada.
HINDERED = {
    "BeginTime": ("--begin=now+1hour",),
    "JobHeldUser": ("--hold",),
    "Dependency": ("--dependency=afterok:{running}",),
    "DependencyNeverSatisfied": ("--dependency=afterok:{failed}",),
    "JobArrayTaskLimit": ("--array=0-3%1",),
}


def test_the_command_that_is_said_of_a_reason_takes_it_away(cluster: Cluster, ada: User) -> None:
    def waits_for(job_id: str, reason: str) -> bool:
        words = ("squeue", "--noheader", "--states=PENDING", "--job", job_id, "--format=%r")
        return reason in cluster.run(*words).split()

    def waits_no_more_for(job_id: str, reason: str) -> bool:
        return not waits_for(job_id, reason)

    small = ("--ntasks=1", "--mem=100M", "--time=5", "--account=physics")
    running = crowd.send(ada, *small)
    failed = ada.run(
        ["sbatch", "--parsable", "--wait", "--output=/dev/null", *small, "--wrap", "false"],
        check=False,
    ).stdout.strip()
    sent = {
        reason: crowd.send(
            ada, *small, *(each.format(running=running, failed=failed) for each in options)
        )
        for reason, options in HINDERED.items()
    }
    try:
        for reason, job_id in sent.items():
            poll(partial(waits_for, job_id, reason), 60, f"no {reason}")
            advice = explain(reason).advice
            command = re.search(r"(scontrol [^;]+?)(;|$)", advice)
            assert command is not None, advice
            ada.run(shlex.split(command[1].strip().format(job=job_id)))
            poll(partial(waits_no_more_for, job_id, reason), 60, f"still {reason}")
    finally:
        cluster.run("scancel", "--user", ada.name, check=False)
        poll(lambda: not crowd.queued(cluster, ada), 120, "no job of the user is left")


def test_a_job_held_after_a_failed_launch_can_be_released(cluster: Cluster, ada: User) -> None:
    filling = crowd.fill(ada)
    poll(
        lambda: all(crowd.reason(cluster, each) == "None" for each in filling),
        60,
        "the jobs that fill the cluster did not start",
    )
    small = ("--requeue", "--ntasks=1", "--mem=100M", "--time=5", "--account=physics")
    job_id = crowd.send(ada, *small)
    # slurmd cannot create the spool directory of this job: a file already has its name.
    nodes = cluster.settings.node_names
    blockers = [cluster.directory / f"spool/{node}/job{job_id:>05}" for node in nodes]
    for each in blockers:
        each.touch()
    cluster.run("scancel", *filling)
    try:
        poll(lambda: "held" in crowd.reason(cluster, job_id), 60, "Slurm did not hold the job")
        reason = explain(crowd.reason(cluster, job_id))
        assert "could not be started" in reason.words
        (command,) = re.findall(r"scontrol release .*", reason.advice)
        ada.run(shlex.split(command.format(job=job_id)))
        assert "held" not in crowd.reason(cluster, job_id)
    finally:
        cluster.run("scancel", job_id, check=False)
        for each in blockers:
            each.unlink()
        for node in nodes:
            cluster.run("scontrol", "update", f"nodename={node}", "state=resume", check=False)


def test_auto_goes_where_no_limit_is_full_and_starts_there(
    hpcflow: Hpcflow, researcher: Researcher, cluster: Cluster, ada: User, market: Any
) -> None:
    with crowd.limits(cluster, ada), crowd.partition_qos(cluster, "spot"):
        wide = ", partition: spot, gpus_per_node: 4"
        held = researcher.send("fills", "biology", time="3h", more=wide)
        researcher.runs(held)
        text = PROGRAM.format(
            name="market",
            launcher="none",
            account="biology",
            time="1h",
            more=", partition: auto, gpus_per_node: 4",
        )
        config = hpcflow.write_config("market.yaml", text)
        plan = hpcflow.json("plan", config, "--site", market)
        found = {each["partition"]: each for each in plan["candidates"]}
        assert found["gpu"]["waits_s"] < 60
        assert 10_000 < found["spot"]["waits_s"] <= 10_800, "until the other has ended"
        assert "MaxTRESPerUser" in found["spot"]["full_limit"]
        assert "MaxTRESPerUser of user" in hpcflow("plan", config, "--site", market).stdout
        sent = hpcflow.json("run", config, "--site", market)
        researcher.runs(sent)
        best = plan["candidates"][0]["partition"]
        assert hpcflow.json("show", sent["run_id"])["partition"] == best
        researcher.end(held, sent)
