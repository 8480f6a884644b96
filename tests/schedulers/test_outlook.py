"""How a user stands and why jobs wait: what a real, crowded cluster printed, and what others may.

The recordings are those of tests/recorded/outlook.py, which crowded the cluster as tests/crowd.py
says. A new folder there is tested without a line here.
"""

from __future__ import annotations

import json
import shlex
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import (
    SchedulerError,
    SchedulerUnavailable,
    SubmissionDelayed,
    SubmissionRefused,
)
from hpcflow.schedulers.base import SubmitRequest
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.schedulers.slurm.outlook import questions
from hpcflow.schedulers.slurm.parse_assoc_mgr import parse_assoc_mgr
from hpcflow.schedulers.slurm.parse_reservations import parse_reservations
from hpcflow.schedulers.slurm.parse_standing import (
    ASSOCIATION_FIELDS,
    QOS_FIELDS,
    Told,
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
from hpcflow.sites.standing import Limit, Reservation, Standing
from tests.schedulers.programs import arguments, install

RECORDED = Path(__file__).parents[1] / "recorded"
VERSIONS = sorted(path.parents[1].name for path in RECORDED.glob("*/outlook/truth.json"))
USER, QOS = "hpcf-ada", "hpcf-tight"

recorded = pytest.mark.parametrize("version", VERSIONS)


def _text(version: str, name: str) -> str:
    return (RECORDED / version / "outlook" / name).read_text()


def _truth(version: str) -> Any:
    return json.loads(_text(version, "truth.json"))


def _standing(version: str, *silent: str) -> Standing:
    """As the recorded cluster told it, but for the parts that are silent."""

    def told(name: str) -> str | None:
        return None if name in silent else _text(version, f"{name}.txt")

    usage = told("usage")
    books = None if usage is None else parse_assoc_mgr(usage)
    parts = Told(told("associations"), told("qos"), told("shares"), books)
    return standing(parts, user=USER, uid=_truth(version)["uid"], cluster="devcluster")


def _limits(limits: tuple[Limit, ...]) -> dict[tuple[str, str], tuple[int, int | None]]:
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
    assert _limits(physics.limits) == {
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
    assert _limits(tight.limits)["GrpTRES", "node"] == (3, 0)

    no_usage = _standing(version, "usage")
    left = no_usage.association("physics")
    assert left is not None
    assert _limits(left.limits) == {
        ("MaxJobs", "jobs"): (20, None),
        ("MaxSubmitJobs", "jobs"): (100, None),
        ("MaxWall", "minutes"): (1440, None),
        ("MaxTRESPerJob", "node"): (4, None),
    }
    assert (left.is_default, no_usage.shares) == (None, whole.shares)


@recorded
def test_a_waiting_job_says_why_how_far_ahead_others_are_and_when_it_may_start(
    version: str,
) -> None:
    truth = _truth(version)
    squeue, sprio = _text(version, "waiting.txt"), _text(version, "factors.txt")
    by_name = {
        name: job
        for name, job_id in truth["jobs"].items()
        for job in parse_waiting(squeue, sprio, [job_id])
    }
    assert by_name.keys() == truth["jobs"].keys() - {"running"}
    first, full = by_name["first"], by_name["over-the-accounts-gpus"]
    assert (first.reason, first.account, first.nodes) == ("Resources", "biology", 2)
    assert (first.position, first.priority_ahead) == (1, None)
    assert len(first.expected_nodes) == 2
    assert (full.reason, full.time_limit_min, full.qos) == ("AssocGrpGRES", 60, "normal")
    assert (first.wants["node"], "gres/gpu" in first.wants) == (2, False)
    assert (full.wants["gres/gpu"], full.wants["cpu"], full.wants["mem"]) == (2, 1, 1024)
    # Before it: the first, and the array, of whose tasks one row tells.
    assert (full.position, full.rivals) == (3, 6)
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
def test_the_factors_add_up_to_what_sprio_shows(version: str) -> None:
    factors = parse_factors(_text(version, "factors.txt"))
    rows = [line.split() for line in _truth(version)["sprio"].splitlines()]
    assert {(row[0], row[1]) for row in rows} == factors.keys()
    for row in rows:
        parts = factors[row[0], row[1]]
        assert sum(each.points for each in parts) == pytest.approx(int(row[3]), abs=2)
        assert parts[0] == PriorityFactor("fair share", int(row[7]))


@recorded
def test_reservations_come_by_their_start(version: str) -> None:
    maintenance, lab = parse_reservations(_text(version, "reservations.txt"))
    assert maintenance.is_maintenance
    assert maintenance.nodes == ("n1", "n2", "n3", "n4")
    assert maintenance.end - maintenance.start == timedelta(hours=2)
    assert not maintenance.admits(USER, "physics")
    assert (lab.name, lab.is_maintenance, lab.nodes) == ("hpcf-lab", False, ("n1",))
    assert lab.admits(USER, "physics")
    assert not lab.admits(USER, "biology")


@recorded
def test_sbatch_says_when_a_job_would_start_or_why_it_would_not(version: str) -> None:
    for told in json.loads(_text(version, "test_only.json")):
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


# --- what other clusters and versions print ------------------------------------------------


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
    told = Told(books=parse_assoc_mgr(NEW_BOOK))
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
    told = Told(qos=row, books=parse_assoc_mgr(NEW_BOOK))
    (normal,) = standing(told, user="ada", uid=7, cluster="big").qos
    assert _limits(normal.limits) == {
        ("MaxJobsPerUser", "jobs"): (2, 1),
        ("MaxSubmitJobsPerUser", "jobs"): (50, 1),
        ("MaxTRESPerUser", "gres/gpu"): (4, 3),
        ("MaxTRESRunMinsPerUser", "cpu"): (100, 99),
    }


def test_a_qos_that_one_may_not_ask_for_may_be_that_of_a_partition() -> None:
    row = {"cluster": "big", "account": "lab", "qos": "normal"}
    text = "|".join(row.get(field, "") for field in ASSOCIATION_FIELDS)
    told = Told(associations=text, books=parse_assoc_mgr(NEW_BOOK))
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
    row = "\x1f".join({**values, "JobArrayID": "7", "JobID": "7", "Reason": "None"}.values())
    (job,) = parse_waiting(f"Welcome!\n{row}\x1e\n", "", ["7"])
    assert (job.job_id, job.reason, job.position, job.partitions) == ("7", None, None, ())


def test_the_parts_of_a_resource_factor_are_added() -> None:
    factors = parse_factors("9|gpu|100|5|0|0|0|0|0|cpu=12,gres/gpu:a100=3.6,mem=1|-7\n")
    assert factors["9", "gpu"] == (
        PriorityFactor("fair share", 100),
        PriorityFactor("resources", 17),
        PriorityFactor("nice", 7),
        PriorityFactor("age", 5),
    )


# --- the questions -------------------------------------------------------------------------


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    config = "AccountingStorageType = accounting_storage/slurmdbd\nClusterName = devcluster\n"
    usage = shlex.quote(_text(VERSIONS[0], "usage.txt"))
    answers = f"[ $2 = config ] && printf %s {shlex.quote(config)} || printf %s {usage}"
    install(monkeypatch, tmp_path, "scontrol", then=answers)
    install(monkeypatch, tmp_path, "sshare", stdout=_text(VERSIONS[0], "shares.txt"))
    install(monkeypatch, tmp_path, "sacctmgr", stdout=_text(VERSIONS[0], "associations.txt"))
    return monkeypatch


def test_what_is_silent_is_named_and_the_rest_is_told(
    slurm: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sshare = install(slurm, tmp_path, "sshare", stderr="sshare: error: no\n", exit_code=1)
    found = SlurmCommands(clock=SystemClock()).standing(USER)
    assert found is not None
    assert found.missing == ("shares: sshare got no answer: no",)
    assert [each.account for each in found.associations] == ["biology", "physics"]
    assert arguments(sshare)[-4:] == ["--users", USER, "--accounts", "biology,physics"]


def test_nobody_says_anything_where_there_is_no_accounting(
    slurm: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    assert SlurmCommands(clock=SystemClock(), has_accounting=False).standing(USER) is None
    install(slurm, tmp_path, "scontrol", stdout="AccountingStorageType = (null)\n")
    assert SlurmCommands(clock=SystemClock()).standing(USER) is None
    for program in ("scontrol", "sshare", "sacctmgr"):
        install(slurm, tmp_path, program, exit_code=1)
    assert SlurmCommands(clock=SystemClock()).standing(USER) is None


def test_a_job_is_told_of_without_sprio(slurm: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(slurm, tmp_path, "squeue", stdout=_text(VERSIONS[0], "waiting.txt"))
    install(slurm, tmp_path, "sprio", stderr="sprio: error: no priority plugin\n", exit_code=1)
    first = _truth(VERSIONS[0])["jobs"]["first"]
    (job,) = SlurmCommands(clock=SystemClock()).waiting([first])
    assert (job.reason, job.position, job.factors) == ("Resources", 1, ())


def test_formats_are_explicit(slurm: pytest.MonkeyPatch) -> None:
    assert slurm
    for name, argv in questions("ada", ("lab",)).items():
        is_scontrol = argv[0] == "scontrol"
        assert is_scontrol or any("format" in word.lower() for word in argv), name


def test_a_wrapper_that_sends_what_should_be_tested_is_found_out(
    slurm: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    sbatch = install(slurm, tmp_path, "sbatch", stdout="Submitted batch job 99\n")
    scancel = install(slurm, tmp_path, "scancel")
    script = tmp_path / "job.sbatch"
    with pytest.raises(SchedulerError, match="sends a job"):
        SlurmCommands(clock=SystemClock()).predicted_start(SubmitRequest(script, tmp_path, "x"))
    assert arguments(sbatch) == ["--test-only", str(script)]
    assert arguments(scancel) == ["99"]
