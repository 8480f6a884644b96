"""Whoever may write into the bucket may not write anywhere else."""

from __future__ import annotations

import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.mirror.remote import Entry
from hpcflow.restore.objects import below_files, sort_out, why_unsafe
from hpcflow.storage.layout import RunDir
from tests.restore.mirrored import purge
from tests.restore.owner import Owner

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
    runtime = RunDir(run_dir.path).runtime / "hpcflow/runtime/run.py"
    assert runtime.read_bytes() != b"import os"


def test_a_hundred_thousand_of_them_take_a_moment() -> None:
    names = {f"code/a/{number}": Entry(1) for number in range(100_000)}
    began_s = time.process_time()
    objects = sort_out({"code/a": Entry(1), **names})
    assert time.process_time() - began_s < 10
    assert (list(objects.small), len(objects.refused)) == (["code/a"], 100_000)


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


@pytest.mark.parametrize("folder", ["artifacts/latest", "code/x", "tensorboard/x", "artifacts"])
def test_nothing_is_put_behind_a_link_in_the_run_directory(owner: Owner, folder: str) -> None:
    """The program may have made it, to anywhere."""
    run_dir, outside = owner.mirrored(100), owner.folder / "outside"
    outside.mkdir()
    if folder == "artifacts":
        (run_dir.path / folder).rmdir()
    (run_dir.path / folder).symlink_to(outside)
    owner.remote.put_bytes(b"evil", f"{run_dir.path.name}/{folder}/deep/rc")
    owner.remote.put_bytes(b"evil", f"{run_dir.path.name}/{folder}/rc")
    assert owner.restore(run_dir).left == [f"{folder}/deep/rc", f"{folder}/rc"]
    assert list(outside.iterdir()) == []
