"""A ledger from a store alone is the ledger that was made from scratch."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from hpcflow.ledger.rows import Known
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.remote import Remote
from hpcflow.mirror.stores import open_remote
from hpcflow.projection import Summary, rebuild
from hpcflow.restore.ledger import FromStore, rebuild_from
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone, list_runs
from tests.restore.mirrored import purge
from tests.restore.owner import Owner


def _rows(owner: Owner, name: str = "home/ledger.sqlite") -> dict[str, object]:
    with open_ledger(f"sqlite:///{owner.folder / name}") as ledger:
        ids = sorted(ledger.run_ids())
        known: dict[str, Known] = ledger.known(ids)
        return {"known": known, "checkpoints": ledger.checkpoints(ids)}


def _rebuild(owner: Owner, name: str = "home/ledger.sqlite") -> FromStore:
    with open_ledger(f"sqlite:///{owner.folder / name}") as ledger:
        return rebuild_from(ledger, owner.remote, owner.settings, site=owner.site)


def _three(owner: Owner) -> None:
    owner.mirrored(100, 200)
    owner.mirrored(300, end="COMPLETED")
    running = owner.trained(100)
    owner.resume(running)
    owner.look()
    owner.mirror(running)


def test_scratch_and_home_are_gone_and_the_rows_are_the_same(owner: Owner) -> None:
    _three(owner)
    before = _rows(owner)
    runs = {run_dir.path for run_dir in list_runs(owner.settings.home)}
    shutil.rmtree(owner.folder / "scratch")
    shutil.rmtree(owner.settings.home.path)
    owner.settings.home.path.mkdir(mode=0o700)
    found = _rebuild(owner)
    assert len(found.runs) == 3
    assert found.linked == found.runs
    assert found.problems == []
    assert _rows(owner) == before
    assert {run_dir.path for run_dir in list_runs(owner.settings.home)} == runs


@pytest.mark.parametrize("error", [PermissionError(errno.EACCES, "denied"),
                                   OSError(errno.ENOTCONN, "not connected")])  # fmt: skip
def test_a_run_that_cannot_be_read_hides_no_other(
    owner: Owner, error: OSError, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user has mounted a file system in the store, that only they can read, or nobody."""
    good, bad = owner.mirrored(100).path.name, "evil-20260101-aaaaaaaa"
    Path(owner.remote.url, bad).mkdir()
    owner.remote = open_remote(owner.remote.url, patience_s=0)
    mounted, opens = [], os.open

    def scan(folder: Any = ".") -> AbstractContextManager[Iterator[Any]]:
        if not isinstance(folder, int):
            return os_scandir(folder)
        with os_scandir(folder) as entries:
            return nullcontext(iter([_Entry(each, bad, error) for each in entries]))

    def open_mounted(path: str, *args: Any, **more: Any) -> int:
        if path == bad:
            mounted.append(path)
            raise error
        return opens(path, *args, **more)

    os_scandir = os.scandir
    monkeypatch.setattr(os, "open", open_mounted)
    monkeypatch.setattr(os, "scandir", scan)
    found = _rebuild(owner, "other.sqlite")
    assert found.runs == [good]
    assert [each.partition(":")[0] for each in found.problems] == [bad]
    assert mounted


class _Entry:
    """An entry of a folder; the one called ``bad`` tells its kind, as readdir does, and no more."""

    def __init__(self, entry: os.DirEntry[str], bad: str, error: OSError) -> None:
        self.name, self._entry = entry.name, entry
        self.is_dir, self.is_file = entry.is_dir, entry.is_file
        self._error = error if entry.name == bad else None

    def stat(self, *, follow_symlinks: bool = True) -> os.stat_result:
        if self._error is not None:
            raise self._error
        return self._entry.stat(follow_symlinks=follow_symlinks)


