"""Whoever may write into the bucket may not write anywhere else."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from datetime import datetime, timezone
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.errors import HpcflowError, MirrorError
from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.remote import Entry, Remote
from hpcflow.model.ids import job_name
from hpcflow.model.journal import Ended, Intended, JournalRecord, Refused, Standby, Submitted
from hpcflow.model.state import Cause
from hpcflow.restore import objects, staging
from hpcflow.restore.moving import where_it_was
from hpcflow.restore.objects import below_files, sort_out, why_unsafe
from hpcflow.storage.disk_space import Space
from tests.growth import require_no_square
from tests.restore.mirrored import purge
from tests.restore.owner import Owner

_AT: Final = datetime(2026, 3, 1, tzinfo=timezone.utc)
HOSTILE = [
    "artifacts/../../../escaped",
    "artifacts/./escaped",
    "artifacts//escaped",
    "artifacts/escaped/",
    "/escaped",
    "../escaped",
    "artifacts/esc\x1b[2Japed",
    "artifacts/escaped\0",
    "artifacts/new\nline",
    "artifacts/" + "a" * 256,
    "artifacts/" + "a/" * 1100 + "a",
    "artifacts/\ud800",
    "attempts/0001/../../../escaped",
]
UNWANTED = [
    "runtime/hpcflow/runtime/run.py",
    "runtime/hpcflow/__init__.py",
    "submit.lock",
    "cancel",
    "params.json",
    ".mirror-sent.json",
    "attempts/0001/notice",
    "attempts/1/events.jsonl",
    "attempts/0001/x/events.jsonl",
    "checkpoints/000000100",
    "checkpoints/.000000100.ab.tmp/model.pt",
    "checkpoints/100/model.pt",
    "attempts/०००१/events.jsonl",
]


@pytest.mark.parametrize("name", HOSTILE, ids=ascii)
def test_hostile_names_are_refused(name: str) -> None:
    objects = sort_out({name: Entry(1), "run.json": Entry(1)})
    assert objects.small.keys() == {"run.json"}
    assert len(objects.refused) == 1
    assert objects.refused[0].isprintable()


@pytest.mark.parametrize("name", UNWANTED)
def test_what_is_made_here_is_not_taken_from_there(name: str) -> None:
    objects = sort_out({name: Entry(1)})
    assert (objects.small, objects.checkpoints, objects.refused) == ({}, {}, [])


@given(st.lists(st.sampled_from(["a", "..", ".", "", "b\n", "artifacts", "code"]), max_size=6))
def test_whatever_is_taken_lies_in_the_run_directory(parts: list[str]) -> None:
    name = "/".join(parts)
    for taken in sort_out({name: Entry(1)}).small:
        path = Path("/run") / taken
        assert path.is_relative_to("/run")
        assert ".." not in path.parts


@given(st.text(max_size=20))
def test_no_name_is_both_safe_and_strange(name: str) -> None:
    if why_unsafe(name) is None:
        path = Path("/run") / name
        assert path.is_relative_to("/run")
        assert str(path) == f"/run/{name}"


def test_a_file_is_no_folder() -> None:
    assert below_files({"a", "a/b", "ab/c"}) == {"a/b"}
    objects = sort_out({"code/a": Entry(1), "code/a/b": Entry(1)})
    assert objects.small.keys() == {"code/a"}


def test_a_link_in_the_way_is_not_followed(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    outside = owner.folder / "outside"
    outside.mkdir()
    run_dir.restore.mkdir()
    (run_dir.restore / "run").mkdir()
    for name in ("artifacts", "attempts", "checkpoints"):
        (run_dir.restore / "run" / name).symlink_to(outside)
    owner.restore(run_dir)
    assert list(outside.iterdir()) == []
    assert (run_dir.checkpoints / "000000100" / "manifest.json").is_file()


def test_a_link_in_place_of_the_hidden_folder_is_refused(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    outside = owner.folder / "outside"
    outside.mkdir()
    run_dir.restore.symlink_to(outside)
    with pytest.raises(Exception, match=r"cannot make .*\.restore"):
        owner.restore(run_dir)
    assert list(outside.iterdir()) == []


def test_objects_that_no_run_has_are_left_out_and_told(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    owner.remote.put_bytes(b"import os", f"{run_dir.path.name}/runtime/hpcflow/runtime/run.py")
    owner.remote.put_bytes(b"x", f"{run_dir.path.name}/artifacts/a\x1bb")
    purge(run_dir)
    outcome = owner.restore(run_dir)
    assert outcome.refused == ["'artifacts/a\\x1bb'"]
    runtime = run_dir.runtime / "hpcflow/runtime/run.py"
    assert runtime.read_bytes() != b"import os"


def test_a_hundred_thousand_of_them_take_a_moment() -> None:
    def sort(count: int) -> None:
        names = {f"code/a/{number}": Entry(1) for number in range(count)}
        objects = sort_out({"code/a": Entry(1), **names})
        assert (list(objects.small), len(objects.refused)) == (["code/a"], count)

    require_no_square(sort, 100_000)


@pytest.mark.parametrize("name", ["claim", "events.jsonl", "job.sbatch", "out.log"])
def test_an_attempt_to_come_has_no_files_beforehand(owner: Owner, name: str) -> None:
    """With a claim no job could ever execute it; events would say how it ended."""
    run_dir = owner.mirrored(100)
    purge(run_dir)
    for number in (1, 2):
        owner.remote.put_bytes(b"1", f"{run_dir.path.name}/attempts/{number:04d}/{name}")
    owner.restore(run_dir)
    assert (run_dir.attempt(1).path / name).read_bytes() == b"1"
    assert not (run_dir.attempt(2).path / name).exists()


@pytest.mark.parametrize("has_standby", [False, True])
def test_a_job_that_is_still_pending_finds_no_claim_of_another(
    owner: Owner, has_standby: bool
) -> None:
    """It would leave the attempt to a job that does not exist."""
    run_dir = owner.mirrored(100, end=None)
    run_id = run_dir.path.name
    if has_standby:
        sent = Submitted(at=_AT, attempt=2, job_id="2000")
        intent = _intended(run_id, 2).model_copy(update={"after": 1})
        lines = [Standby(at=_AT, says=each).to_line() for each in (intent, sent)]
        journal = owner.remote.read(f"{run_id}/journal.jsonl") + "".join(lines).encode()
        owner.remote.put_bytes(journal, f"{run_id}/journal.jsonl")
    for number in (1, 2):
        owner.remote.put_bytes(b"666\n", f"{run_id}/attempts/{number:04d}/claim")
    purge(run_dir)
    owner.restore(run_dir)
    assert run_dir.attempt(1).path.is_dir()
    for number in (1, 2):
        assert not run_dir.attempt(number).claim.exists()


@pytest.mark.parametrize("folder", ["artifacts/latest", "code/x", "tensorboard/x", "artifacts"])
def test_nothing_is_put_behind_a_link_in_the_run_directory(owner: Owner, folder: str) -> None:
    """The program may have made it, to anywhere."""
    run_dir, outside = owner.mirrored(100), owner.folder / "outside"
    outside.mkdir()
    (run_dir.path / folder).parent.mkdir(exist_ok=True)
    (run_dir.path / folder).symlink_to(outside)
    owner.remote.put_bytes(b"evil", f"{run_dir.path.name}/{folder}/deep/rc")
    owner.remote.put_bytes(b"evil", f"{run_dir.path.name}/{folder}/rc")
    assert owner.restore(run_dir).left == [f"{folder}/deep/rc", f"{folder}/rc"]
    assert list(outside.iterdir()) == []


def test_events_are_not_compared_with_what_a_link_in_their_place_leads_to(owner: Owner) -> None:
    run_dir, outside = owner.mirrored(100), owner.folder / "outside"
    events = run_dir.attempt(1).events
    outside.write_bytes(events.read_bytes()[:10])
    os.utime(outside, (0, outside.stat().st_mtime))
    events.unlink()
    events.symlink_to(outside)
    assert owner.restore(run_dir).left == ["attempts/0001/events.jsonl"]
    assert outside.stat().st_atime == 0
    assert events.is_symlink()


def _refused(run_id: str) -> list[JournalRecord]:
    """Slurm refused attempt 2, so its number is used again."""
    return [_intended(run_id, 2), Refused(at=_AT, attempt=2, reason="no", retryable=True)]


def _refused_standby(run_id: str) -> list[JournalRecord]:
    intent = _intended(run_id, 2).model_copy(update={"after": 1})
    refused = Refused(at=_AT, attempt=2, reason="no", retryable=True)
    return [Standby(at=_AT, says=intent), Standby(at=_AT, says=refused)]


def _backwards(run_id: str) -> list[JournalRecord]:
    """The last attempt is 1, so the next one is 2."""
    over = Ended(at=_AT, attempt=1, cause=Cause.PREEMPTED, raw_state="PREEMPTED", rule="any")
    sent = Submitted(at=_AT, attempt=1, job_id="1")
    return [_intended(run_id, 2), _intended(run_id, 1), sent, over]


def _intended(run_id: str, number: int) -> Intended:
    return Intended(at=_AT, attempt=number, job_name=job_name(run_id, number), scheduler="slurm")


@pytest.mark.parametrize("forged", [_refused, _refused_standby, _backwards])
@pytest.mark.parametrize("name", ["claim", "events.jsonl", "job.sbatch", "out.log"])
def test_an_attempt_whose_number_is_used_again_has_no_files_beforehand(
    owner: Owner, name: str, forged: Callable[[str], list[JournalRecord]]
) -> None:
    run_dir = owner.mirrored(100)
    run_id = run_dir.path.name
    journal = owner.remote.read(f"{run_id}/journal.jsonl")
    journal += "".join(each.to_line() for each in forged(run_id)).encode()
    owner.remote.put_bytes(journal, f"{run_id}/journal.jsonl")
    owner.remote.put_bytes(b"1", f"{run_id}/attempts/0002/{name}")
    purge(run_dir)
    owner.restore(run_dir)
    assert not (run_dir.attempt(2).path / name).exists()


@pytest.mark.parametrize("name", ["events.jsonl", "claim", "job.sbatch", "out.log"])
def test_a_file_that_grows_after_it_was_listed_is_fetched_within_the_limits(
    owner: Owner, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It was small enough for hpcflow to read, and for the quota."""
    run_dir = owner.mirrored(100)
    run_id = run_dir.path.name
    owner.remote.put_bytes(b"1", f"{run_id}/attempts/0001/{name}")
    purge(run_dir)
    there = owner.there(run_id)
    assert there.objects.small
    owner.remote.put_bytes(b"1" * 100_000, f"{run_id}/attempts/0001/{name}")
    monkeypatch.setattr(objects, "MAX_LINES_FILE_BYTES", 50_000)
    monkeypatch.setattr(staging, "look", lambda *_: Space(Path("/"), "ext4", 1 << 40, 90_000))
    place = where_it_was(there.run, run_dir, there.url, site=owner.site.name, mirror=None)
    with pytest.raises(HpcflowError, match="too large" if name != "out.log" else "has room"):
        owner.put(there, place)
    assert not run_dir.path.exists()


