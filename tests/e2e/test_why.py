"""A full cluster, two accounts of unequal shares, limits and maintenance: what `why` and `limits`
say is what squeue --start, sprio, sshare and sacctmgr say, and taking its advice helps."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest

from hpcflow.testing.cluster import Cluster, User, poll
from tests import crowd
from tests.e2e.conftest import Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

PROGRAM = """
name: {name}
command: [sleep, "3000"]
launch: {{framework: none, launcher: none}}
resources: {{account: {account}, time_limit: {time}, gpus_per_node: {gpus}, mem: 200M{more}}}
"""
UTC = {"TZ": "UTC", "SLURM_TIME_FORMAT": "standard"}


@dataclass
class Looker:
    """What Slurm itself tells the user."""

    user: User

    def __call__(self, *argv: str) -> str:
        return self.user.run(argv, env=UTC).stdout.strip()

    def start(self, job_id: str) -> str:
        return self("squeue", "--start", "--noheader", "--job", job_id, "--format=%S")

    def priority(self, job_id: str) -> int:
        return int(self("sprio", "--noheader", "--jobs", job_id, "--format=%Y"))

    def fair_share_points(self, job_id: str) -> int:
        return int(self("sprio", "--noheader", "--jobs", job_id, "--format=%F"))

    def factors(self) -> dict[str, float]:
        words = ("sshare", "--noheader", "--parsable2", "--users", self.user.name)
        rows = self(*words, "--format=Account,User,FairShare").splitlines()
        told = (row.strip().split("|") for row in rows)
        return {account: float(factor) for account, user, factor in told if user}

    def order(self) -> list[str]:
        """The jobs that compete in the partition, as Slurm goes through them."""
        words = ("squeue", "--noheader", "--states=PENDING", "--sort=-p,i", "--partition=gpu")
        return self(*words, "--format=%A").split()


def test_why_says_what_slurm_says_and_its_advice_helps(
    hpcflow: Hpcflow, cluster: Cluster, ada: User
) -> None:
    slurm = Looker(ada)

    def send(name: str, account: str, *, time: str = "1h", gpus: int = 0, more: str = "") -> Any:
        text = PROGRAM.format(name=name, account=account, time=time, gpus=gpus, more=more)
        config = hpcflow.write_config(f"{name}.yaml", text)
        return hpcflow.json("run", config, "--site", "devcluster")

    def why(run: Any) -> Any:
        return hpcflow.json("why", run["run_id"])

    def until(run: Any, is_it: Callable[[Any], bool]) -> Any:
        told: list[Any] = []

        def looks() -> bool:
            told.append(why(run))
            return is_it(told[-1])

        poll(looks, 150, lambda: f"last told: {told[-1]}", every_s=2)
        return told[-1]

    with crowd.limits(cluster, ada), crowd.reservations(cluster):
        whole = ("--exclusive", "--nodes=1", "--mem=0", "--time=30", "--account=physics")
        running = [crowd.send(ada, *whole) for _ in range(3)]
        running.append(crowd.send(ada, *whole, f"--qos={crowd.QOS}"))
        poll(lambda: all(crowd.reason(cluster, each) == "None" for each in running), 300, "full")

        # Of two jobs that differ in their account alone, biology's comes first.
        physics, biology = send("physics", "physics"), send("biology", "biology")
        poll(lambda: slurm.factors()["biology"] > 0.5, 150, "fair shares are computed")

        def is_planned(told: Any, reason: str) -> bool:
            return told["reason"] == reason and told["expected_start"] is not None

        first = until(biology, lambda told: is_planned(told, "Resources"))
        second = until(physics, lambda told: is_planned(told, "Priority"))
        assert (first["state"], first["waits_in"], first["kind"]) == ("queued", "slurm", "room")
        assert (first["position"], second["position"], second["kind"]) == (1, 2, "turn")
        for told in (first, second):
            job_id = told["job_id"]
            assert told["expected_start"][:19] == slurm.start(job_id)
            assert told["priority"] == pytest.approx(slurm.priority(job_id), abs=3)
            assert told["factors"]["fair share"] == slurm.fair_share_points(job_id)
            assert slurm.order()[told["position"] - 1] == job_id
            accounts = {each["name"]: each for each in told["accounts"]}
            assert {name: each["factor"] for name, each in accounts.items()} == slurm.factors()
            assert told["limits"] == [], (
                "it asks for no GPUs, of which physics has as many as it may"
            )
            own = accounts[told["account"]]
            assert own["is_own"]
            assert own["points"] == told["factors"]["fair share"]
        assert second["priority_ahead"] == pytest.approx(first["priority"], abs=3)
        assert first["expected_start"] <= second["expected_start"]
        said = hpcflow("why", physics["run_id"]).stdout
        assert "jobs of higher priority are before it  [Priority]" in said
        assert f"biology has the factor {slurm.factors()['biology']:.3f}, " in said
        assert "2 of " in said

        # A limit of the account, and one of the QOS.
        gpus = until(send("gpus", "physics", gpus=1), lambda told: told["kind"] == "limit")
        assert gpus["reason"] == "AssocGrpGRES"
        (limit,) = gpus["limits"]
        assert (limit["name"], limit["resource"], limit["holder"]) == (
            "GrpTRES", "gres/gpu", "account physics",
        )  # fmt: skip
        assert (limit["allowed"], limit["used"]) == (16, 16)
        tight = send("tight", "biology", gpus=1, more=f", qos: {crowd.QOS}")
        tight = until(tight, lambda told: told["kind"] == "limit")
        assert tight["reason"] == "QOSMaxGRESPerUser"
        (limit,) = tight["limits"]
        assert (limit["name"], limit["allowed"], limit["used"]) == ("MaxTRESPerUser", 4, 4)
        for told in (gpus, tight):
            assert not any("hpcflow cancel" in each for each in told["next"]), "all nodes are full"

        # Maintenance in five hours.
        long = send("long", "physics", time="7h")
        long = until(long, lambda told: told["kind"] == "reservation")
        assert long["reason"] == "ReqNodeNotAvail, Reserved for maintenance"
        (obstacle,) = long["reservations"]
        assert obstacle["reservation"]["name"] == "hpcf-maint"
        assert (obstacle["nodes"], obstacle["of_nodes"]) == (4, 4)
        assert 270 <= obstacle["fits_min"] <= 300

        # What may be had of all this.
        told = hpcflow.json("limits", "--site", "devcluster")
        assert [each["account"] for each in told["accounts"]] == ["biology", "physics"]
        assert {each["account"]: each["factor"] for each in told["accounts"]} == slurm.factors()
        limits = {
            (each["name"], each["resource"]): (each["allowed"], each["used"])
            for each in told["accounts"][1]["limits"]
        }
        assert limits["GrpTRES", "gres/gpu"] == (16, 16)
        assert limits["MaxJobs", "jobs"] == (20, 4)
        assert limits["MaxWall", "minutes"] == (1440, None)
        (qos,) = [each for each in told["qos"] if each["name"] == crowd.QOS]
        assert (qos["usage_factor"], qos["priority"], qos["preempts"]) == ("2", 10, ["normal"])
        said = hpcflow("limits", "--site", "devcluster").stdout
        assert "16 of 16 gres/gpu used  (account physics)  full" in said
        assert told["partitions"] == []
        with crowd.partition_qos(cluster, "short"):
            (short,) = hpcflow.json("limits", "--site", "devcluster")["partitions"]
            said = hpcflow("limits", "--site", "devcluster").stdout
        assert (short["name"], short["qos"], short["limits"]) == ("short", crowd.QOS, qos["limits"])
        assert f"partition short, by its QOS {crowd.QOS}" in said

        # To do as it says, word by word.
        advice = next(each for each in second["next"] if "resources.account=" in each)
        assert advice.startswith("account biology has a better fair share: ")
        cancel, _, resume = advice.partition(": hpcflow ")[2].partition(", then hpcflow ")
        assert resume, advice
        hpcflow(*cancel.rpartition("hpcflow ")[2].split())
        poll(
            lambda: hpcflow.json("show", physics["run_id"])["state"] == "cancelled", 300, "it ends"
        )
        hpcflow(*resume.split())
        better = until(physics, lambda told: told["position"] is not None)
        assert better["account"] == "biology"
        assert better["priority"] > second["priority"] + 40_000

        # When there is room it runs, and that is said.
        cluster.run("scancel", *running)
        runs = until(biology, lambda told: told["state"] == "running")
        assert (runs["waits_in"], runs["next"]) == (
            None, [f"follow it: hpcflow logs --follow {biology['run_id']}"],
        )  # fmt: skip
        assert "it runs since " in runs["words"]
