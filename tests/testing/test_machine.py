"""What clusters leave on the machine outside their folders."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.testing.cluster import machine, processes


@pytest.mark.parametrize("runs", ["nothing", "slurmd", "slurmstepd"])
def test_cgroups_of_killed_jobs_go_when_no_slurm_runs(
    runs: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another cluster may have just made one, for a step that is about to enter it."""
    killed = tmp_path / "slurm_n1" / "uid_1001" / "job_7" / "step_batch"
    of_others = tmp_path / "docker" / "job_7"
    for folder in (killed, of_others):
        folder.mkdir(parents=True)
    monkeypatch.setattr(machine, "FREEZER", tmp_path)
    monkeypatch.setattr(processes, "program", lambda _: runs)
    machine.remove_cgroups()
    assert (tmp_path / "slurm_n1").exists() == (runs != "nothing")
    assert of_others.exists()
