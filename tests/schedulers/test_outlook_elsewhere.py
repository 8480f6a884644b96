"""How users stand and why jobs wait on clusters unlike ours: other versions, other accounts."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timezone

import pytest

from hpcflow.errors import SchedulerUnavailable, SubmissionDelayed, SubmissionRefused
from hpcflow.schedulers.slurm.parse_assoc_mgr import parse_assoc_mgr
from hpcflow.schedulers.slurm.parse_scontrol import parse_reservations
from hpcflow.schedulers.slurm.parse_standing import (
    ASSOCIATION_FIELDS,
    QOS_FIELDS,
    SlurmOutputs,
    standing,
)
from hpcflow.schedulers.slurm.parse_waiting import (
    WAITING_FIELDS,
    parse_factors,
    parse_start,
    parse_waiting,
)
from hpcflow.schedulers.slurm.run_command import Answer
from hpcflow.schedulers.slurm.submit import refusal_from
from hpcflow.schedulers.waiting import PriorityFactor
from hpcflow.sites.standing import Reservation
from tests.schedulers.test_outlook import limits_of


def test_a_newer_sbatch_says_where_and_has_a_word_too_many() -> None:
    start = parse_start(
        "sbatch: Job 17 to start at 2026-03-01T10:00:00 on cluster big a using 8 processors"
        " on nodes n[2-3] in partition gpu\n  Preempts: 4,5\n"
    )
    assert start is not None
    assert start.starts_at == datetime(2026, 3, 1, 10, tzinfo=timezone.utc)
    assert (start.partition, start.nodes) == ("gpu", ("n2", "n3"))
    assert parse_start("sbatch: hello\n") is None


def test_a_full_limit_of_jobs_passes_and_a_silent_controller_is_no_refusal() -> None:
    full = "sbatch: error: QOSMaxSubmitJobPerUserLimit\nallocation failure: Job violates accounting"
    more = "/QOS policy (job submit limit, user's size and/or time limits)\n"
    assert type(refusal_from(Answer("sbatch", 1, "", full + more, 60))) is SubmissionDelayed
    late = "sbatch: error: Socket timed out on send/recv operation\n"
    assert type(refusal_from(Answer("sbatch", 1, "", late, 60))) is SchedulerUnavailable
    odd = refusal_from(Answer("sbatch", 1, "", "sbatch: error: no jobs on Sundays\n", 60))
    assert type(odd) is SubmissionRefused
    assert "no jobs on Sundays" in odd.message


NEW_BOOK = """\
Current Association Manager state

Association Records

ClusterName=big Account=root UserName= Partition= Priority=0 ID=1
    ParentAccount= Lineage=/ DefAssoc=No
    GrpJobs=N(900) GrpJobsAccrue=N(5)
    GrpTRES=cpu=N(27),gres/gpu:a100=N(64)
    Comment=
ClusterName=big Account=science UserName= Partition= Priority=0 ID=2
    ParentAccount=root(1) Lineage=/science/ DefAssoc=No
    GrpTRES=cpu=500(27),gres/gpu:a100=64(64)
    GrpWall=60000(59999.50)
ClusterName=big Account=lab UserName= Partition= Priority=0 ID=3
    ParentAccount=science(2) Lineage=/science/lab/ DefAssoc=No
    GrpTRESRunMins=cpu=1000(27)
ClusterName=big Account=lab UserName=ada(7) Partition= Priority=0 ID=4
    ParentAccount= Lineage=/science/lab/0-ada/ DefAssoc=Yes
    MaxJobs= MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=
ClusterName=big Account=lab UserName=ada(7) Partition=debug Priority=0 ID=5
    ParentAccount= Lineage=/science/lab/0-ada/debug/ DefAssoc=No
    MaxJobs=1(0) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=30
ClusterName=small Account=lab UserName=ada(7) Partition= Priority=0 ID=4
    MaxJobs=1(1) MaxJobsAccrue= MaxSubmitJobs= MaxWallPJ=

QOS Records

QOS=normal(1)
    GrpJobs=N(6) GrpJobsAccrue=N(4) GrpSubmitJobs=N(14) GrpWall=N(2.13)
    Account Limits
      No Accounts
    User Limits
      bob(8)
        MaxJobsPU=2(2) MaxJobsAccruePU=N(1) MaxSubmitJobsPU=50(1)
      ada(7)
        MaxJobsPU=2(1) MaxJobsAccruePU=N(1) MaxSubmitJobsPU=50(1)
        MaxTRESPU=cpu=N(26),gres/gpu=4(3)
        MaxTRESRunMinsPU=cpu=100(99)
QOS=other(2)
    MaxWallPJ=480
