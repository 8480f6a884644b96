"""``hpcflow cancel`` on disks that are really full."""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hpcflow.model.state import AttemptState
from hpcflow.settings import load_settings
from hpcflow.storage import journal, sweeps
from hpcflow.storage.disk_errors import storage_error
from hpcflow.storage.runs import run_dir_of
from tests.cli.cluster import ClusterDesk
from tests.cli.desk import Desk
from tests.cluster_fixture import small_disk


@pytest.fixture
def there(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> ClusterDesk:
    return ClusterDesk.at(desk, monkeypatch)


def send(there: ClusterDesk, name: str) -> Any:
    config = there.config(name, "true")
    account = ("--set", "resources.account=physics")
    return there.json("run", config, *account, "--set", "resources.time_limit=8h")


def fill(folder: Path) -> Path:
    """Not a byte is left, nor, as a rule, an inode."""
    path = folder / "ballast"
    with path.open("wb", buffering=0) as file, suppress(OSError):
        while True:
            file.write(b"\0" * 4096)
    with suppress(OSError):
        for number in range(100_000):
            (folder / f"ballast-{number}").touch()
    return path


SWEEP = """
name: search
base: base.yaml
space: {lr: {low: 1.0e-4, high: 1.0, log: true}}
objective: {metric: accuracy, direction: maximize}
parallel: 3
budget: {trials: 6}
"""


def test_a_full_disk_keeps_no_trial_alive(
    there: ClusterDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = Path(there.config("base", "true"))
    resources = "resources: {account: physics, time_limit: 8h}\n"
    base.write_text(base.read_text() + resources)
    (there.folder / "sweep.yaml").write_text(SWEEP)
    sweep_id = there.json("sweep", "start", str(there.folder / "sweep.yaml"))["sweep_id"]
    assert len(alive(there)) == 3

    def full(path: Path, *_: Any, **__: Any) -> None:
        raise storage_error("append to", path, OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)))

    with monkeypatch.context() as patch:
        patch.setattr(sweeps, "append_line_durably", full)
        said = there.error("sweep", "stop", "--cancel", sweep_id, code=1)
    assert alive(there) == []
    assert "the sweep could not be stopped" in said
    assert f"hpcflow sweep stop --cancel {sweep_id}" in said
    there.say("sweep", "stop", "--cancel", sweep_id)
    assert there.json("sweep", "status", sweep_id)["state"] == "stopped"


def alive(there: ClusterDesk) -> list[str]:
    return [job.job_id for job in there.slurm.queue() if job.state is not AttemptState.ENDED]


@pytest.mark.parametrize("which", ["scratch", "home"])
def test_a_full_disk_keeps_no_job_alive(
    there: ClusterDesk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, which: str
) -> None:
    disk = tmp_path / "disk"
    disk.mkdir(mode=0o700)
    with small_disk(disk, "4m,nr_inodes=4000"):
        if which == "scratch":
            monkeypatch.setenv("SCRATCH", str(disk))
        else:
            monkeypatch.setenv("HPCFLOW_HOME", str(disk / "home"))
        ids = [send(there, name)["run_id"] for name in ("one", "two")]
        there.say("ls")
        ballast = fill(disk)
        said = there.error("cancel", *ids, code=1)
        assert alive(there) == []
        for run_id in ids:
            assert f"{run_id}: " in said
            assert f"hpcflow cancel {run_id}" in said
        assert "No space left on device" in said
        for run_id in ids:
            history = journal.Journal(run_dir_of(load_settings().home, run_id)).history
            (line,) = [line for line in said.splitlines() if line.startswith(run_id)]
            assert ("the run is recorded as cancelled" in line) == history.is_cancelled, line
        ballast.unlink()
        for path in disk.glob("ballast-*"):
            path.unlink()
        there.say("cancel", *ids)
        found = there.json("ls")["runs"]
        assert {each["state"] for each in found} == {"cancelled"}