def test_objects_without_end_are_fetched_some_at_a_time(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each takes a kilobyte while it is fetched, and anybody can write a million empty ones."""
    run_dir, fetched = owner.mirrored(100), []
    names = {f"artifacts/{number}" for number in range(50)}
    for name in names:
        owner.remote.put_bytes(b"x", f"{run_dir.path.name}/{name}")
    purge(run_dir)

    def note(remote: Remote, wanted: Iterable[Wanted], **how: Any) -> None:
        fetched.append(list(wanted))
        download(remote, fetched[-1], **how)

    monkeypatch.setattr(staging, "_AT_ONCE", 8)
    monkeypatch.setattr(staging, "download", note)
    assert owner.restore(run_dir).files >= 50
    assert max(map(len, fetched)) == 8
    assert all((run_dir.path / name).read_bytes() == b"x" for name in names)


@pytest.mark.parametrize("which", ["newest", "all"])
def test_checkpoints_without_end_that_are_none_end(owner: Owner, which: str) -> None:
    run_dir = owner.mirrored(100)
    for step in range(1200):
        name = f"checkpoints/{10**17 + step}/manifest.json"
        owner.remote.put_bytes(b"{}", f"{run_dir.path.name}/{name}")
    purge(run_dir)
    with pytest.raises(MirrorError, match=r"1000 checkpoints in .* are damaged"):
        owner.restore(run_dir, which=which)
    assert not run_dir.path.exists()
