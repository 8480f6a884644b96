"""One job executes an attempt, and says so: the claim, the events, a cancelled run."""

from __future__ import annotations

import shutil
import subprocess

import pytest

from tests.rendering.executed import LOCAL_JOB_ID, Bench, kinds, written
from tests.rendering.samples import a_site


def test_an_attempt_leaves_its_claim_two_events_and_its_exit_code(bench: Bench) -> None:
    assert written(bench, "echo", "it's done").execute() == 0
    assert bench.attempt.claim.read_text() == f"{LOCAL_JOB_ID}\n"
    started, exited = bench.events()
    assert started["job_id"] == LOCAL_JOB_ID
    assert started["restarts"] == 0
    assert len(started["nodes"]) == 1
    assert (exited["event"], exited["exit_code"]) == ("exited", 0)
    assert "it's done" in bench.log()


def test_another_job_leaves_a_claimed_attempt_alone(bench: Bench) -> None:
    written(bench, "touch", "done").execute()
    (bench.work / "done").unlink()
    before = bench.events()
    assert bench.execute(HPCFLOW_LOCAL_JOB_ID="8") == 1, "it must not look completed"
    assert f"job {LOCAL_JOB_ID} executes this attempt; job 8 exits" in bench.log()
    assert bench.events() == before
    assert not (bench.work / "done").exists()


def test_of_many_jobs_of_one_attempt_exactly_one_executes_it(bench: Bench) -> None:
    written(bench, "sh", "-c", "echo x >> done")
    jobs = [bench.start(HPCFLOW_LOCAL_JOB_ID=str(number)) for number in range(10, 18)]
    assert sorted(job.wait(120) for job in jobs) == [0] + 7 * [1]
    assert (bench.work / "done").read_text() == "x\n"
    assert kinds(bench) == ["started", "exited"]
    assert [path.name for path in bench.attempt.path.glob("claim*")] == ["claim"]


def test_where_there_are_no_hard_links_the_claim_holds_as_well(bench: Bench) -> None:
    bench.program("ln", "#!/bin/sh\nexit 1\n")
    written(bench, "sh", "-c", "echo x >> done").execute()
    bench.execute(HPCFLOW_LOCAL_JOB_ID="8")
    assert bench.attempt.claim.read_text() == f"{LOCAL_JOB_ID}\n"
    assert (bench.work / "done").read_text() == "x\n"


def test_a_cancelled_run_does_not_start(bench: Bench) -> None:
    """It was cancelled while nobody knew whether this job existed."""
    bench.run_dir.cancel.touch()
    assert written(bench, "touch", "done").execute() == 143, "it must not look completed"
    assert kinds(bench) == ["exited"]
    assert not (bench.work / "done").exists()


def test_without_its_folder_the_script_says_so(bench: Bench) -> None:
    written(bench, "true")
    script = bench.attempt.script.read_text()
    shutil.rmtree(bench.run_dir.path)
    done = subprocess.run(
        ["bash"], input=script, env=bench.environment(), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "cannot be checked on this node" in done.stderr


def test_a_slurm_script_outside_slurm_says_what_to_do(bench: Bench) -> None:
    assert written(bench, "true", site=a_site()).execute() == 1
    assert "submit the script with sbatch" in bench.log()
    assert not bench.attempt.claim.exists()


def test_half_a_line_of_a_killed_writer_spoils_no_event(bench: Bench) -> None:
    bench.attempt.events.write_text('{"at": "2026-01-02T00:00:00.000Z", "event": "prog')
    written(bench, "true").execute()
    lines = bench.attempt.events.read_bytes().splitlines()
    assert len(lines) == 3
    assert b'"started"' in lines[1]


@pytest.mark.parametrize(
    ("nodelist", "nodes"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,012],login1", ["n08", "n09", "n10", "n012", "login1"]),
        ("r[1-2]c[3-4]-x,b", ["r1c3-x", "r1c4-x", "r2c3-x", "r2c4-x", "b"]),
        ("nid[001234-001235]", ["nid001234", "nid001235"]),
    ],
)
def test_the_nodes_are_known_without_scontrol(
    bench: Bench, nodelist: str, nodes: list[str]
) -> None:
    bench.program("scontrol", "#!/bin/sh\nexit 1\n")
    written(bench, "true", site=a_site()).execute(SLURM_JOB_ID="7", SLURM_JOB_NODELIST=nodelist)
    assert bench.events()[0]["nodes"] == nodes


@pytest.mark.parametrize(
    ("sluid", "said"),
    [
        ("sEKNKTV3WPV500", "sEKNKTV3WPV500"),
        ("", None),
        ('s", "nodes": [", "n7', None),
        ("sEKNKTV3WPV500\n", None),
    ],
)
def test_the_job_says_which_life_it_is_where_slurm_tells(
    bench: Bench, sluid: str, said: str | None
) -> None:
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_JOB_SLUID": sluid}
    written(bench, "true", site=a_site()).execute(**job)
    assert bench.events()[0].get("sluid") == said


def test_what_scontrol_says_goes_before(bench: Bench) -> None:
    bench.program("scontrol", "#!/bin/sh\nprintf 'odd\"\\\\name\\nn2\\n'\n")
    written(bench, "true", site=a_site()).execute(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[1-2]")
    assert bench.events()[0]["nodes"] == ['odd"\\name', "n2"]
