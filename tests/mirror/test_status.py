"""How far the mirror is behind, by the files of the run."""

from __future__ import annotations

import os
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcflow.mirror.status import status_of
from hpcflow.testing.clock import FakeClock
from tests.mirror.runs import Desk, desk_in, save

_BEGIN = datetime(2026, 3, 1, tzinfo=timezone.utc)


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return desk_in(tmp_path, str(tmp_path / "store"), FakeClock(_BEGIN))


def test_what_was_made_after_the_newest_in_the_store_is_behind(desk: Desk) -> None:
    """A run that goes on from an older one makes lower train steps, later."""
    run_dir = desk.make()

    def made(train_step: int, minute: int) -> None:
        at_s = (_BEGIN + timedelta(minutes=minute)).timestamp()
        os.utime(save(run_dir, train_step) / "manifest.json", (at_s, at_s))

    def lag_min(minute: int) -> float:
        status = status_of(run_dir, _BEGIN + timedelta(minutes=minute))
        assert status is not None
        return status.lag_s / 60

    made(1000, 5)
    assert lag_min(6) == 1
    desk.clock.sleep(360)
    desk.mirror()
    made(900, 4)
    assert lag_min(7) == 0, "900 is older than what is there"
    made(500, 10)
    made(600, 12)
    assert lag_min(13) == 3
