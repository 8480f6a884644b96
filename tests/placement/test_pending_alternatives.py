"""What a run whose job waits could ask for instead: what is tried, and what is said of it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcflow.cli.look.why_words import better_words
from hpcflow.model.run import Provenance, Run
from hpcflow.pending.why import explain_wait
from hpcflow.placement.alternatives import pending_alternatives
from hpcflow.schedulers.base import SubmitRequest
from hpcflow.schedulers.waiting import ClusterQueue, IdleNode, PredictedStart, WaitingJob
from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.standing import Association, Limit, QosLimits, Reservation, Standing
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.placement.test_choosing import CLUSTER, HOUR, NOW, Cluster, asked

FULL = Limit("GrpTRES", "gres/gpu", 16, 16, "account physics")
NODES = ("n1", "n2", "n3", "n4")


class Slurm(FakeScheduler):
    """Two partitions of the same nodes; what is sent to n1 starts when ``busy`` says."""

    hides = False
    maintained_until: datetime | None = None

    def predicted_start(self, request: SubmitRequest) -> PredictedStart | None:
        """Before a maintenance in two hours, or after it."""
        if self.maintained_until is None:
            return super().predicted_start(request)
        lines = request.script.read_text()
        is_short = any(f"--time={each}\n" in lines for each in ("0-01:55:00", "0-01:00:00"))
        return PredictedStart(NOW if is_short else self.maintained_until, "gpu", ("n1",))

    def cluster_info(self) -> ClusterInfo:
        info = super().cluster_info()
        partitions = tuple(replace(each, node_names=NODES) for each in info.partitions)
        private = {"PrivateData": "jobs"} if self.hides else {}
        return replace(info, partitions=partitions, settings={**info.settings, **private})


class Waiting:
    """ada's run in partition gpu, whose job 7 waits."""

    def __init__(self, folder: Path) -> None:
        self.cluster = Cluster(folder, CLUSTER)
        self.cluster.slurm = Slurm(self.cluster.clock)
        self.reservations: list[Reservation] = []
        self.idle("n1")
        self.job = WaitingJob(
            "7",
            ("gpu",),
            "Priority",
            user="ada",
            account="physics",
            qos="normal",
            time_limit_min=240,
            nodes=1,
            wants={"gres/gpu": 4, "cpu": 4, "node": 1},
            expected_start=NOW + 3 * HOUR,
            expected_nodes=("n1",),
            eligible_at=NOW,
            position=2,
        )
        self.stands()

    @property
    def slurm(self) -> Slurm:
        assert isinstance(self.cluster.slurm, Slurm)
        return self.cluster.slurm

    def stands(self, *limits: Limit, qos: Sequence[QosLimits] = (), known: bool = True) -> None:
        """In physics, which has these limits, and in biology, which has none."""
        names = ("normal", *(each.name for each in qos))
        self.cluster.stands(
            Standing(
                "ada",
                (
                    Association("physics", None, "normal", names, limits, is_default=True),
                    Association("biology", None, "normal", names, is_default=False),
                ),
                (QosLimits("normal"), *qos),
                is_use_known=known,
            )
        )

    def idle(self, *names: str) -> None:
        """Nodes of both partitions that nobody uses."""
        has = {"cpu": 32, "mem": 64_000, "gres/gpu": 4}
        self.slurm.idle = [IdleNode(name, ("gpu", "spot"), has, True) for name in names]

    def behind(
        self, *starts: datetime | None, partitions: tuple[str, ...] = ("gpu", "spot")
    ) -> None:
        """Other jobs that wait, and are to start then."""
        jobs = (
            WaitingJob(
                f"9{number}",
                partitions,
                "Resources",
                expected_start=start,
                expected_nodes=("n1",) if start else (),
            )
            for number, start in enumerate(starts)
        )
        self.slurm.others = ClusterQueue((*jobs, self.job))

    def found(self, reason: str = "Priority", **resources: Any) -> dict[str, str]:
        """--set -> what is said of it."""
        chooser = self.cluster.chooser
        chooser.forecast._ignored_jobs = frozenset({"7"})
        run = Run(
            run_id="digits-20260301-abcdefgh",
            user="ada",
            site="fake",
            created_at=NOW,
            run_dir="/",
            working_dir="/",
            partition="gpu",
            spec=asked(**resources),
            provenance=Provenance(hpcflow_version="", python_version="", submit_host=""),
        )
        wait = explain_wait(
            replace(self.job, reason=reason),
            run.run_id,
            standing=chooser.forecast.standing,
            cluster=chooser.forecast.cluster,
            reservations=self.reservations,
            now=NOW,
        )
        told = pending_alternatives(run, wait, CLUSTER, chooser, NOW)
        return {each.change: better_words(each, run.run_id) for each in told}


