"""`hpcflow ssh`: which srun command it becomes, and what it says where there is no job."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.cli.look.ssh import shell_argv
from hpcflow.errors import SchedulerUnavailable
from tests.cli.desk import Desk
from tests.cli.trained import Trained

SQUEUE = """#!/bin/sh
[ "$*" = "--noheader --format=%A --jobs=100_7" ] && echo 107
exit 0
"""


def test_the_shell_is_a_step_that_shares_what_the_job_has() -> None:
    argv = shell_argv("4711", "node03", Path("/scratch/a b"), on_terminal=True)
    assert argv == [
        *("srun", "--jobid=4711", "--overlap", "--nodes=1", "--ntasks=1", "--nodelist=node03"),
        *("--chdir=/scratch/a b", "--pty", "bash", "-l"),
    ]
    assert "--pty" not in shell_argv("4711", "node03", Path("/"), on_terminal=False)


def test_an_array_task_is_named_by_its_own_number(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "squeue").write_text(SQUEUE)
    (tmp_path / "squeue").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    assert "--jobid=107" in shell_argv("100_7", "n1", Path("/"), on_terminal=False)
    with pytest.raises(SchedulerUnavailable, match="Slurm has no pending or running job 100_8"):
        shell_argv("100_8", "n1", Path("/"), on_terminal=False)


def test_a_run_without_a_job_of_slurm_has_no_shell(desk: Desk) -> None:
    over = Trained(desk)
    said = desk.error("ssh", over.run_id)
    assert f"no job of run {over.run_id} is running" in said
    assert f"hpcflow why {over.run_id}" in said

    running = Trained(desk, "sleep 300")
    said = desk.error("ssh", running.run_id)
    assert "runs on this machine, not in a Slurm job" in said
    assert f"cd {running.dir.path}" in said
    desk.say("cancel", running.run_id)
    desk.json("wait", running.run_id, code=1)
