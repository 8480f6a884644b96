"""A run starts from what is in a store, or another user's; and anything may happen meanwhile."""

from __future__ import annotations

import os
import shutil
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import DamagedError, HpcflowError, InputError, NotFoundError, StorageError
from hpcflow.launch.run import Launched
from hpcflow.runtime.manifest import verify
from hpcflow.storage.files import link_tree
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import list_runs
from hpcflow.testing.cluster import S3
from tests.launch.desk import CONFIG
from tests.restore.mirrored import purge, save
from tests.restore.owner import Owner
from tests.run_dirs import run_dir_at

MANY = {f"rank{number}/shard.pt": bytes([number]) * 20_000 for number in range(30)}
_OTHER_USER = 4711
_START = "start/000000000"


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def tune(owner: Owner, start_from: object) -> Launched:
    owner.config.write_text(f"{CONFIG}start_from: '{start_from}'\n")
    return owner.launch()


def origin(launched: Launched) -> tuple[str | None, int]:
    """Which run and train step it started from, whose copy is whole."""
    run = read_run(run_dir_at(launched.run_dir))
    assert run.started_from is not None
    assert verify(launched.run_dir / _START).train_step == run.started_from.train_step
    return run.started_from.run_id, run.started_from.train_step


def nothing_new(owner: Owner, before: int) -> bool:
    """Whether nothing is left of a run that was not sent."""
    left = [path for path in (owner.folder / "scratch").rglob("*") if path.name.endswith(".tmp")]
    return not left and len(list(owner.settings.home.runs.iterdir())) == before


@pytest.mark.parametrize(
    "named", ["{url}/{run}", "{url}/{run}@100", "{url}/{run}/checkpoints/000000100"]
)
def test_a_run_or_a_checkpoint_in_a_folder_of_a_mirror(owner: Owner, named: str) -> None:
    run_dir = owner.mirrored(100, 200)
    run_id = run_dir.path.name
    step = 200 if named.endswith("{run}") else 100
    assert origin(tune(owner, named.format(url=owner.remote.url, run=run_id))) == (run_id, step)


