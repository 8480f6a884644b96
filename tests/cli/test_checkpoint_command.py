"""Looking at the checkpoints of a run, and removing those that need not stay."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from hpcflow.retention import checkpoints
from hpcflow.retention.checkpoints import prune
from hpcflow.runtime.events import now_text
from hpcflow.runtime.manifest import CheckpointError
from hpcflow.runtime.rule import Found
from hpcflow.settings import load_settings
from hpcflow.storage import journal
from hpcflow.testing.clock import FakeClock
from tests.cli.desk import Desk
from tests.cli.trained import Trained


@pytest.fixture
def trained(desk: Desk) -> Trained:
    """A completed run whose rule keeps the last two and the one with the lowest loss."""
    trained = Trained(desk)
    for train_step, loss in ((100, 0.5), (200, 0.1), (300, 0.4), (400, 0.3), (500, 0.2)):
        trained.save(train_step, loss=loss)
    return trained


def flip(path: Path) -> None:
    data = bytearray((path / "model.pt").read_bytes())
    data[len(data) // 2] ^= 1
    (path / "model.pt").write_bytes(data)


def test_ls_says_what_is_there_and_why_each_is_kept(trained: Trained) -> None:
    (trained.dir.checkpoints / "000000300" / "model.pt").unlink()
    (trained.dir.checkpoints / ".000000600.00aa.tmp").mkdir()
    said = trained.desk.json("checkpoint", "ls", "digits")
    assert said["run_id"] == trained.run_id
    assert said["rule"]["last"] == 2
    assert {each["train_step"]: each["kept"] for each in said["checkpoints"]} == {
        100: [],
        200: ["best: loss 0.1"],
        300: [],
        400: ["last 2"],
        500: ["newest"],
    }
    torn = said["checkpoints"][2]
    assert (torn["state"], torn["why"]) == ("torn", "model.pt is missing")
    assert torn["path"] == "checkpoints/000000300"
    assert [(each["train_step"], each["state"]) for each in said["hidden"]] == [
        (600, "left behind")
    ]
    assert said["size_bytes"] == 3200
    table = trained.desk.say("checkpoint", "ls", "digits")
    assert "5 checkpoints, 3.1 KiB" in table


def test_a_run_without_checkpoints_says_so(desk: Desk) -> None:
    trained = Trained(desk)
    assert desk.say("checkpoint", "ls", "digits") == f"{trained.run_id} has no checkpoints\n"
    assert "has no checkpoints" in desk.error("checkpoint", "verify", "digits")
    error = desk.error("checkpoint", "show", "digits", "5")
    assert f"run {trained.run_id} has no checkpoint of train step 5" in error
    assert desk.say("checkpoint", "prune", "digits") == "nothing to remove\n"


def test_show_tells_everything_of_one(trained: Trained) -> None:
    said = trained.desk.json("checkpoint", "show", "digits", "400")
    assert (said["train_step"], said["attempt"], said["world_size"]) == (400, 1, 4)
    assert (said["kept"], said["metrics"]) == (["last 2"], {"loss": 0.3})
    assert said["files"]["model.pt"]["size_bytes"] == 800
    text = trained.desk.say("checkpoint", "show", "digits", "400")
    for words in ("attempt 1", "ranks    4", "complete", "last 2", "loss 0.3", "model.pt"):
        assert words in text


def test_one_that_does_not_exist_is_answered_with_those_that_do(trained: Trained) -> None:
    error = trained.desk.error("checkpoint", "show", "digits", "450")
    assert "no checkpoint of train step 450" in error
    assert "it has 100, 200, 300, 400, 500" in error
    trained.desk.say("checkpoint", "prune", "digits")
    assert "any more; it was removed by a person" in trained.desk.error(
        "checkpoint", "verify", "digits", "100"
    )
    trained.desk.error("checkpoint", "show", "digits", "many")


def test_verify_reads_all_and_says_which_file(trained: Trained) -> None:
    assert trained.desk.say("checkpoint", "verify", "digits").count("whole") == 5
    flip(trained.dir.checkpoints / "000000400")
    said = trained.desk.say("checkpoint", "verify", "digits", code=1)
    assert "train step 400: not whole: model.pt is not what was written" in said
    assert "train step 500: whole" in said
    only = trained.desk.json("checkpoint", "verify", "digits", "400", code=1)["checkpoints"]
    assert [(each["train_step"], each["is_whole"]) for each in only] == [(400, False)]
    trained.desk.say("checkpoint", "verify", "digits", "500")


def test_a_dry_run_says_what_goes_and_touches_nothing(trained: Trained) -> None:
    before = trained.dir.journal.read_bytes()
    said = trained.desk.say("checkpoint", "prune", "digits", "--dry-run")
    assert said.splitlines() == [
        "would remove train step 100  800 B",
        "would remove train step 300  800 B",
        "would free 1.6 KiB",
    ]
    assert trained.there() == [100, 200, 300, 400, 500]
    assert trained.dir.journal.read_bytes() == before


def test_prune_does_what_the_dry_run_said_and_the_ledger_knows(trained: Trained) -> None:
    assert trained.in_ledger() == [100, 200, 300, 400, 500]
    planned = trained.desk.json("checkpoint", "prune", "digits", "--dry-run")
    done = trained.desk.json("checkpoint", "prune", "digits")
    assert {**planned, "is_dry_run": False} == done
    assert [each["train_step"] for each in done["removed"]] == [100, 300]
    assert done["freed_bytes"] == 1600
    assert trained.there() == [200, 400, 500]
    assert not list(trained.dir.checkpoints.glob(".*"))
    assert trained.in_ledger() == [200, 400, 500]
    trained.desk.say("ledger", "rebuild")
    assert trained.in_ledger() == [200, 400, 500]
    assert trained.desk.json("ledger", "check")["differences"] == []
    records = [each for each in journal.read(trained.dir) if each.record == "checkpoint_removed"]
    assert [each.train_step for each in records] == [100, 300]
    assert trained.desk.say("checkpoint", "prune", "digits") == "nothing to remove\n"


def test_what_a_job_removed_is_gone_from_the_ledger(trained: Trained) -> None:
    assert 100 in trained.in_ledger()
    shutil.rmtree(trained.dir.checkpoints / "000000100")
    trained.event("checkpoint_removed", train_step=100, size_bytes=800)
    trained.desk.say("ledger", "rebuild")
    assert trained.in_ledger() == [200, 300, 400, 500]
    error = trained.desk.error("checkpoint", "show", "digits", "100")
    assert "it was removed by a job" in error


def test_fewer_can_be_kept_than_the_config_says(trained: Trained) -> None:
    trained.desk.say("checkpoint", "prune", "digits", "--keep-last", "1")
    assert trained.there() == [200, 500]


def test_a_run_that_keeps_all_has_nothing_removed_until_somebody_says_how_many(desk: Desk) -> None:
    trained = Trained(desk, keep="checkpoint: {keep_last: all}\n")
    for train_step in (100, 200, 300):
        trained.save(train_step)
    assert "keep_last: all" in desk.say("checkpoint", "prune", "digits")
    assert trained.there() == [100, 200, 300]
    desk.say("checkpoint", "prune", "digits", "--keep-last", "2")
    assert trained.there() == [200, 300]


def test_the_newest_that_is_really_whole_stays(trained: Trained) -> None:
    """Its size is right, and one bit of it is not: the older ones are all that is left."""
    for train_step in (400, 500):
        flip(trained.dir.checkpoints / f"{train_step:09d}")
    said = trained.desk.say("checkpoint", "prune", "digits", "--keep-last", "1")
    assert "removed train step 500  800 B  (model.pt is not what was written" in said
    assert trained.there() == [200, 300]


def test_what_a_job_makes_while_the_newest_is_read_is_no_reason_to_remove_that(
    trained: Trained,
) -> None:
    """Nobody has read the new one yet."""
    reads: list[int] = []

    def train_on(found: Found) -> None:
        reads.append(found.train_step)
        trained.save(600, loss=0.9)

    pruned = prune(
        trained.dir, settings=load_settings(), clock=FakeClock(), keep_last=1, look_at=train_on
    )

    assert reads == [500]
    assert pruned.kept[500] == ["the newest that was verified"]
    assert trained.there() == [200, 500, 600]


def test_nothing_goes_where_none_is_whole(trained: Trained) -> None:
    for train_step in trained.there():
        flip(trained.dir.checkpoints / f"{train_step:09d}")
    assert trained.desk.say("checkpoint", "prune", "digits") == "nothing to remove\n"
    assert trained.there() == [100, 200, 300, 400, 500]


def test_a_file_system_that_does_not_answer_is_no_damage(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def verify(_folder: Path) -> None:
        raise CheckpointError("model.pt cannot be read") from OSError(5, "Input/output error")

    monkeypatch.setattr(checkpoints, "verify", verify)
    error = trained.desk.error("checkpoint", "prune", "digits", code=1)
    assert "nothing was removed" in error
    assert trained.there() == [100, 200, 300, 400, 500]


def test_what_a_live_attempt_resumed_from_stays_and_so_does_what_it_writes(desk: Desk) -> None:
    trained = Trained(desk, "sleep 300", "checkpoint: {keep_last: 1}\n")
    for train_step in (100, 200, 300):
        trained.save(train_step)
    trained.event("train_started", train_step=100, resumed_from="checkpoints/000000100")
    (trained.dir.checkpoints / ".000000400.00aa.tmp").mkdir()
    listed = desk.json("checkpoint", "ls", "digits")
    assert [each["state"] for each in listed["hidden"]] == ["being written"]
    said = desk.json("checkpoint", "prune", "digits")
    assert said["kept"] == {"100": ["attempt 1 resumes from it"], "300": ["newest"]}
    assert trained.there() == [100, 300]
    assert (trained.dir.checkpoints / ".000000400.00aa.tmp").exists()

    desk.say("cancel", "digits")
    desk.json("wait", "digits", code=1)
    desk.say("checkpoint", "prune", "digits")
    assert trained.there() == [300]
    assert not list(trained.dir.checkpoints.glob(".*"))


def test_the_final_model_stays_even_if_it_is_not_the_newest(trained: Trained) -> None:
    trained.event("finished", train_step=300, metrics={}, model="checkpoints/000000300/model.pt")
    said = trained.desk.json("checkpoint", "prune", "digits")
    assert said["kept"]["300"] == ["the final model"]
    assert trained.there() == [200, 300, 400, 500]


def test_what_the_mirror_needs_stays_and_is_told(trained: Trained) -> None:
    mirror = trained.dir.path / "mirror.jsonl"
    mirror.write_text('{"what": "mirrored", "train_step": 200}\n')
    with mirror.open("a") as file:
        file.write(json.dumps({"at": now_text(), "what": "began", "train_step": 300}) + "\n")
    said = trained.desk.say("checkpoint", "prune", "digits")
    assert said.splitlines() == [
        "kept train step 100  (it was the best, and is not mirrored yet)",
        "kept train step 300  (it is being mirrored)",
        "nothing to remove",
    ]
    listed = trained.desk.json("checkpoint", "ls", "digits")["checkpoints"]
    assert [each["kept"] for each in listed][2] == ["it is being mirrored"]
    for train_step in (100, 300):
        with mirror.open("a") as file:
            file.write(json.dumps({"what": "mirrored", "train_step": train_step}) + "\n")
    trained.desk.say("checkpoint", "prune", "digits")
    assert trained.there() == [200, 400, 500]


def test_what_is_not_hpcflows_stays(trained: Trained) -> None:
    (trained.dir.checkpoints / "000000100" / "KEEP").touch()
    (trained.dir.checkpoints / "000000300" / "manifest.json").unlink()
    (trained.dir.checkpoints / "mine").mkdir()
    assert trained.desk.say("checkpoint", "prune", "digits") == "nothing to remove\n"
    kept = trained.desk.json("checkpoint", "prune", "digits", "--dry-run")["kept"]
    assert kept["100"] == ["it contains KEEP, which is not hpcflow's"]
    assert kept["300"][0].startswith("not known to be hpcflow's: it has no manifest.json")
    assert (trained.dir.checkpoints / "mine").exists()


def test_what_kills_left_behind_goes_with_it(trained: Trained) -> None:
    for suffix in ("tmp", "old", "broken"):
        shutil.copytree(
            trained.dir.checkpoints / "000000100",
            trained.dir.checkpoints / f".000000100.00aa.{suffix}",
        )
    mine = trained.dir.checkpoints / ".000000100.00bb.broken"
    mine.mkdir()  # it was nobody's checkpoint, and then one came in its place
    said = trained.desk.json("checkpoint", "prune", "digits", "--keep-last", "9")
    assert [Path(each["path"]).suffix for each in said["leftovers"]] == [".broken", ".old", ".tmp"]
    assert list(trained.dir.checkpoints.glob(".*")) == [mine]
    (hidden,) = trained.desk.json("checkpoint", "ls", "digits")["hidden"]
    assert hidden["state"] == "set aside"
    assert trained.there() == [100, 200, 300, 400, 500]


def test_a_prune_that_was_killed_is_finished_by_the_next_one_and_told(trained: Trained) -> None:
    path = trained.dir.checkpoints / "000000100"
    path.rename(trained.dir.checkpoints / ".000000100.00aa.removed")
    assert 100 in trained.in_ledger()
    trained.desk.say("checkpoint", "prune", "digits")
    assert not list(trained.dir.checkpoints.glob(".*"))
    assert trained.in_ledger() == [200, 400, 500]


def test_a_prune_whose_journal_cannot_be_written_leaves_nothing_half(
    trained: Trained, monkeypatch: pytest.MonkeyPatch
) -> None:
    def append(*_: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(journal, "append", append)
        prune(trained.dir, settings=load_settings(), clock=FakeClock())
    assert trained.there() == [200, 300, 400, 500]
    trained.desk.say("checkpoint", "verify", "digits")
    trained.desk.say("checkpoint", "prune", "digits")
    assert trained.in_ledger() == [200, 400, 500]


def test_a_run_that_is_unknown_or_purged_says_so(trained: Trained) -> None:
    for words in (["ls", "nonesuch"], ["show", "nonesuch", "1"], ["prune", "nonesuch"]):
        assert "no run 'nonesuch'" in trained.desk.error("checkpoint", *words)
    shutil.rmtree(trained.dir.path)
    for words in (["ls", "digits"], ["show", "digits", "1"], ["verify", "digits"]):
        error = trained.desk.error("checkpoint", *words, code=1)
        assert f"{trained.dir.path} is gone, and with it the checkpoints" in error
        assert f"hpcflow show {trained.run_id}" in error
    for words in (["prune", "digits"], ["prune", "digits", "--dry-run"]):
        assert "is gone" in trained.desk.error("checkpoint", *words, code=1)
