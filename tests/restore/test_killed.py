"""kill -9 while something is restored: nothing is visible, or all; and the next one goes on."""

from __future__ import annotations

import os
import random
import signal
import time

import pytest

from hpcflow.clock import SystemClock
from hpcflow.mirror import download
from hpcflow.mirror.folder_remote import FolderRemote
from hpcflow.restore.fetching import ALL, Progress
from hpcflow.restore.moving import Place, where_it_was
from hpcflow.restore.remote_run import RemoteRun
from hpcflow.restore.request import own_mirror
from hpcflow.restore.restore import restore
from hpcflow.runtime.manifest import verify
from hpcflow.storage.approval import is_approved
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone
from tests.restore.mirrored import all_of, purge, save
from tests.restore.owner import Owner

MANY = {f"rank{number}/shard.pt": bytes([number]) * 20_000 for number in range(30)}
SLOW = Progress(on_bytes=lambda _: time.sleep(0.003))
#: Longer than a whole restore takes on a machine with much else to do.
LONGEST_S = 1.5


class Counted(FolderRemote):
    """A folder that remembers what was read from it."""

    def __init__(self, url: str) -> None:
        super().__init__(url, shared=False, clock=SystemClock(), patience_s=1)
        self.read_names: list[str] = []

    def read_range(self, name: str, begin: int, end: int) -> bytes:
        self.read_names.append(name)
        return super().read_range(name, begin, end)


def _place(owner: Owner, there: RemoteRun, run_dir: RunDir) -> Place:
    own = own_mirror(run_dir, owner.site, owner.settings)
    return where_it_was(there.run, run_dir, there.url, site=owner.site.name, mirror=own)


def _killed_after(owner: Owner, run_dir: RunDir, seconds: float) -> bool:
    """Whether a process that restores a run was killed before it had done so."""
    child = os.fork()
    if child == 0:
        try:
            there = owner.there(run_dir.path.name)
            restore(
                there,
                _place(owner, there, run_dir),
                settings=owner.settings,
                clock=owner.clock,
                cluster="devcluster",
                which=ALL,
                progress=SLOW,
            )
            os._exit(0)
        finally:
            os._exit(1)
    time.sleep(seconds)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert status in (0, signal.SIGKILL)
    return status != 0


def _mirrored(owner: Owner) -> tuple[RunDir, dict[str, bytes]]:
    run_dir = owner.trained(100)
    for step in (200, 300):
        save(run_dir, step, MANY)
    owner.mirror(run_dir)
    return run_dir, all_of(run_dir)


def test_killed_at_random_moments_a_new_directory_is_there_wholly_or_not(owner: Owner) -> None:
    run_dir, before = _mirrored(owner)
    moments, killed = random.Random(7), 0
    for _ in range(12):
        purge(run_dir)
        for _ in range(3):
            killed += _killed_after(owner, run_dir, moments.uniform(0.01, LONGEST_S / 4))
            if not is_gone(run_dir):
                after = all_of(run_dir)
                assert after.pop("journal.jsonl").startswith(before["journal.jsonl"])
                assert {**after, "journal.jsonl": b""} == {**before, "journal.jsonl": b""}
                break
            assert not run_dir.path.exists()
        owner.restore(run_dir, which=ALL)
        assert not run_dir.restore.exists()
        for step in (100, 200, 300):
            verify(run_dir.checkpoints / f"{step:09d}")
    assert killed > 5


def test_killed_while_it_mends_each_part_is_there_wholly_or_not(owner: Owner) -> None:
    run_dir, before = _mirrored(owner)
    moments = random.Random(11)
    events = run_dir.attempt(1).events
    for _ in range(8):
        owner.lose_record(run_dir)
        events.unlink(missing_ok=True)
        for path in (run_dir.checkpoints / "000000300").rglob("*.pt"):
            path.unlink()
        _killed_after(owner, run_dir, moments.uniform(0.01, LONGEST_S / 2))
        for path in (run_dir.run_json, events):
            if path.exists():
                name = path.name if path != events else "attempts/0001/events.jsonl"
                assert path.read_bytes() == before[name]
        assert not is_approved(run_dir)
        owner.restore(run_dir, which=ALL)
        assert run_dir.run_json.read_bytes() == before["run.json"]
        assert events.read_bytes() == before["attempts/0001/events.jsonl"]
        assert run_dir.journal.read_bytes().startswith(before["journal.jsonl"])
        assert Journal(run_dir).history.hold is not None
        assert not is_approved(run_dir)
        verify(run_dir.checkpoints / "000000300")


def test_what_is_whole_is_not_fetched_again(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir, _ = _mirrored(owner)
    purge(run_dir)
    folder = f"{run_dir.path.name}/checkpoints/000000300/"
    counted = Counted(owner.remote.url)

    class PullTheLineError(Exception):
        pass

    write, written = download._Fetching._fetch, 0

    def fetch(self: download._Fetching, file: download._File, index: int) -> None:
        nonlocal written
        is_of_it = file.wanted.name.startswith(folder)
        if written >= 10 and is_of_it:
            raise PullTheLineError
        write(self, file, index)
        written += is_of_it

    with monkeypatch.context() as patch, pytest.raises(PullTheLineError):
        patch.setattr(download._Fetching, "_fetch", fetch)
        owner.restore(run_dir, remote=counted)
    first = {name for name in counted.read_names if name.startswith(folder)}
    counted.read_names.clear()
    owner.restore(run_dir, remote=counted)
    again = [name for name in counted.read_names if name.startswith(folder)]
    fetched_twice = first.intersection(again) - {f"{folder}manifest.json"}
    assert len(first) >= 10
    assert len(fetched_twice) <= download._REQUESTS  # those that were under way
    assert len(again) <= len(MANY) + 1 - 10 + 1


def test_a_file_that_a_crash_left_wrong_is_fetched_again(owner: Owner) -> None:
    """After a crash of the node, a file can have its size and not its content."""
    run_dir, _ = _mirrored(owner)
    purge(run_dir)
    _killed_after(owner, run_dir, 0.2)
    half = run_dir.restore / "run/checkpoints/000000300/rank7/shard.pt"
    half.parent.mkdir(parents=True, exist_ok=True)
    half.write_bytes(bytes(20_000))
    owner.restore(run_dir)
    assert (run_dir.checkpoints / "000000300/rank7/shard.pt").read_bytes() == MANY["rank7/shard.pt"]


def test_two_at_once_are_one(owner: Owner) -> None:
    run_dir, _ = _mirrored(owner)
    purge(run_dir)
    there = RemoteRun(owner.remote, run_dir.path.name)
    place = _place(owner, there, run_dir)

    def meanwhile(*_: object) -> None:
        with pytest.raises(Exception, match="another process is restoring"):
            owner.put(there, place)

    outcome = owner.put(there, place, progress=Progress(on_doing=meanwhile))
    assert outcome.is_new
