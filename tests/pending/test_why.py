"""What is known of a waiting job, put together, and what to try about it."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from typing import Any

import pytest

from hpcflow.cli.look.why_words import wait_lines
from hpcflow.pending.advice import sizes_that_fit
from hpcflow.pending.bounds import amount_words, has_room
from hpcflow.pending.limits import account_lines
from hpcflow.pending.why import Wait, explain_wait
from hpcflow.schedulers.waiting import PriorityFactor, WaitingJob
from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.standing import Association, Limit, Reservation, Standing
from tests.pending.waiting import (
    CLUSTER,
    GPU,
    GPUS,
    JOB,
    NOW,
    PARTITION_NODES,
    QOS_GPUS,
    STANDING,
    job,
    reservation,
)

AGAIN = "hpcflow cancel RUN, then hpcflow resume RUN --set "


def explained(
    waiting: WaitingJob,
    *reservations: Reservation,
    standing: Standing | None = STANDING,
    cluster: ClusterInfo = CLUSTER,
) -> Wait:
    return explain_wait(
        waiting, "RUN", standing=standing, cluster=cluster, reservations=reservations, now=NOW
    )


def told(wait: Wait, *, held: bool = False) -> str:
    lines = wait_lines(wait, held=held, now=NOW)
    return "\n".join(f"{name:<11}{text}" for name, text in lines)


def fitting(wait: Wait) -> list[tuple[str, Any]]:
    return list(sizes_that_fit(wait.job, wait.limits, wait.partition, wait.obstacles))


def test_a_job_behind_others_is_told_by_whom_and_what_would_help() -> None:
    wait = explained(replace(JOB, wants={}))
    assert (
        told(wait)
        == """\
waits      jobs of higher priority are before it  [Priority]
job        4711 in gpu, 1 node, 10h, account physics, QOS normal, eligible for 1h 30m
position   3 of 5 in gpu
priority   25007, just before it 75000, the first 75001; made of fair share 25000 (100%), age 7 (0%)
fair share biology has the factor 0.750, 75000 points
           physics has the factor 0.250, 25000 points, the account of this job
