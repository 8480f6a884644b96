"""A run that starts from a checkpoint of another one: named by its run, a path, or in a store."""

from __future__ import annotations

import json
import os
import shutil
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime.files import remove_tree
from hpcflow.settings import load_settings
from hpcflow.storage.layout import RunDir
from tests.cli.desk import Desk
from tests.cli.trained import Trained

TOLD = "echo $HPCFLOW_RESUME_FROM > $HPCFLOW_RUN_DIR/told"


@pytest.fixture
def source(desk: Desk) -> Trained:
    """A completed run with checkpoints of two train steps."""
    source = Trained(desk)
    source.save(100, loss=0.5)
    source.save(400, loss=0.3)
    return source


def tuned(desk: Desk, start_from: str, *, shell: str = TOLD) -> str:
    path = Path(desk.config("tuned", shell))
    path.write_text(path.read_text() + f"start_from: {start_from}\n")
    return str(path)


def started(desk: Desk, start_from: str) -> RunDir:
    """A run that was trained to its end."""
    return load_settings().home.run_dir(
        desk.json("run", tuned(desk, start_from), "--wait")["run_dir"]
    )


def manifest(run_dir: RunDir) -> dict[str, Any]:
    said: dict[str, Any] = json.loads((run_dir.path / "start/000000000/manifest.json").read_text())
    return said


@pytest.mark.parametrize(("text", "train_step"), [("{}", 400), ("{}@100", 100)])
def test_a_run_starts_from_a_checkpoint_of_another(
    source: Trained, desk: Desk, text: str, train_step: int
) -> None:
    run_dir = started(desk, text.format(source.run_id))
    start = run_dir.path / "start/000000000"
    assert (run_dir.path / "told").read_text() == f"{start}\n"
    assert manifest(run_dir)["train_step"] == train_step
    assert (start / "model.pt").read_bytes() == b"weights " * 100
    said = desk.json("show", "tuned")
    folder = source.dir.checkpoints / f"{train_step:09d}"
    assert said["started_from"]["run_id"] == source.run_id
    assert said["started_from"]["train_step"] == train_step
    assert said["started_from"]["place"] == str(folder)
    line = f"started from   train step {train_step} of {source.run_id}, {folder}"
    assert line in desk.say("show", "tuned")
    frozen = json.loads(run_dir.run_json.read_text())
    assert frozen["spec"]["start_from"] == f"{source.run_id}@{train_step}", "as it was then"


@pytest.mark.parametrize("text", ["digits/checkpoints/000000400", "digits@400", "./digits"])
def test_a_path_is_of_a_run_or_of_a_checkpoint(source: Trained, desk: Desk, text: str) -> None:
    shutil.copytree(source.dir.path, desk.folder / "digits")
    if "/" not in text:
        text = f"{desk.folder}/{text}"
    run_dir = started(desk, text)
    assert manifest(run_dir)["train_step"] == 400
    assert desk.json("show", "tuned")["started_from"]["run_id"] == source.run_id


def test_a_folder_may_have_an_at_sign_in_its_name(source: Trained, desk: Desk) -> None:
    for name in ("exp", "exp@100"):
        shutil.copytree(source.dir.path, desk.folder / name)
    shutil.copytree(source.dir.checkpoints / "000000100", desk.folder / "best@2024")
    read = {"exp@100": 400, "exp@100@100": 100, "exp@400": 400, "best@2024": 100}
    for text, train_step in read.items():
        run_dir = started(desk, f"{desk.folder}/{text}")
        assert manifest(run_dir)["train_step"] == train_step, text
        pinned = json.loads(run_dir.run_json.read_text())["spec"]["start_from"]
        assert manifest(started(desk, pinned))["train_step"] == train_step, pinned


def test_what_becomes_of_the_other_run_does_not_matter(source: Trained, desk: Desk) -> None:
    run_dir = started(desk, source.run_id)
    remove_tree(source.dir.path)
    assert (run_dir.path / "start/000000000/model.pt").read_bytes() == b"weights " * 100
    assert desk.json("show", "tuned")["started_from"]["train_step"] == 400


