"""Unsafe files in a checkpoint: every command ends and lists the other checkpoints."""

from __future__ import annotations

import json
from typing import Final

import pytest

from hpcflow.runtime.rule import COMPLETE
from hpcflow.settings import load_settings
from tests.cli.desk import Desk
from tests.hostile import KINDS, SECRET, bounded, held_run, put

_NEWEST: Final = "checkpoints/000000020"
_PLACES: Final = (f"{_NEWEST}/manifest.json", f"{_NEWEST}/model.pt", _NEWEST)


@pytest.mark.parametrize("place", _PLACES)
@pytest.mark.parametrize("kind", KINDS)
def test_one_bad_checkpoint_hides_no_other(desk: Desk, kind: str, place: str) -> None:
    run_dir = held_run(load_settings().home, name="digits")
    assert "2 checkpoints" in desk.say("checkpoint", "ls", "digits")  # all is imported by now
    put("pipe", run_dir.mirror)
    put(kind, run_dir.path / place)
    with bounded():
        told = desk.json("checkpoint", "ls", "digits")["checkpoints"]
        verified = desk.json("checkpoint", "verify", "digits", code=1)["checkpoints"]
        shown = desk.say("checkpoint", "show", "digits", "20")
    assert [each["train_step"] for each in told] == [10, 20]
    assert told[1]["state"] != COMPLETE
    assert told[1]["why"]
    assert {each["train_step"]: each["is_whole"] for each in verified} == {10: True, 20: False}
    assert told[1]["why"] in shown
    assert SECRET not in json.dumps([told, verified]) + shown
