"""How a user stands and why jobs wait: what a real, crowded cluster printed, and what others may.

The recordings are those of tests/recorded/outlook.py, which crowded the cluster as tests/crowd.py
says. A new folder there is tested without a line here.
"""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import (
    SubmissionRefused,
)
from hpcflow.schedulers.slurm.parse_assoc_mgr import parse_assoc_mgr
from hpcflow.schedulers.slurm.parse_scontrol import parse_nodes, parse_reservations
from hpcflow.schedulers.slurm.parse_standing import (
    SlurmOutputs,
    standing,
)
from hpcflow.schedulers.slurm.parse_waiting import (
    parse_cluster_queue,
    parse_factors,
    parse_start,
    parse_waiting,
)
from hpcflow.schedulers.slurm.run_command import Answer
from hpcflow.schedulers.slurm.submit import refusal_from
from hpcflow.schedulers.waiting import PriorityFactor
from hpcflow.sites.standing import Limit, Standing

RECORDED = Path(__file__).parents[1] / "recorded"
VERSIONS = sorted(path.parents[1].name for path in RECORDED.glob("*/outlook/truth.json"))
USER, QOS = "hpcf-ada", "hpcf-tight"

recorded = pytest.mark.parametrize("version", VERSIONS)


def recording(version: str, name: str) -> str:
    return (RECORDED / version / "outlook" / name).read_text()


def truth_of(version: str) -> Any:
    return json.loads(recording(version, "truth.json"))


def _standing(version: str, *silent: str) -> Standing:
    """As the recorded cluster told it, but for the parts that are silent."""

    def told(name: str) -> str | None:
        return None if name in silent else recording(version, f"{name}.txt")

    usage = told("usage")
    books = None if usage is None else parse_assoc_mgr(usage)
    parts = SlurmOutputs(told("associations"), told("qos"), told("shares"), books)
    return standing(parts, user=USER, uid=truth_of(version)["uid"], cluster="devcluster")


def limits_of(limits: tuple[Limit, ...]) -> dict[tuple[str, str], tuple[int, int | None]]:
    return {(each.name, each.resource): (each.allowed, each.used) for each in limits}


@recorded
def test_a_user_of_two_accounts_knows_what_binds_in_each(version: str) -> None:
    found = _standing(version)
    assert [each.account for each in found.associations] == ["biology", "physics"]
    biology, physics = found.associations
    assert found.association() == physics  # the default account
    assert physics.qos == (QOS, "normal")
    assert (biology.limits, biology.max_wall_min) == ((), None)
    assert physics.max_wall_min == 1440  # inherited from the account
    assert limits_of(physics.limits) == {
        ("MaxJobs", "jobs"): (20, 4),
        ("MaxSubmitJobs", "jobs"): (100, 11),
        ("MaxWall", "minutes"): (1440, None),
        ("MaxTRESPerJob", "node"): (4, None),
        ("GrpJobs", "jobs"): (30, 4),
        ("GrpTRES", "gres/gpu"): (16, 16),
    }
    full = [each for each in physics.limits if each.is_full]
    assert [(each.name, each.holder, each.left) for each in full] == [
        ("GrpTRES", "account physics", 0)
    ]
    assert {each.holder for each in physics.limits if each.name.startswith("Max")} == {
        f"user {USER} in account physics"
    }
    assert physics.in_use["jobs"] == 4
    assert physics.in_use["gres/gpu"] == 16


@recorded
def test_a_qos_knows_whom_it_binds(version: str) -> None:
    qos = _standing(version).qos_named(QOS)
    assert qos is not None
    assert (qos.priority, qos.flags) == (10, ("DenyOnLimit", "NoReserve"))
    assert (qos.preempts, qos.usage_factor) == (("normal",), Decimal(2))
    assert qos.max_wall_min == 480
    assert {(each.name, each.holder): (each.allowed, each.used) for each in qos.limits} == {
        ("MaxJobsPerUser", f"user {USER} in QOS {QOS}"): (2, 0),
        ("MaxSubmitJobsPerUser", f"user {USER} in QOS {QOS}"): (50, 1),
        ("MaxTRESPerUser", f"user {USER} in QOS {QOS}"): (4, 0),
        ("MaxTRESPerAccount", f"account biology in QOS {QOS}"): (64 * 1024, 0),
        ("MaxTRESPerAccount", f"account physics in QOS {QOS}"): (64 * 1024, 0),
        ("MaxWall", f"a job in QOS {QOS}"): (480, None),
        ("MaxTRESPerJob", f"a job in QOS {QOS}"): (16, None),
        ("GrpTRES", f"QOS {QOS}"): (3, 0),
    }


