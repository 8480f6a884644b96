"""What lies on scratch: what takes how much, what is purged when, what is not mirrored yet."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from hpcflow.resources import resource_dir
from hpcflow.runtime.disk_quota import Quota
from hpcflow.storage import lustre
from tests.cli.desk import Desk
from tests.cli.trained import Trained

DAY_S = 86400
#: Of which a run here is: the local site, on a scratch that is purged.
PURGED = "scratch:\n  purge_days: 10"


@pytest.fixture
def purging(desk: Desk, home: Path) -> Desk:
    """A person on a site that purges what nobody has used for ten days."""
    site = (resource_dir("site_configs") / "local.yaml").read_text()
    (home / "sites").mkdir(parents=True)
    (home / "sites" / "local.yaml").write_text(site.replace("scratch:", PURGED))
    return desk


def used(path: Path, days_ago: float) -> None:
    """Nobody has read or written ``path`` for so long."""
    at = time.time() - days_ago * DAY_S
    os.utime(path, (at, at))


def use_all(folder: Path, days_ago: float) -> None:
    for path in folder.rglob("*"):
        if path.is_file():
            used(path, days_ago)


def mirror(trained: Trained, train_step: int) -> None:
    with (trained.dir.path / "mirror.jsonl").open("a") as file:
        file.write(json.dumps({"what": "mirrored", "train_step": train_step}) + "\n")


def test_without_runs_there_is_nothing(desk: Desk) -> None:
    said = desk.json("scratch")
    assert said.pop("home")["runs"] == 0
    assert said == {"format": 1, "file_systems": [], "runs": [], "gone": []}
    assert desk.say("scratch").endswith("\nno runs on scratch\n")


def test_the_home_is_told_first_with_what_it_takes(desk: Desk, home: Path) -> None:
    Trained(desk)
    before = desk.json("scratch")["home"]
    assert (before["path"], before["runs"]) == (str(home), 1)
    (home / "large").write_bytes(bytes(3 << 20))
    said = desk.json("scratch")["home"]
    assert said["size_bytes"] - before["size_bytes"] == 3 << 20
    assert said["files"] == before["files"] + 1
    first, second, *_ = desk.say("scratch").splitlines()
    assert first.startswith(str(home))
    assert second.endswith(f"in {said['files']} files, with the records of 1 run")


def test_what_is_purged_first_stands_first(purging: Desk) -> None:
    runs = [Trained(purging) for _ in range(3)]
    for trained, days_ago in zip(runs, (2, 7, 12), strict=True):
        path = trained.save(100)
        use_all(trained.dir.path, 9.5)
        use_all(path, days_ago)
    used(runs[1].dir.checkpoints / "000000100" / "model.pt", 9)  # the rest is read, this is not

    said = purging.json("scratch")
    assert [run["run_id"] for run in said["runs"]] == [runs[i].run_id for i in (2, 1, 0)]
    for run, left_days in zip(said["runs"], (-2, 1, 8), strict=True):
        assert run["purge_days"] == 10
        left_s = _seconds_left(run["purged_at"])
        assert left_s == pytest.approx(left_days * DAY_S, abs=300)
    lines = purging.say("scratch").splitlines()
    assert "  purged after 10 days without access" in lines
    table = [line for line in lines if line.startswith("digits-")]
    assert "any moment (since " in table[0]
    assert "in 1d 0h (" in table[1] or "in 23h " in table[1]
    assert "in 7d 23h (" in table[2] or "in 8d 0h (" in table[2]


def test_what_goes_first_and_is_nowhere_else_is_told_though_the_newest_is_fresh(
    purging: Desk,
) -> None:
    """The best one, which `keep_best` has kept for nine days."""
    trained = Trained(purging)
    for train_step, days_ago in ((100, 9), (200, 5), (300, 1)):
        use_all(trained.save(train_step), days_ago)
    (run,) = purging.json("scratch")["runs"]
    left_days = {
        train_step: _seconds_left(at) / DAY_S
        for train_step, at in run["checkpoint_purged_at"].items()
    }
    assert left_days == pytest.approx({"100": 1, "200": 5, "300": 9}, abs=0.01)
    assert _seconds_left(run["purged_at"]) == pytest.approx(DAY_S, abs=300)
    mirror(trained, 100)
    (run,) = purging.json("scratch")["runs"]
    assert _seconds_left(run["purged_at"]) == pytest.approx(5 * DAY_S, abs=300)
    mirror(trained, 200)
    mirror(trained, 300)
    (run,) = purging.json("scratch")["runs"]
    assert _seconds_left(run["purged_at"]) == pytest.approx(9 * DAY_S, abs=300), "the newest"


def _seconds_left(text: str) -> float:
    from hpcflow.clock import from_text

    return from_text(text).timestamp() - time.time()


def test_writing_is_a_use_as_reading_is(purging: Desk) -> None:
    trained = Trained(purging)
    model = trained.save(100) / "model.pt"
    now = time.time()
    for read_days_ago, written_days_ago in ((1, 30), (30, 1)):
        os.utime(model, (now - read_days_ago * DAY_S, now - written_days_ago * DAY_S))
        (run,) = purging.json("scratch")["runs"]
        assert _seconds_left(run["purged_at"]) == pytest.approx(9 * DAY_S, abs=300)


def test_a_run_without_a_checkpoint_begins_to_go_with_its_first_file(purging: Desk) -> None:
    trained = Trained(purging)
    used(trained.dir.run_json, 9)
    (run,) = purging.json("scratch")["runs"]
    assert (run["newest_checkpoint"], run["checkpoints"], run["not_mirrored"]) == (None, [], None)
    # it was read just now, to know the site
    assert _seconds_left(run["purged_at"]) > 0


def test_a_site_that_says_nothing_purges_nothing(desk: Desk) -> None:
    Trained(desk).save(100)
    said = desk.json("scratch")
    assert (said["runs"][0]["purged_at"], said["file_systems"][0]["purge_days"]) == (None, None)
    assert "purged after" not in desk.say("scratch")


def test_what_no_mirror_has_is_told(desk: Desk) -> None:
    trained = Trained(desk)
    for train_step in (100, 200, 300):
        trained.save(train_step)
    (trained.dir.checkpoints / "000000200" / "model.pt").unlink()  # torn: nothing to mirror
    mirror(trained, 100)
    (run,) = desk.json("scratch")["runs"]
    assert (run["newest_checkpoint"], run["checkpoints"]) == (300, [100, 300])
    assert run["not_mirrored"] == [300]
    assert "1 of them, the newest too" in desk.say("scratch")
    mirror(trained, 300)
    assert desk.json("scratch")["runs"][0]["not_mirrored"] == []
    assert "of them" not in desk.say("scratch")


def test_nothing_is_missing_in_a_mirror_that_nobody_wants(desk: Desk) -> None:
    Trained(desk).save(100)
    assert desk.json("scratch")["runs"][0]["not_mirrored"] is None
    assert "of them" not in desk.say("scratch")


def test_how_much_everything_takes(desk: Desk) -> None:
    trained = Trained(desk)
    before = desk.json("scratch")["runs"][0]["size_bytes"]
    trained.dir.artifacts.mkdir(exist_ok=True)
    (trained.dir.artifacts / "large.bin").write_bytes(bytes(5 << 20))
    os.link(trained.dir.artifacts / "large.bin", trained.dir.artifacts / "twice")
    said = desk.json("scratch")
    assert said["runs"][0]["size_bytes"] - before == 5 << 20
    (disk,) = said["file_systems"]
    assert disk["size_bytes"] == said["runs"][0]["size_bytes"]
    assert disk["runs"] == 1
    assert 0 < disk["left_bytes"] <= disk["free_bytes"] < disk["total_bytes"]
    assert "1 run of yours take 5." in desk.say("scratch") or "MiB" in desk.say("scratch")


def test_quotas_stand_above(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    Trained(desk)
    gib = 1 << 30
    ours = [
        Quota("user ada", 90 * gib, None, 100 * gib, 10, 1000),
        Quota("project 7", 5 * gib, None, None, 20, 50),
    ]
    monkeypatch.setattr(lustre, "quotas", lambda _path, _user: ours)
    said = desk.say("scratch")
    assert "quota of user ada: 90.0 GiB used of 100.0 GiB, 10.0 GiB left; 10 of 1000 files" in said
    assert "quota of project 7: 5.0 GiB used; 20 of 50 files" in said
    (disk,) = desk.json("scratch")["file_systems"]
    assert disk["quotas"][0]["limit_bytes"] == 100 * gib
    assert disk["left_bytes"] <= 10 * gib


def test_what_was_purged_is_named(desk: Desk) -> None:
    gone, there = Trained(desk), Trained(desk)
    shutil.rmtree(gone.dir.path)
    said = desk.json("scratch")
    assert (said["gone"], [run["run_id"] for run in said["runs"]]) == (
        [gone.run_id],
        [there.run_id],
    )
    assert f"gone from scratch: {gone.run_id}\n" in desk.say("scratch")


def test_a_run_whose_site_or_files_are_damaged_is_listed_all_the_same(
    purging: Desk, home: Path
) -> None:
    broken, strange = Trained(purging), Trained(purging)
    broken.dir.run_json.write_text("{")
    shutil.rmtree(strange.dir.checkpoints)
    (home / "sites" / "local.yaml").write_text("name: local\n")
    said = purging.json("scratch")
    assert {run["run_id"] for run in said["runs"]} == {broken.run_id, strange.run_id}
    assert [run["purged_at"] for run in said["runs"]] == [None, None]


def test_a_run_with_a_link_in_the_place_of_its_directory_is_skipped_with_a_warning(
    desk: Desk, tmp_path: Path
) -> None:
    moved, whole = Trained(desk), Trained(desk)
    elsewhere = moved.dir.path.rename(tmp_path / "elsewhere")
    moved.dir.path.symlink_to(elsewhere)
    (elsewhere / "mirror.jsonl").write_text("{}\n")
    os.utime(elsewhere / "mirror.jsonl", (0, time.time()))
    assert [run["run_id"] for run in desk.json("scratch")["runs"]] == [whole.run_id]
    assert f"{moved.run_id}: skipped: {moved.dir.path} is a link to" in desk.error(
        "scratch", code=0
    )
    assert (elsewhere / "mirror.jsonl").stat().st_atime == 0
