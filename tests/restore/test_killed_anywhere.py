"""A restore is killed before or after each thing that it writes; repeated, it does the rest.

Meanwhile the daemon continues no run that its user did not approve.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterator
from itertools import count
from pathlib import Path

import pytest

from hpcflow.errors import HpcflowError, StorageError
from hpcflow.model.journal import Held, Restored
from hpcflow.restore.journals import UNAPPROVED
from hpcflow.storage import journal
from hpcflow.storage.approval import is_approved
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import run_ids
from tests.requeue.killing import Killer
from tests.restore.mirrored import all_of, purge
from tests.restore.owner import Owner, elsewhere
from tests.restore.test_foreign import take

#: What makes something visible; a file or folder is written under another name first.
WRITES = ("symlink", "rename", "replace", "unlink")


@pytest.fixture
def killer(monkeypatch: pytest.MonkeyPatch) -> Killer:
    killer = Killer(monkeypatch)
    for name in WRITES:
        killer.watch(os, name)
    killer.watch(journal, "append_line_durably")
    return killer


def each_moment(killer: Killer, folder: Path) -> Iterator[tuple[str, Owner]]:
    """A new owner for each moment at which a restore is killed; the last one is not killed."""
    for moment in count(1):
        owner_folder = folder / str(moment)
        owner_folder.mkdir()
        killer.aim_at(moment)
        yield f"killed at moment {moment}", Owner(owner_folder)
        shutil.rmtree(owner_folder)
        if not killer.has_struck:
            assert moment > 10
            return


def lose_home(owner: Owner, run_dir: RunDir) -> None:
    """All but the ledger, which may be elsewhere."""
    shutil.rmtree(owner.settings.home.runs)
    purge(run_dir)


def lose_all(owner: Owner, run_dir: RunDir) -> None:
    lose_home(owner, run_dir)
    for path in owner.settings.home.path.glob("ledger.sqlite*"):
        path.unlink()


def lose_files(owner: Owner, run_dir: RunDir) -> None:
    """Those of the record, with checkpoints and events."""
    owner.lose_record(run_dir)
    shutil.rmtree(run_dir.checkpoints)
    run_dir.attempt(1).events.unlink()


def assert_daemon_sends_nothing(owner: Owner, run_id: str, moment: str) -> None:
    for _ in range(2):
        owner.clock.advance(600)
        assert owner.tick().sent == {}, moment
        try:
            owner.restores_for_the_daemon()
        except HpcflowError:
            owner.restoring.clear()
    assert owner.alive() == [], moment
    if run_id in run_ids(owner.settings.home):
        assert not is_approved(owner.settings.home.run_dir(f"/{run_id}")), moment


def test_a_purged_run_continues(tmp_path: Path, killer: Killer) -> None:
    for moment, owner in each_moment(killer, tmp_path):
        run_dir = owner.mirrored(100, 200)
        before = all_of(run_dir)
        purge(run_dir)
        with killer.armed():
            owner.restore(run_dir)
        outcome = owner.restore(run_dir)
        assert (outcome.held, outcome.is_unknown) == (None, False), moment
        after = all_of(run_dir)
        added = after.pop("journal.jsonl").removeprefix(before.pop("journal.jsonl"))
        assert {each.record for each in journal.read(run_dir)[-added.count(b"\n") :]} == {
            "restored"
        }, moment
        assert after == {name: data for name, data in before.items() if "000000100" not in name}
        owner.clock.advance(600)
        assert list(owner.tick().sent) == [run_dir.path.name], moment
        assert len(owner.alive()) == 1, moment


@pytest.mark.parametrize("lose", [lose_files, lose_home, lose_all])
def test_a_lost_run_waits_for_its_user(
    tmp_path: Path, killer: Killer, lose: Callable[[Owner, RunDir], None]
) -> None:
    for moment, owner in each_moment(killer, tmp_path):
        run_dir = owner.mirrored(100, 200)
        run_id, before = run_dir.path.name, run_dir.journal.read_bytes()
        lose(owner, run_dir)
        owner.clock.advance(7200)
        with killer.armed():
            take(owner, run_id)
        assert_daemon_sends_nothing(owner, run_id, moment)
        run_dir = take(owner, run_id)
        assert_daemon_sends_nothing(owner, run_id, moment)
        assert run_dir.journal.read_bytes().startswith(before), moment
        holds = [each.why for each in journal.read(run_dir) if isinstance(each, Held)]
        assert set(holds) == {UNAPPROVED}, moment
        assert run_dir.checkpoints.joinpath("000000200/manifest.json").exists(), moment
        assert owner.resume(run_dir).attempt == 2, moment
        assert len(owner.alive()) == 1, moment
        assert is_approved(run_dir)


def test_a_run_goes_to_another_place_and_back(tmp_path: Path, killer: Killer) -> None:
    for moment, owner in each_moment(killer, tmp_path):
        run_dir = owner.mirrored(100, 200)
        run_id = run_dir.path.name
        other = elsewhere(owner)
        with killer.armed():
            take(other, run_id)
        assert_daemon_sends_nothing(other, run_id, moment)
        there = take(other, run_id)
        assert read_run(there).site == "elsewhere", moment
        assert_daemon_sends_nothing(other, run_id, moment)
        assert other.mirror_pass(there).problems == {}, moment
        back = take(owner, run_id, even_if_running=True)
        assert back.path == run_dir.path
        history = Journal(back).history
        assert (history.last.number, history.hold is not None) == (1, True), moment
        moves = [each for each in journal.read(back) if isinstance(each, Restored)]
        assert (moves[-1].site_before, moves[-1].site) == ("elsewhere", "devcluster"), moment
        owner.clock.advance(600)
        assert owner.tick().sent == {}, moment
        assert owner.resume(back).attempt == 2, moment


def test_a_run_that_is_taken_back_waits_for_its_user(tmp_path: Path, killer: Killer) -> None:
    for moment, owner in each_moment(killer, tmp_path):
        run_dir = owner.mirrored(100)
        run_id = run_dir.path.name
        owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
        for _ in range(3):  # so that it is billed, too: what follows only here cannot be joined
            owner.tick()
            owner.clock.advance(600)
        owner.mirror(run_dir)
        other = elsewhere(owner)
        there = take(other, run_id)
        other.resume(there)
        other.end(other.alive()[0], "PREEMPTED", checkpoint=100)
        other.look()
        assert other.mirror_pass(there).problems == {}
        owner.clock.advance(36_000)
        with killer.armed():
            take(owner, run_id)
        owner.clock.advance(600)
        assert owner.tick().sent == {}, moment
        take(owner, run_id)
        assert owner.tick().sent == {}, moment
        assert not is_approved(run_dir), moment
        assert owner.resume(run_dir).attempt == 3, moment
        assert owner.mirror_pass(run_dir).problems == {}, moment


def test_a_daemon_continues_no_run_that_is_being_taken_back(tmp_path: Path, killer: Killer) -> None:
    """Until then it continues the run as it was here, and it cannot be taken back any more."""
    ends = set()
    for moment, owner in each_moment(killer, tmp_path):
        run_dir = owner.mirrored(100)
        run_id = run_dir.path.name
        other = elsewhere(owner)
        there = take(other, run_id)
        other.resume(there)
        other.end(other.alive()[0], "PREEMPTED", checkpoint=100)
        other.look()
        assert other.mirror_pass(there).problems == {}
        with killer.armed():
            take(owner, run_id, even_if_running=True)
        may_continue = is_approved(run_dir) and not Journal(run_dir).history.is_held
        owner.clock.advance(36_000)
        was_sent = bool(owner.tick().sent)
        assert was_sent is may_continue, moment
        ends.add(was_sent)
        if was_sent:
            with pytest.raises(StorageError, match="differ from line"):
                take(owner, run_id, even_if_running=True)
            continue
        take(owner, run_id, even_if_running=True)
        assert owner.tick().sent == {}, moment
        assert not is_approved(run_dir), moment
        assert owner.resume(run_dir).attempt == 3, moment
    assert ends == {True, False}
