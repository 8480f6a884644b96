"""Whether there is room for the checkpoints of a run, as far as anybody can know that."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.cli.main import main
from hpcflow.launch.plan import make_plan
from hpcflow.launch.preflight import shortage
from hpcflow.runtime.disk_quota import Quota
from hpcflow.storage import lustre
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import read_run
from tests.cluster_fixture import small_disk
from tests.launch.desk import Desk

MIB = 1 << 20


@pytest.fixture
def desk(tmp_path: Path) -> Iterator[Desk]:
    """A person whose scratch has 16 MiB."""
    (tmp_path / "scratch").mkdir()
    with small_disk(tmp_path / "scratch", "16m"):
        yield Desk(tmp_path)


def checkpoint(run_dir: RunDir, train_step: int, size_bytes: int) -> None:
    folder = run_dir.checkpoints / f"{train_step:09d}"
    folder.mkdir()
    (folder / "model.pt").write_bytes(bytes(size_bytes))
    (folder / "manifest.json").touch()


def of_new_run(desk: Desk) -> str | None:
    plan = make_plan(
        desk.config, settings=desk.settings, clock=desk.clock, site=desk.site, overrides=()
    )
    return shortage(plan.run, desk.settings)


def test_a_first_run_is_warned_of_a_disk_that_is_nearly_full_only(desk: Desk) -> None:
    assert of_new_run(desk) is None
    disk = os.statvfs(desk.folder / "scratch")
    left = MIB // 2
    ballast = desk.folder / "scratch" / "ballast"
    ballast.write_bytes(bytes(disk.f_bavail * disk.f_frsize - left))
    said = of_new_run(desk)
    assert said is not None
    assert said.startswith("512.0 KiB can still be written below ")
    assert "(the disk)" in said
    assert "hpcflow scratch" in said


def test_a_run_is_judged_by_its_own_checkpoints(desk: Desk) -> None:
    run_dir = desk.dir_of(desk.launch())
    run = read_run(run_dir)
    checkpoint(run_dir, 100, 2 * MIB)
    assert shortage(run, desk.settings) is None  # four of 2 MiB, at most
    checkpoint(run_dir, 200, 5 * MIB)
    said = shortage(run, desk.settings)
    assert said is not None
    assert "take 13.0 MiB more: 4 of 5.0 MiB, of which 7.0 MiB are there" in said


def test_what_is_being_written_has_its_room_already(desk: Desk) -> None:
    run_dir = desk.dir_of(desk.launch())
    for train_step in (100, 200, 300, 400):
        checkpoint(run_dir, train_step, 3 * MIB)
    run = read_run(run_dir)
    ballast = desk.folder / "scratch" / "ballast"
    ballast.write_bytes(bytes(2 * MIB))
    assert shortage(run, desk.settings) is not None
    ballast.unlink()
    half = run_dir.checkpoints / ".000000500.00aa.tmp"
    half.mkdir()
    (half / "model.pt").write_bytes(bytes(MIB + MIB // 2))
    assert shortage(run, desk.settings) is None


def test_a_new_run_is_judged_by_the_last_one_of_its_name(desk: Desk) -> None:
    earlier = desk.dir_of(desk.launch())
    checkpoint(earlier, 100, 5 * MIB)
    said = of_new_run(desk)
    assert said is not None
    assert "take 20.0 MiB more: 4 of 5.0 MiB, of which 0 B are there" in said
    desk.config.write_text(desk.config.read_text().replace("name: small", "name: other"))
    assert of_new_run(desk) is None


def test_what_stays_as_the_best_takes_room_too(desk: Desk) -> None:
    run_dir = desk.dir_of(desk.launch())
    checkpoint(run_dir, 100, MIB)
    keep = "checkpoint: {keep_last: 10, keep_best: {metric: loss, mode: min, count: 9}}\n"
    assert of_new_run(desk) is None
    desk.config.write_text(desk.config.read_text() + keep)
    said = of_new_run(desk)
    assert said is not None
    assert "20 of 1.0 MiB" in said


def test_a_quota_is_a_limit_as_the_disk_is(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = Quota("user ada", 9 * MIB, None, 10 * MIB, None, None)
    monkeypatch.setattr(lustre, "quotas", lambda _path, _user: [ours])
    run_dir = desk.dir_of(desk.launch())
    checkpoint(run_dir, 100, MIB)
    said = shortage(read_run(run_dir), desk.settings)
    assert said is not None
    assert said.startswith("1.0 MiB can still be written below ")
    assert "(the quota of user ada)" in said


def test_nothing_is_refused_for_it(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    checkpoint(desk.dir_of(desk.launch()), 100, 5 * MIB)
    for name, value in desk.settings.environ.items():
        monkeypatch.setenv(name, value)
    words = ["run", str(desk.config), "--site", "devcluster", "--dry-run"]
    monkeypatch.setattr("hpcflow.launch.run.connect_scheduler", lambda *_: desk.slurm)
    assert main(words) == 0
    said = capsys.readouterr()
    assert "take 20.0 MiB more" in said.err
    assert "Nothing was created" in said.out
