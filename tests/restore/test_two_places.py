"""The mirror never puts less in the place of more, nor one cluster's word over the other's."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import InputError
from hpcflow.history.run import OLDER_HOME
from hpcflow.mirror.folder_remote import FolderRemote
from hpcflow.mirror.passes import Pass, Report
from hpcflow.mirror.stores import Stores
from hpcflow.model.journal import CheckpointRemoved, Held
from hpcflow.restore.request import Changes, of_elsewhere
from hpcflow.sites.schema import SiteMirror
from hpcflow.storage.layout import RunDir
from tests.restore.mirrored import save
from tests.restore.owner import Owner, home_of


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def _mirrors(owner: Owner, run_dir: RunDir) -> Report:
    with Stores(owner.clock, patience_s=1) as stores:
        return Pass(owner.settings.home, owner.clock, stores).run(lambda: [run_dir])


def _said(report: Report) -> list[str]:
    return [error.message for error in report.problems.values()]


def test_a_journal_that_was_begun_anew_does_not_replace_the_whole_one(owner: Owner) -> None:
    run_dir = owner.trained(100)
    assert _said(_mirrors(owner, run_dir)) == []
    whole = run_dir.journal.read_bytes()
    run_dir.journal.write_bytes(b"")
    owner.clock.advance(60)
    owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
    (problem,) = _said(_mirrors(owner, run_dir))
    assert "has more of the run's journal than" in problem
    assert owner.remote.read(f"{run_dir.path.name}/journal.jsonl") == whole
    assert owner.restore(run_dir).held == OLDER_HOME
    assert _said(_mirrors(owner, run_dir)) == [problem]
    owner.resume(run_dir)
    assert _said(_mirrors(owner, run_dir)) == []
    assert owner.remote.read(f"{run_dir.path.name}/journal.jsonl") == run_dir.journal.read_bytes()


def test_once_it_has_moved_the_old_place_is_told_and_the_new_one_mirrors(owner: Owner) -> None:
    run_dir = owner.trained(100)
    _mirrors(owner, run_dir)
    other = _other(owner)
    there = other.fetch(run_dir.path.name, owner.remote).run_dir
    assert _said(_mirrors(other, there)) == []
    assert owner.there(run_dir.path.name).run.run_dir == str(there.path)
    owner.resume(run_dir)
    (problem,) = _said(_mirrors(owner, run_dir))
    assert f"is mirrored from another place now: {str(there.path)!r}" in problem
    other.resume(there)
    assert _said(_mirrors(other, there)) == []


def test_a_longer_journal_of_other_lines_does_not_replace_what_the_store_has(owner: Owner) -> None:
    run_dir = owner.trained(100)
    _mirrors(owner, run_dir)
    whole = run_dir.journal.read_bytes()
    run_dir.journal.write_bytes(b"")
    while run_dir.journal.stat().st_size <= len(whole):
        owner.clock.advance(60)
        owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
    (problem,) = _said(_mirrors(owner, run_dir))
    assert "has more of the run's journal than" in problem
    assert owner.remote.read(f"{run_dir.path.name}/journal.jsonl") == whole


def test_a_line_that_was_torn_in_the_store_is_no_other_word(owner: Owner) -> None:
    """What is sent while a line is being written ends in the middle of it."""
    run_dir = owner.trained(100)
    owner.remote.put_bytes(run_dir.run_json.read_bytes(), f"{run_dir.path.name}/run.json")
    torn = run_dir.journal.read_bytes() + b'{"at": "2026-'
    owner.remote.put_bytes(torn, f"{run_dir.path.name}/journal.jsonl")
    assert _said(_mirrors(owner, run_dir)) == []
    assert owner.remote.read(f"{run_dir.path.name}/journal.jsonl") == run_dir.journal.read_bytes()


def test_the_place_that_it_came_from_does_not_take_it_back_by_mirroring(owner: Owner) -> None:
    """There and back, and there again by mistake: each has once taken it over from the other."""
    run_dir = owner.trained(100)
    _mirrors(owner, run_dir)
    other = _other(owner)
    run_id = run_dir.path.name
    there = other.fetch(run_id, owner.remote).run_dir
    _mirrors(other, there)
    owner.clock.advance(timedelta(hours=4).total_seconds())
    found = of_elsewhere(
        owner.remote.url,
        run_id,
        owner.site,
        Changes(),
        settings=owner.settings,
        clock=owner.clock,
    )
    owner.put(found.remote, found.place)
    assert _said(_mirrors(owner, run_dir)) == []
    other.clock.advance(timedelta(hours=5).total_seconds())
    for _ in range(9):
        other.say(there.path, Held(at=other.clock.now(), by="ada"))
    (problem,) = _said(_mirrors(other, there))
    assert run_id in problem
    assert owner.remote.read(f"{run_id}/journal.jsonl") == run_dir.journal.read_bytes()


def test_a_place_that_has_lost_the_run_sends_no_checkpoint_either(owner: Owner) -> None:
    """Else the files of one would lie among those of the other, where both come to one step."""
    run_dir = owner.trained(100)
    _mirrors(owner, run_dir)
    other = _other(owner)
    there = other.fetch(run_dir.path.name, owner.remote).run_dir
    save(there, 150)
    sent_first: list[str] = []
    put_bytes = FolderRemote.put_bytes

    def put(remote: FolderRemote, data: bytes, name: str, **how: Any) -> str | None:
        sent_first.append(name.partition("/")[2])
        return put_bytes(remote, data, name, **how)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FolderRemote, "put_bytes", put)
        assert _said(_mirrors(other, there)) == []
    assert sent_first[0] == "run.json", "whoever looks must see whose the checkpoint is"
    save(run_dir, 200)
    (problem,) = _said(_mirrors(owner, run_dir))
    assert "is mirrored from another place now" in problem
    assert list(owner.there(run_dir.path.name).objects.checkpoints) == [150, 100]


def _other(owner: Owner, hours: int = 3) -> Owner:
    """Another cluster with the same bucket, some hours later."""
    other = home_of(owner.folder / "other")
    other.site = other.site.model_copy(update={"mirror": owner.site.mirror})
    other.clock.advance(timedelta(hours=hours).total_seconds())
    return other


def _takes_back(owner: Owner, run_id: str) -> RunDir:
    """As ``hpcflow restore --from`` does where the directory was left."""
    found = of_elsewhere(
        owner.remote.url,
        run_id,
        owner.site,
        Changes(),
        settings=owner.settings,
        clock=owner.clock,
    )
    return owner.put(found.remote, found.place).run_dir


def _lets_go(owner: Owner, run_dir: RunDir, train_step: int) -> None:
    """A person removes a checkpoint from the run directory."""
    folder = run_dir.checkpoints / f"{train_step:09d}"
    record = CheckpointRemoved(
        at=owner.clock.now(),
        by="ada",
        train_step=train_step,
        path=f"checkpoints/{folder.name}",
        size_bytes=9000,
        made_in=1,
    )
    owner.say(run_dir.path, record)
    shutil.rmtree(folder)


def _keeps_one(owner: Owner) -> None:
    """The store keeps the newest of each run, and what the run directories have."""
    assert owner.site.mirror is not None
    mirror = SiteMirror.model_validate(
        {"url": owner.site.mirror.url, "retention": {"keep_last": 1}}
    )
    owner.site = owner.site.model_copy(update={"mirror": mirror})


def test_the_rule_of_the_old_place_removes_nothing_of_the_new_one(owner: Owner) -> None:
    _keeps_one(owner)
    run_dir = owner.trained(100, 200, 300)
    _mirrors(owner, run_dir)
    other = _other(owner)
    there = other.fetch(run_dir.path.name, owner.remote).run_dir
    assert _said(_mirrors(other, there)) == []
    owner.clock.advance(60)
    _lets_go(owner, run_dir, 200)
    report = _mirrors(owner, run_dir)
    (problem,) = _said(report)
    assert "is mirrored from another place now" in problem
    assert report.removed == []
    assert list(owner.there(run_dir.path.name).objects.checkpoints) == [300, 200, 100]


def test_what_is_removed_is_the_very_checkpoint_that_was_sent(owner: Owner) -> None:
    """There and back: that of the same train step in the store was made over there."""
    _keeps_one(owner)
    run_dir = owner.trained(100, 200, 300)
    _mirrors(owner, run_dir)
    run_id = run_dir.path.name
    other = _other(owner)
    there = other.fetch(run_id, owner.remote).run_dir
    save(there, 200, {"model.pt": b"others" * 1000})
    assert _said(_mirrors(other, there)) == []
    theirs = owner.remote.read(f"{run_id}/checkpoints/000000200/manifest.json")
    owner.clock.advance(timedelta(hours=5).total_seconds())
    _takes_back(owner, run_id)
    for step in (100, 200):
        _lets_go(owner, run_dir, step)
    owner.clock.advance(60)
    report = _mirrors(owner, run_dir)
    assert report.removed == [(run_id, 100)]
    assert owner.remote.read(f"{run_id}/checkpoints/000000200/manifest.json") == theirs
    assert _mirrors(owner, run_dir).problems == {}, "it is asked about once"


def test_there_and_back_only_the_place_that_took_it_last_sends_it(owner: Owner) -> None:
    run_dir = owner.trained(100)
    _mirrors(owner, run_dir)
    run_id = run_dir.path.name
    other = _other(owner)
    there = other.fetch(run_id, owner.remote).run_dir
    _mirrors(other, there)
    owner.clock.advance(timedelta(hours=4).total_seconds())
    _takes_back(owner, run_id)
    save(run_dir, 200)
    assert _said(_mirrors(owner, run_dir)) == []
    assert owner.there(run_id).run.run_dir == str(run_dir.path)
    save(there, 150)
    (problem,) = _said(_mirrors(other, there))
    assert "is mirrored from another place now" in problem
    assert list(owner.there(run_id).objects.checkpoints) == [200, 100]
    shutil.rmtree(run_dir.checkpoints / "000000200")
    assert owner.restore(run_dir).checkpoints == [200]


def test_what_was_taken_back_is_put_back_before_it_was_mirrored(owner: Owner) -> None:
    run_dir = owner.trained(100)
    _mirrors(owner, run_dir)
    run_id = run_dir.path.name
    other = _other(owner)
    _mirrors(other, other.fetch(run_id, owner.remote).run_dir)
    owner.clock.advance(timedelta(hours=4).total_seconds())
    _takes_back(owner, run_id)
    shutil.rmtree(run_dir.checkpoints / "000000100")
    assert owner.restore(run_dir).checkpoints == [100]
    assert _said(_mirrors(owner, run_dir)) == []


def test_two_clusters_with_the_same_paths_are_two_places(owner: Owner) -> None:
    run_dir = owner.trained(100)
    _mirrors(owner, run_dir)
    run_id, aside = run_dir.path.name, owner.folder / "scratch of the first"
    run_dir.path.rename(aside)
    other = _other(owner)
    other.site = owner.site.model_copy(update={"name": "elsewhere"})
    other.settings = replace(other.settings, environ=owner.settings.environ)
    there = other.fetch(run_id, owner.remote).run_dir
    assert there.path == run_dir.path
    assert _said(_mirrors(other, there)) == []
    shutil.rmtree(there.path)
    with pytest.raises(InputError, match=r"was moved: .* on site elsewhere"):
        owner.restore(run_dir)
    aside.rename(run_dir.path)
    save(run_dir, 200)
    (problem,) = _said(_mirrors(owner, run_dir))
    assert "on site 'elsewhere'" in problem
    with pytest.raises(InputError, match=r"was moved: .* on site elsewhere"):
        owner.restore(run_dir)


def test_killed_before_it_was_frozen_anew_it_is_taken_back_again(owner: Owner) -> None:
    run_dir = owner.trained(100)
    _mirrors(owner, run_dir)
    run_id = run_dir.path.name
    other = _other(owner)
    _mirrors(other, other.fetch(run_id, owner.remote).run_dir)
    owner.clock.advance(timedelta(hours=4).total_seconds())
    frozen = run_dir.run_json.read_bytes()
    _takes_back(owner, run_id)
    run_dir.run_json.write_bytes(frozen)
    (problem,) = _said(_mirrors(owner, run_dir))
    assert "is mirrored from another place now" in problem
    _takes_back(owner, run_id)
    assert _said(_mirrors(owner, run_dir)) == []
