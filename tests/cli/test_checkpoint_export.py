"""Taking a checkpoint along: copied to a folder, compared with its checksums on the way."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.runtime.manifest import verify
from tests.cli.desk import Desk
from tests.cli.trained import Trained
from tests.untrusted_paths import is_open_to_others, open_what_is_made_in


@pytest.fixture
def trained(desk: Desk) -> Trained:
    """A completed run whose checkpoint of train step 200 is the best."""
    trained = Trained(desk)
    for train_step, loss in ((100, 0.5), (200, 0.1), (300, 0.4)):
        trained.save(train_step, loss=loss)
    return trained


@pytest.mark.parametrize(
    ("options", "train_step"),
    [([], 300), (["--best"], 200), (["--train-step", "100"], 100)],
)
def test_the_newest_the_best_or_the_one_that_is_named_is_copied(
    trained: Trained, options: list[str], train_step: int
) -> None:
    target = trained.desk.folder / "my model"
    said = trained.desk.json("checkpoint", "export", "digits", str(target), *options)
    assert said == {
        "format": 1,
        "run_id": trained.run_id,
        "train_step": train_step,
        "target": str(target),
        "files": 1,
        "size_bytes": 800,
    }
    assert verify(target).train_step == train_step


def test_it_says_what_it_has_done(trained: Trained, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(trained.desk.folder)
    said = trained.desk.say("checkpoint", "export", "digits", "model")
    assert said == f"train step 300 of {trained.run_id}: 1 file, 800 B, copied to model\n"
    assert (trained.desk.folder / "model" / "model.pt").exists()


def test_it_is_for_its_owner_alone_also_where_all_is_open(trained: Trained) -> None:
    team = trained.desk.folder / "team"
    team.mkdir()
    open_what_is_made_in(team)
    trained.desk.say("checkpoint", "export", "digits", str(team / "model"))
    assert not is_open_to_others(team / "model")
    assert not is_open_to_others(team / "model" / "model.pt")


def test_what_is_there_is_not_overwritten(trained: Trained) -> None:
    target = trained.desk.folder / "mine"
    target.mkdir()
    error = trained.desk.error("checkpoint", "export", "digits", str(target))
    assert f"{target} exists, and is not overwritten" in error
    assert "name a new folder below an existing one" in error
    assert list(target.iterdir()) == []


def test_a_damaged_one_is_not_copied(trained: Trained) -> None:
    (trained.dir.checkpoints / "000000300" / "model.pt").write_bytes(b"WEIGHTS " * 100)
    target = trained.desk.folder / "copy"
    error = trained.desk.error("checkpoint", "export", "digits", str(target), code=1)
    assert "model.pt is not what was written: its checksum differs" in error
    assert "hpcflow checkpoint ls" in error
    assert not target.exists()
    assert list(trained.desk.folder.glob(".copy*")) == []


@pytest.mark.usefixtures("trained")
def test_what_cannot_be_chosen_is_told(desk: Desk) -> None:
    target = str(desk.folder / "copy")
    words = ("checkpoint", "export", "digits", target)
    assert "exclude each other" in desk.error(*words, "--best", "--train-step", "100")
    assert "no checkpoint of train step 150" in desk.error(*words, "--train-step", "150")
    assert not Path(target).exists()


def test_without_a_metric_in_the_config_none_is_the_best(desk: Desk) -> None:
    trained = Trained(desk, keep="checkpoint: {keep_last: all}\n")
    words = ("checkpoint", "export", "digits", str(desk.folder / "copy"))
    assert "has no complete checkpoint" in desk.error(*words)
    trained.save(100, loss=0.5)
    error = desk.error(*words, "--best")
    assert "has no checkpoint.keep_best" in error
    desk.say(*words)


def test_without_the_metric_none_is_the_best(desk: Desk) -> None:
    trained = Trained(desk, keep="checkpoint: {keep_last: all, keep_best: {metric: a, mode: max}}")
    trained.save(100, loss=0.5)
    words = ("checkpoint", "export", "digits", str(desk.folder / "copy"), "--best")
    assert "has the metric 'a'" in desk.error(*words)
    trained.save(200, a=0.5)
    assert desk.json(*words)["train_step"] == 200
