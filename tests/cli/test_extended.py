"""A completed run trains on with other params; what it had come to stays."""

from __future__ import annotations

import json

import pytest

from hpcflow.launch.next_attempt import NextAttempt
from hpcflow.model.state import RunState
from hpcflow.storage.rundir import read_run
from tests.cli.desk import Desk
from tests.cli.trained import Trained

KEEP = "params: {epochs: 5}\ncheckpoint: {keep_last: 1}\n"
TOLD = "cp $HPCFLOW_PARAMS $HPCFLOW_ATTEMPT_DIR/told; echo $HPCFLOW_RESUME_FROM"


@pytest.fixture
def completed(desk: Desk) -> Trained:
    """A run that has trained five epochs."""
    run = Trained(desk, TOLD, KEEP)
    run.save(100, loss=0.5)
    return run


def test_it_goes_on_from_its_final_checkpoint_with_other_params(
    completed: Trained, desk: Desk
) -> None:
    said = desk.json("resume", "digits", "--set", "params.epochs=10", "--wait")
    assert said["state"] == "completed"
    assert [each["attempt"] for each in said["attempts"]] == [1, 2]
    assert said["attempts"][1]["resume_from"] == "checkpoints/000000100"
    assert json.loads((completed.dir.attempt(2).path / "told").read_text()) == {"epochs": 10}
    assert said["params"] == {"epochs": 10}
    assert said["results"] == [{"attempt": 1, "train_step": 100}]
    assert "results        train step 100 by attempt 1" in desk.say("show", "digits")
    assert "extended by" in (told := desk.say("history", "digits"))
    assert "params.epochs=10" in told
    assert desk.json("ledger", "check")["differences"] == []
    before = desk.json("show", "digits")
    desk.say("ledger", "rebuild")
    assert desk.json("show", "digits") == before


def test_what_it_had_come_to_stays(completed: Trained, desk: Desk) -> None:
    desk.say("resume", "digits", "--set", "params.epochs=10", "--wait")
    completed.save(200, loss=0.4)
    completed.save(300, loss=0.3)
    kept = desk.json("checkpoint", "prune", "digits")["kept"]
    assert kept == {"100": ["the result before the run was extended"], "300": ["newest"]}
    assert completed.there() == [100, 300]
    target = desk.folder / "old"
    desk.say("checkpoint", "export", "digits", str(target), "--train-step", "100")
    assert (target / "model.pt").read_bytes() == b"weights " * 100
    desk.say("resume", "digits", "--set", "params.epochs=20", "--wait")
    script = completed.dir.attempt(3).script.read_text()
    assert "export HPCFLOW_CHECKPOINT_RESULTS='100 300'" in script
    assert [each.train_step for each in read_run(completed.dir).results] == [100, 300]


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        ([], "is completed"),
        (["params.epochs=5"], "is completed"),
        (["resources.time_limit=5m"], "is completed"),
        (["params.epochs=10", "name=other"], "the name of a run cannot be changed"),
        (["params.epochs=10", "project=other"], "the project of a run cannot be changed"),
        (["params.epochs=10", "start_from=other"], "the start_from of a run cannot be changed"),
        (["epochs=10"], "params.epochs"),
    ],
)
def test_without_more_to_train_it_stays_completed(
    completed: Trained, desk: Desk, overrides: list[str], message: str
) -> None:
    before = completed.dir.run_json.read_bytes(), completed.dir.journal.read_bytes()
    words = [word for each in overrides for word in ("--set", each)]
    assert message in " ".join(desk.error("resume", "digits", *words).split())
    assert (completed.dir.run_json.read_bytes(), completed.dir.journal.read_bytes()) == before
    assert desk.json("show", "digits")["state"] == "completed"


def test_without_a_checkpoint_there_is_nothing_to_go_on_from(desk: Desk) -> None:
    Trained(desk, TOLD, KEEP)
    error = desk.error("resume", "digits", "--set", "params.epochs=10")
    assert "is completed, and has no checkpoint to resume from" in error
    assert "hpcflow run CONFIG" in error


def test_the_runtime_of_an_older_version_must_not_remove_the_result(
    completed: Trained, desk: Desk
) -> None:
    rule = completed.dir.runtime / "hpcflow/runtime/rule.py"
    text = rule.read_text()
    rule.unlink()  # it is linked from others
    rule.write_text(f"{text}\n")
    error = desk.error("resume", "digits", "--set", "params.epochs=10")
    assert "the runtime of another version of hpcflow" in error
    more = ("--set", "params.epochs=10", "--set", "checkpoint.keep_last=all")
    desk.say("resume", "digits", *more, "--wait")
    assert "HPCFLOW_CHECKPOINT_KEEP=" not in completed.dir.attempt(2).script.read_text()


class _Killed(BaseException):
    pass


@pytest.mark.usefixtures("completed")
@pytest.mark.parametrize("by", ["resume", "daemon"])
def test_one_that_was_killed_before_it_was_sent_is_sent_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    def die(*_: object, **__: object) -> None:
        raise _Killed

    with monkeypatch.context() as patch:
        patch.setattr(NextAttempt, "send", die)
        with pytest.raises(_Killed):
            desk.code("resume", "digits", "--set", "params.epochs=10")
    assert desk.json("show", "digits")["state"] == RunState.WAITING.value
    if by == "resume":
        desk.say("resume", "digits")
    else:
        desk.say("daemon", "--once")
    desk.say("wait", "digits")
    said = desk.json("show", "digits")
    assert (said["state"], len(said["attempts"])) == ("completed", 2)
    assert said["results"] == [{"attempt": 1, "train_step": 100}], "once"
