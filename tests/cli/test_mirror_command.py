"""``hpcflow mirror``: a person sends what is due, sees how far it is, and asks the store."""

from __future__ import annotations

import json
import os
import shlex
import shutil
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.mirror.status import Progress
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.runs import list_runs
from tests.cli.desk import Desk
from tests.cli.test_live_view import at_a_terminal
from tests.mirror.runs import save


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "a store"


def run_in(desk: Desk, home: Path, store: Path | str) -> RunDir:
    """A run that has ended."""
    config = desk.config("digits", "true")
    desk.say("run", config, "--set", f"mirror={store}")
    (run_dir,) = list_runs(Home(home))
    desk.say("wait", run_dir.path.name)
    return run_dir


def test_from_nothing_to_everything_there(desk: Desk, home: Path, store: Path) -> None:
    run_dir = run_in(desk, home, store)
    run_id = run_dir.path.name
    assert (
        f"export HPCFLOW_MIRROR=1\nexport HPCFLOW_MIRROR_URL={shlex.quote(str(store))}\n"
        in run_dir.attempt(1).script.read_text()
    )
    save(run_dir, 400)
    (before,) = desk.json("mirror", "status")["runs"]
    assert (before["newest"], before["mirrored"]) == (400, None)
    assert before["to_go_bytes"] == before["size_bytes"] == 100_000
    assert before["lag_s"] > 0

    said = desk.say("mirror", "--once")
    assert f"{run_id}  train step 400: 97.7 KiB mirrored in" in said
    assert (store / run_id / "checkpoints/000000400/manifest.json").exists()
    assert (store / run_id / "journal.jsonl").read_bytes() == run_dir.journal.read_bytes()

    (after,) = desk.json("mirror", "status", run_id)["runs"]
    assert (after["newest"], after["mirrored"], after["to_go_bytes"]) == (400, 400, 0)
    assert (after["lag_s"], after["problem"]) == (0, None)
    assert "100 %" in desk.say("mirror", "status")
    assert desk.say("mirror", "--once") == ""
    assert "train step 400: unchanged" in desk.say("mirror", "verify", run_id)


def test_the_ledger_knows_it(desk: Desk, home: Path, store: Path) -> None:
    run_dir = run_in(desk, home, store)
    run_id = run_dir.path.name
    path = save(run_dir, 400)
    event = {
        "event": "checkpoint",
        "at": "2026-01-01T00:00:00.000Z",
        "train_step": 400,
        "path": str(path.relative_to(run_dir.path)),
        "size_bytes": 100_000,
    }
    with run_dir.attempt(1).events.open("a") as file:
        file.write(json.dumps(event) + "\n")
    desk.say("ledger", "rebuild")
    lag = desk.json("show", run_id)["mirror"]
    assert (lag["newest"], lag["mirrored"], lag["behind_since"]) == (400, None, event["at"])
    assert "nothing yet; train step 400 is to follow" in desk.say("show", run_id)
    desk.say("mirror", "--once")
    assert desk.json("show", run_id)["mirror"]["behind_since"] is None
    (checkpoint,) = desk.json("show", run_id)["checkpoints"]
    assert checkpoint["mirrored_at"] is not None
    assert "train step 400, the newest" in desk.say("show", run_id)
    assert desk.json("ledger", "check")["differences"] == []


def test_what_changed_there_is_found_and_sent_again(desk: Desk, home: Path, store: Path) -> None:
    run_dir = run_in(desk, home, store)
    save(run_dir, 400)
    desk.say("mirror", "--once")
    there = store / run_dir.path.name / "checkpoints/000000400/model.pt"
    there.write_bytes(b"\0" * 70_000)
    found = desk.json("mirror", "verify", run_dir.path.name, code=1)
    assert found["checkpoints"] == [
        {"train_step": 400, "why": "model.pt has the right size but another checksum"}
    ]
    assert (
        "it was mirrored, but now model.pt" in desk.json("mirror", "status")["runs"][0]["problem"]
    )
    desk.say("mirror", "--once")
    desk.say("mirror", "verify", run_dir.path.name)


def test_a_damaged_one_is_said(desk: Desk, home: Path, store: Path) -> None:
    run_dir = run_in(desk, home, store)
    path = save(run_dir, 400)
    (path / "model.pt").write_bytes(b"\0" * 70_000)
    assert "is not what was written: its checksum differs" in desk.error("mirror", "--once", code=1)
    report = desk.json("mirror", "--once")  # it is not tried again
    assert report["problems"] == {}
    assert "checksum differs" in desk.json("mirror", "status")["runs"][0]["problem"]


def test_a_garbage_manifest_is_said_once_and_is_why(desk: Desk, home: Path, store: Path) -> None:
    run_dir = run_in(desk, home, store)
    (save(run_dir, 400) / "manifest.json").write_bytes(b"garbage")
    assert "is not a valid manifest" in desk.error("mirror", "--once", code=1)
    assert desk.json("mirror", "--once")["problems"] == {}
    assert "is not a valid manifest" in desk.json("mirror", "status")["runs"][0]["problem"]
    assert "train step 400: " in desk.say("mirror", "status")