@recorded
def test_fair_shares_are_of_the_user_and_of_the_accounts(version: str) -> None:
    found = _standing(version)
    biology, physics = found.share("biology"), found.share("physics")
    assert biology is not None
    assert physics is not None
    assert (biology.raw_shares, physics.raw_shares) == (5, 1)
    assert biology.factor is not None
    assert physics.factor is not None
    assert biology.factor > physics.factor  # physics runs on all nodes
    whole = found.account_share("physics")
    assert whole is not None
    assert (whole.raw_shares, whole.factor) == (70, None)
    assert whole.effective_usage is not None
    assert whole.effective_usage > 0.5


@recorded
def test_each_part_may_be_silent(version: str) -> None:
    whole = _standing(version)
    no_database = _standing(version, "associations", "qos", "shares")
    assert [each.account for each in no_database.associations] == ["biology", "physics"]
    known, left = whole.association("physics"), no_database.association("physics")
    assert known is not None
    assert left is not None
    assert (left.limits, left.is_default, left.qos) == (known.limits, True, ())
    assert no_database.shares == ()
    tight = no_database.qos_named(QOS)
    assert tight is not None
    assert limits_of(tight.limits)["GrpTRES", "node"] == (3, 0)

    no_usage = _standing(version, "usage")
    left = no_usage.association("physics")
    assert left is not None
    assert limits_of(left.limits) == {
        ("MaxJobs", "jobs"): (20, None),
        ("MaxSubmitJobs", "jobs"): (100, None),
        ("MaxWall", "minutes"): (1440, None),
        ("MaxTRESPerJob", "node"): (4, None),
    }
    assert (left.is_default, no_usage.shares) == (None, whole.shares)
    assert (whole.is_use_known, no_usage.is_use_known) == (True, False)


@recorded
def test_a_waiting_job_says_why_how_far_ahead_others_are_and_when_it_may_start(
    version: str,
) -> None:
    truth = truth_of(version)
    squeue, sprio = recording(version, "everybody.txt"), recording(version, "factors.txt")
    by_name = {
        name: job
        for name, job_id in truth["jobs"].items()
        for job in parse_waiting(squeue, sprio, [job_id])
    }
    assert by_name.keys() == truth["jobs"].keys() - {"running"}
    first, full = by_name["first"], by_name["over-the-accounts-gpus"]
    assert first.reason in ("Resources", "Priority"), "Slurm changes between them"
    assert (first.account, first.nodes) == ("biology", 2)
    assert (first.position, first.priority_ahead) == (1, None)
    assert len(first.expected_nodes) == 2
    assert (full.reason, full.time_limit_min, full.qos) == ("AssocGrpGRES", 60, "normal")
    assert (first.wants["node"], "gres/gpu" in first.wants) == (2, False)
    assert (full.wants["gres/gpu"], full.wants["cpu"], full.wants["mem"]) == (2, 1, 1024)
    # Before it: the first, and two tasks of the array, which runs no more at a time.
    assert (full.position, full.rivals) == (4, 7)
    assert full.priority_first == first.priority
    assert full.priority is not None
    assert first.priority is not None
    assert full.priority < first.priority
    held, later, after = by_name["held"], by_name["later"], by_name["after"]
    assert (held.reason, held.priority, held.position) == ("JobHeldUser", 0, None)
    assert (later.reason, later.position) == ("BeginTime", None)
    assert (after.reason, after.position) == ("Dependency", None)
    assert after.dependency == f"afterok:{truth['jobs']['running']}(unfulfilled)"
    maintained = by_name["through-maintenance"]
    assert maintained.reason == "ReqNodeNotAvail, Reserved for maintenance"
    both = by_name["in-both-partitions"]
    assert set(both.partitions) == {"gpu", "spot"}
    assert both.factors

    starts = dict(line.split("|") for line in truth["squeue --start"].splitlines())
    for name, job in by_name.items():
        row = next(each for each in starts if each.startswith(truth["jobs"][name]))
        told = starts[row]
        said = job.expected_start and job.expected_start.strftime("%Y-%m-%dT%H:%M:%S")
        assert (said or "N/A") == told, name


