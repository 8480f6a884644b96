"""The runtime for programs in other languages: ``python3 -m hpcflow.runtime``."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime.__main__ import main
from hpcflow.runtime.manifest import verify
from hpcflow.runtime.retention import Keeper
from tests.runtime.harness import RunFolder


@pytest.fixture(autouse=True)
def inside(folder: RunFolder, monkeypatch: pytest.MonkeyPatch) -> RunFolder:
    for name, value in folder.environ().items():
        monkeypatch.setenv(name, value)
    return folder


@pytest.fixture
def state(tmp_path: Path) -> Path:
    """What a program of its own format has written."""
    folder = tmp_path / "state"
    (folder / "sub").mkdir(parents=True)
    (folder / "weights.bin").write_bytes(b"12345")
    (folder / "sub" / "more").write_bytes(b"678")
    return folder


def test_a_folder_becomes_a_checkpoint_to_resume_from(
    inside: RunFolder, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["resume-path"]) == 3

    assert main(["checkpoint", str(state), "--train-step", "120", "--epoch", "2", "loss=0.3"]) == 0

    assert verify(inside.checkpoint(120)).metrics == {"loss": 0.3}
    assert (inside.checkpoint(120) / "sub" / "more").read_bytes() == b"678"
    (event,) = inside.events("checkpoint")
    assert (event["train_step"], event["size_bytes"], event["epoch"]) == (120, 8, 2)
    assert event["path"] == "checkpoints/000000120"
    capsys.readouterr()
    assert main(["resume-path"]) == 0
    assert capsys.readouterr().out == f"{inside.checkpoint(120)}\n"
    assert state.exists()


def test_the_same_checkpoint_twice_is_one(inside: RunFolder, state: Path) -> None:
    for _ in range(2):
        assert main(["checkpoint", str(state), "--train-step", "120"]) == 0

    assert inside.complete() == [120]
    assert len(inside.events("checkpoint")) == 1


@pytest.mark.parametrize("what", ["state", "state/zz"])
def test_nothing_is_copied_from_where_others_lead_meanwhile(
    state: Path, tmp_path: Path, inside: RunFolder, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    """Teammates who may write there put a link to a private folder of the user in its place."""
    private = tmp_path / "private" / what
    (private.parent / "state/zz" if what == "state" else private).mkdir(parents=True)
    ((private / "zz" if what == "state" else private) / "z").write_bytes(b"secret")
    (state / "zz").mkdir()
    (state / "zz/z").write_bytes(b"not secret")
    place = state.parent / what
    copy = shutil.copyfileobj

    def copied(*given: Any) -> None:
        copy(*given)
        if not place.is_symlink():
            place.rename(tmp_path / "aside")
            place.symlink_to(private)

    monkeypatch.setattr("hpcflow.runtime.__main__.shutil.copyfileobj", copied)
    main(["checkpoint", str(state), "--train-step", "120"])
    assert place.is_symlink()
    files = [path for path in inside.path.rglob("*") if path.is_file()]
    assert b"secret" not in [path.read_bytes() for path in files]


def test_a_folder_can_be_moved(state: Path) -> None:
    assert main(["checkpoint", str(state), "--train-step", "1", "--move"]) == 0

    assert not state.exists()


def test_no_other_folder_is_removed_in_place_of_the_one_that_was_copied(
    state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A teammate who can write to the folder above has swapped them meanwhile."""
    thesis = state.parent / "thesis"
    thesis.mkdir()
    (thesis / "text").write_text("years")

    def swap(_keeper: Keeper, _train_step: int, **_: bool) -> None:
        state.rename(state.parent / "aside")
        thesis.rename(state)

    monkeypatch.setattr(Keeper, "tidy", swap)
    assert main(["checkpoint", str(state), "--train-step", "1", "--move"]) == 0
    assert (state / "text").read_text() == "years"


def test_a_folder_with_links_is_refused(
    inside: RunFolder, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (state / "link").symlink_to("/etc/passwd")

    assert main(["checkpoint", str(state), "--train-step", "1"]) == 1

    assert "neither a plain file nor a folder" in capsys.readouterr().err
    assert inside.complete() == []
    (failed,) = inside.events("checkpoint_failed")
    assert failed["train_step"] == 1
    assert "neither a plain file nor a folder" in failed["why"]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files away")
def test_a_folder_with_a_file_of_another_user_is_refused(
    inside: RunFolder, state: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """The program would load it, and with it whatever code it brings along."""
    os.chown(next(path for path in state.rglob("*") if path.is_file()), 4711, 4711)
    assert main(["checkpoint", str(state), "--train-step", "5"]) == 1
    assert "belongs to another user" in capsys.readouterr().err
    assert inside.complete() == []


def test_progress_and_finish_are_events(inside: RunFolder) -> None:
    main(["progress", "--train-step", "3", "--total-train-steps", "9", "loss=0.5", "lr=nan"])
    main(["finish", "--train-step", "9", "accuracy=0.9", "--model", str(inside.path / "m.bin")])

    (progress,), (finished,) = inside.events("progress"), inside.events("finished")
    assert progress["metrics"] == {"loss": 0.5, "lr": None}
    assert progress["total_train_steps"] == 9
    assert finished["metrics"] == {"accuracy": 0.9}
    assert finished["model"] == "m.bin"


def test_only_rank_0_reports(
    inside: RunFolder, state: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("RANK", "3")

    assert main(["progress", "--train-step", "3", "loss=0.5"]) == 0
    assert main(["checkpoint", str(state), "--train-step", "3"]) == 0

    assert inside.events() == []
    assert inside.complete() == []


def test_the_notice_is_an_exit_code(inside: RunFolder) -> None:
    assert main(["noticed"]) == 1
    (inside.attempt_dir / "notice").touch()
    assert main(["noticed"]) == 0


@pytest.mark.parametrize(
    "arguments",
    [
        [],
        ["checkpoint", "/no/such/folder", "--train-step", "1"],
        ["progress", "--train-step", "-1"],
        ["progress", "--train-step", "1e9"],
        ["progress", "--train-step", "1", "loss"],
        ["progress", "--train-step", "1", "loss=much"],
        ["resume"],
    ],
)
def test_wrong_arguments_are_explained(arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as wrong:
        main(arguments)
    assert wrong.value.code == 2


def test_outside_of_a_job_it_says_so(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.delenv("HPCFLOW_CHECKPOINT_DIR")

    assert main(["resume-path"]) == 1
    assert "this process is not inside a job" in capsys.readouterr().err


def test_it_is_a_command(inside: RunFolder) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "hpcflow.runtime", "progress", "--train-step", "1", "loss=1"],
        env=dict(os.environ),
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert len(inside.events("progress")) == 1


def test_a_trial_that_was_pruned_is_told_to_leave(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hpcflow.runtime", "noticed"]
    env = {**os.environ, "HPCFLOW_RUN_DIR": str(tmp_path), "HPCFLOW_NOTICE": str(tmp_path / "n")}
    assert subprocess.run(command, env=env).returncode == 1
    (tmp_path / "cancel").write_text("")
    assert subprocess.run(command, env=env).returncode == 1, "its job is ended anyway"
    (tmp_path / "cancel").write_text("pruned\n")
    assert subprocess.run(command, env=env).returncode == 0
