"""Bills of a real history, against a computation of their own straight from sacct."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hpcflow.costs.audit import is_of_hpcflow
from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.preempted import take_all_nodes

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

#: USD per GPU and hour, as in the site file of the development cluster.
PRICES = {"gpu": Decimal(3), "spot": Decimal(1)}
PROGRAM = """
name: {name}
project: {project}
command: [sh, -c, {shell!r}]
launch: {{framework: none, launcher: none}}
resources: {{partition: {partition}, gpus_per_node: {gpus}, time_limit: 5m, mem: 200M}}
retry: {{failures: 0, backoff: 1s}}
"""
LONG_AT_FIRST = 'if [ "$HPCFLOW_ATTEMPT" = 1 ]; then sleep 200; else sleep 3; fi'
SWEEP = """
name: billed
base: {base}
space: {{lr: {{choices: [0.1, 0.2, 0.3]}}}}
objective: {{metric: accuracy, direction: maximize}}
sampler: grid
submit: array
parallel: 3
"""


def write(
    hpcflow: Hpcflow, name: str, shell: str, *, partition: str = "gpu", gpus: int = 1,
    project: str = "tests",
) -> Path:  # fmt: skip
    said = {"name": name, "shell": shell, "partition": partition, "gpus": gpus, "project": project}
    return hpcflow.write_config(f"{name}.yaml", PROGRAM.format(**said))


def send(hpcflow: Hpcflow, name: str, shell: str, *options: str, **said: Any) -> Any:
    config = write(hpcflow, name, shell, **said)
    return hpcflow.json("run", config, "--site", "devcluster", *options)


def await_start(hpcflow: Hpcflow, *runs: Any) -> None:
    def is_running(run_id: str) -> bool:
        return bool(hpcflow.json("show", run_id)["state"] == "running")

    for run in runs:
        poll(partial(is_running, run["run_id"]), 300, f"{run['run_id']} never ran")


def send_by_hand(hpcflow: Hpcflow, config: Path, *options: str) -> str:
    """Returns the id of the job."""
    command = ["sbatch", "--parsable", *options, str(hpcflow.software.sbatch / "train.sbatch")]
    words = [*command, str(config), "--site", "devcluster"]
    return hpcflow.user.run(words, cwd=hpcflow.home.parent, env=hpcflow.env).stdout.strip()


def components(*accounts: str) -> list[str]:
    """Options of sbatch: two components of a job, each charged to one of these accounts."""
    both = [f"--account={account}" for account in accounts or ("physics", "physics")]
    name, limit = "--job-name=hpcflow-by-hand", "--time=5"
    one = ["--partition=gpu", "--gpus-per-node=1", "--mem=200M", limit, name, both[0]]
    return [*one, ":", "--partition=spot", "--gpus-per-node=2", "--mem=100M", limit, name, both[1]]


@dataclass(frozen=True)
class Record:
    """A record of accounting: a life of a job, a component of it, or a part of a resized one."""

    job_id: str
    name: str
    account: str
    user: str
    partition: str
    submitted: str
    hours: Decimal

    @property
    def usd(self) -> Decimal:
        return self.hours * PRICES[self.partition]


def by_sacct(user: User, *which: str) -> list[Record]:
    """What is over of the jobs that sacct is asked for, with duplicates.

    All parts of a resized job have the start of the whole; Submit is that of the part.
    """
    out = user.run(
        ["sacct", "-X", "--parsable2", "-D", "--noheader", "--noconvert", *which, "--format",
         "JobID,Account,User,Partition,Submit,Start,End,AllocTRES,JobName%80"]
    ).stdout  # fmt: skip
    found = []
    for line in out.splitlines():
        job_id, account, owner, partition, submit, start, end, tres, name = line.split("|", 8)
        if end == "Unknown":
            continue
        hours = Decimal(0)
        if start[0].isdigit():  # else it never ran
            begin = max(datetime.fromisoformat(submit), datetime.fromisoformat(start))
            took_s = (datetime.fromisoformat(end) - begin).total_seconds()
            counts = dict(part.split("=") for part in tres.split(",") if part)
            hours = Decimal(counts.get("gres/gpu", "0")) * Decimal(took_s) / 3600
        found.append(Record(job_id, name, account, owner, partition, submit, hours))
    return found


def assert_billed(
    hpcflow: Hpcflow, records: Sequence[Record], by: Mapping[str, Callable[[Record], str]]
) -> list[Any]:
    """The report by these keys is the sums of the records, to the cent; returns its lines."""
    words = [word for key in by for word in ("--by", key)]
    lines: list[Any] = hpcflow.json("cost", "report", *words)["lines"]
    billed = {tuple(line[key] for key in by): line for line in lines}
    told: dict[tuple[str, ...], list[Record]] = {}
    for record in records:
        told.setdefault(tuple(value(record) for value in by.values()), []).append(record)
    assert set(billed) == set(told)
    for key, some in told.items():
        hours, usd = sum(each.hours for each in some), sum(each.usd for each in some)
        assert billed[key]["gpu_hours"] == pytest.approx(float(hours), abs=1e-5), key
        assert abs(Decimal(billed[key]["cost_usd"]) - usd) < Decimal("0.000001"), key
        assert usd > 0
    return lines


def test_the_report_is_what_sacct_says_to_the_cent(
    hpcflow: Hpcflow, cluster: Cluster, grace: User
) -> None:
    since = hpcflow.user.run(["date", "+%Y-%m-%dT%H:%M:%S"]).stdout.strip()
    completed = send(hpcflow, "completed", "sleep 3", gpus=4)
    failed = send(hpcflow, "failed", "sleep 2; exit 3", gpus=2)
    cancelled = send(hpcflow, "cancelled", "sleep 100")
    preempted = send(hpcflow, "preempted", LONG_AT_FIRST, partition="spot", gpus=2)
    requeued = send(hpcflow, "requeued", LONG_AT_FIRST)
    unpaid = send(hpcflow, "without-gpus", "sleep 1", gpus=0)
    runs = [completed, failed, cancelled, preempted, requeued, unpaid]

    def shown(run: Any) -> Any:
        return hpcflow.json("show", run["run_id"])

    await_start(hpcflow, cancelled, preempted, requeued)
    cluster.run("scontrol", "update", f"jobid={requeued['job_id']}", "requeue=1")
    cluster.run("scontrol", "requeue", requeued["job_id"])
    hpcflow("cancel", cancelled["run_id"])
    take_all_nodes(grace)
    base = write(hpcflow, "trial", "sleep 2")
    sweep = hpcflow.write_config("sweep.yaml", SWEEP.format(base=base))
    hpcflow.json("sweep", "start", sweep, "--site", "devcluster")

    def is_over() -> bool:
        hpcflow("daemon", "--once", check=False)
        states = {each["run_id"]: each["state"] for each in hpcflow.json("ls")["runs"]}
        total = hpcflow.json("cost", "report")["total"]
        is_billed = not total["unbilled"] and not total["estimated"]
        return is_billed and set(states.values()) <= {"completed", "failed", "cancelled"}

    poll(is_over, 300, lambda: hpcflow("cost", "report", "--by", "run").stdout, every_s=4)
    assert {shown(run)["state"] for run in runs} == {"completed", "failed", "cancelled"}
    assert len(shown(requeued)["attempts"]) == 2, "two lives of one job"
    assert len(shown(preempted)["attempts"]) == 2
    assert (
        len([each for each in hpcflow.json("ls")["runs"] if each["name"].startswith("billed-t")])
        == 3
    )

    # `--starttime` alone also finds what another test left running when this one began.
    records = [
        each
        for each in by_sacct(hpcflow.user, "--user", hpcflow.user.name, "--starttime", since)
        if is_of_hpcflow(each.name) and each.submitted >= since
    ]
    by = {"partition": lambda each: each.partition, "user": lambda each: each.user}
    lines = assert_billed(hpcflow, records, by)
    assert {line["partition"] for line in lines} == {"gpu", "spot"}
    (spot,) = [line for line in lines if line["partition"] == "spot"]
    saved, cost = Decimal(spot["saved_usd"]), Decimal(spot["cost_usd"])
    assert abs(saved - 2 * cost) < Decimal("0.000001"), "gpu has three times the price"
    # Other tests' jobs are ada's, too, and nothing that this home knows.
    audit = hpcflow.json("cost", "audit", check=False)
    assert (audit["differences"], audit["problems"]) == ([], [])
    own = {each["run_id"] for each in hpcflow.json("ls")["runs"]}
    assert not [each for each in audit["unknown"] if each["run_id"] in own]
    assert audit["checked"] == sum(line["attempts"] for line in lines)
    assert hpcflow("ledger", "check").returncode == 0


@pytest.mark.soak
def test_a_heterogeneous_job_and_one_that_no_run_knows(hpcflow: Hpcflow) -> None:
    """Both are what sacct says, each component once."""
    user = hpcflow.user
    lost = ["sbatch", "--parsable", "--wait", "--partition=gpu", "--gpus-per-node=2", "--mem=100M"]
    name = "--job-name=lost-20260301-abcdefgh:1"
    lost_id = user.run([*lost, "--time=2", name, "--wrap=sleep 2"]).stdout.strip()
    config = write(hpcflow, "by-hand", "sleep 4")
    job_id = send_by_hand(hpcflow, config, *components())

    def is_billed() -> bool:
        seen = [run for run in hpcflow.json("ls")["runs"] if run["job_id"] == job_id]
        total = hpcflow.json("cost", "report")["total"]
        is_over = seen and seen[0]["state"] == "completed"
        return bool(is_over and not total["unbilled"] and not total["estimated"])

    poll(is_billed, 300, lambda: hpcflow("show", "by-hand").stdout, every_s=4)
    records = by_sacct(user, "-j", job_id)
    assert [each.job_id for each in records] == [f"{job_id}+0", f"{job_id}+1"]
    lines = assert_billed(hpcflow, records, {"partition": lambda each: each.partition})
    assert [line["attempts"] for line in lines] == [1, 1]
    total = hpcflow.json("cost", "report")["total"]
    assert (total["attempts"], Decimal(total["cost_usd"])) == (
        1, sum(Decimal(line["cost_usd"]) for line in lines),
    )  # fmt: skip
    audit = hpcflow.json("cost", "audit", "--since", "1h", check=False)
    assert (audit["checked"], audit["differences"], audit["problems"]) == (1, [], [])
    (found,) = [each for each in audit["unknown"] if each["job_id"] == lost_id]
    assert (found["run_id"], found["gpu_hours"] > 0) == ("lost-20260301-abcdefgh", True)
    assert not [each for each in audit["unknown"] if each["job_id"].startswith(job_id)]
    said = hpcflow("cost", "audit", "--since", "1h", check=False).stdout
    assert f"sacct -X -D -j {lost_id}" in said


@pytest.fixture
def two_accounts(cluster: Cluster, ada: User) -> Iterator[None]:
    """ada may charge biology, too."""
    cluster.run("sacctmgr", "-i", "add", "user", ada.name, "account=biology", check=False)
    yield
    ada.run(["scancel", "--user", ada.name])
    cluster.run("sacctmgr", "-i", "delete", "user", ada.name, "account=biology", check=False)


@pytest.mark.usefixtures("two_accounts")
@pytest.mark.soak
def test_a_history_is_booked_to_its_accounts_projects_and_partitions(
    hpcflow: Hpcflow, cluster: Cluster
) -> None:
    """Of jobs that were resized, requeued, renamed and held, and of one with two components."""
    user, biology = hpcflow.user, ("--set", "resources.account=biology")
    renamed = send(hpcflow, "renamed", "sleep 10", *biology, partition="spot", project="speech")
    await_start(hpcflow, renamed)
    user.run(["scontrol", "update", f"jobid={renamed['job_id']}", "jobname=my-best-run"])
    requeued = send(hpcflow, "requeued", LONG_AT_FIRST, project="vision")
    config = write(hpcflow, "held", "sleep 3", partition="spot", project="vision")
    options = ("--partition=spot", "--gpus-per-node=1", "--mem=200M", "--time=5")
    held = send_by_hand(hpcflow, config, "--hold", "--account=biology", *options)
    both = write(hpcflow, "components", "sleep 3", project="speech")
    with_components = send_by_hand(hpcflow, both, *components("physics", "biology"))
    nodes = ("--set", "resources.nodes=2", "--set", "launch.launcher=srun")
    resized = send(hpcflow, "resized", "sleep 60", *nodes, gpus=2, project="vision")
    await_start(hpcflow, requeued, resized)
    cluster.run("scontrol", "update", f"jobid={requeued['job_id']}", "requeue=1")
    cluster.run("scontrol", "requeue", requeued["job_id"])
    user.run(["scontrol", "release", held])
    user.run(["sleep", "2"])
    first = hpcflow.json("show", resized["run_id"])["attempts"][0]["nodes"][0]
    # Slurm 26.05 refuses NumNodes=1 for jobs with --ntasks-per-node. The resize ends the step.
    user.run(["scontrol", "update", f"jobid={resized['job_id']}", f"NodeList={first}"])

    def is_billed() -> bool:
        hpcflow("daemon", "--once", check=False)
        states = [each["state"] for each in hpcflow.json("ls")["runs"]]
        total = hpcflow.json("cost", "report")["total"]
        is_over = len(states) == 5 and set(states) <= {"completed", "failed"}
        return is_over and not total["unbilled"] + total["estimated"]

    poll(is_billed, 300, lambda: hpcflow("cost", "report", "--by", "run").stdout, every_s=2)
    projects = {
        requeued["job_id"]: "vision", renamed["job_id"]: "speech", with_components: "speech",
        held: "vision", resized["job_id"]: "vision",
    }  # fmt: skip
    records = by_sacct(user, "-j", ",".join(projects))
    ids = Counter(each.job_id.partition("+")[0] for each in records)
    twice = {requeued["job_id"], with_components, resized["job_id"]}
    assert ids == {job_id: 1 + (job_id in twice) for job_id in projects}
    by: dict[str, Callable[[Record], str]] = {
        "account": lambda each: each.account,
        "user": lambda each: each.user,
        "project": lambda each: projects[each.job_id.partition("+")[0]],
        "partition": lambda each: each.partition,
    }
    for key, value in by.items():
        assert_billed(hpcflow, records, {key: value})
    lines = assert_billed(hpcflow, records, by)
    assert {line["account"] for line in lines} == {"physics", "biology"}
    total = hpcflow.json("cost", "report")["total"]
    assert (total["runs"], total["attempts"]) == (5, 6)
    audit = hpcflow.json("cost", "audit", check=False)
    assert (audit["checked"], audit["differences"], audit["problems"]) == (6, [], [])
    assert hpcflow("ledger", "check").returncode == 0