def test_a_run_goes_on_from_its_own_checkpoint_once_it_has_one(source: Trained, desk: Desk) -> None:
    run_dir = started(desk, source.run_id)
    shutil.copytree(source.dir.checkpoints / "000000100", run_dir.checkpoints / "000000100")
    assert desk.code("resume", "tuned", "--wait") == 2
    shell = f"{TOLD}; test -e $HPCFLOW_RUN_DIR/checkpoints/000000100"
    config = tuned(desk, source.run_id, shell=shell)
    again = load_settings().home.run_dir(desk.json("run", config, "--wait", code=1)["run_dir"])
    shutil.copytree(source.dir.checkpoints / "000000100", again.checkpoints / "000000100")
    desk.say("resume", again.path.name, "--wait")
    assert (again.path / "told").read_text() == f"{again.checkpoints}/000000100\n"


def test_what_is_not_there_is_refused_with_what_is(source: Trained, desk: Desk) -> None:
    config = tuned(desk, f"{source.run_id}@300")
    error = desk.error("run", config)
    assert f"{config}:7, start_from: run {source.run_id} has no complete checkpoint" in error
    assert f"of train step 300\n  → it has 100, 400: hpcflow checkpoint ls {source.run_id}" in error
    assert "it has 100, 400" in desk.error("run", tuned(desk, f"{source.dir.path}@300"))
    error = desk.error("run", tuned(desk, f"{source.dir.checkpoints}/000000400@300"))
    assert "has no complete checkpoint of train step 300\n  → it has 400" in error
    assert "no run 'nobody'" in desk.error("run", tuned(desk, "nobody"))
    assert "/not/there: No such file" in desk.error("run", tuned(desk, "/not/there"))
    assert "is not a directory" in desk.error("run", tuned(desk, "/etc/passwd"))
    assert "not a run, a path or a URL" in desk.error("run", tuned(desk, "'a b'"))
    assert "not a supported store" in desk.error("run", tuned(desk, "http://a/b"))
    (source.dir.checkpoints / "000000400/model.pt").write_bytes(b"torn")
    assert "is not a complete checkpoint: model.pt has 4 bytes" in desk.error(
        "run", tuned(desk, source.run_id), code=1
    )
    shutil.rmtree(source.dir.checkpoints)
    error = desk.error("run", tuned(desk, source.run_id))
    assert (
        "has no complete checkpoint\n  → wait for its first one, or start from another run" in error
    )
    assert [each["name"] for each in desk.json("ls")["runs"]] == ["digits"]


def test_what_a_run_starts_from_stays(source: Trained, desk: Desk) -> None:
    shell = "exit 3"
    desk.json("run", tuned(desk, source.run_id, shell=shell), "--wait", code=1)
    error = desk.error("resume", "tuned", "--set", f"start_from={source.run_id}@100")
    assert "the start_from of a run cannot be changed: the checkpoint was copied when" in error


def test_a_preview_makes_nothing(source: Trained, desk: Desk) -> None:
    script = desk.say("render", tuned(desk, source.run_id))
    assert "start/000000000" in script
    desk.say("run", tuned(desk, source.run_id), "--dry-run")
    assert [each["name"] for each in desk.json("ls")["runs"]] == ["digits"]


@pytest.mark.skipif(os.geteuid() == 0, reason="root may enter every directory")
def test_a_checkpoint_that_one_may_not_read_is_asked_for(source: Trained, desk: Desk) -> None:
    source.dir.path.chmod(0)
    try:
        error = desk.error("run", tuned(desk, f"{source.dir.checkpoints}/000000400"))
    finally:
        source.dir.path.chmod(0o700)
    assert "you may not read" in error
    assert "hpcflow checkpoint export RUN FOLDER" in error
