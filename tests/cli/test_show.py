"""What `show` warns of: a run that trains on and saves nothing any more."""

from __future__ import annotations

import errno

import pytest

from hpcflow.runtime.disk_quota import Quota
from hpcflow.storage import lustre
from tests.cli.desk import Desk
from tests.cli.trained import Trained


def show(desk: Desk) -> tuple[str, str]:
    """What it says, and what it warns of."""
    desk.say("show", "digits")  # reads the events
    desk._capfd.readouterr()
    out = desk.say("show", "digits")
    return out, desk.error("show", "digits", code=0)


def test_a_save_that_failed_is_told_with_what_to_do_until_one_succeeds(desk: Desk) -> None:
    trained = Trained(desk)
    trained.save(400)
    full = f"[Errno {errno.EDQUOT}] Disk quota exceeded: 'checkpoints/.000000500.1.tmp'"
    trained.event("checkpoint_failed", train_step=500, why=full)

    out, warned = show(desk)
    assert "400" in out
    assert warned == (
        f"warning: the last save failed: train step 500: {full}; the newest checkpoint is that of "
        f"train step 400 → make room: hpcflow checkpoint prune {trained.run_id} --keep-last 1; "
        "see what uses it: hpcflow scratch\n"
    )
    said = desk.json("show", "digits")
    assert said["save_error"] == f"train step 500: {full}"
    desk.say("ledger", "rebuild")
    assert desk.json("show", "digits")["save_error"] == f"train step 500: {full}"
    assert desk.json("ls")["runs"][0]["save_error"] == f"train step 500: {full}"

    trained.save(600)
    assert show(desk)[1] == ""
    assert desk.json("show", "digits")["save_error"] is None


def test_a_disk_that_is_full_to_its_last_byte_is_told_although_no_job_can(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    trained = Trained(desk, "sleep 300")
    trained.save(400)
    assert show(desk)[1] == ""
    full = Quota("user ada", 10**9, None, 10**9 + 100, None, None)
    monkeypatch.setattr(lustre, "quotas", lambda _path, _user: [full])
    warned = show(desk)[1]
    assert warned.startswith("warning: 100 B can still be written below ")
    assert "(the quota of user ada)" in warned
    desk.say("cancel", "digits")
    desk.json("wait", "digits", code=1)
    assert show(desk)[1] == "", "it writes nothing any more"


def test_what_is_no_matter_of_room_is_told_without_advice_on_room(desk: Desk) -> None:
    trained = Trained(desk)
    trained.event("checkpoint_failed", train_step=5, why="another rank could not write\x1b[31m")
    warned = show(desk)[1]
    assert "another rank could not write\N{REPLACEMENT CHARACTER}[31m; " in warned
    assert "the newest checkpoint is none" in warned
    assert "prune" not in warned
