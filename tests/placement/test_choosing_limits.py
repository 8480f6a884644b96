"""`auto` chooses no place whose limits the job exceeds: of account, QOS or partition."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.standing import Association, Limit, QosLimits, Standing
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.placement.test_choosing import CLUSTER, Cluster, asked, with_qos


@pytest.fixture
def cluster(tmp_path: Path) -> Cluster:
    return Cluster(tmp_path, CLUSTER)


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
    assert survey.refused["gpu", None] == (
        "it asks for 4 gres/gpu, and MaxTRESPerJob of QOS normal allows 2"
    )
    assert cluster.chooser.survey(asked(gpus_per_node=2)).ranked


@pytest.mark.parametrize(
    "limit",
    [
        Limit("MinTRESPerJob", "gres/gpu", 1),
        Limit("MaxJobs", "jobs", 2, used=1),
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


def test_a_limit_of_the_qos_goes_before_the_same_one_of_the_account(cluster: Cluster) -> None:
    own = (
        Limit("MaxWall", "minutes", 10, holder="user ada"),
        Limit("GrpTRES", "gres/gpu", 1, used=0, holder="account physics"),
        Limit("MaxTRES", "gres/gpu", 1, holder="user ada"),
    )
    lifted = (
        Limit("MaxWall", "minutes", 1440, holder="QOS long"),
        Limit("GrpTRES", "gres/gpu", 8, used=0, holder="QOS long"),
        Limit("MaxTRESPerJob", "gres/gpu", 8, holder="QOS long"),
    )
    cluster.stands(with_qos(*lifted, own=own))
    assert len(cluster.chooser.survey(asked()).ranked) == 2

    cluster.stands(with_qos(*lifted[1:], own=own))
    assert (
        cluster.chooser.survey(asked()).refused["gpu", None].startswith("it asks for 4h, and MaxW")
    )


def test_the_default_qos_that_slurm_takes_counts(cluster: Cluster) -> None:
    short = Limit("MaxWall", "minutes", 10, holder="QOS normal")
    for default, allowed in ((None, ("normal",)), (None, ("normal", "long")), ("normal", ())):
        association = Association("physics", None, default, allowed, is_default=True)
        cluster.stands(Standing("ada", (association,), (QosLimits("normal", limits=(short,)),)))

        assert not cluster.chooser.survey(asked()).ranked


def test_the_only_qos_of_an_association_is_its_default(cluster: Cluster) -> None:
    short = Limit("MaxWall", "minutes", 10)
    association = Association("physics", None, None, ("long",), is_default=True)
    cluster.stands(Standing("ada", (association,), (QosLimits("long", limits=(short,)),)))

    assert not cluster.chooser.survey(asked()).ranked


def test_the_qos_of_a_partition_goes_before_that_of_the_job_or_behind(cluster: Cluster) -> None:
    class InQos(FakeScheduler):
        def cluster_info(self) -> ClusterInfo:
            info = super().cluster_info()
            changed = tuple(replace(each, qos="part") for each in info.partitions)
            return replace(info, partitions=changed)

    cluster.slurm = InQos(cluster.clock)
    of_partition = QosLimits("part", limits=(Limit("MaxWall", "minutes", 1440),))
    for flags, is_first in (((), True), (("OverPartQOS",), False)):
        stands = with_qos(Limit("MaxWall", "minutes", 10), flags=flags)
        cluster.stands(replace(stands, other_qos=(of_partition,)))

        assert bool(cluster.chooser.survey(asked()).ranked) is is_first


def test_memory_is_that_of_all_nodes(cluster: Cluster) -> None:
    cluster.stands(with_qos(Limit("MaxTRESPerJob", "mem", 60_000)))

    assert cluster.chooser.survey(asked(mem="40G")).ranked
    refused = cluster.chooser.survey(asked(mem="40G", nodes=2)).refused
    assert refused["gpu", None].startswith("it asks for 80 GiB mem, and MaxTRESPerJob")