@pytest.mark.s3
def test_a_checkpoint_in_s3(owner: Owner, s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> None:
    from tests.restore.test_s3 import _store

    owner.remote = _store(s3_server, monkeypatch)
    run_dir = owner.trained(100)
    save(run_dir, 200, MANY)
    owner.mirror(run_dir)
    run_id, url = run_dir.path.name, owner.remote.url_of(run_dir.path.name)
    assert origin(tune(owner, url)) == (run_id, 200)
    assert origin(tune(owner, f"{url}@100")) == (run_id, 100)
    with pytest.raises(NotFoundError) as caught:
        tune(owner, f"{url}@300")
    assert caught.value.next_action == "it has 100, 200"
    with pytest.raises(NotFoundError, match="has no complete checkpoint"):
        tune(owner, f"{owner.remote.url}/nobody")
    owner.remote.put_bytes(b"?" * 20_000, f"{run_id}/checkpoints/000000200/rank3/shard.pt")
    before = len(list(owner.settings.home.runs.iterdir()))
    with pytest.raises(DamagedError, match="its checksum differs"):
        tune(owner, url)
    assert nothing_new(owner, before)


def test_a_run_that_scratch_has_lost_is_found_in_its_mirror(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    shutil.rmtree(run_dir.checkpoints / "000000200")
    assert origin(tune(owner, run_dir.path.name)) == (run_dir.path.name, 100), "what is here"
    assert origin(tune(owner, f"{run_dir.path.name}@200")) == (run_dir.path.name, 200)
    purge(run_dir)
    assert origin(tune(owner, run_dir.path.name)) == (run_dir.path.name, 200)
    with pytest.raises(NotFoundError) as caught:
        tune(owner, f"{run_dir.path.name}@300")
    assert "it has 100, 200" in str(caught.value.next_action)


def test_the_source_may_go_while_the_job_waits(owner: Owner) -> None:
    run_dir = owner.trained(100)
    launched = tune(owner, run_dir.path.name)
    start = launched.run_dir / _START
    there = run_dir.checkpoints / "000000100"
    assert all(
        path.stat().st_ino == (there / path.relative_to(start)).stat().st_ino
        for path in start.rglob("*")
        if path.is_file()
    ), "it takes no space"
    purge(run_dir)
    assert origin(launched) == (run_dir.path.name, 100)


@pytest.mark.parametrize("named", ["{own}", "{own}/checkpoints/000000100", "{mirror}/{run}"])
def test_what_a_path_names_may_change_afterwards(owner: Owner, named: str) -> None:
    run_dir = owner.mirrored(100)
    own = owner.folder / "own"
    shutil.copytree(run_dir.path, own)
    place = named.format(own=own, mirror=owner.remote.url, run=run_dir.path.name)
    launched = tune(owner, place)
    for file in Path(place).rglob("*.pt"):
        with file.open("r+b") as opened:
            opened.write(b"changed")
    assert origin(launched)[1] == 100, "whole"


def test_the_source_may_go_while_it_is_copied(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = owner.trained(100)

    def too_late(source: Path, target: Path) -> None:
        shutil.rmtree(source)
        link_tree(source, target)

    monkeypatch.setattr("hpcflow.launch.start.link_tree", too_late)
    with pytest.raises(StorageError, match="was removed a moment ago"):
        tune(owner, run_dir.path.name)
    assert nothing_new(owner, 1)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give files to another user")
class TestAnotherUser:
    """What another user has trained, and lets others read."""

    @pytest.fixture
    def theirs(self, owner: Owner, tmp_path_factory: pytest.TempPathFactory) -> Path:
        run_dir = owner.trained(100)
        folder = tmp_path_factory.mktemp("theirs") / "run"
        shutil.copytree(run_dir.path, folder)
        for path in (folder, *folder.rglob("*")):
            os.chown(path, _OTHER_USER, _OTHER_USER)
        return folder

    def test_is_copied_and_compared(self, owner: Owner, theirs: Path) -> None:
        launched = tune(owner, theirs)
        assert origin(launched)[1] == 100
        start = launched.run_dir / _START
        assert {path.stat().st_uid for path in start.rglob("*")} == {os.geteuid()}
        assert {path.stat().st_mode & 0o077 for path in start.rglob("*")} == {0}
        file = next(path for path in theirs.rglob("*.pt"))
        data = file.read_bytes()
        file.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
        os.chown(file, _OTHER_USER, _OTHER_USER)
        before = len(list(owner.settings.home.runs.iterdir()))
        with pytest.raises(DamagedError, match="its checksum differs"):
            tune(owner, theirs)
        assert nothing_new(owner, before)

    @pytest.mark.parametrize("kind", ["link", "pipe", "a third user's"])
    def test_brings_nothing_in_that_is_not_theirs(
        self, owner: Owner, theirs: Path, kind: str
    ) -> None:
        file = next(path for path in theirs.rglob("*.pt"))
        data = file.read_bytes()
        private = owner.folder / "private"
        private.write_bytes(data)
        file.unlink()
        if kind == "link":
            file.symlink_to(private)
            os.lchown(file, _OTHER_USER, _OTHER_USER)
        elif kind == "pipe":
            os.mkfifo(file)
            os.chown(file, _OTHER_USER, _OTHER_USER)
        else:
            file.write_bytes(data)
            os.chown(file, 4712, 4712)
        before = len(list(owner.settings.home.runs.iterdir()))
        with pytest.raises(HpcflowError):
            tune(owner, theirs)
        assert nothing_new(owner, before)

    def test_is_not_reached_by_their_link(self, owner: Owner, theirs: Path) -> None:
        link = theirs.parent / "link"
        link.symlink_to(owner.trained(100).path)
        os.lchown(link, _OTHER_USER, _OTHER_USER)
        with pytest.raises((InputError, StorageError), match="link of another user"):
            tune(owner, link)


def test_killed_while_it_is_copied_nothing_is_sent_and_the_next_one_is_whole(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = owner.trained(100)
    save(run_dir, 200, MANY)
    owner.mirror(run_dir)
    url = f"{owner.remote.url}/{run_dir.path.name}"
    from hpcflow.mirror import download

    fetch = download._File.finish

    def slowly(self: Any, *args: Any) -> None:
        time.sleep(0.005)
        fetch(self, *args)

    monkeypatch.setattr(download._File, "finish", slowly)
    for moment in range(1, 11):
        child = os.fork()
        if child == 0:
            try:
                tune(owner, url)
            finally:
                os._exit(0)
        time.sleep(moment * 0.02)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        for each in list_runs(owner.settings.home):
            if each != run_dir:
                verify(each.path / _START)
    assert origin(tune(owner, url)) == (run_dir.path.name, 200)