start      2026-03-01 14:00:00 UTC, in 2h 00m on n2, or earlier, if other jobs end early"""
    )
    assert wait.to_try == (
        "account biology has a better fair share: 49993 points more, enough to reach the job "
        f"just ahead: {AGAIN}resources.account=biology",
        "wait: it starts by itself",
    )


def test_the_first_of_all_gains_nothing_by_another_account() -> None:
    wait = explained(job("Resources", position=1, priority_ahead=None))
    assert "position   1 of 5 in gpu: next" in told(wait)
    assert "just before it" not in told(wait)
    assert not any("account" in each for each in wait.to_try)


def test_another_account_must_be_clearly_better_and_take_the_job() -> None:
    physics = replace(STANDING.shares[3], factor=0.7)
    near = replace(STANDING, shares=(*STANDING.shares[:3], physics))
    assert not any("biology" in each for each in explained(JOB, standing=near).to_try)
    biology = Association("biology", qos=("other",))
    full = replace(
        STANDING.associations[0], limits=(Limit("MaxJobs", "jobs", 1, 1, "user ada in biology"),)
    )
    no_room = replace(STANDING, associations=(full, STANDING.associations[1]))
    assert not any("biology" in each for each in explained(JOB, standing=no_room).to_try)
    without_qos = replace(STANDING, associations=(biology, STANDING.associations[1]))
    assert not any("biology" in each for each in explained(JOB, standing=without_qos).to_try)


def test_a_full_limit_is_told_with_what_is_used_of_it() -> None:
    wait = explained(job("AssocGrpGRES", wants={"gres/gpu": 2}))
    assert wait.limits == (GPUS,)
    assert "limits     GrpTRES of account physics: 16 of 16 gres/gpu used, full" in told(wait)
    assert wait.to_try == (
        "wait until other jobs under this limit end; see its use: hpcflow limits",
    )
    full = job("QOSMaxGRESPerUser", account="biology", qos="tight", wants={"gres/gpu": 2})
    assert explained(full).limits == (QOS_GPUS,)


def test_the_qos_of_a_partition_binds_too() -> None:
    wait = explained(job("QOSGrpNodeLimit", wants={"node": 1}))
    assert wait.limits == (PARTITION_NODES,)


def test_a_limit_of_the_qos_goes_before_the_same_one_of_the_account() -> None:
    """As the page "Resource Limits" of Slurm has it, under "Hierarchy"."""
    wide = replace(
        STANDING.qos[0],
        limits=(
            Limit("GrpTRES", "gres/gpu", 64, 16, "QOS normal"),
            Limit("MaxWall", "minutes", 6000, None, "a job in QOS normal"),
            Limit("MaxJobsPerUser", "jobs", 9, 0, "user ada in QOS normal"),
        ),
    )
    full = replace(
        STANDING.associations[1],
        limits=(GPUS, Limit("MaxWall", "minutes", 60), Limit("MaxJobs", "jobs", 4, 4)),
    )
    standing = replace(
        STANDING, qos=(wide, STANDING.qos[1]), associations=(STANDING.associations[0], full)
    )
    waiting = job("Priority", wants={"gres/gpu": 1})
    assert explained(waiting, standing=standing).limits == ()
    by_qos = explained(replace(waiting, qos="tight"), standing=standing).limits
    assert [each.name for each in by_qos] == ["GrpTRES", "MaxWall", "MaxJobs", "MaxTRESPerUser"]


def test_what_its_qos_does_not_count_uses_no_budget_up() -> None:
    spent = Limit("GrpTRESMins", "cpu", 9, 9, "account physics")
    physics = replace(STANDING.associations[1], limits=(spent,))
    standing = replace(STANDING, associations=(STANDING.associations[0], physics))
    assert explained(JOB, standing=standing).limits == (spent,)
    free = replace(STANDING.qos[0], usage_factor=Decimal(0))
    assert explained(JOB, standing=replace(standing, qos=(free,))).limits == ()


def test_limits_that_the_cluster_only_notes_bind_nobody() -> None:
    noted = replace(STANDING, are_limits_enforced=False)
    assert explained(job("Priority", wants={"gres/gpu": 1}), standing=noted).limits == ()


def test_an_account_that_is_called_after_a_qos_keeps_its_limits() -> None:
    ours = replace(GPUS, holder="account QOSLAB")
    lab = replace(STANDING.associations[1], account="QOSLAB", limits=(ours,))
    standing = replace(STANDING, associations=(STANDING.associations[0], lab))
    full = job("AssocGrpGRES", account="QOSLAB", wants={"gres/gpu": 2})
    assert explained(full, standing=standing).limits == (ours,)


def test_the_first_of_all_is_not_the_next_while_a_limit_is_full() -> None:
    full = job("AssocGrpGRES", position=1, priority_ahead=None, wants={"gres/gpu": 2})
    assert "position   1 of 5 in gpu\n" in told(explained(full))


@pytest.mark.parametrize(
    "partition",
    [
        {"allowed_accounts": frozenset({"physics"})},
        {"denied_accounts": frozenset({"biology"})},
        {"allowed_qos": frozenset({"high"})},
        {"denied_qos": frozenset({"normal"})},
    ],
)
def test_no_account_is_advised_that_the_partition_does_not_take(partition: Any) -> None:
    cluster = replace(CLUSTER, partitions=(replace(GPU, **partition),))
    wait = explained(replace(JOB, wants={}), cluster=cluster)
    assert not any("biology" in each for each in wait.to_try)


def test_a_membership_for_one_partition_has_a_fair_share_of_its_own() -> None:
    only = replace(STANDING.shares[3], partition="debug", factor=0.9)
    two = replace(STANDING, shares=(*STANDING.shares[:3], only, STANDING.shares[3]))
    factors = {each.name: each.factor for each in explained(JOB, standing=two).accounts}
    assert factors == {"biology": 0.75, "physics": 0.25}
    there = replace(JOB, partitions=("debug",))
    factors = {each.name: each.factor for each in explained(there, standing=two).accounts}
    assert factors == {"biology": 0.75, "physics": 0.9}
    debug = replace(STANDING.associations[1], partition="debug")
    lines = account_lines(replace(two, associations=(*STANDING.associations, debug)))
    told = {(each.account, each.partition): each.factor for each in lines}
    assert told == {("biology", None): 0.75, ("physics", None): 0.25, ("physics", "debug"): 0.9}


def test_another_account_is_advised_only_where_the_job_comes_earlier_in_it() -> None:
    def says(waiting: WaitingJob, **settings: str) -> bool:
        cluster = replace(CLUSTER, settings={**CLUSTER.settings, **settings})
        return any("biology" in each for each in explained(waiting, cluster=cluster).to_try)

    waiting = replace(JOB, wants={})
    assert says(waiting)
    assert not says(waiting, PriorityWeightFairShare="0"), "fair share counts for nothing"
    assert not says(waiting, PriorityType="priority/basic"), "first come, first served"
    assert says(replace(waiting, priority_ahead=75_100)), "it has waited a little longer, no more"
    assert not says(replace(waiting, priority_ahead=80_000)), "it would still be behind that one"
    old = (PriorityFactor("age", 60_000), PriorityFactor("fair share", 25_000))
    aged = replace(waiting, priority=85_000, priority_ahead=90_000, factors=old)
    assert not says(aged), "the points for its age are lost"


@pytest.mark.parametrize("reason", ["AssocGrpGRES", "AssocGrpGRESRunMinutes"])
def test_a_job_that_asks_for_more_than_a_limit_of_all_jobs_does_not_wait_for_them(
    reason: str,
) -> None:
    """Slurm has one word for a limit that is full and for one that the job exceeds by itself."""
    many = job(reason, wants={"gres/gpu": 20})
    wait = explained(many)
    exceeds = reason == "AssocGrpGRES"
    assert wait.reason.can_start is not exceeds
    assert ("it cannot start as it is" in told(wait)) is exceeds
    if exceeds:
        assert "it asks for 20 gres/gpu, and GrpTRES of account physics allows 16" in told(wait)
        assert wait.to_try == ("see your accounts, QOS and limits: hpcflow limits",)
    alone = replace(STANDING, associations=STANDING.associations[1:])
    fits = explained(job(reason, wants={"gres/gpu": 2}), standing=alone)
    assert fits.reason.can_start


def test_more_nodes_than_the_partition_takes_are_told() -> None:
    cluster = replace(CLUSTER, partitions=(replace(GPU, job_nodes_max=2),))
    wait = explained(job("PartitionNodeLimit", nodes=3), cluster=cluster)
    assert "limits     partition gpu allows at most 2 nodes" in told(wait)
    assert "it cannot start as it is" in told(wait)
    assert "at most 2 nodes" not in told(explained(job("Priority", nodes=2), cluster=cluster))
    all_of_them = told(explained(job("PartitionNodeLimit", nodes=5)))
    assert "partition gpu has at most 4 nodes" in all_of_them
    assert "it cannot start as it is" in all_of_them
    large = replace(CLUSTER, partitions=(replace(GPU, job_nodes_min=2),))
    too_few = told(explained(job("PartitionNodeLimit", nodes=1), cluster=large))
    assert "partition gpu allows no less than 2 nodes" in too_few


def test_a_job_that_waits_for_nodes_that_are_not_up_starts_some_time() -> None:
    wait = explained(job("PartitionNodeLimit", nodes=4))
    assert wait.reason.can_start
    assert "it cannot start as it is" not in told(wait)


@pytest.mark.parametrize(
    ("reason", "is_others"),
    [
        ("Priority", True),
        ("Resources", True),
        ("QOSMaxGRESPerUser", True),
        ("BeginTime", False),
        ("JobHeldUser", False),
        ("JobHeldAdmin", False),
        ("ReqNodeNotAvail, Reserved for maintenance", False),
        ("PartitionDown", False),
        ("BadConstraints", False),
    ],
)
def test_only_what_waits_for_others_may_start_before_its_time(reason: str, is_others: bool) -> None:
    assert ("if other jobs end early" in told(explained(job(reason)))) is is_others


def test_behind_a_maintenance_of_all_nodes_nothing_starts_early() -> None:
    assert "if other jobs end early" not in told(explained(job("Resources"), reservation(30, 90)))
    some = reservation(30, 90, nodes=("n1",))
    assert "if other jobs end early" in told(explained(job("Resources"), some))


@pytest.mark.parametrize(
    ("used", "wants", "words"),
    [
        (15, 2, "15 of 16 gres/gpu used; it wants 2, and 1 is left"),
        (16, 2, "16 of 16 gres/gpu used, full"),
        (12, 9, "12 of 16 gres/gpu used; it wants 9, and 4 are left"),
    ],
)
def test_a_limit_says_what_is_left_and_whether_that_is_enough(
    used: int, wants: int, words: str
) -> None:
    limit = replace(GPUS, used=used)
    mine = replace(STANDING.associations[1], limits=(limit,))
    standing = replace(STANDING, associations=(mine,))
    wait = explained(job("AssocGrpGRES", wants={"gres/gpu": wants}), standing=standing)
    assert f"GrpTRES of account physics: {words}" in told(wait)


def test_a_limit_is_told_before_slurm_comes_to_it() -> None:
    assert explained(job("Priority", wants={"gres/gpu": 1})).limits == (GPUS,)
    assert explained(job("Priority", wants={"cpu": 1})).limits == ()


@pytest.mark.parametrize(
    ("limit", "has"),
    [
        (Limit("MaxJobs", "jobs", 4, 4), False),
        (Limit("MaxJobs", "jobs", 5, 4), True),
        (Limit("MaxSubmitJobs", "jobs", 4, 4), True),  # it waits already, so it counts already
        (Limit("GrpTRES", "cpu", 10, 8), True),
        (Limit("GrpTRES", "cpu", 9, 8), False),
        (Limit("GrpTRES", "gres/gpu", 4, 4), True),  # it asks for none
        (Limit("GrpTRESMins", "cpu", 9, 9), False),
        (Limit("GrpTRESMins", "cpu", 9, 8), True),  # what it would take is Slurm's arithmetic
        (Limit("GrpTRESMins", "gres/gpu", 9, 9), True),  # it asks for none
        (Limit("GrpTRESRunMins", "cpu", 9, 9), False),
        (Limit("GrpTRESRunMins", "cpu", 1300, 100), True),  # two for ten hours are 1200
        (Limit("GrpTRESRunMins", "cpu", 1300, 101), False),
        (Limit("MaxTRESMinsPerJob", "cpu", 9), True),
        (Limit("MaxTRESPerJob", "cpu", 1), False),
        (Limit("MaxTRESPerNode", "cpu", 1), True),  # two on two nodes
        (Limit("MinTRESPerJob", "cpu", 4), True),
        (Limit("MaxWall", "minutes", 599), False),
        (Limit("MaxWall", "minutes", 600), True),
        (Limit("GrpWall", "minutes", 2, 1), True),
        (Limit("GrpWall", "minutes", 1, 1), False),
    ],
)
def test_whether_a_limit_leaves_room(limit: Limit, has: bool) -> None:
    assert has_room(limit, replace(JOB, nodes=2, wants={"cpu": 2, "node": 2})) is has


@pytest.mark.parametrize(
    ("limit", "words"),
    [
        (Limit("MaxJobs", "jobs", 20, 4), "4 of 20 jobs used"),
        (Limit("GrpTRES", "mem", 65536, 8192), "8 GiB of 64 GiB mem used"),
        (Limit("GrpTRES", "mem", 500, 8), "8 MiB of 500 MiB mem used"),
        (Limit("GrpTRESMins", "gres/gpu", 9000, 30), "30 of 9000 gres/gpu minutes used"),
        (Limit("MaxWall", "minutes", 1500), "at most 1d 1h"),
        (Limit("GrpWall", "minutes", 60, 0), "0m of 1h used"),
        (Limit("MinTRESPerJob", "cpu", 4), "at least 4 cpu"),
    ],
)
def test_a_limit_in_words(limit: Limit, words: str) -> None:
    assert amount_words(limit) == words


def test_maintenance_that_the_job_would_run_into_says_how_long_it_may_be() -> None:
    wait = explained(job("ReqNodeNotAvail, Reserved for maintenance"), reservation(180))
    (obstacle,) = wait.obstacles
    assert (obstacle.nodes, obstacle.of_nodes, obstacle.fits_min) == (4, 4, 175)
    assert (
        "reserved   maintenance maint has all nodes that it could have from 2026-03-01 15:00:00 to"
        " 2026-03-01 17:00:00 UTC: a limit of 2h 55m or less would end before it"
    ) in told(wait)
    assert fitting(wait) == [("time_limit", 175)]


def test_reservations_that_are_not_in_the_way_are_not_told() -> None:
    after = reservation(601)
    over = reservation(-200)
    others = reservation(60, nodes=("z9",))
    own = replace(reservation(60), name="lab")
    elsewhere = replace(reservation(60), partition="cpu")
    wait = explained(job("Reservation", reservation="lab"), after, over, others, own, elsewhere)
    assert wait.obstacles == ()
    # The same where the nodes of the job are named, and others are reserved.
    here = explained(job("Resources", required_nodes=("n2",)), reservation(60, nodes=("n1",)))
    assert here.obstacles == ()


def test_a_reservation_of_licences_alone_is_in_nobodys_way() -> None:
    licences = reservation(60, nodes=())
    wait = explain_wait(JOB, "RUN", standing=None, cluster=None, reservations=[licences], now=NOW)
    assert wait.obstacles == ()


def test_a_reservation_that_has_begun_leaves_no_time_before_it() -> None:
    begun, later = reservation(-10), replace(reservation(180), name="later")
    wait = explained(job("ReqNodeNotAvail, Reserved for maintenance"), begun, later)
    assert [each.fits_min for each in wait.obstacles] == [None, 175]


def test_the_nearest_sizes_that_limits_and_the_partition_leave_are_found() -> None:
    small = replace(CLUSTER, partitions=(replace(GPU, job_nodes_max=2, time_limit_max_min=300),))
    wait = explained(job("PartitionNodeLimit", nodes=3), cluster=small)
    assert fitting(wait) == [("time_limit", 300), ("nodes", 2)]
    large = replace(CLUSTER, partitions=(replace(GPU, job_nodes_min=2),))
    assert fitting(explained(job("PartitionNodeLimit"), cluster=large)) == [("nodes", 2)]
    too_many = explained(job("AssocGrpGRES", nodes=2, wants={"gres/gpu": 40}))
    assert fitting(too_many) == [("gpus_per_node", 8)]
    short = Limit("MaxWall", "minutes", 60, holder="user ada in account physics")
    physics = replace(STANDING.associations[1], limits=(short,))
    standing = replace(STANDING, associations=(physics,))
    too_long = explained(job("AssocMaxWallDurationPerJobLimit"), standing=standing)
    assert fitting(too_long) == [("time_limit", 60)]


def test_a_reservation_that_draws_the_job_to_itself_is_not_in_its_way() -> None:
    magnetic = replace(reservation(60), flags=("MAGNETIC",), users=(), accounts=("physics",))
    assert explained(JOB, magnetic).obstacles == ()
    assert explained(replace(JOB, account="biology"), magnetic).obstacles != ()


def test_a_reservation_that_has_begun_or_is_near_leaves_no_limit_to_choose() -> None:
    begun, near = reservation(-10, nodes=("n1",)), reservation(7, nodes=("n1", "n2"))
    wait = explained(job("Resources"), begun, near)
    assert [each.fits_min for each in wait.obstacles] == [None, None]
    assert "has 1 of 4 nodes from" in told(wait)
    assert "until then nothing else starts there" in told(wait)
    assert "it begins in 7m 00s, and only a job with a shorter limit could start now" in told(wait)


def test_where_others_are_hidden_the_position_is_no_place_in_the_queue() -> None:
    hidden = replace(CLUSTER, settings={"PrivateData": "accounts,jobs,usage"})
    first = job("Priority", position=1, rivals=1)
    wait = explain_wait(first, "RUN", standing=STANDING, cluster=hidden, reservations=[], now=NOW)
    assert "1 of 1 in gpu, among your own jobs: this site does not show others" in told(wait)
    assert "factor 0.750\n" in told(wait)  # the weight is not known there


def test_a_job_that_will_not_start_says_so() -> None:
    wait = explained(job("PartitionTimeLimit", time_limit_min=3000))
    assert "it cannot start as it is" in told(wait)
    assert "partition gpu allows at most 1d" in told(wait)
    assert wait.to_try == ("see its limits: scontrol show partition gpu",)
    assert fitting(wait) == [("time_limit", 1440)]
    never = explained(job("BadConstraints", position=None, priority=None))
    assert "it cannot start yet, even without jobs ahead of it" in told(never)
    assert "priority " not in told(never)


def test_a_job_without_a_plan_or_a_word_of_anybody_is_told_of_all_the_same() -> None:
    bare = WaitingJob("7", reason="FullMoon")
    wait = explain_wait(bare, "RUN", standing=None, cluster=None, reservations=[], now=NOW)
    assert "Slurm says: FullMoon  [FullMoon]" in told(wait)
    assert "Slurm has not planned it yet" in told(wait)
    assert (wait.accounts, wait.limits, wait.partition) == ((), (), None)
    late = replace(JOB, expected_start=NOW - timedelta(minutes=1), dependency="afterok:7")
    assert "start      any moment on n2" in told(explained(late))
    assert "depends on afterok:7" in told(explained(late))
    assert "the run is also held" in told(explained(late), held=True)


def test_names_from_slurm_are_only_names() -> None:
    named = replace(STANDING.associations[0], account="{run}{0}")
    shares = (*STANDING.shares[2:], replace(STANDING.shares[1], account="{run}{0}"))
    odd = replace(STANDING, associations=(named, STANDING.associations[1]), shares=shares)
    assert explained(JOB, standing=odd).to_try


def test_no_account_is_advised_by_points_that_nobody_tells() -> None:
    assert any("biology" in each for each in explained(replace(JOB, wants={})).to_try)
    assert not any("biology" in each for each in explained(replace(JOB, factors=())).to_try)
    hidden = replace(CLUSTER, settings={**CLUSTER.settings, "PrivateData": "jobs"})
    assert not any("biology" in x for x in explained(replace(JOB, wants={}), cluster=hidden).to_try)
