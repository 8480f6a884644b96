"""Old checkpoints go while the job runs: never half, and never one that is somebody else's."""

from __future__ import annotations

import errno
import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime import keeping
from hpcflow.runtime.__main__ import main
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.events import EventLog
from hpcflow.runtime.job import Job, job_from
from hpcflow.runtime.keeping import Keeper, find, half_removed
from hpcflow.runtime.manifest import manifest_bytes, now_text, verify
from hpcflow.runtime.rule import Rule
from hpcflow.runtime.rule import judge as rule_judge
from tests.runtime.harness import RunFolder, context, die_at_call, run, start
from tests.runtime.program import BATCHES, EPOCHS
from tests.runtime.published import publish

RUN_ID = "digits-20260101-aaaaaaaa"
LAST = EPOCHS * BATCHES
ONE = Rule(1)


def job_in(folder: Path, rule: Rule = ONE, **facts: Any) -> Job:
    """A job whose run directory is ``folder``."""
    (folder / "checkpoints").mkdir(exist_ok=True)
    return Job(
        run_id=RUN_ID,
        attempt=2,
        run_dir=folder,
        events=folder / "events.jsonl",
        checkpoint_dir=folder / "checkpoints",
        keep=rule,
        **facts,
    )


def save(folder: Path, train_step: int, **metrics: float) -> Path:
    """Publish a checkpoint, as rank 0 does."""
    files = dict.fromkeys(("model.pt", "sub/optimizer.pt"), b"weights " * 100)
    facts = {"run_id": RUN_ID, "attempt": 1, "world_size": 4, "epoch": 1.5, "metrics": metrics}
    return publish(folder / "checkpoints", train_step, files, **facts).path


def save_and_tidy(job: Job, train_step: int, keeper: Keeper | None = None) -> None:
    assert job.run_dir is not None
    save(job.run_dir, train_step)
    keeper = keeper or Keeper(job, EventLog(job.events))
    keeper.tidy(train_step)
    keeper.say()


def there(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in (folder / "checkpoints").glob("[0-9]*"))


def removed(folder: Path) -> list[int]:
    """Train steps of the events that say so."""
    events = folder / "events.jsonl"
    lines = events.read_text().splitlines() if events.exists() else []
    return [json.loads(line)["train_step"] for line in lines if "checkpoint_removed" in line]


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
    (tmp_path / "state").mkdir()
    (tmp_path / "state" / "root").write_text("1.4")
    for name, value in (
        ("RUN_ID", RUN_ID),
        ("RUN_DIR", tmp_path),
        ("CHECKPOINT_DIR", tmp_path / "checkpoints"),
        ("EVENTS", tmp_path / "events.jsonl"),
        ("CHECKPOINT_KEEP", '{"last": 1, "best": 1, "metric": "root"}'),
    ):
        monkeypatch.setenv(f"HPCFLOW_{name}", str(value))
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