def test_a_store_that_is_not_there_is_why(desk: Desk, home: Path, store: Path) -> None:
    run_dir = run_in(desk, home, store)
    save(run_dir, 300)
    desk.say("mirror", "--once")
    store.rename(store.with_name("unmounted"))
    save(run_dir, 400)
    assert "does not exist; is it mounted?" in desk.error("mirror", "--once", code=1)
    for words in (["mirror", "verify"], ["restore"]):
        assert "is it mounted?" in desk.error(*words, run_dir.path.name, code=1)
    assert not store.exists()
    (status,) = desk.json("mirror", "status")["runs"]
    assert (status["newest"], status["mirrored"]) == (400, 300)
    assert "is it mounted?" in status["problem"]
    assert "is it mounted?" in desk.say("mirror", "status")
    store.with_name("unmounted").rename(store)
    desk.say("mirror", "--once")
    assert desk.json("mirror", "status")["runs"][0]["problem"] is None
    desk.say("mirror", "verify", run_dir.path.name)


def test_a_damaged_run_json_is_said_everywhere(desk: Desk, home: Path, store: Path) -> None:
    run_dir = run_in(desk, home, store)
    run_dir.run_json.write_text('{"mirror": {"url": 5}}')
    assert f"{run_dir.run_json} is damaged" in desk.error("mirror", "--once", code=1)
    assert f"{run_dir.run_json} is damaged" in desk.error("mirror", "status", code=1)
    assert f"{run_dir.path.name} " in desk.say("mirror", "status", code=1)
    (status,) = desk.json("mirror", "status", code=1)["runs"]
    assert (status["run_id"], status["url"], status["newest"]) == (run_dir.path.name, None, None)
    assert "is damaged" in status["problem"]
    assert "is damaged" in desk.error("mirror", "verify", run_dir.path.name, code=1)


def test_a_run_that_cannot_be_read_is_a_failure_of_status(
    desk: Desk, home: Path, store: Path
) -> None:
    run_dir = run_in(desk, home, store)
    run_dir.mirror.mkdir()
    assert "cannot read" in desk.error("mirror", "status", code=1)
    assert len(desk.json("mirror", "status", code=1)["runs"]) == 1


def test_what_is_purged_is_brought_back_before_it_is_verified(
    desk: Desk, home: Path, store: Path
) -> None:
    run_dir = run_in(desk, home, store)
    save(run_dir, 400)
    desk.say("mirror", "--once")
    shutil.rmtree(run_dir.path)
    for command in ("verify", "status"):
        said = desk.error("mirror", command, run_dir.path.name)
        assert "is gone: it was purged" in said
        assert f"hpcflow restore {run_dir.path.name}" in said
    scratch = run_dir.path.parents[1]
    scratch.rename(scratch.with_name("unmounted"))
    said = desk.error("mirror", "verify", run_dir.path.name)
    assert "its scratch is not mounted here" in said
    assert "purged" not in said


def test_a_bar_on_a_terminal(desk: Desk, home: Path, store: Path) -> None:
    run_dir = run_in(desk, home, store)
    save(run_dir, 300)
    desk.say("mirror", "--once")
    save(run_dir, 400)
    save(run_dir, 500)
    env = {
        **{name: os.environ[name] for name in ("PATH", "HOME", "HPCFLOW_SITE")},
        "HPCFLOW_HOME": str(home),
        "TERM": "xterm-256color",
        "COLUMNS": "160",
    }
    assert "33 %" in desk.say("mirror", "status"), "no bar where no terminal is"
    with Progress(run_dir, 500, 100_000, SystemClock()) as progress:
        progress.add(50_000)
        progress._write()
        shown = at_a_terminal("mirror", "status", env=env, cwd=home.parent)
    assert "being sent" in shown
    assert f"{run_dir.path.name}" in shown
    assert "146.5 KiB" in shown, "of two, half of one was sent"
    assert "\x1b[" in shown
    # Of three checkpoints the store has one, and half of another one.
    assert f"{'━' * 10}{'┄' * 10} 50 %" in shown

    desk.say("mirror", "--once")
    shown = at_a_terminal("mirror", "status", env=env, cwd=home.parent)
    assert "━" * 20 in shown
    assert "being sent" not in shown


def test_never(desk: Desk, home: Path) -> None:
    run_dir = run_in(desk, home, "never")
    assert "HPCFLOW_MIRROR=" not in run_dir.attempt(1).script.read_text()
    assert "no run is mirrored" in desk.say("mirror", "status")
    assert "is not mirrored" in desk.error("mirror", "verify", run_dir.path.name)


@pytest.mark.usefixtures("home")
@pytest.mark.parametrize(
    ("mirror", "wrong"),
    [
        ("relative", "not the URL of a store"),
        ("s3://key:secret@bucket/x", "credentials do not belong in a URL"),
        ("s3://lab/$NO_SUCH_VARIABLE", "$NO_SUCH_VARIABLE is not set"),
    ],
)
def test_a_url_that_is_none(desk: Desk, mirror: str, wrong: str) -> None:
    said = desk.error("run", desk.config("digits", "true"), "--set", f"mirror={mirror}")
    assert wrong in said
    assert "secret" not in said


@pytest.mark.usefixtures("home")
def test_a_run_says_only_where_to_and_the_site_says_how(desk: Desk) -> None:
    said = desk.error("run", desk.config("digits", "true"), "--set", "mirror.url=s3://lab/a")
    assert "error: --set mirror: expected a text, got a mapping; write it like `mirror: " in said


@pytest.mark.usefixtures("home")
def test_what_to_do_is_to_be_said(desk: Desk) -> None:
    assert "hpcflow mirror --once" in desk.error("mirror")
    assert "has no effect" in desk.error("mirror", "--once", "status")
