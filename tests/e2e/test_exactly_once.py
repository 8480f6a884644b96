"""One Slurm job executes an attempt: kill -9 at every boundary, and a job that comes late."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import pytest

from hpcflow.storage.layout import RunDir
from hpcflow.testing.cluster import Cluster, poll
from tests.e2e.conftest import Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

SLEEPER = """
name: sleeper
command: [sleep, "300"]
launch: {framework: none, launcher: none}
resources: {time_limit: 10m}
"""


@pytest.mark.parametrize(
    ("hpcflow", "one_in"),
    [
        ("postgresql", 4),
        pytest.param("postgresql", 1, marks=pytest.mark.soak),
        pytest.param("sqlite", 1, marks=pytest.mark.soak),
    ],
    indirect=["hpcflow"],
)
def test_kill_9_at_every_moment_leaves_exactly_one_job(hpcflow: Hpcflow, one_in: int) -> None:
    """At one in so many of them; which ones, chance decides."""
    config = hpcflow.write_config("sleeper.yaml", SLEEPER)
    driver = hpcflow.write_config(
        "kill_driver.py", Path(__file__).with_name("kill_driver.py").read_text()
    )
    folder = hpcflow.home.parent
    done = hpcflow.user.run(
        ["python", str(driver), str(config), "devcluster", str(folder), str(one_in)],
        env=hpcflow.env,
        timeout=800,
    )
    rounds = [json.loads(line) for line in done.stdout.splitlines()]
    not_one = [r for r in rounds if len(r["jobs"]) != 1 or r["runs"] != 1]
    assert not_one == []
    assert rounds[-1]["exit_code"] == 0
    assert all(r["exit_code"] == -9 for r in rounds[:-1])
    logs = " ".join(r["log"] for r in rounds)
    for where in ("killed before starting a program", "killed after starting a program"):
        assert where in logs or one_in > 1
    assert {r["next"] for r in rounds[:-1]} == {"run", "resume"}
    assert len(rounds) > 30 // one_in


#: Slurm's controller has the request, and neither says so nor shows a job: that comes later.
LATE_SBATCH = """#!/bin/bash
printf '%q ' "$@" > "${0%/*}/request"
echo "sbatch: error: Batch job submission failed: Socket timed out on send/recv operation" >&2
exit 1
"""


def test_the_job_of_a_withdrawn_attempt_that_starts_after_all_executes_nothing(
    hpcflow: Hpcflow, cluster: Cluster
) -> None:
    late = hpcflow.home.parent / "late"
    hpcflow.user.run(["mkdir", str(late)])
    (late / "sbatch").write_text(LATE_SBATCH)
    (late / "sbatch").chmod(0o755)
    says = hpcflow.home.parent / "executed"
    config = hpcflow.write_config(
        "late.yaml",
        SLEEPER.replace("sleeper", "late").replace(
            '[sleep, "300"]', f'[sh, -c, "echo $SLURM_JOB_ID >> {says}"]'
        ),
    )
    path = f"{late}:{hpcflow.user.environment()['PATH']}"
    impatient = replace(hpcflow, env={**hpcflow.env, "PATH": path})
    done = impatient("run", config, "--site", "devcluster", check=False)
    assert done.returncode == 1
    assert "no job of this name exists" in done.stderr
    sent = hpcflow.json("resume", "late")
    assert sent["attempt"] == 2

    attempt = RunDir(Path(sent["run_dir"])).attempt(1)
    request = (late / "request").read_text()
    args = ["bash", "-c", f"sbatch {request}"]
    job_id = hpcflow.user.run(args, cwd=attempt.path, env=hpcflow.env).stdout.strip()
    show = ["squeue", "--noheader", "--states=all", f"--jobs={job_id}", "--format=%T"]
    # FAILED, for it must not look completed.
    poll(lambda: cluster.run(*show).strip() == "FAILED", 300, lambda: cluster.run(*show))
    assert f"job {job_id} exits" in attempt.log.read_text()
    shown = hpcflow.json("wait", "late")
    assert (shown["state"], shown["job_id"]) == ("completed", sent["job_id"])
    assert says.read_text().split() == [sent["job_id"]]
    assert hpcflow("ledger", "check").returncode == 0