@recorded
def test_everybodys_queue_has_what_runs_and_what_competes(version: str) -> None:
    jobs = truth_of(version)["jobs"]
    queue = parse_cluster_queue(recording(version, "everybody.txt"))
    waiting = {job.job_id: job for job in queue.waiting}
    assert jobs["first"] in waiting
    kept_back = ("held", "later", "after")
    assert not waiting.keys() & {jobs[name] for name in kept_back}
    running = {job.job_id: job for job in queue.running}
    own = running[jobs["running"]]
    assert (own.partition, own.account, own.uses["gres/gpu"], own.uses["node"]) == (
        "gpu", "physics", 4, 1,
    )  # fmt: skip
    assert own.ends_at is not None
    assert waiting[jobs["first"]].expected_start is not None


@recorded
def test_a_task_of_an_array_waits_as_its_row_does(version: str) -> None:
    squeue, sprio = recording(version, "everybody.txt"), recording(version, "factors.txt")
    array = truth_of(version)["jobs"]["array"]
    (task,) = parse_waiting(squeue, sprio, [f"{array}_3"])
    (row,) = parse_waiting(squeue, sprio, [array])
    assert task == replace(row, job_id=f"{array}_3")
    assert task.position is not None
    assert task.factors
    assert parse_waiting(squeue, sprio, [f"{array}_9"]) == []


@recorded
def test_the_factors_add_up_to_what_sprio_shows(version: str) -> None:
    factors = parse_factors(recording(version, "factors.txt"))
    rows = [line.split() for line in truth_of(version)["sprio"].splitlines()]
    assert {(row[0], row[1]) for row in rows} == factors.keys()
    for row in rows:
        parts = factors[row[0], row[1]]
        # Of the job, then its priority, and the factors; from 24.11 on an account stands before.
        _, shown, *_, fair_share = [int(word) for word in row if word.isdigit()][:6]
        assert sum(each.points for each in parts) == pytest.approx(shown, abs=2)
        assert parts[0] == PriorityFactor("fair share", fair_share)


@recorded
def test_reservations_come_by_their_start(version: str) -> None:
    maintenance, lab = parse_reservations(recording(version, "reservations.txt"))
    assert maintenance.is_maintenance
    assert maintenance.nodes == ("n1", "n2", "n3", "n4")
    assert maintenance.end - maintenance.start == timedelta(hours=2)
    assert not maintenance.admits(USER, "physics")
    assert (lab.name, lab.is_maintenance, lab.nodes) == ("hpcf-lab", False, ("n1",))
    assert lab.admits(USER, "physics")
    assert not lab.admits(USER, "biology")


@recorded
def test_sbatch_says_when_a_job_would_start_or_why_it_would_not(version: str) -> None:
    for told in json.loads(recording(version, "test_only.json")):
        answer = Answer("sbatch", told["exit_code"], told["stdout"], told["stderr"], 60)
        if answer.exit_code == 0:
            start = parse_start(answer.stderr)
            assert start is not None, told
            assert start.partition == ("spot" if "-pspot" in told["options"] else "gpu")
            assert start.nodes
            continue
        error = refusal_from(answer)
        assert type(error) is SubmissionRefused, told
        assert "allocation failure" not in error.message
        assert error.where is not None, told


@recorded
def test_what_is_idle_of_each_node_is_known(version: str) -> None:
    """In the recording four jobs have all nodes for themselves."""
    assert parse_nodes(recording(version, "nodes.txt")) == []
