"""What is logged for a train step belongs to its checkpoint, however late it is logged."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime.__main__ import main
from hpcflow.runtime.events import EventLog
from hpcflow.runtime.manifest import read_manifest, verify
from hpcflow.runtime.metrics import add_metrics
from hpcflow.runtime.retention import Keeper
from hpcflow.runtime.rule import Rule
from hpcflow.runtime.store import CheckpointStore
from tests.runtime.another_language import in_another_language
from tests.runtime.harness import RunFolder, context, die_at_call, run
from tests.runtime.kept import changed_manifest, claimed, job_in, save, there
from tests.runtime.validated import BATCHES, LAST, LOSSES, val_loss_at, write_script

EVERY = "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS"


@pytest.fixture
def validated(folder: RunFolder) -> RunFolder:
    """A run whose program validates at the end of each epoch."""
    script = write_script(folder.path / "train.py")
    folder.variables = {"PROGRAM": str(script), "VAL_LOSSES": " ".join(map(str, LOSSES))}
    return folder


def metrics(folder: RunFolder) -> dict[int, dict[str, float]]:
    """Train step -> what its checkpoint says."""
    return {step: verify(folder.checkpoint(step)).metrics for step in folder.complete()}


def told(folder: RunFolder) -> dict[int, dict[str, float]]:
    """The same as the events of all attempts say last."""
    said: dict[int, dict[str, float]] = {}
    for attempt in range(1, folder.attempt + 1):
        for event in RunFolder(folder.path, attempt).events():
            if event["event"] in ("checkpoint", "checkpoint_metrics"):
                said[event["train_step"]] = event["metrics"]
    return said


def require_right_values(folder: RunFolder) -> None:
    """Every checkpoint has the value of its train step, and the final one what finish() said."""
    found = metrics(folder)
    expected = {step: val_loss_at(step) for step in found}
    assert {step: said.get("val_loss") for step, said in found.items()} == expected
    (finished,) = folder.events("finished")
    assert found[LAST]["accuracy"] == finished["metrics"]["accuracy"] > 0.9
    said = told(folder)
    untold = found.keys() - said.keys()
    assert len(untold) < folder.attempt, "a kill may come between a save and its event, once"
    of_events = {step: said[step] for step in found.keys() - untold}
    assert of_events == {step: found[step] for step in of_events}, "the ledger would say another"
    assert not list(folder.checkpoints.glob(".*"))


@pytest.mark.parametrize(("every", "world_size"), [(None, 1), (BATCHES, 2), (12, 1)])
def test_validation_after_the_inner_loop_is_of_the_checkpoint_of_its_train_step(
    validated: RunFolder, every: int | None, world_size: int
) -> None:
    more = {} if every is None else {EVERY: every}
    assert run(validated, world_size, **more) == [0] * world_size
    require_right_values(validated)
    assert len(validated.complete()) == len({LAST, *range(every or LAST, LAST, every or LAST)})


@pytest.mark.parametrize(
    ("hurt", "every", "world_size"),
    [
        (f"trained:{2 * BATCHES}:USR2", BATCHES, 2),
        (f"validating:{2 * BATCHES}:KILL", BATCHES, 1),
        (f"validated:{2 * BATCHES}:KILL", BATCHES, 2),
        (f"validated:{2 * BATCHES}:USR2", BATCHES, 1),
        (f"validating:{LAST}:KILL", BATCHES, 1),
        (f"validated:{LAST}:KILL", BATCHES, 1),
        ("trained:44:KILL", 6, 1),  # the value of train step 29 is that of 48, too
    ],
)
def test_also_of_a_run_that_is_resumed_between_its_save_and_its_validation(
    validated: RunFolder, hurt: str, every: int, world_size: int
) -> None:
    codes = run(validated, world_size, HURT=hurt, **{EVERY: every})
    assert codes == [-9 if "KILL" in hurt else 75] * world_size
    validated.attempt = 2
    assert run(validated, world_size, **{EVERY: every}) == [0] * world_size
    require_right_values(validated)


def test_the_best_is_not_removed_for_one_whose_value_is_still_to_come(
    validated: RunFolder,
) -> None:
    """Train step 116 begins to be saved with the 0.3 of train step 87, and comes to 0.9."""
    keep = json.dumps({"last": 1, "best": 1, "metric": "val_loss"})
    more: dict[str, Any] = {EVERY: 2 * BATCHES, "HPCFLOW_CHECKPOINT_KEEP": keep}
    assert run(validated, **more) == [0]
    require_right_values(validated)
    assert validated.complete() == [2 * BATCHES, LAST]
    assert [event["train_step"] for event in validated.events("checkpoint_removed")] == [116]


def test_what_was_the_best_stays_until_a_better_one_is_final(tmp_path: Path) -> None:
    job = job_in(tmp_path, Rule(1, 1, "loss"))
    keeper, events = Keeper(job, EventLog(job.events)), EventLog(job.events)
    save(tmp_path, 100, loss=0.5)
    keeper.tidy(100)
    save(tmp_path, 200, loss=0.3)
    keeper.tidy(200)
    assert there(tmp_path) == [100, 200]
    add_metrics(job, events, 200, {"loss": 0.7})
    save(tmp_path, 300, loss=0.4)
    keeper.tidy(300)
    assert there(tmp_path) == [100, 300]
    keeper.tidy(300, is_over=True)
    assert there(tmp_path) == [300]


def test_a_value_that_became_no_number_hides_the_old_one(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    save(tmp_path, 100, loss=0.5, accuracy=0.9)
    add_metrics(job, EventLog(job.events), 100, {"loss": float("nan"), "f1": 0.7})
    made = verify(tmp_path / "checkpoints" / "000000100")
    assert made.metrics == {"accuracy": 0.9, "f1": 0.7}


def test_nothing_but_the_metrics_and_the_attempt_changes(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    path = save(tmp_path, 100, loss=0.5)
    before = read_manifest(path)
    add_metrics(job, EventLog(job.events), 100, {"loss": 0.4})
    assert read_manifest(path) == {**before, "metrics": {"loss": 0.4}, "attempt": 2}
    (line,) = (tmp_path / "events.jsonl").read_text().splitlines()
    event = json.loads(line)
    assert event["event"] == "checkpoint_metrics"
    assert event["path"] == "checkpoints/000000100"
    assert event["created_at"] == before["created_at"]
    assert (event["size_bytes"], event["epoch"]) == (1600, 1.5)


def add_and_die(folder: Path, at_call: int) -> None:
    job = job_in(folder)
    die_at_call(at_call)
    add_metrics(job, EventLog(job.events), 100, {"loss": 0.4})


def test_a_kill_at_any_moment_leaves_a_whole_checkpoint(tmp_path: Path) -> None:
    at_call, seen = 0, set()
    while True:
        at_call += 1
        folder = tmp_path / str(at_call)
        folder.mkdir()
        path = save(folder, 100, loss=0.5)
        process = context.Process(target=add_and_die, args=(folder, at_call))
        process.start()
        process.join()
        seen.add(verify(path).metrics["loss"])
        CheckpointStore(folder / "checkpoints").clean()
        assert [each.name for each in (folder / "checkpoints").iterdir()] == ["000000100"]
        assert sorted(each.name for each in path.iterdir()) == ["manifest.json", "model.pt", "sub"]
        if process.exitcode == 0:
            break
        add_metrics(job_in(folder), EventLog(folder / "events.jsonl"), 100, {"loss": 0.4})
        assert '"checkpoint_metrics"' in (folder / "events.jsonl").read_text()
    assert at_call > 8
    assert seen == {0.5, 0.4}


def test_a_checkpoint_that_took_its_place_meanwhile_is_not_described_by_the_old_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    job = job_in(tmp_path)
    save(tmp_path, 100, loss=0.5)

    def replace(_job: object) -> None:
        path = tmp_path / "checkpoints" / "000000100"
        path.rename(tmp_path / "checkpoints" / ".000000100.00aa.broken")
        save(tmp_path, 100, loss=0.1)

    monkeypatch.setattr("hpcflow.runtime.metrics.require_no_successor", replace)
    add_metrics(job, EventLog(None), 100, {"loss": 0.4})
    assert verify(tmp_path / "checkpoints" / "000000100").metrics == {"loss": 0.1}


def test_an_attempt_that_should_be_over_changes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = save(tmp_path, 100, loss=0.5)
    claimed(tmp_path, 3)
    job = job_in(tmp_path, attempt_dir=tmp_path / "attempts" / "0002")
    add_metrics(job, EventLog(job.events), 100, {"loss": 0.4})
    assert verify(path).metrics == {"loss": 0.5}
    changed_manifest(attempt=3)(path)
    add_metrics(job_in(tmp_path), EventLog(job.events), 100, {"loss": 0.4})
    assert verify(path).metrics == {"loss": 0.5}
    assert not (tmp_path / "events.jsonl").exists()
    said = capfd.readouterr().err
    assert "train step 100 keeps its old metrics" in said
    assert "attempt 3" in said


@pytest.mark.parametrize("facts", [{"run_id": "other-20260101-bbbbbbbb"}, {"train_step": 101}])
def test_a_checkpoint_of_another_run_is_left_alone(tmp_path: Path, facts: dict[str, Any]) -> None:
    job = job_in(tmp_path)
    path = save(tmp_path, 100, loss=0.5)
    changed_manifest(**facts)(path)
    before = (path / "manifest.json").read_bytes()
    add_metrics(job, EventLog(job.events), 100, {"loss": 0.4})
    assert (path / "manifest.json").read_bytes() == before


def test_so_many_metrics_that_none_could_read_them_are_left_out(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = job_in(tmp_path)
    path = save(tmp_path, 100, loss=0.5)
    add_metrics(job, EventLog(job.events), 100, {f"m{n}": 0.5 for n in range(500_000)})
    assert verify(path).metrics == {"loss": 0.5}
    assert "train step 100 keeps its old metrics" in capfd.readouterr().err


def test_a_program_in_another_language_reports_late_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_another_language(tmp_path, monkeypatch, metric="error")

    def say(command: str, train_step: int, *said: str) -> None:
        folder = [str(tmp_path / "state")] if command == "checkpoint" else []
        assert main([command, *folder, "--train-step", str(train_step), *said]) == 0

    for train_step, error in ((1, 3), (2, 1), (3, 2)):
        say("checkpoint", train_step)
        say("progress", train_step, f"error={error}")
    say("progress", 7, "error=0")
    assert there(tmp_path) == [2, 3]
    say("finish", 3, "error=0.5")
    assert there(tmp_path) == [3]
    assert verify(tmp_path / "checkpoints" / "000000003").metrics == {"error": 0.5}
    say("checkpoint", 3, "accuracy=0.9")
    made = verify(tmp_path / "checkpoints" / "000000003")
    assert made.metrics == {"error": 0.5, "accuracy": 0.9}
