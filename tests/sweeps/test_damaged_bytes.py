"""One byte of a sweep's journal is damaged: the sweep is refused with its reason, or it is shown.
Nobody gets a traceback, and all other sweeps are listed."""

from __future__ import annotations

import random
from decimal import Decimal
from pathlib import Path

import pytest

from hpcflow.errors import StorageError
from hpcflow.model.sweep_records import Closed, Told
from hpcflow.storage.sweeps import append
from hpcflow.sweeps.trials import Cost, TrialRuns
from hpcflow.sweeps.view import look, sweep_view
from tests.sweeps.searched import Searched

BYTES = b'0123456789.eE-+x"[],{}: '


@pytest.fixture
def desk(tmp_path: Path) -> Searched:
    """Of three trials two are over."""
    desk = Searched(tmp_path)
    desk.begin("parallel: 3\nbudget: {trials: 40}\n")
    desk.round()
    for number in range(2):
        desk.reports(number, 50, 0.25)
    desk.round()
    for number in range(2):
        desk.completes(number, 0.5)
    desk.round()
    now = desk.clock.now()
    cost = Closed(at=now, trial=0, seconds=100.5, gpu_hours=2.5, cost_usd="12.50")
    append(desk.sweep_dir, [cost, Told(at=now, trial=2, outcome="complete", values=[0.5])])
    return desk


def with_one_byte_changed(data: bytes, dice: random.Random) -> bytes:
    changed = bytearray(data)
    at = dice.randrange(len(data))
    changed[at] = (
        dice.choice(BYTES) if dice.random() < 0.7 else changed[at] ^ 1 << dice.randrange(8)
    )
    return bytes(changed)


def test_no_damaged_byte_is_a_traceback(desk: Searched) -> None:
    whole, now, refused = desk.sweep_dir.journal.read_bytes(), desk.clock.now(), 0
    dice = random.Random(3)
    ends = whole.rindex(b'"closed"')
    for number in range(4000):
        if number % 2:
            data = with_one_byte_changed(whole, dice)
        else:  # where most of the numbers are
            data = whole[:ends] + with_one_byte_changed(whole[ends:], dice)
        desk.sweep_dir.journal.write_bytes(data)
        try:
            sweep_view(*look(desk.sweep_dir), now)
        except StorageError as error:
            assert "journal" in str(error)
            refused += 1
    assert 1000 < refused < 4000


def test_no_damaged_byte_ends_a_round(desk: Searched) -> None:
    whole, dice = desk.sweep_dir.journal.read_bytes(), random.Random(4)
    for _ in range(40):
        desk.sweep_dir.journal.write_bytes(with_one_byte_changed(whole, dice))
        for problem in desk.round().problems:
            assert "the round failed" not in problem


CLOSED = '{"record": "closed", "at": "2026-03-01T12:00:00Z", "trial": 0, %s}'
TOLD = '{"record": "told", "at": "2026-03-01T12:00:00Z", "trial": 1, "outcome": "%s", "values": %s}'
NO_AMOUNTS = [
    "12.5,",
    "12E50",
    "1E-999999",
    "1E999999999",
    "NaN",
    "sNaN",
    "-Infinity",
    "-1",
    "",
    "9" * 41,
]
NO_NUMBERS = ["NaN", "Infinity", "-1", "1e16", "9" * 400, "9" * 5000, "[]", "null"]


@pytest.mark.parametrize(
    "line",
    [
        *(CLOSED % f'"cost_usd": "{each}"' for each in NO_AMOUNTS),
        *(CLOSED % f'"{name}": {each}' for name in ("seconds", "gpu_hours") for each in NO_NUMBERS),
        *(TOLD % ("complete", each) for each in ("[0,5]", "[]", "[NaN]", "[1e999]")),
        *(TOLD % ("pruned", each) for each in ("[0,5]", "[Infinity]")),
        TOLD % ("failed", "[0.5]"),
    ],
    ids=lambda line: line[60:100],
)
def test_a_record_whose_numbers_cannot_be_is_damaged(desk: Searched, line: str) -> None:
    with desk.sweep_dir.journal.open("a") as file:
        file.write(line + "\n")
    with pytest.raises(StorageError, match="damaged"):
        look(desk.sweep_dir)
    (problem,) = desk.round().problems
    assert "damaged" in problem


def test_a_trial_whose_bill_is_out_of_bounds_is_closed_all_the_same(
    desk: Searched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a round writes, the next one reads."""
    bill = Cost(1e300, -1.0, Decimal("1e30"))
    monkeypatch.setattr(TrialRuns, "cost", lambda *_: bill)
    desk.completes(3, 0.5)
    for _ in range(3):
        assert desk.round().problems == []
    closed = desk.trial(3).closed
    assert closed is not None
    assert (closed.seconds, closed.gpu_hours, closed.cost_usd) == (1e15, 0.0, f"{10**15}.000000")
