"""Old checkpoints go while the job runs: never half, and never one that is somebody else's."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime import retention
from hpcflow.runtime.__main__ import main
from hpcflow.runtime.events import EventLog, now_text
from hpcflow.runtime.job import job_from
from hpcflow.runtime.manifest import verify
from hpcflow.runtime.retention import Keeper, find, half_removed
from hpcflow.runtime.rule import Rule
from hpcflow.runtime.rule import judge as rule_judge
from tests.runtime.another_language import in_another_language
from tests.runtime.harness import RunFolder, context, die_at_call, run, start
from tests.runtime.kept import (
    RUN_ID,
    a_link,
    a_note,
    changed_manifest,
    claimed,
    job_in,
    removed,
    save,
    save_and_tidy,
    there,
)
from tests.runtime.program import BATCHES, EPOCHS

LAST = EPOCHS * BATCHES


def test_a_training_keeps_what_its_rule_says(folder: RunFolder) -> None:
    environ: dict[str, Any] = {
        "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": 5,
        "HPCFLOW_CHECKPOINT_KEEP": '{"last": 2, "every": 20}',
    }
    assert run(folder, 2, **environ) == [0, 0]

    assert folder.complete() == [20, LAST - 5, LAST]
    gone = folder.events("checkpoint_removed")
    assert [event["train_step"] for event in gone] == [5, 10, 15, 25, 30]
    assert gone[0]["path"] == "checkpoints/000000005"
    assert gone[0]["size_bytes"] == folder.events("checkpoint")[0]["size_bytes"]
    assert not list(folder.checkpoints.glob(".*"))


def test_a_training_without_a_rule_keeps_all(folder: RunFolder) -> None:
    assert run(folder, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10) == [0]
    assert folder.complete() == [10, 20, 30, LAST]
    assert folder.events("checkpoint_removed") == []


def test_what_an_attempt_resumed_from_stays_as_long_as_it_runs(folder: RunFolder) -> None:
    environ: dict[str, Any] = {
        "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": 10,
        "HPCFLOW_CHECKPOINT_KEEP": '{"last": 1}',
    }
    run(folder, HURT="0:15:KILL", PATIENT=1, **environ)
    assert folder.complete() == [10]

    assert run(folder, HPCFLOW_RESUME_FROM=folder.checkpoint(10), **environ) == [0]

    assert folder.complete() == [10, LAST]


def test_a_rule_that_makes_no_sense_is_said_before_anything_is_trained(folder: RunFolder) -> None:
    training = start(folder, HPCFLOW_CHECKPOINT_KEEP='{"last": 0}')
    assert training.exit_codes() == [1]
    assert "HPCFLOW_CHECKPOINT_KEEP='{\"last\": 0}': not a rule: 0" in training.log()


def test_a_program_in_another_language_has_its_old_ones_removed_too(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    in_another_language(tmp_path, monkeypatch, metric="root")
    for train_step, root in (("1", "root=3"), ("2", "root=1"), ("3", "root=2"), ("4", "root=nan")):
        said = ["checkpoint", str(tmp_path / "state"), "--train-step", train_step, root]
        assert main(said) == 0
    assert there(tmp_path) == [2, 4]
    assert removed(tmp_path) == [1, 3]


def remove_and_die(folder: Path, at_call: int) -> None:
    """Publish one more and remove the older two; killed at the ``at_call``-th call."""
    job = job_in(folder)
    save(folder, 300)
    die_at_call(at_call)
    Keeper(job, EventLog(job.events)).tidy(300)


def test_a_kill_at_any_moment_leaves_no_half_checkpoint(tmp_path: Path) -> None:
    at_call, killed = 1, 0
    while True:
        folder = tmp_path / str(at_call)
        folder.mkdir()
        for train_step in (100, 200):
            save(folder, train_step)
        process = context.Process(target=remove_and_die, args=(folder, at_call))
        process.start()
        process.join()

        for train_step in there(folder):
            assert verify(folder / "checkpoints" / f"{train_step:09d}").train_step == train_step
        assert there(folder)[-1] == 300
        if process.exitcode == 0:
            break
        killed += 1
        at_call += 1

        save_and_tidy(job_in(folder), 400)
        assert there(folder) == [400]
        assert sorted(set(removed(folder))) == [100, 200, 300], "one went, and nobody was told"
        assert not list((folder / "checkpoints").glob(".*")), "half of one was left behind"
    assert killed > 20


def test_what_was_half_removed_and_made_again_is_not_called_removed(tmp_path: Path) -> None:
    job = job_in(tmp_path, Rule(5))
    save(tmp_path, 100).rename(tmp_path / "checkpoints" / ".000000100.00aa.removed")
    save_and_tidy(job, 100)
    assert there(tmp_path) == [100]
    assert removed(tmp_path) == []
    assert half_removed(tmp_path / "checkpoints") == []


def no_manifest(path: Path) -> None:
    (path / "manifest.json").unlink()


def garbage(path: Path) -> None:
    (path / "manifest.json").write_text("{")


def a_link_inside(path: Path) -> None:
    (path / "data").symlink_to(path.parent)


def a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("mine")


NOT_OURS: dict[str, Callable[[Path], None]] = {
    "no manifest": no_manifest,
    "a manifest that is garbage": garbage,
    "a manifest of a newer hpcflow": changed_manifest(format=99),
    "a manifest of another run": changed_manifest(run_id="other-20260101-bbbbbbbb"),
    "a manifest of another train step": changed_manifest(train_step=101),
    "a manifest without files": changed_manifest(files=None),
    "a link": a_link,
    "a link in it": a_link_inside,
    "a file": a_file,
    "a note of a person in it": a_note,
}


@pytest.mark.parametrize("how", NOT_OURS)
def test_what_hpcflow_did_not_make_is_never_removed(tmp_path: Path, how: str) -> None:
    save(tmp_path, 50)
    NOT_OURS[how](save(tmp_path, 100))
    save_and_tidy(job_in(tmp_path), 200)
    assert there(tmp_path) == [100, 200]
    assert removed(tmp_path) == [50]


def test_a_name_that_hpcflow_does_not_give_is_left_alone(tmp_path: Path) -> None:
    names = ["100", "step-100", ".notes", "000000100.bak", "0000000000100"]
    for name in names:
        save(tmp_path, 100).rename(tmp_path / "checkpoints" / name)
    save_and_tidy(job_in(tmp_path), 200)
    assert {path.name for path in (tmp_path / "checkpoints").iterdir()} == {*names, "000000200"}


def test_a_note_that_comes_late_is_seen_all_the_same(tmp_path: Path) -> None:
    job = job_in(tmp_path, Rule(2))
    keeper = Keeper(job, EventLog(job.events))
    for train_step in (100, 200):
        save_and_tidy(job, train_step, keeper)
    a_note(tmp_path / "checkpoints" / "000000100")
    for train_step in (300, 400):
        save_and_tidy(job, train_step, keeper)
    assert there(tmp_path) == [100, 300, 400]


def test_a_torn_one_counts_for_nothing_and_goes(tmp_path: Path) -> None:
    (save(tmp_path, 300) / "model.pt").write_bytes(b"half")
    save(tmp_path, 100)
    save_and_tidy(job_in(tmp_path, Rule(2)), 200)
    assert there(tmp_path) == [100, 200]
    assert removed(tmp_path) == [300]


def test_a_newer_one_that_the_training_did_not_go_on_from_costs_no_good_one(tmp_path: Path) -> None:
    """Its sizes are right, and a bit of it is not."""
    save(tmp_path, 300)
    damaged = save(tmp_path, 400) / "model.pt"
    damaged.write_bytes(b"W" + damaged.read_bytes()[1:])
    save_and_tidy(job_in(tmp_path, Rule(1)), 350)
    assert there(tmp_path) == [350, 400]
    assert removed(tmp_path) == [300]


def test_an_attempt_that_should_be_over_removes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 100)
    job = job_in(tmp_path, attempt_dir=tmp_path / "attempts" / "0002")
    claimed(tmp_path, 3)
    save_and_tidy(job, 200)
    assert there(tmp_path) == [100, 200]
    assert "attempt 3 executes this run now" in capfd.readouterr().err


def test_one_that_took_the_place_of_another_attempts_goes_in_its_time(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    keeper = Keeper(job, EventLog(job.events))
    save(tmp_path, 300, loss=1)  # by an attempt that should be over
    save_and_tidy(job, 200, keeper)
    save(tmp_path, 300, loss=2)
    keeper.tidy(300)
    save_and_tidy(job, 400, keeper)
    assert there(tmp_path) == [400]


def test_nothing_goes_when_the_new_one_is_not_there_any_more(tmp_path: Path) -> None:
    save(tmp_path, 100)
    save(tmp_path, 200)
    (save(tmp_path, 300) / "model.pt").unlink()
    job = job_in(tmp_path)
    Keeper(job, EventLog(job.events)).tidy(300)
    assert there(tmp_path) == [100, 200, 300]


def test_a_metric_that_nobody_logs_is_said_once_and_removes_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = job_in(tmp_path, Rule(1, 1, "acuracy", True))
    keeper = Keeper(job, EventLog(job.events))
    for train_step in (100, 200, 300):
        save(tmp_path, train_step, loss=0.5, accuracy=0.9)
        keeper.tidy(train_step)
        keeper.print_warnings()
    assert there(tmp_path) == [100, 200, 300]
    said = capfd.readouterr().err
    assert said.count("none has the metric 'acuracy'") == 1
    assert "they have accuracy, loss" in said


def test_a_folder_that_is_gone_is_said_once_and_ends_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    job = job_in(tmp_path)
    (tmp_path / "checkpoints").rmdir()
    keeper = Keeper(job, EventLog(job.events))
    keeper.tidy(200)
    keeper.tidy(200)
    assert capfd.readouterr().err == "", "said by the thread that saves"
    keeper.print_warnings()
    assert capfd.readouterr().err.count("the training continues") == 1


def tell_mirror(folder: Path, what: str, train_step: int) -> None:
    line = {"at": now_text(), "what": what, "train_step": train_step}
    with (folder / "mirror.jsonl").open("a") as file:
        file.write(json.dumps(line) + "\n")


def test_what_the_mirror_reads_stays_until_it_has_it(tmp_path: Path) -> None:
    job = job_in(tmp_path)
    save_and_tidy(job, 10)
    tell_mirror(tmp_path, "began", 10)
    save_and_tidy(job, 20)
    assert there(tmp_path) == [10, 20]

    tell_mirror(tmp_path, "mirrored", 10)
    save_and_tidy(job, 30)
    assert there(tmp_path) == [30]


def test_the_mirror_may_begin_with_one_while_it_is_judged(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def judge(*arguments: Any, **named: Any) -> dict[int, list[str]]:
        reasons = rule_judge(*arguments, **named)
        tell_mirror(tmp_path, "began", 10)
        return reasons

    job = job_in(tmp_path)
    save_and_tidy(job, 10)
    monkeypatch.setattr(retention, "judge", judge)
    save_and_tidy(job, 20)
    assert there(tmp_path) == [10, 20]


def test_a_mirror_that_has_not_said_a_word_is_waited_for_all_the_same(tmp_path: Path) -> None:
    rule = Rule(1, 1, "loss")
    for has_mirror, left in ((True, [20, 30]), (False, [30])):
        folder = tmp_path / str(has_mirror)
        folder.mkdir()
        job = job_in(folder, rule, mirror_url="s3://b" if has_mirror else None)
        for train_step in (10, 20, 30):
            save(folder, train_step, loss=1 / train_step)
        tell_mirror(folder, "mirrored", 10)
        if not has_mirror:
            (folder / "mirror.jsonl").unlink()
        Keeper(job, EventLog(job.events)).tidy(30, is_over=True)
        assert there(folder) == left


def test_what_is_found_is_what_the_manifest_says(tmp_path: Path) -> None:
    (tmp_path / "checkpoints").mkdir()
    save(tmp_path, 100, loss=0.5)
    (found,) = find(tmp_path / "checkpoints", RUN_ID)
    assert (found.train_step, found.epoch, found.metrics) == (100, 1.5, {"loss": 0.5})
    assert (found.attempt, found.world_size, found.size_bytes) == (1, 4, 1600)
    assert (found.state, found.why, found.stranger) == ("complete", "", "")


def test_without_a_variable_there_is_no_rule() -> None:
    assert job_from({}).keep is None
    assert job_from({"HPCFLOW_CHECKPOINT_KEEP": '{"last": 4}'}).keep == Rule(4)


def test_whether_there_is_a_mirror_stands_in_a_variable() -> None:
    assert job_from({}).mirror_url is None
    assert job_from({"HPCFLOW_MIRROR_URL": ""}).mirror_url is None
    assert job_from({"HPCFLOW_MIRROR_URL": "s3://b/p"}).mirror_url == "s3://b/p"
