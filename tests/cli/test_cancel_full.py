"""``hpcflow cancel`` on disks that are really full."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from hpcflow.model.state import AttemptState
from hpcflow.model.wishes import is_cancelled
from hpcflow.settings import load_settings
from hpcflow.storage import journal
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
            records = journal.read(run_dir_of(load_settings().home, run_id))
            (line,) = [line for line in said.splitlines() if line.startswith(run_id)]
            assert ("the run is recorded as cancelled" in line) == is_cancelled(records), line
        ballast.unlink()
        for path in disk.glob("ballast-*"):
            path.unlink()
        there.say("cancel", *ids)
        found = there.json("ls")
        assert {each["state"] for each in found} == {"cancelled"}