"""


def test_accounts_above_bind_too_and_other_clusters_do_not() -> None:
    told = SlurmOutputs(books=parse_assoc_mgr(NEW_BOOK))
    found = standing(told, user="ada", uid=7, cluster="big")
    assert [(each.account, each.partition) for each in found.associations] == [
        ("lab", None),
        ("lab", "debug"),
    ]
    whole, debug = found.associations
    assert found.association() == whole
    assert found.association("lab", "gpu") == whole
    assert found.association("lab", "debug") == debug
    assert found.association("art") is None
    assert [(each.holder, each.name, each.resource, each.left) for each in whole.limits] == [
        ("account lab", "GrpTRESRunMins", "cpu", 973),
        ("account science", "GrpTRES", "cpu", 473),
        ("account science", "GrpTRES", "gres/gpu:a100", 0),
        ("account science", "GrpWall", "minutes", 1),
    ]
    assert debug.max_wall_min == 30


def test_a_user_of_a_qos_may_be_called_by_name_and_number() -> None:
    set_ = {"name": "normal", "maxjobspu": "2", "maxsubmitpu": "50", "maxtrespu": "gres/gpu=4",
            "maxtresrunminspu": "cpu=100"}  # fmt: skip
    row = "|".join(set_.get(field, "") for field in QOS_FIELDS)
    told = SlurmOutputs(qos=row, books=parse_assoc_mgr(NEW_BOOK))
    (normal,) = standing(told, user="ada", uid=7, cluster="big").qos
    assert limits_of(normal.limits) == {
        ("MaxJobsPerUser", "jobs"): (2, 1),
        ("MaxSubmitJobsPerUser", "jobs"): (50, 1),
        ("MaxTRESPerUser", "gres/gpu"): (4, 3),
        ("MaxTRESRunMinsPerUser", "cpu"): (100, 99),
    }


def test_a_qos_that_one_may_not_ask_for_may_be_that_of_a_partition() -> None:
    row = {"cluster": "big", "account": "lab", "qos": "normal"}
    text = "|".join(row.get(field, "") for field in ASSOCIATION_FIELDS)
    told = SlurmOutputs(associations=text, books=parse_assoc_mgr(NEW_BOOK))
    found = standing(told, user="ada", uid=7, cluster="big")
    assert [each.name for each in found.qos] == ["normal"]
    assert [each.name for each in found.other_qos] == ["other"]
    other = found.qos_named("other")
    assert other is not None
    assert other.max_wall_min == 480


def test_reservations_may_be_none_or_be_denied_to_somebody() -> None:
    assert parse_reservations("No reservations in the system\n") == []
    now = datetime.now(timezone.utc)
    open_ = Reservation("x", now, now)
    assert not open_.admits("ada", "lab")  # nobody is named
    assert replace(open_, accounts=("-art",)).admits("ada", "lab")
    assert not replace(open_, accounts=("-lab",)).admits("ada", "lab")
    assert not replace(open_, users=("bob",), accounts=("lab",)).admits("ada", "lab")


def test_lines_that_are_no_rows_are_passed_over() -> None:
    assert parse_waiting("Welcome!\n", "Welcome!|\n", ["1"]) == []
    values = dict.fromkeys(WAITING_FIELDS, "")
    filled = {"JobArrayID": "7", "JobID": "7", "State": "PENDING", "Reason": "None"}
    row = "\x1f".join({**values, **filled}.values())
    (job,) = parse_waiting(f"Welcome!\n{row}\x1e\n", "", ["7"])
    assert (job.job_id, job.reason, job.position, job.partitions) == ("7", None, None, ())


def waiting_row(job_id: str, priority: int, reason: str = "Priority") -> str:
    values = {
        **dict.fromkeys(WAITING_FIELDS, ""),
        "JobArrayID": job_id,
        "JobID": job_id.partition("_")[0],
        "State": "PENDING",
        "Partition": "gpu",
        "PriorityLong": str(priority),
        "EligibleTime": "2026-03-01T10:00:00",
        "Reason": reason,
    }
    return "\x1f".join(values.values()) + "\x1e\n"


@pytest.mark.parametrize(
    ("array", "jobs"),
    [
        ("5_[0-999]", 1000),
        ("5_[0-999%4]", 4),  # no more than four at a time
        ("5_[0-8:2,20]", 6),
        ("5_[7%4]", 1),
        ("5_7", 1),
        ("5_[0-4000000]", 4_000_001),
    ],
)
def test_tasks_of_an_array_are_as_many_jobs_before_one(array: str, jobs: int) -> None:
    queue = waiting_row(array, 99) + waiting_row("7", 9)
    (job,) = parse_waiting(queue, "", ["7"])
    assert (job.position, job.rivals, job.priority_ahead) == (jobs + 1, jobs + 1, 99)
    (first,) = parse_waiting(queue, "", ["5"])
    assert (first.position, first.rivals) == (1, jobs + 1)


@pytest.mark.parametrize(
    "reason",
    [
        "PartitionTimeLimit",
        "BadConstraints",
        "QOSMaxWallDurationPerJobLimit",
        "JobArrayTaskLimit",
        "launch failed requeued held",
    ],
)
def test_what_could_not_start_if_there_were_room_is_before_nobody(reason: str) -> None:
    queue = waiting_row("5", 99, reason) + waiting_row("7", 9)
    (job,) = parse_waiting(queue, "", ["7"])
    assert (job.position, job.rivals) == (1, 1)
    (other,) = parse_waiting(queue, "", ["5"])
    assert other.position is None


def test_the_parts_of_a_resource_factor_are_added() -> None:
    factors = parse_factors("9|gpu|100|5|0|0|0|0|0|cpu=12,gres/gpu:a100=3.6,mem=1|-7\n")
    assert factors["9", "gpu"] == (
        PriorityFactor("fair share", 100),
        PriorityFactor("resources", 17),
        PriorityFactor("nice", 7),
        PriorityFactor("age", 5),
    )