@pytest.fixture
def waiting(tmp_path: Path) -> Waiting:
    return Waiting(tmp_path)


def test_a_shorter_job_is_advised_only_where_there_is_a_gap(waiting: Waiting) -> None:
    """It must end before those that wait are to start; what else would be before it, it is not."""
    waiting.behind(NOW + 2 * HOUR)
    assert waiting.found() == {
        "resources.time_limit=115m": "with a time limit of 1h 55m it would start now, 3h 00m "
        "sooner: hpcflow cancel digits-20260301-abcdefgh, then hpcflow resume "
        "digits-20260301-abcdefgh --set resources.time_limit=115m"
    }
    waiting.behind(NOW + timedelta(minutes=8))
    assert waiting.found() == {}
    waiting.behind(None)
    assert waiting.found() == {}, "nobody knows when the other is to start"
    waiting.behind(NOW + 2 * HOUR)
    waiting.idle()
    assert waiting.found() == {}, "there is no room now"


def test_another_partition_is_advised_where_nobody_waits_for_its_nodes(waiting: Waiting) -> None:
    waiting.slurm.nodes = ("n2",)
    waiting.behind(NOW + HOUR / 5, partitions=("gpu",))
    (words,) = waiting.found().values()
    assert words.startswith("in partition spot it would start now, 3h 00m sooner: hpcflow cancel ")
    waiting.behind(NOW + HOUR / 5)
    assert waiting.found() == {}


def test_what_would_start_as_it_is_if_it_were_sent_again_is_no_gain_of_a_change(
    waiting: Waiting,
) -> None:
    assert waiting.found() == {}, "nobody else waits, and there is room"


def test_a_full_limit_is_left_by_another_account_or_qos_that_has_room(waiting: Waiting) -> None:
    waiting.job = replace(waiting.job, expected_start=None)
    waiting.stands(FULL)
    found = waiting.found("AssocGrpGRES")
    assert found.keys() == {"resources.account=biology"}
    assert found["resources.account=biology"].startswith("with account biology it would start now:")
    wide = QosLimits("wide", limits=(Limit("GrpTRES", "gres/gpu", 64, 16, "QOS wide"),))
    waiting.stands(FULL, qos=[wide])
    assert "resources.qos=wide" in waiting.found("AssocGrpGRES")
    waiting.stands(replace(FULL, used=13))
    fewer = waiting.found("AssocGrpGRES")["resources.gpus_per_node=2"]
    assert "; the same work takes up to 2 times as long: " in fewer


def test_where_nobody_says_what_is_used_nothing_is_said_to_have_room(waiting: Waiting) -> None:
    waiting.job = replace(waiting.job, expected_start=None)
    waiting.stands(replace(FULL, used=None), known=False)
    assert waiting.found("AssocGrpGRES") == {}


def test_a_job_that_asks_for_too_much_is_told_what_may_be(waiting: Waiting) -> None:
    waiting.job = replace(waiting.job, expected_start=None)
    waiting.stands(replace(FULL, allowed=2, used=0))
    found = waiting.found("AssocGrpGRES")
    assert found.keys() >= {"resources.gpus_per_node=2", "resources.account=biology"}
    assert "it would start now" in found["resources.gpus_per_node=2"]