def changed_manifest(**facts: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_bytes(manifest_bytes({**manifest, **facts}))

    return change


def garbage(path: Path) -> None:
    (path / "manifest.json").write_text("{")


def a_link(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def a_link_inside(path: Path) -> None:
    (path / "data").symlink_to(path.parent)


def a_file(path: Path) -> None:
    shutil.rmtree(path)
    path.write_text("mine")


def a_note(path: Path) -> None:
    (path / "KEEP").touch()


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


def flip(path: Path) -> None:
    """Change a bit of a file, and not its size."""
    file = path / "model.pt"
    file.write_bytes(b"W" + file.read_bytes()[1:])


def saves_until_650(folder: Path, rule: Rule) -> None:
    """By the clock, so that no train step is one of those before."""
    job = job_in(folder, rule)
    keeper = Keeper(job, EventLog(job.events))
    for train_step in (450, 550, 650):
        save(folder, train_step, loss=2)
        keeper.tidy(train_step)
        keeper.say()


def test_what_was_skipped_as_damaged_costs_no_good_one_in_any_attempt(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    save(tmp_path, 400, loss=3)
    flip(save(tmp_path, 500, loss=1))
    flip(save(tmp_path, 600, loss=2))
    monkeypatch.setenv("HPCFLOW_RUN_ID", RUN_ID)
    monkeypatch.setenv("HPCFLOW_CHECKPOINT_DIR", str(tmp_path / "checkpoints"))

    assert main(["resume-path"]) == 0

    said = capfd.readouterr()
    assert said.out.endswith("000000400\n")
    assert said.err.count("was set aside as .000000") == 2
    saves_until_650(tmp_path, Rule(2, 1, "loss"))
    assert there(tmp_path) == [450, 550, 650]
    for path in (tmp_path / "checkpoints").glob("[0-9]*"):
        verify(path)


def test_a_training_sets_aside_what_any_of_its_ranks_found_damaged(folder: RunFolder) -> None:
    """The second rank reads the file that is damaged, and the first one is told."""
    environ: dict[str, Any] = {"HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": 10}
    run(folder, 2, HURT="0:25:KILL", PATIENT=1, **environ)
    damaged = folder.checkpoint(20) / "rank-00001.json"
    damaged.write_bytes(damaged.read_bytes().replace(b"1", b"2", 1))

    training = start(folder, 2, HURT="0:15:KILL", PATIENT=1, **environ)

    training.exit_codes()
    assert training.log().count("set aside as .000000020") == 1
    assert folder.complete() == [10]
    assert len(list(folder.checkpoints.glob(".000000020.*.broken"))) == 1


def resume_path_in(folder: Path, monkeypatch: pytest.MonkeyPatch, **facts: Any) -> int:
    monkeypatch.setenv("HPCFLOW_RUN_ID", RUN_ID)
    for name, value in {"CHECKPOINT_DIR": folder / "checkpoints", **facts}.items():
        monkeypatch.setenv(f"HPCFLOW_{name}", str(value))
    return main(["resume-path"])


def test_nothing_is_set_aside_where_none_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It may be this node that reads wrongly."""
    flip(save(tmp_path, 400))
    assert resume_path_in(tmp_path, monkeypatch) == 3
    assert there(tmp_path) == [400]


def test_nor_what_could_not_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 400)
    save(tmp_path, 500)
    save(tmp_path, 600)

    def fails(path: Path, *how: Any) -> str:
        if "000000500" in str(path):
            raise OSError(errno.EIO, "Input/output error", str(path))
        if "000000600" in str(path):
            raise FileNotFoundError(errno.ENOENT, "not seen here", str(path))
        return sha256_of(path, *how)

    monkeypatch.setattr("hpcflow.runtime.manifest.sha256_of", fails)
    assert resume_path_in(tmp_path, monkeypatch) == 0
    assert there(tmp_path) == [400, 500, 600]


def test_nor_what_is_somebody_elses(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    save(tmp_path, 400)
    for number, make in enumerate((a_note, a_link, changed_manifest(run_id="other"))):
        path = save(tmp_path, 500 + number)
        flip(path)
        make(path)
    assert resume_path_in(tmp_path, monkeypatch) == 0
    assert there(tmp_path) == [400, 500, 501, 502]


def test_nor_by_an_attempt_that_should_be_over_or_another_rank(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    save(tmp_path, 400)
    flip(save(tmp_path, 500))
    monkeypatch.setenv("RANK", "1")
    assert resume_path_in(tmp_path, monkeypatch) == 0
    monkeypatch.delenv("RANK")
    claimed(tmp_path, 3)
    facts = {"ATTEMPT": 2, "ATTEMPT_DIR": tmp_path / "attempts" / "0002"}
    assert resume_path_in(tmp_path, monkeypatch, **facts) == 0
    assert there(tmp_path) == [400, 500]


def claimed(folder: Path, attempt: int) -> None:
    path = folder / "attempts" / f"{attempt:04d}"
    path.mkdir(parents=True)
    (path / "claim").write_text("7\n")


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
        keeper.say()
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
    keeper.say()
    assert capfd.readouterr().err.count("the training goes on") == 1


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
    def judge(*arguments: Any) -> dict[int, list[str]]:
        reasons = rule_judge(*arguments)
        tell_mirror(tmp_path, "began", 10)
        return reasons

    job = job_in(tmp_path)
    save_and_tidy(job, 10)
    monkeypatch.setattr(keeping, "judge", judge)
    save_and_tidy(job, 20)
    assert there(tmp_path) == [10, 20]


def test_a_mirror_that_has_not_said_a_word_is_waited_for_all_the_same(tmp_path: Path) -> None:
    rule = Rule(1, 1, "loss")
    for has_mirror, left in ((True, [20, 30]), (False, [30])):
        folder = tmp_path / str(has_mirror)
        folder.mkdir()
        job = job_in(folder, rule, has_mirror=has_mirror)
        for train_step in (10, 20, 30):
            save(folder, train_step, loss=1 / train_step)
        tell_mirror(folder, "mirrored", 10)
        if not has_mirror:
            (folder / "mirror.jsonl").unlink()
        Keeper(job, EventLog(job.events)).tidy(30)
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
    assert not job_from({}).has_mirror
    assert job_from({"HPCFLOW_MIRROR": "1"}).has_mirror
    with pytest.raises(ValueError, match="HPCFLOW_MIRROR='yes': not 0 or 1"):
        job_from({"HPCFLOW_MIRROR": "yes"})
