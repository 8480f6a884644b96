"""``hpcflow restore`` over real runs on this machine and a real S3 server."""

from __future__ import annotations

import json
import secrets
import shlex
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from hpcflow.resources import resource_dir
from hpcflow.settings import load_settings
from hpcflow.storage.rundir import read_run
from hpcflow.testing.cluster import S3
from tests.cli.desk import Desk
from tests.cli.trained import Trained


class Mirrored(Trained):
    """A run that saved and left, whose checkpoints are in a bucket."""

    def __init__(self, desk: Desk, url: str) -> None:
        config = Path(desk.config("digits", "exit 75"))
        config.write_text(f"{config.read_text()}mirror: {url}\n")
        said = desk.json("run", str(config), "--wait", code=1)
        self.run_id, self.dir, self.desk = (
            said["run_id"],
            load_settings().home.run_dir(said["run_dir"]),
            desk,
        )
        self.url = f"{url}/{self.run_id}"
        for step in (100, 200):
            self.save(step)
        desk.say("mirror", "--once")

    def purge(self) -> None:
        shutil.rmtree(self.dir.path)


@pytest.fixture
def bucket(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> str:
    for name, value in s3_server.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    return f"s3://{s3_server.create_bucket(f'test-{secrets.token_hex(6)}')}/ada/runs"


@pytest.fixture
def mirrored(desk: Desk, bucket: str) -> Mirrored:
    return Mirrored(desk, bucket)


def test_a_purged_run_is_fetched_and_goes_on(mirrored: Mirrored, desk: Desk) -> None:
    mirrored.purge()
    said = desk.json("restore", "--from", mirrored.url)
    assert (said["is_new"], said["checkpoints"], said["newest_train_step"]) == (True, [200], 200)
    assert said["is_from_elsewhere"] is False
    assert said["run_dir"] == str(mirrored.dir.path)
    assert desk.json("ledger", "check")["differences"] == []
    again = desk.json("resume", mirrored.run_id, "--wait", code=1)
    assert again["attempts"][-1]["attempt"] == 2
    assert again["attempts"][-1]["resume_from"] == "checkpoints/000000200"


@pytest.mark.parametrize("is_site_file", [False, True])
def test_a_run_that_was_purged_before_the_ledger_read_it_is_fetched(
    desk: Desk, home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_site_file: bool
) -> None:
    """The ledger has only its name then; the home knows its ``run.json`` all the same."""
    if is_site_file:
        site = tmp_path / "mine.yaml"
        site.write_text((resource_dir("site_configs") / "local.yaml").read_text())
        monkeypatch.setenv("HPCFLOW_SITE", str(site))
    (store := tmp_path / "store").mkdir()
    mirrored = Mirrored(desk, str(store))
    mirrored.purge()
    for path in home.glob("ledger.sqlite*"):
        path.unlink()
    assert mirrored.run_id in desk.say("ls")
    assert "checkpoint 200 and" in desk.say("restore", mirrored.run_id)
    assert desk.json("ledger", "check")["differences"] == []
    again = desk.json("resume", mirrored.run_id, "--wait", code=1)
    assert again["attempts"][-1]["resume_from"] == "checkpoints/000000200"


def test_what_a_purge_took_of_it_is_put_back(mirrored: Mirrored, desk: Desk) -> None:
    (mirrored.dir.checkpoints / "000000200" / "model.pt").unlink()
    told = desk.say("restore", mirrored.run_id)
    assert f"{mirrored.run_id}: checkpoint 200 and 0 small files from {mirrored.url}" in told
    assert "nothing is missing" in desk.say("restore", mirrored.run_id)
    assert desk.json("restore", mirrored.run_id, "--checkpoint", "all")["checkpoints"] == []
    history = desk.say("history", mirrored.run_id)
    assert "restored" in history


def test_a_run_json_that_was_cut_is_put_back(mirrored: Mirrored, desk: Desk) -> None:
    whole = mirrored.dir.run_json.read_bytes()
    mirrored.dir.run_json.write_bytes(whole[:300])
    told = f"hpcflow restore {mirrored.run_id}"
    assert told in desk.error("resume", mirrored.run_id, code=1)
    assert "no checkpoint and 1 small file" in desk.say("restore", mirrored.run_id)
    put_back, before = json.loads(mirrored.dir.run_json.read_bytes()), json.loads(whole)
    for each in (put_back, before):  # no trusted file names its mirror any more
        each["mirror"] = each["spec"]["mirror"] = None
    assert put_back == before
    assert "nothing is missing" in desk.say("restore", mirrored.run_id)
    assert desk.json("ledger", "check")["differences"] == []
    assert desk.json("show", mirrored.run_id)["next_action"] == "held"
    store = mirrored.url.rpartition("/")[0]
    again = desk.json("resume", mirrored.run_id, "--set", f"mirror={store}", "--wait", code=1)
    assert again["attempts"][-1]["resume_from"] == "checkpoints/000000200"


def test_an_empty_home_gets_the_run_from_the_bucket_alone(
    mirrored: Mirrored, desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    home = tmp_path / "second home"
    monkeypatch.setenv("HPCFLOW_HOME", str(home))
    refused = desk.error("restore", "--from", mirrored.url)
    assert "may be active" in refused
    assert "--even-if-running" in refused
    said = desk.json("restore", "--from", mirrored.url, "--even-if-running", "--checkpoint", "all")
    assert (said["is_from_elsewhere"], said["checkpoints"]) == (True, [100, 200])
    run_dir = load_settings().home.run_dir(said["run_dir"])
    assert run_dir.path.is_relative_to(home)
    assert read_run(run_dir).run_dir == str(run_dir.path)
    (shown,) = desk.json("ls")["runs"]
    assert (shown["run_id"], shown["next_action"]) == (mirrored.run_id, "held")
    attempts = desk.json("show", mirrored.run_id)["attempts"]
    assert [attempt["cause"] for attempt in attempts] == ["checkpointed"]
    again = desk.json("resume", mirrored.run_id, "--wait", code=1)
    assert again["attempts"][-1]["resume_from"] == "checkpoints/000000200"
    assert desk.json("ledger", "check")["differences"] == []


def test_the_ledger_is_made_from_the_bucket_alone(mirrored: Mirrored, desk: Desk) -> None:
    before = desk.json("show", mirrored.run_id)
    (Path(before["run_dir"]).parents[3] / "ledger.sqlite").unlink(missing_ok=True)
    mirrored.purge()
    folder = mirrored.url.rpartition("/")[0]
    found = desk.json("ledger", "rebuild", "--from", folder)
    assert (found["runs"], found["problems"]) == ([mirrored.run_id], [])
    after = desk.json("show", mirrored.run_id)
    assert after["metrics"] == before["metrics"]
    assert [each["job_id"] for each in after["attempts"]] == [
        each["job_id"] for each in before["attempts"]
    ]
    assert [each["train_step"] for each in after["checkpoints"]] == [100, 200]
    assert not any(each["complete"] for each in after["checkpoints"])
    assert "nothing is missing" not in desk.say("restore", "--from", mirrored.url)


def test_a_daemon_restores_and_sends_by_itself(mirrored: Mirrored, desk: Desk, home: Path) -> None:
    mirrored.purge()
    deadline = 60
    for _ in range(deadline):
        desk.say("daemon", "--once")
        shown = desk.json("show", mirrored.run_id)
        if len(shown["attempts"]) > 1:
            break
        wait = [sys.executable, "-c", "import time; time.sleep(0.5)"]
        subprocess.run(wait, check=True)
    second = shown["attempts"][1]
    assert second["resume_from"] == "checkpoints/000000200"
    told = [json.loads(line) for line in mirrored.dir.journal.read_text().splitlines()]
    decided = [each["rule"] for each in told if each["record"] == "decided"]
    assert decided[:2] == ["purged", "go_on"]
    assert list(home.joinpath("restoring").iterdir()) == []


@pytest.mark.parametrize(
    ("argv", "told"),
    [
        ([], "no run is named, and no place in a store"),
        (["nobody"], "no run 'nobody'"),
        (["--from", "s3://bucket"], "does not end in the id of a run"),
        (["--from", "s3://u:p@b/x/digits-20260301-abcdefgh"], "credentials do not belong"),
        (["x", "--checkpoint", "first"], "write newest, all, or a train step"),
        (["x", "--checkpoint", "-1"], "write newest, all, or a train step"),
    ],
)
def test_bad_input_says_what_to_type(desk: Desk, argv: list[str], told: str) -> None:
    assert told in desk.error("restore", *argv)


def test_what_the_store_does_not_have_is_said(mirrored: Mirrored, desk: Desk) -> None:
    folder = mirrored.url.rpartition("/")[0]
    error = desk.error("restore", "--from", f"{folder}/digits-20260301-abcdefgh")
    assert f"{folder} has no run digits-20260301-abcdefgh" in error
    assert "no checkpoint of train step 150" in desk.error(
        "restore", mirrored.run_id, "--checkpoint", "150"
    )
    mirrored.purge()
    assert "restore" in desk.say("daemon", "--once")  # what a person asked for is no word on it


def test_the_ledger_remembers_where_a_run_was_mirrored(mirrored: Mirrored, desk: Desk) -> None:
    mirrored.purge()
    assert desk.json("restore", mirrored.run_id)["checkpoints"] == [200]


def test_a_bucket_on_another_server_is_named_with_its_server(
    mirrored: Mirrored, desk: Desk, s3_server: S3, monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    """The site's own store is elsewhere, and must not be asked for it."""
    server = s3_server.env()["AWS_ENDPOINT_URL"]
    for name in [name for name in s3_server.env() if "ENDPOINT" in name]:
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    site = (resource_dir("site_configs") / "local.yaml").read_text()
    ours = "mirror: {url: 's3://ours/runs', endpoint_url: 'http://127.0.0.1:9'}\n"
    (home / "sites").mkdir()
    (home / "sites/ours.yaml").write_text(site.replace("name: local", "name: ours") + ours)
    monkeypatch.setenv("HPCFLOW_SITE", "ours")
    mirrored.purge()
    folder = mirrored.url.rpartition("/")[0]
    named = ("--endpoint-url", server)
    assert desk.json("ledger", "rebuild", "--from", folder, *named)["problems"] == []
    assert desk.json("restore", mirrored.run_id, *named)["checkpoints"] == [200]
    mirrored.purge()
    said = desk.json("restore", "--from", mirrored.url, *named, "--even-if-running")
    assert said["checkpoints"] == [200]


@pytest.mark.parametrize("word", ["s3.example.org", "ftp://x", "https://ada:secret@s3.org", ""])
def test_a_server_that_is_none_is_refused(desk: Desk, word: str) -> None:
    for command in (["restore"], ["ledger", "rebuild"]):
        error = desk.error(*command, "--from", "s3://b/runs", "--endpoint-url", word)
        assert "not a URL such as https://s3.example.org" in error
        assert "secret" not in error


def test_a_server_without_a_store_means_nothing(desk: Desk) -> None:
    error = desk.error("ledger", "rebuild", "--endpoint-url", "https://s3.example.org")
    assert "--from s3://BUCKET/PREFIX" in error


@pytest.mark.parametrize(
    ("place", "told"),
    [("nowhere", "does not exist; is it mounted?"), ("a file", "is not a directory")],
)
def test_a_ledger_is_not_made_from_what_is_no_folder(desk: Desk, place: str, told: str) -> None:
    (desk.folder / "a file").write_text("")
    error = desk.error("ledger", "rebuild", "--from", str(desk.folder / place), code=1)
    assert f"{desk.folder / place} {told}" in error


@pytest.mark.parametrize("place", ["empty", "runs/digits-20260301-abcdefgh"])
def test_a_ledger_is_not_made_from_a_folder_without_runs(desk: Desk, place: str) -> None:
    (desk.folder / "empty").mkdir()
    (desk.folder / "runs/digits-20260301-abcdefgh/attempts").mkdir(parents=True)
    error = desk.error("ledger", "rebuild", "--from", str(desk.folder / place))
    assert f"--from: {desk.folder / place} has no runs" in error
    named = f"--from {shlex.quote(f'{desk.folder}/runs')}"
    expected = named if place.startswith("runs/") else "hpcflow site show"
    assert "name the folder of all runs" in error
    assert expected in error


def test_a_home_without_a_word_about_the_mirror_asks_for_the_place(desk: Desk) -> None:
    run = desk.json("run", desk.config("digits", "exit 75"), "--wait", code=1)
    shutil.rmtree(run["run_dir"])
    error = desk.error("restore", run["run_id"])
    assert f"hpcflow restore --from s3://BUCKET/PREFIX/{run['run_id']}" in error


def test_all_that_a_bucket_says_of_the_program_is_shown(desk: Desk, tmp_path: Path) -> None:
    """Not its command alone: one could adopt a private file as a checkpoint, or put one back."""
    (tmp_path / "store").mkdir()
    mirrored = Mirrored(desk, str(tmp_path / "store"))
    path = Path(mirrored.url) / "run.json"
    said = json.loads(path.read_text())
    said["umask"] = "0000"
    said["spec"]["resources"]["nodes"] = 9
    said["spec"]["retry"]["failures"] = 77
    said["spec"]["checkpoint"]["adopt"] = {
        "folder": "/home/ada/.ssh",
        "pattern": "authorized_keys",
        "put_back": True,
    }
    path.write_text(json.dumps(said))
    mirrored.purge()
    mirrored.dir.run_json.unlink()  # else the record of the home counts
    told = desk.say("restore", "--from", mirrored.url)
    for each in (
        "/home/ada/.ssh",
        "authorized_keys",
        "put_back",
        "umask: 0000",
        '"nodes": 9',
        "77",
    ):
        assert each in told
    assert f"mirror: {tmp_path / 'store'}\n" in told
