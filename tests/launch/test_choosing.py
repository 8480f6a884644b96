"""`auto` on a cluster that answers, or does not: where a run goes, and what was asked for that."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import InputError, SpecError
from hpcflow.launch.alternatives import alternatives
from hpcflow.launch.choosing import Chooser, make_chooser
from hpcflow.launch.plan import make_plan
from hpcflow.launch.run import launch
from hpcflow.model.spec import RunSpec
from hpcflow.schedulers.base import Scheduler
from hpcflow.settings import load_settings
from hpcflow.sites.schema import Site
from hpcflow.sites.standing import Association, FairShare, Limit, QosLimits, Standing
from hpcflow.storage.layout import RunDir
from hpcflow.testing.clock import FakeClock
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.launch.desk import CONFIG, Desk
from tests.sites.build import site, spec

NOW = datetime(2026, 3, 1, 12, tzinfo=timezone.utc)
HOUR = timedelta(hours=1)
CLUSTER = site(
    """
    name: fake
    partitions:
      gpu: {gpus_per_node: 4, cpus_per_node: 32, time_limit_max: 24h,
            price: {gpu_hour_usd: "2.00"}}
      spot: {gpus_per_node: 4, cpus_per_node: 32, time_limit_max: 24h, preemptible: true,
             price: {gpu_hour_usd: "1.00"}}
      small: {gpus_per_node: 1, cpus_per_node: 8, time_limit_max: 24h}
    scratch: {path: /scratch}
    """
)
TWO_ACCOUNTS = Standing(
    "ada",
    (
        Association("physics", None, "normal", ("normal",), is_default=True),
        Association("biology", None, "normal", ("normal",), is_default=False),
    ),
    (QosLimits("normal"),),
    (FairShare("physics", "ada", factor=0.1), FairShare("biology", "ada", factor=0.9)),
)


class Cluster:
    """One user before one cluster in memory."""

    def __init__(self, folder: Path, the_site: Site) -> None:
        self.clock = FakeClock(NOW)
        self.slurm = FakeScheduler(self.clock)
        self.slurm.starts = {"gpu": NOW, "spot": NOW}
        self.settings = load_settings({"HPCFLOW_HOME": str(folder / "home")})
        self._site = the_site

    @property
    def chooser(self) -> Chooser:
        def connect() -> Scheduler:
            return self.slurm

        return make_chooser(self._site, "fake", connect, settings=self.settings, clock=self.clock)

    def stands(self, standing: Standing) -> None:
        self.slurm.standings[self.settings.user] = standing

    def goes(self, asked: RunSpec) -> tuple[str, str | None]:
        _, placement = self.chooser.choose(asked)
        return placement.partition, placement.account


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, CLUSTER)


def asked(**resources: Any) -> RunSpec:
    return spec(**{"gpus_per_node": 4, "time_limit": "4h", **resources})


def questions(cluster: Cluster) -> Sequence[str]:
    return [call for call in cluster.slurm.calls if call == "predicted_start"]


def test_the_cheaper_place_is_taken_where_both_start_now(cluster: Cluster) -> None:
    assert cluster.goes(asked()) == ("spot", None)


def test_half_the_price_is_not_worth_waiting_twice_as_long(cluster: Cluster) -> None:
    cluster.slurm.starts["spot"] = NOW + 5 * HOUR

    assert cluster.goes(asked()) == ("gpu", None)


def test_of_what_cannot_win_any_more_nobody_is_asked(cluster: Cluster) -> None:
    cluster.goes(asked())

    assert len(questions(cluster)) == 1


def test_nothing_is_asked_where_there_is_nothing_to_choose(cluster: Cluster) -> None:
    assert cluster.goes(asked(partition="gpu")) == ("gpu", None)
    assert cluster.slurm.calls == []

    (only,) = [name for name, each in CLUSTER.partitions.items() if each.gpus_per_node == 1]
    cluster.slurm.partitions = ("small", "small")
    assert cluster.goes(asked(gpus_per_node=1)) == (only, None)
    assert questions(cluster) == []


def test_a_partition_that_the_cluster_refuses_is_not_chosen(cluster: Cluster) -> None:
    cluster.slurm.partitions = ("gpu", "gpu")

    survey = cluster.chooser.survey(asked())

    assert cluster.goes(asked()) == ("gpu", None)
    assert "no partition spot" in survey.refused["spot", None]
    assert "4 GPUs per node" in survey.refused["small", None]


def test_a_limit_that_the_job_alone_exceeds_keeps_it_from_a_place(cluster: Cluster) -> None:
    most = Limit("MaxTRESPerJob", "gres/gpu", 2, holder="QOS normal")
    cluster.stands(
        Standing(
            "ada",
            (Association("physics", None, "normal", ("normal",), is_default=True),),
            (QosLimits("normal", limits=(most,)),),
        )
    )

    survey = cluster.chooser.survey(asked())

    assert survey.ranked == []
    assert survey.refused["gpu", None] == "4 gres/gpu, and MaxTRESPerJob of QOS normal allows 2"
    assert cluster.chooser.survey(asked(gpus_per_node=2)).ranked


@pytest.mark.parametrize(
    "limit",
    [
        Limit("MinTRESPerJob", "gres/gpu", 1),
        Limit("MaxJobs", "jobs", 1, used=1),
        Limit("GrpTRESMins", "gres/gpu", 1, used=0),
        Limit("MaxTRESPerNode", "gres/gpu", 1),
        Limit("MaxTRESPerJob", "gres/gpu", 4),
    ],
    ids=lambda limit: limit.name,
)
def test_other_limits_pass_or_are_about_something_else(cluster: Cluster, limit: Limit) -> None:
    association = Association("physics", limits=(limit,), is_default=True)
    cluster.stands(Standing("ada", (association,)))

    assert len(cluster.chooser.survey(asked()).ranked) == 2


def test_a_limit_of_time_counts_too(cluster: Cluster) -> None:
    short = Limit("MaxWall", "minutes", 60, holder="account physics")
    cluster.stands(Standing("ada", (Association("physics", limits=(short,), is_default=True),)))

    refused = cluster.chooser.survey(asked()).refused

    assert refused["gpu", None] == "240 minutes, and MaxWall of account physics allows 60"


def test_the_account_with_the_better_standing_is_charged_where_auto_is_said(
    cluster: Cluster,
) -> None:
    cluster.stands(TWO_ACCOUNTS)

    chosen, placement = cluster.chooser.choose(asked(account="auto"))

    assert (placement.partition, placement.account) == ("spot", "biology")
    assert chosen.resources.account == "biology"


def test_nobody_is_charged_who_was_not_named(cluster: Cluster) -> None:
    cluster.stands(TWO_ACCOUNTS)

    _, placement = cluster.chooser.choose(asked())
    survey = cluster.chooser.survey(asked())

    assert placement.account is None
    assert {each.candidate.account for each in survey.ranked} == {"physics"}
    assert {each.candidate.fair_share for each in survey.ranked} == {0.1}


def test_a_cluster_that_is_silent_leaves_it_to_the_prices(cluster: Cluster) -> None:
    cluster.slurm.is_controller_down = True
    cluster.slurm.is_accounting_down = True
    chooser = cluster.chooser

    _, placement = chooser.choose(asked(account="auto"))

    assert (placement.partition, placement.account) == ("spot", None)
    assert any("when a job would start" in each for each in chooser.forecast.unknown)
    assert len(questions(cluster)) <= 1


def test_a_machine_without_slurm_leaves_it_to_the_prices(cluster: Cluster) -> None:
    def connect() -> Scheduler:
        raise InputError("there is no sbatch", next_action="log in")

    chooser = make_chooser(CLUSTER, "fake", connect, settings=cluster.settings, clock=cluster.clock)

    assert chooser.choose(asked())[1].partition == "spot"
    assert chooser.forecast.unknown == ["what the cluster says: there is no sbatch"]


def test_what_fits_nowhere_is_refused_as_ever(cluster: Cluster) -> None:
    with pytest.raises(SpecError, match="no partition of site fake fits"):
        cluster.chooser.choose(asked(gpus_per_node=9))


def test_it_is_told_what_would_start_sooner(cluster: Cluster) -> None:
    cluster.slurm.starts = {"gpu": NOW + 9 * HOUR, "spot": NOW + HOUR}
    cluster.stands(TWO_ACCOUNTS)
    chooser = cluster.chooser
    wanted = asked(partition="gpu")
    best = chooser.best(wanted)
    assert best is not None

    found = {each.change: each for each in alternatives(wanted, best, chooser)}

    auto = found["resources.partition=auto"]
    assert (auto.sooner_s, auto.is_cheaper, auto.slower) == (8 * 3600, True, 1)
    assert "resources.time_limit=120m" not in found  # in the same queue, no sooner


def test_fewer_gpus_start_sooner_and_take_longer(cluster: Cluster) -> None:
    class ByGpus(FakeScheduler):
        def predicted_start(self, request: Any) -> Any:
            gpus = int(request.script.read_text().partition("--gres=gpu:")[2].split("\n")[0])
            self.starts = dict.fromkeys(("gpu", "spot", "small"), NOW + gpus * HOUR)
            return super().predicted_start(request)

    cluster.slurm = ByGpus(cluster.clock)
    chooser = cluster.chooser
    best = chooser.best(asked())
    assert best is not None

    found = {each.change: each for each in alternatives(asked(), best, chooser)}

    fewer = found["resources.gpus_per_node=2"]
    assert (fewer.sooner_s, fewer.is_cheaper, fewer.slower) == (2 * 3600, False, 2)


def test_a_later_attempt_goes_where_the_first_one_was_sent(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    desk.config.write_text(CONFIG.replace("account: physics", "partition: auto"))
    desk.site = site(
        """
        name: devcluster
        cluster_name: devcluster
        partitions:
          gpu: {cpus_per_node: 32, time_limit_max: 24h, price: {node_hour_usd: "2.00"}}
          spot: {cpus_per_node: 32, time_limit_max: 24h, price: {node_hour_usd: "1.00"}}
        scratch: {path: $SCRATCH}
        """
    )
    chooser = make_chooser(
        desk.site, "devcluster", lambda: desk.slurm, settings=desk.settings, clock=desk.clock
    )
    plan = make_plan(
        desk.config, settings=desk.settings, clock=desk.clock, site=desk.site, chooser=chooser
    )
    first = launch(plan, settings=desk.settings, scheduler=desk.slurm, clock=desk.clock)
    run_dir = RunDir(first.run_dir)
    desk.slurm.end(first.job_id, "FAILED")
    desk.seen(first.run_id)

    again = desk.resume(run_dir)
    desk.slurm.end(again.job_id, "FAILED")
    desk.seen(first.run_id)
    changed = desk.resume(run_dir, overrides=["resources.time_limit=2h"])

    jobs = {job.job_id: job.partition for job in desk.slurm.queue()}
    assert [jobs[each.job_id] for each in (first, again, changed)] == ["spot"] * 3
