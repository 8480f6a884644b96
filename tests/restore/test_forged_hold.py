"""A user who can write to the bucket forges the hold that a restore would write itself."""

from __future__ import annotations

from typing import Any

import pytest

from hpcflow.errors import StorageError
from hpcflow.history.run import OLDER_HOME
from hpcflow.model.journal import Held
from hpcflow.restore.journals import LOST, UNAPPROVED
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import RunDir
from tests.restore.mirrored import purge
from tests.restore.owner import Owner
from tests.restore.test_foreign import change, take
from tests.sampled import crossed

WHYS = {
    "none": None,
    "a program": UNAPPROVED,
    "a journal": LOST,
    "an older home": OLDER_HOME,
    "a user's": "a person has written this",
}


def forge(owner: Owner, run_dir: RunDir, why: str | None, *, is_cut: bool) -> None:
    """Leave the first line of the store's journal, or all, and add a hold."""
    name = f"{run_dir.path.name}/journal.jsonl"
    lines = owner.remote.read(name)
    if is_cut:
        lines = lines[: lines.index(b"\n") + 1]
    if why is not None:
        lines += Held(at=owner.clock.now(), by="ada", why=why).to_line().encode()
    owner.remote.put_bytes(lines, name)


def another_program(said: dict[str, Any]) -> None:
    said["spec"]["command"] = ["sh", "-c", "echo planted"]


def assert_nothing_is_sent(owner: Owner, run_dir: RunDir) -> None:
    for _ in range(3):
        assert not owner.tick().sent
        owner.restores_for_the_daemon()
        owner.clock.advance(900)
    assert Journal(run_dir).history.is_held


def goes_on_after_the_mirror(owner: Owner) -> None:
    """The ledger reads more of the journal than the mirror has sent."""
    owner.clock.advance(600)
    owner.tick()
    owner.end(owner.alive()[0], "PREEMPTED", checkpoint=100)
    owner.look()


@crossed(
    "lost, hold, is_changed, is_cut",
    ["journal", "record"],
    list(WHYS),
    [True, False],
    [True, False],
)
def test_a_lost_run_is_held_whatever_hold_the_store_says(
    owner: Owner, hold: str, is_changed: bool, is_cut: bool, lost: str
) -> None:
    run_dir = owner.mirrored(100)
    goes_on_after_the_mirror(owner)
    if lost == "journal":
        run_dir.journal.unlink()
    else:
        owner.lose_record(run_dir)
    forge(owner, run_dir, WHYS[hold], is_cut=is_cut)
    if is_changed:
        change(owner, run_dir, another_program)
    purge(run_dir)
    assert_nothing_is_sent(owner, run_dir)
    assert owner.restore(run_dir) is not None
    assert_nothing_is_sent(owner, run_dir)


@crossed("is_lost, hold, is_cut", [True, False], list(WHYS), [True, False])
def test_a_run_that_is_taken_from_another_place_is_held_whatever_hold_the_store_says(
    owner: Owner, hold: str, is_cut: bool, is_lost: bool
) -> None:
    """The store says that it is of another place, so `restore` advises `restore --from`."""
    run_dir = owner.mirrored(100)
    forge(owner, run_dir, WHYS[hold], is_cut=is_cut)

    def lie(said: dict[str, Any]) -> None:
        said |= {"place": "0" * 32, "run_dir": f"/elsewhere/hpcflow/p/{run_dir.path.name}"}
        another_program(said)

    change(owner, run_dir, lie)
    purge(run_dir)
    if is_lost:
        owner.lose_record(run_dir)
    owner.clock.advance(7200)
    if is_cut and WHYS[hold] is not None and not is_lost:
        before = run_dir.journal.read_bytes()
        with pytest.raises(StorageError, match="differ from line 2 on, so nothing was changed"):
            take(owner, run_dir.path.name)
        assert run_dir.journal.read_bytes() == before
        return
    assert_nothing_is_sent(owner, take(owner, run_dir.path.name))
