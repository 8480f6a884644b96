"""What a pass of the mirror makes of the home's copy of a journal, and of the one in the store."""

from __future__ import annotations

import pytest

from hpcflow.model.journal import Decided, Held
from hpcflow.storage.journal_copy import path_of, read_copy, write_copy
from hpcflow.storage.layout import RunDir
from tests.restore.mirrored import purge
from tests.restore.owner import Owner
from tests.restore.test_foreign import take
from tests.restore.test_journal_copy import end, intent, mirror_pass


def test_there_and_back_the_journal_of_the_other_place_is_not_replaced(
    owner: Owner, other: Owner
) -> None:
    run_dir = owner.mirrored(100)
    there = take(other, run_dir.path.name)
    other.resume(there)
    other.mirror(there)
    take(owner, run_dir.path.name, even_if_running=True)
    other.clock.advance(60)
    other.end(other.alive()[0], "PREEMPTED", checkpoint=200)
    other.look()
    other.mirror(there)
    before = owner.remote.read(f"{run_dir.path.name}/journal.jsonl")
    (problem,) = mirror_pass(owner, run_dir).problems.values()
    assert "has more of the run's journal" in problem.message or "another place" in problem.message
    assert owner.remote.read(f"{run_dir.path.name}/journal.jsonl") == before


def _store_of_newer_home(owner: Owner) -> tuple[RunDir, bytes]:
    """The home came back from a backup: it lacks an attempt that the store has as completed."""
    run_dir = owner.mirrored(100)
    old = run_dir.journal.read_bytes()
    name = f"{run_dir.path.name}/journal.jsonl"
    more = [intent(owner, run_dir, 2), end(owner).model_copy(update={"attempt": 2})]
    lines = old + "".join(each.to_line() for each in more).encode()
    owner.remote.put_bytes(lines, name)
    return run_dir, lines


@pytest.mark.parametrize("left", ["nothing", "everything"])
def test_an_older_home_replaces_nothing_in_the_store_before_its_user_says_so(
    owner: Owner, left: str
) -> None:
    run_dir, lines = _store_of_newer_home(owner)
    name = f"{run_dir.path.name}/journal.jsonl"
    if left == "nothing":
        purge(run_dir)
    else:
        (problem,) = _pass_after_a_line(owner, run_dir)
        assert "has more of the run's journal" in problem
    assert "the store has more of its journal" in str(owner.restore(run_dir).held)
    owner.look()
    owner.clock.advance(600)
    assert owner.tick().sent == {}
    (problem,) = _pass_after_a_line(owner, run_dir)
    assert f"hpcflow resume {run_dir.path.name}" in problem
    assert owner.remote.read(name) == lines
    owner.resume(run_dir)
    assert _pass_after_a_line(owner, run_dir) == []
    assert owner.remote.read(name) == run_dir.journal.read_bytes()
    assert owner.restore(run_dir).held is None


def _pass_after_a_line(owner: Owner, run_dir: RunDir) -> list[str]:
    wait = Decided(at=owner.clock.now(), after=1, action="wait", rule="x", why="x")
    owner.say(run_dir.path, wait)
    owner.clock.advance(120)
    problems = mirror_pass(owner, run_dir).problems.values()
    return [f"{each.message} {each.next_action}" for each in problems]


@pytest.mark.parametrize("left", ["empty", "begun anew"])
def test_a_pass_replaces_no_copy_by_less(owner: Owner, left: str) -> None:
    run_dir = owner.mirrored(100)
    before = run_dir.journal.read_bytes()
    owner.remote.delete([f"{run_dir.path.name}/journal.jsonl"])
    lines = Held(at=owner.clock.now(), by="ada").to_line().encode() if left == "begun anew" else b""
    run_dir.journal.write_bytes(lines)
    owner.clock.advance(120)
    (problem,) = mirror_pass(owner, run_dir).problems.values()
    assert "put it back: hpcflow restore" in str(problem.next_action)
    assert read_copy(owner.settings.home, run_dir.path.name) == before


@pytest.mark.parametrize("lost", ["missing", "damaged", "older"])
def test_a_pass_repairs_the_copy_of_a_journal_that_was_sent_before(owner: Owner, lost: str) -> None:
    run_dir = owner.trained(100)
    assert mirror_pass(owner, run_dir).problems == {}
    home, run_id, data = owner.settings.home, run_dir.path.name, run_dir.journal.read_bytes()
    assert read_copy(home, run_id) == data
    if lost == "missing":
        owner.lose_copy(run_dir)
    elif lost == "damaged":
        path_of(home, run_id).write_bytes(b"x")
    else:
        write_copy(home, run_id, data[: data.index(b"\n") + 1])
    assert mirror_pass(owner, run_dir).problems == {}
    assert read_copy(home, run_id) == data