def test_a_job_that_would_run_into_maintenance_is_told_the_limit_that_ends_before(
    waiting: Waiting,
) -> None:
    end = NOW + 5 * HOUR
    waiting.reservations = [Reservation("maint", NOW + 2 * HOUR, end, NODES, ("MAINT",))]

    waiting.slurm.maintained_until = end
    waiting.job = replace(waiting.job, expected_start=end)
    found = waiting.found("ReqNodeNotAvail, Reserved for maintenance")
    assert found.keys() == {"resources.time_limit=115m"}


@pytest.mark.parametrize(
    "reason", ["JobHeldUser", "BeginTime", "Dependency", "Licenses", "FullMoon", "Prolog"]
)
def test_what_waits_for_something_else_is_not_helped_by_asking_for_less(
    waiting: Waiting, reason: str
) -> None:
    waiting.behind(NOW + 2 * HOUR)
    calls = list(waiting.slurm.calls)
    assert waiting.found(reason) == {}
    assert "predicted_start" not in waiting.slurm.calls[len(calls) :]


def test_where_others_are_hidden_nothing_is_said_about_the_queue(waiting: Waiting) -> None:
    waiting.behind(NOW + 2 * HOUR)
    assert waiting.found()
    Slurm.hides = True
    try:
        assert waiting.found() == {}
    finally:
        Slurm.hides = False


@pytest.mark.parametrize(
    ("reason", "limit"),
    [
        ("QOSMinGRES", Limit("MinTRESPerJob", "gres/gpu", 8, holder="a job in QOS normal")),
        ("QOSMaxGRESPerNode", Limit("MaxTRESPerNode", "gres/gpu", 1, holder="a job in QOS normal")),
    ],
)
def test_where_trying_cannot_see_what_keeps_a_job_back_nothing_is_advised(
    waiting: Waiting, reason: str, limit: Limit
) -> None:
    waiting.job = replace(waiting.job, expected_start=None)
    waiting.stands(qos=[QosLimits("normal", limits=(limit,))])
    waiting.slurm.starts = {"gpu": NOW + 3 * HOUR}  # spot has room now, under the same limit
    waiting.idle()
    assert waiting.found(reason) == {}


def test_a_job_planned_around_the_cancelled_one_takes_its_place(waiting: Waiting) -> None:
    """Its start was planned while ours was first; when ours is cancelled it starts at once."""
    waiting.behind(NOW + 6 * HOUR, partitions=("gpu",))
    (other, own) = waiting.slurm.others.waiting
    waiting.slurm.others = ClusterQueue((other, own))
    assert any("time_limit" in each for each in waiting.found()) is False
    waiting.job = replace(waiting.job, time_limit_min=600)
    assert any("time_limit" in each for each in waiting.found(time_limit="10h"))
    waiting.slurm.others = ClusterQueue((own, other))
    assert not any("time_limit" in each for each in waiting.found(time_limit="10h"))


def test_an_account_whose_budget_is_used_up_has_no_room(waiting: Waiting) -> None:
    waiting.job = replace(waiting.job, expected_start=None)
    waiting.stands(FULL)
    standing = waiting.slurm.standings[waiting.cluster.settings.user]
    physics, biology = standing.associations
    spent = Limit("GrpTRESMins", "billing", 1000, 1000, "account biology")
    waiting.cluster.stands(
        replace(standing, associations=(physics, replace(biology, limits=(spent,))))
    )
    assert waiting.found("AssocGrpGRES") == {}


def test_a_site_without_a_partition_for_auto_is_no_error(tmp_path: Path) -> None:
    partitions = {
        name: each.model_copy(update={"auto": False}) for name, each in CLUSTER.partitions.items()
    }
    waiting = Waiting(tmp_path)
    waiting.cluster = Cluster(tmp_path, CLUSTER.model_copy(update={"partitions": partitions}))
    waiting.cluster.slurm = Slurm(waiting.cluster.clock)
    waiting.stands()
    waiting.idle("n1")
    waiting.behind(NOW + 2 * HOUR)
    assert waiting.found().keys() == {"resources.time_limit=115m"}