def test_from_there_a_run_is_restored_and_goes_on(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    shutil.rmtree(owner.folder / "scratch")
    shutil.rmtree(owner.settings.home.path)
    owner.settings.home.path.mkdir(mode=0o700)
    _rebuild(owner)
    owner.restore(run_dir)
    assert owner.resume(run_dir).attempt == 2
    owner.assert_rebuilt_alike(run_dir.path.name)


def test_what_is_on_scratch_is_read_from_there(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    owner.resume(run_dir)
    owner.look()
    found = _rebuild(owner, "other.sqlite")
    assert found.here == found.runs == [run_dir.path.name]
    assert _rows(owner, "other.sqlite") == _rows(owner)


@pytest.mark.parametrize("is_lost", [True, False])
def test_what_the_ledger_has_read_beyond_the_mirror_stays(owner: Owner, *, is_lost: bool) -> None:
    """Without the record its rows stay; with it they are read from it."""
    run_dir = owner.mirrored(100)
    owner.resume(run_dir)
    owner.look()
    before = _rows(owner)
    purge(run_dir)
    assert is_gone(run_dir)
    if is_lost:
        owner.lose_record(run_dir)
    assert _rebuild(owner).ahead == [run_dir.path.name] * is_lost
    assert _rows(owner) == before


@pytest.mark.parametrize("is_lost", [True, False])
def test_more_events_there_make_up_for_no_journal(owner: Owner, *, is_lost: bool) -> None:
    """Each file for itself: what the ledger has read of a journal that is lost must not go."""
    run_dir = owner.mirrored(100)
    with run_dir.attempt(1).events.open("a") as file:
        file.write('{"at": "2026-03-01T00:00:01.000Z", "event": "of a later version"}\n' * 99)
    owner.mirror(run_dir)
    with run_dir.attempt(1).events.open("r+b") as file:
        file.truncate(file.read().index(b'{"at": "2026-03-01T00:00:01.000Z"'))
    owner.resume(run_dir)
    owner.look()
    before = _rows(owner)
    purge(run_dir)
    if is_lost:
        owner.lose_record(run_dir)
    assert _rebuild(owner).ahead == [run_dir.path.name] * is_lost
    assert _rows(owner) == before


def test_other_peoples_runs_are_left_out(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    owner.settings = replace(owner.settings, user="grace")
    found = _rebuild(owner, "other.sqlite")
    assert (found.runs, found.others) == ([], [run_dir.path.name])


def test_a_run_that_cannot_be_read_keeps_no_other_from_it(owner: Owner) -> None:
    good, bad, strange = (owner.mirrored(100) for _ in range(3))
    for run_dir in (good, bad, strange):
        purge(run_dir)
    owner.remote.put_bytes(b"{", f"{bad.path.name}/run.json")
    said = owner.remote.read(f"{strange.path.name}/run.json")
    owner.remote.put_bytes(
        said.replace(str(strange.path.parent).encode(), b"/etc/hpcflow/default"),
        f"{strange.path.name}/run.json",
    )
    shutil.rmtree(owner.settings.home.runs)
    found = _rebuild(owner, "other.sqlite")
    assert set(found.runs) == {good.path.name, strange.path.name}
    assert found.linked == [good.path.name]
    assert len(found.problems) == 1
    assert found.problems[0].startswith(f"{bad.path.name}: ")


def test_what_is_too_large_to_be_ours_is_not_fetched(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, large = (owner.mirrored(100) for _ in range(2))
    owner.remote.put_bytes(b"{}\n" * 5000, f"{large.path.name}/attempts/0001/events.jsonl")
    for run_dir in (good, large):
        purge(run_dir)
    monkeypatch.setattr("hpcflow.restore.ledger._MAX_EVENTS_BYTES", 10_000)
    found = _rebuild(owner, "other.sqlite")
    assert found.runs == [good.path.name]
    (problem,) = found.problems
    assert "events.jsonl is too large: hpcflow did not write it" in problem


def test_events_of_attempts_that_the_journal_does_not_have_are_not_fetched(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = owner.mirrored(100)
    fetched: list[str] = []

    def note(remote: Remote, wanted: list[Wanted]) -> None:
        fetched.extend(each.name for each in wanted)
        download(remote, wanted)

    for attempt in range(2, 40):
        name = f"{run_dir.path.name}/attempts/{attempt:04d}/events.jsonl"
        owner.remote.put_bytes(b"{}\n" * 5000, name)
    purge(run_dir)
    monkeypatch.setattr("hpcflow.restore.ledger.download", note)
    assert _rebuild(owner, "other.sqlite").runs == [run_dir.path.name]
    assert [name for name in fetched if name.endswith("events.jsonl")] == [
        f"{run_dir.path.name}/attempts/0001/events.jsonl"
    ]


def test_a_run_whose_events_are_too_large_together_leaves_room_to_the_others(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    good, large = (owner.mirrored(100) for _ in range(2))
    owner.remote.put_bytes(b"{}\n" * 5000, f"{large.path.name}/attempts/0001/events.jsonl")
    for run_dir in (good, large):
        purge(run_dir)
    monkeypatch.setattr("hpcflow.restore.ledger._MAX_RUN_BYTES", 10_000)
    found = _rebuild(owner, "other.sqlite")
    assert found.runs == [good.path.name]
    assert "is too large: hpcflow did not write it" in found.problems[0]


def test_the_runs_that_are_there_at_once_do_not_fill_the_disk(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dirs = [owner.mirrored(100) for _ in range(3)]
    for run_dir in run_dirs:
        owner.remote.put_bytes(b"{}\n" * 5000, f"{run_dir.path.name}/attempts/0001/events.jsonl")
        purge(run_dir)
    at_once: list[int] = []

    def note(ledger: Ledger, given: list[RunDir]) -> Summary:
        at_once.append(sum(each.stat().st_size for each in given[0].path.parent.rglob("*.jsonl")))
        return rebuild(ledger, given)

    monkeypatch.setattr("hpcflow.restore.ledger._MAX_RUN_BYTES", 20_000)
    monkeypatch.setattr("hpcflow.restore.ledger.rebuild", note)
    assert set(_rebuild(owner, "other.sqlite").runs) == {each.path.name for each in run_dirs}
    assert max(at_once) < 40_000


def test_a_run_of_a_cluster_with_the_same_paths_gets_no_link(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    shutil.rmtree(owner.folder / "scratch")
    shutil.rmtree(owner.settings.home.path)
    owner.settings.home.path.mkdir(mode=0o700)
    owner.site = owner.site.model_copy(update={"name": "elsewhere"})
    found = _rebuild(owner)
    assert (found.runs, found.linked) == ([run_dir.path.name], [])
