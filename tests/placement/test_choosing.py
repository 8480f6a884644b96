"""`auto` on a cluster that answers, or does not: where a run goes, and what was asked for that."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest

from hpcflow.config.merge import parse_override
from hpcflow.errors import InputError, SpecError, SubmissionDelayed
from hpcflow.launch.plan import make_plan
from hpcflow.launch.run import launch
from hpcflow.model.spec import RunSpec
from hpcflow.placement.alternatives import Alternative, Baseline, alternatives
from hpcflow.placement.choice import Ranked
from hpcflow.placement.choosing import Chooser
from hpcflow.placement.forecast import PATIENCE_S
from hpcflow.schedulers.base import Scheduler, SubmitRequest
from hpcflow.schedulers.waiting import PredictedStart
from hpcflow.settings import load_settings
from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.schema import Site
from hpcflow.sites.standing import Association, FairShare, Limit, QosLimits, Standing
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
      cpu: {cpus_per_node: 64, time_limit_max: 24h, price: {node_hour_usd: "9.00"}}
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

        return Chooser(self._site, "fake", connect, settings=self.settings, clock=self.clock)

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


def with_qos(*limits: Limit, flags: tuple[str, ...] = (), own: tuple[Limit, ...] = ()) -> Standing:
    """A user of one account whose default QOS has these limits."""
    association = Association("physics", None, "long", ("normal", "long"), own, is_default=True)
    return Standing("ada", (association,), (QosLimits("long", flags=flags, limits=limits),))


def others(wanted: RunSpec, best: Ranked, chooser: Chooser) -> list[Alternative]:
    now = Baseline(best.candidate.placement, best.candidate.waits_s, ranked=best)
    return alternatives(wanted, now, chooser)


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
    assert cluster.goes(asked(gpus_per_node=0)) == ("cpu", None)
    assert cluster.slurm.calls == []


def test_a_run_without_gpus_leaves_them_to_others_whatever_that_costs(cluster: Cluster) -> None:
    refused = cluster.chooser.survey(asked(gpus_per_node=0)).refused

    assert refused["spot", None] == "it has GPUs, and the run requests none"


def test_a_partition_that_the_cluster_refuses_is_not_chosen(cluster: Cluster) -> None:
    cluster.slurm.partitions = ("gpu",)

    survey = cluster.chooser.survey(asked())

    assert cluster.goes(asked()) == ("gpu", None)
    assert "no partition spot" in survey.refused["spot", None]
    assert "4 GPUs per node" in survey.refused["small", None]


def test_a_partition_that_is_not_up_is_not_chosen(cluster: Cluster) -> None:
    class Drained(FakeScheduler):
        def cluster_info(self) -> ClusterInfo:
            info = super().cluster_info()
            changed = tuple(replace(each, is_up=each.name != "spot") for each in info.partitions)
            return replace(info, partitions=changed)

    cluster.slurm = Drained(cluster.clock)

    assert cluster.goes(asked()) == ("gpu", None)
    refused = cluster.chooser.survey(asked()).refused
    assert refused["spot", None] == "partition spot takes no jobs: it is not up"


def test_sbatch_is_asked_from_where_the_run_would_be_sent(tmp_path: Path) -> None:
    there = tmp_path / "scratch"
    there.mkdir()
    found: list[Path] = []

    class Asked(FakeScheduler):
        def predicted_start(self, request: SubmitRequest) -> PredictedStart | None:
            found.append(request.directory)
            return super().predicted_start(request)

    scratch = CLUSTER.scratch.model_copy(update={"path": str(there)})
    cluster = Cluster(tmp_path, CLUSTER.model_copy(update={"scratch": scratch}))
    cluster.slurm = Asked(cluster.clock)
    cluster.chooser.survey(asked())

    assert set(found) == {there}


def test_limits_that_the_cluster_does_not_enforce_bind_nobody(cluster: Cluster) -> None:
    cluster.stands(with_qos(Limit("MaxWall", "minutes", 10)))
    assert not cluster.chooser.survey(asked()).ranked

    cluster.slurm.enforced = "associations"

    assert cluster.chooser.survey(asked()).ranked


def test_where_nothing_is_known_to_start_it_is_said_and_sent_all_the_same(
    cluster: Cluster,
) -> None:
    cluster.stands(with_qos(Limit("MaxWall", "minutes", 10, holder="QOS long")))
    chooser = cluster.chooser

    _, placement = chooser.choose(asked())

    assert placement.partition == "gpu"
    (warning,) = chooser.warnings
    assert "hpcflow knows no partition where this run could start now" in warning
    assert "spot: it asks for 4h, and MaxWall of QOS long allows 10m" in warning


def test_a_place_that_takes_no_job_now_is_not_chosen_before_one_that_does(
    cluster: Cluster,
) -> None:
    class Full(FakeScheduler):
        def predicted_start(self, request: SubmitRequest) -> PredictedStart | None:
            if "--partition=spot" in request.script.read_text():
                raise SubmissionDelayed("QOSMaxSubmitJobPerUserLimit", next_action="wait")
            return super().predicted_start(request)

    cluster.slurm = Full(cluster.clock)

    assert cluster.goes(asked()) == ("gpu", None)
    assert cluster.chooser.survey(asked()).refused["spot", None] == (
        "full now: QOSMaxSubmitJobPerUserLimit"
    )


def test_run_goes_where_plan_says_also_if_a_start_is_unknown(cluster: Cluster) -> None:
    cluster.slurm.starts = {"gpu": NOW + 20 * HOUR, "spot": None}

    first = cluster.chooser.survey(asked()).ranked[0].candidate.placement.partition

    assert cluster.goes(asked()) == (first, None)


def test_a_start_that_is_unknown_is_no_reason_to_ask_no_further(cluster: Cluster) -> None:
    cluster.slurm.partitions = ("gpu", "spot", "small")
    cluster.slurm.starts = {"spot": None, "gpu": NOW, "small": NOW + 40 * HOUR}
    one = asked(gpus_per_node=1)

    best = cluster.chooser.survey(one).ranked[0].candidate.placement.partition

    assert best == "gpu", "for spot is taken to wait as long as the slowest"
    assert cluster.goes(one) == (best, None)


def test_of_equal_places_the_first_in_the_file_is_taken(tmp_path: Path) -> None:
    same = "{cpus_per_node: 8, time_limit_max: 24h}"
    twins = site(f"name: fake\npartitions: {{gpu: {same}, spot: {same}}}\nscratch: {{path: /s}}")
    cluster = Cluster(tmp_path, twins)
    later = NOW + timedelta(minutes=10)
    cluster.slurm.starts = {"gpu": later + timedelta(seconds=1), "spot": later}

    assert cluster.goes(asked(gpus_per_node=0)) == ("gpu", None)


def test_the_answers_of_another_cluster_are_not_taken_for_the_sites(tmp_path: Path) -> None:
    elsewhere = CLUSTER.model_copy(update={"cluster_name": "elsewhere"})
    cluster = Cluster(tmp_path, elsewhere)
    cluster.slurm.partitions = ("gpu",)
    chooser = cluster.chooser

    assert chooser.choose(asked())[1].partition == "spot"
    assert chooser.forecast.unknown == ["what the cluster says: Slurm on this machine is of fake"]


def test_a_name_that_no_config_could_hold_is_charged_by_nobody(cluster: Cluster) -> None:
    names = ("a/b", "we ird", "auto", "--x", "physics")
    cluster.stands(
        Standing(
            "ada",
            tuple(Association(name, is_default=False) for name in names),
            shares=tuple(FairShare(name, "ada", factor=0.9) for name in names[:-1]),
        )
    )
    chooser = cluster.chooser

    assert chooser.choose(asked(account="auto"))[1].account == "physics"
    assert len(chooser.forecast.unknown) == len(names) - 1


def test_slurm_is_not_waited_for_without_end(cluster: Cluster) -> None:
    class Slow(FakeScheduler):
        def predicted_start(self, request: SubmitRequest) -> PredictedStart | None:
            cluster.clock.sleep(PATIENCE_S)
            return super().predicted_start(request)

    cluster.slurm = Slow(cluster.clock)
    chooser = cluster.chooser

    chooser.survey(asked())

    assert len(questions(cluster)) == 1
    assert any("not queried" in each for each in chooser.forecast.unknown)


def test_advice_can_be_typed(cluster: Cluster) -> None:
    names = ("12345", "physics", "yes")
    cluster.stands(Standing("ada", tuple(Association(n, is_default=False) for n in names)))
    cluster.slurm.starts["gpu"] = NOW + HOUR
    chooser = cluster.chooser
    best = chooser.best(asked(partition="gpu"))
    assert best is not None
    cluster.slurm.starts["gpu"] = NOW

    changes = [each.change for each in others(asked(partition="gpu"), best, chooser)]

    typed = [shlex.split(f"--set {each}") for each in changes if "account" in each]
    assert [each[1] for each in typed] == [
        'resources.account="12345"', "resources.account=physics", 'resources.account="yes"'
    ]  # fmt: skip
    for _, word in typed:
        parse_override(word)


def test_a_limit_of_time_counts_too(cluster: Cluster) -> None:
    short = Limit("MaxWall", "minutes", 60, holder="account physics")
    cluster.stands(Standing("ada", (Association("physics", limits=(short,), is_default=True),)))

    refused = cluster.chooser.survey(asked()).refused

    assert refused["gpu", None] == "it asks for 4h, and MaxWall of account physics allows 1h"


def test_the_account_with_the_better_standing_is_charged_where_auto_is_said(
    cluster: Cluster,
) -> None:
    cluster.stands(TWO_ACCOUNTS)

    chosen, placement = cluster.chooser.choose(asked(account="auto"))

    assert (placement.partition, placement.account) == ("spot", "biology")
    assert chosen.resources.account == "biology"


def test_the_standing_of_an_account_is_that_in_the_partition(cluster: Cluster) -> None:
    """Where users have associations of their own with each partition."""
    cluster.stands(
        Standing(
            "ada",
            tuple(
                Association("physics", name, "normal", ("normal",), is_default=True)
                for name in ("gpu", "spot")
            ),
            shares=(
                FairShare("physics", "ada", "gpu", factor=0.1),
                FairShare("physics", "ada", "spot", factor=0.9),
            ),
        )
    )

    survey = cluster.chooser.survey(asked())

    found = {each.candidate.placement.partition: each.candidate for each in survey.ranked}
    assert {name: each.fair_share for name, each in found.items()} == {"gpu": 0.1, "spot": 0.9}


def test_no_account_is_charged_that_the_site_does_not_name(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, CLUSTER.model_copy(update={"accounts": ("physics",)}))
    cluster.stands(TWO_ACCOUNTS)

    assert cluster.goes(asked(account="auto")) == ("spot", "physics")


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

    chooser = Chooser(CLUSTER, "fake", connect, settings=cluster.settings, clock=cluster.clock)

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

    found = {each.change: each for each in others(wanted, best, chooser)}

    spot = found["resources.partition=spot"]
    assert (spot.sooner_s, spot.is_cheaper, spot.slower) == (8 * 3600, True, 1)
    assert "resources.time_limit=2h" not in found  # in the same queue, no sooner


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

    found = {each.change: each for each in others(asked(), best, chooser)}

    fewer = found["resources.gpus_per_node=2"]
    assert (fewer.sooner_s, fewer.is_cheaper, fewer.slower) == (2 * 3600, False, 2)


def test_how_much_longer_it_takes_is_never_said_too_short(cluster: Cluster) -> None:
    class ByNodes(FakeScheduler):
        def predicted_start(self, request: SubmitRequest) -> PredictedStart | None:
            nodes = int(request.script.read_text().partition("--nodes=")[2].split("\n")[0])
            self.starts = dict.fromkeys(("gpu", "spot"), NOW + nodes * HOUR)
            return super().predicted_start(request)

    cluster.slurm = ByNodes(cluster.clock)
    chooser, wanted = cluster.chooser, asked(nodes=5)
    best = chooser.best(wanted)
    assert best is not None

    found = {each.change: each for each in others(wanted, best, chooser)}

    assert found["resources.nodes=2"].slower == 3


def test_auto_is_not_decided_anew_when_a_run_is_sent_again(tmp_path: Path) -> None:
    desk = Desk(tmp_path)
    first = desk.launch()
    desk.slurm.end(first.job_id, "FAILED")
    desk.seen(first.run_id)

    desk.resume(desk.dir_of(first), overrides=["resources.account=auto"])

    script = (first.run_dir / "attempts" / "0002" / "job.sbatch").read_text()
    assert "#SBATCH --account=physics\n" in script


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
    chooser = Chooser(
        desk.site, "devcluster", lambda: desk.slurm, settings=desk.settings, clock=desk.clock
    )
    plan = make_plan(
        desk.config, settings=desk.settings, clock=desk.clock, site=desk.site, chooser=chooser
    )
    first = launch(plan, settings=desk.settings, scheduler=desk.slurm, clock=desk.clock)
    run_dir = desk.dir_of(first)
    desk.slurm.end(first.job_id, "FAILED")
    desk.seen(first.run_id)

    again = desk.resume(run_dir)
    desk.slurm.end(again.job_id, "FAILED")
    desk.seen(first.run_id)
    changed = desk.resume(run_dir, overrides=["resources.time_limit=2h"])

    jobs = {job.job_id: job.partition for job in desk.slurm.queue()}
    assert [jobs[each.job_id] for each in (first, again, changed)] == ["spot"] * 3
