"""What was found damaged is set aside, and costs no good one."""

from __future__ import annotations

import errno
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime.__main__ import main
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.events import EventLog
from hpcflow.runtime.manifest import verify
from hpcflow.runtime.retention import Keeper
from hpcflow.runtime.rule import Rule
from tests.runtime.harness import RunFolder, run, start
from tests.runtime.kept import (
    RUN_ID,
    a_link,
    a_note,
    changed_manifest,
    claimed,
    job_in,
    save,
    there,
)


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
        keeper.print_warnings()


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
