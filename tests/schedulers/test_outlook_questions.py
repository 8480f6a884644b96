"""Which questions are asked about users and waiting jobs, and what is left when some are not
answered. Slurm's programs are stand-ins that print what a real cluster printed."""

from __future__ import annotations

import shlex
from contextlib import suppress
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import SchedulerError, SchedulerUnavailable
from hpcflow.schedulers.base import SubmitRequest
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.schedulers.slurm.outlook import questions
from hpcflow.schedulers.slurm.parse_jobs import FIELD_END, QUEUE_FIELDS, ROW_END
from tests.schedulers.programs import arguments, install
from tests.schedulers.test_outlook import USER, VERSIONS, recording, truth_of


@pytest.fixture
def slurm(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> pytest.MonkeyPatch:
    config = "AccountingStorageType = accounting_storage/slurmdbd\nClusterName = devcluster\n"
    usage = shlex.quote(recording(VERSIONS[0], "usage.txt"))
    answers = f"[ $2 = config ] && printf %s {shlex.quote(config)} || printf %s {usage}"
    install(monkeypatch, tmp_path, "scontrol", then=answers)
    install(monkeypatch, tmp_path, "sshare", stdout=recording(VERSIONS[0], "shares.txt"))
    install(monkeypatch, tmp_path, "sacctmgr", stdout=recording(VERSIONS[0], "associations.txt"))
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
    install(slurm, tmp_path, "squeue", stdout=recording(VERSIONS[0], "everybody.txt"))
    install(slurm, tmp_path, "sprio", stderr="sprio: error: no priority plugin\n", exit_code=1)
    first = truth_of(VERSIONS[0])["jobs"]["first"]
    (job,) = SlurmCommands(clock=SystemClock()).waiting([first])
    assert (job.reason, job.position, job.factors) == ("Resources", 1, ())


@pytest.mark.parametrize(
    ("settings", "enforced", "tree"),
    [
        ("AccountingStorageEnforce = associations,limits,qos\nPriorityFlags = \n", True, True),
        ("AccountingStorageEnforce = associations\nPriorityFlags = NO_FAIR_TREE\n", False, False),
        ("AccountingStorageEnforce = none\nPriorityFlags = CALCULATE_RUNNING\n", False, True),
        ("", True, True),  # nobody says
    ],
)
def test_what_the_cluster_makes_of_limits_and_shares_is_known(
    slurm: pytest.MonkeyPatch, tmp_path: Path, settings: str, enforced: bool, tree: bool
) -> None:
    config = f"AccountingStorageType = accounting_storage/slurmdbd\n{settings}"
    answer = f"[ $2 = config ] && printf %s {shlex.quote(config)} || true"
    install(slurm, tmp_path, "scontrol", then=answer)
    found = SlurmCommands(clock=SystemClock()).standing(USER)
    assert found is not None
    assert (found.are_limits_enforced, found.is_fair_tree) == (enforced, tree)


def test_formats_are_explicit(slurm: pytest.MonkeyPatch) -> None:
    assert slurm
    for name, argv in questions("ada", ("lab",)).items():
        is_scontrol = argv[0] == "scontrol"
        assert is_scontrol or any("format" in word.lower() for word in argv), name


def queued(slurm: pytest.MonkeyPatch, folder: Path, *jobs: tuple[str, str]) -> None:
    """A queue with these jobs: id and name; asked for one name, it tells of that."""
    lines = [
        f'[[ " $* " == *" {name} "* ]] && printf %s {shlex.quote(queue_line(job_id, name))}'
        for job_id, name in jobs
    ]
    install(slurm, folder, "squeue", then="\n".join([*lines, "true"]))


def queue_line(job_id: str, name: str) -> str:
    said = {"JobArrayID": job_id, "JobID": job_id, "Name": name, "State": "PENDING"}
    return FIELD_END.join(said.get(field, "N/A") for field in QUEUE_FIELDS) + ROW_END + "\n"


@pytest.mark.parametrize("said", ["Submitted batch job 99\n", "4711\nSubmitted batch job 99\n"])
def test_a_wrapper_that_sends_what_should_be_tested_is_found_out(
    slurm: pytest.MonkeyPatch, tmp_path: Path, said: str
) -> None:
    sbatch = install(slurm, tmp_path, "sbatch", stdout=said)
    scancel = install(slurm, tmp_path, "scancel")
    queued(slurm, tmp_path, ("98", "mine"), ("99", "probe"))
    script = tmp_path / "job.sbatch"
    said = "ignores --test-only and submitted job 99, which was cancelled"
    with pytest.raises(SchedulerError, match=said):
        SlurmCommands(clock=SystemClock()).predicted_start(SubmitRequest(script, tmp_path, "probe"))
    assert arguments(sbatch) == ["--test-only", str(script)]
    assert arguments(scancel) == ["99"]


@pytest.mark.parametrize("said", ["98\n", "Submitted batch job 98\n"])
def test_no_number_that_a_wrapper_prints_ends_somebodys_job(
    slurm: pytest.MonkeyPatch, tmp_path: Path, said: str
) -> None:
    install(slurm, tmp_path, "sbatch", stdout=said)
    scancel = install(slurm, tmp_path, "scancel")
    queued(slurm, tmp_path, ("98", "mine"))
    request = SubmitRequest(tmp_path / "job.sbatch", tmp_path, "probe")
    with suppress(SchedulerError):
        SlurmCommands(clock=SystemClock()).predicted_start(request)
    assert not scancel.exists()


def test_an_sbatch_that_is_silent_is_no_answer(slurm: pytest.MonkeyPatch, tmp_path: Path) -> None:
    slurm.setattr("hpcflow.schedulers.slurm.outlook._TEST_TIMEOUT_S", 0.2)
    install(slurm, tmp_path, "sbatch", then="sleep 60")
    queued(slurm, tmp_path)
    request = SubmitRequest(tmp_path / "job.sbatch", tmp_path, "probe")
    with pytest.raises(SchedulerUnavailable, match="sbatch got no answer"):
        SlurmCommands(clock=SystemClock()).predicted_start(request)


def test_an_sbatch_that_cannot_only_test_refuses_no_job(
    slurm: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    complaint = "echo 'sbatch: unrecognized option --test-only' >&2"
    install(slurm, tmp_path, "sbatch", then=complaint, exit_code=1)
    request = SubmitRequest(tmp_path / "job.sbatch", tmp_path, "probe")
    with pytest.raises(SchedulerUnavailable, match="unrecognized option"):
        SlurmCommands(clock=SystemClock()).predicted_start(request)


def test_a_database_that_is_silent_is_asked_once(slurm: pytest.MonkeyPatch, tmp_path: Path) -> None:
    sacctmgr = install(slurm, tmp_path, "sacctmgr", then=f"echo x >> {tmp_path}/calls", exit_code=1)
    found = SlurmCommands(clock=SystemClock()).standing(USER)
    assert found is not None
    assert [each.partition(":")[0] for each in found.missing] == ["associations", "qos"]
    assert "associations" in arguments(sacctmgr)
    assert (tmp_path / "calls").read_text() == "x\n"
