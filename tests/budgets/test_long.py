"""A budget with a long story is read from a line in its midst, and says the same."""

from __future__ import annotations

import random
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from hpcflow.budgets import compaction
from hpcflow.budgets.amounts import NOTHING, UNITS, Amounts
from hpcflow.budgets.budget_check import Pledge
from hpcflow.budgets.commitments import Settlement, commit, release, settle
from hpcflow.budgets.folder import BudgetFolder
from hpcflow.budgets.records import Change, Limit, Opening, Terms, entry_line
from hpcflow.budgets.scope import Scope
from hpcflow.errors import BudgetError, StorageError
from hpcflow.model.ids import ID_ALPHABET
from hpcflow.testing.clock import FakeClock
from tests.budgets.desk import BudgetDesk

SCOPE = Scope("project", "vision")
BEGIN = datetime(2026, 1, 20, tzinfo=timezone.utc)


def named(number: int) -> str:
    """A run id for each number."""
    return "run-20260120-" + "".join(ID_ALPHABET[int(digit)] for digit in f"{number:08d}")


def pledge(run_id: str, usd: str | None = "3", by: str = "ada") -> Pledge:
    amounts = Amounts(None if usd is None else Decimal(usd), None, Decimal(1))
    return Pledge(run_id, 1, by, (SCOPE,), amounts, 1800, "gpu")


def settlement(run_id: str, usd: str | None, at: datetime, *, is_final: bool) -> Settlement:
    amounts = Amounts(None if usd is None else Decimal(usd), None, Decimal("0.25"))
    return Settlement(run_id, 1, "ada", (SCOPE,), amounts, at, is_final, billed_at=at)


def begun(path: Path, hard: str = "1000000", *, per_month: bool = False) -> BudgetFolder:
    folder = BudgetFolder(path)
    terms = Terms({"cost_usd": Limit(Decimal(hard)), "gpu_hours": Limit(Decimal(10**6))}, per_month)
    opening = Opening(Amounts(Decimal(5), None, Decimal(2)), {"cost_su": 3})
    with folder.lock():
        folder.append(SCOPE, [Change(BEGIN, "ada", terms, opening=opening).to_line()])
    return folder


@pytest.mark.parametrize("per_month", [False, True])
@pytest.mark.parametrize(
    "seed", [0, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(1, 20))]
)
def test_it_says_the_same_as_all_of_its_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int, per_month: bool
) -> None:
    monkeypatch.setattr(compaction, "AFTER_LINES", 20)
    dice, clock = random.Random(seed), FakeClock(BEGIN)
    folder = begun(tmp_path, per_month=per_month)
    open_ones: list[str] = []
    for number in range(200):
        clock.advance(dice.choice([10, 3600, 40_000]))
        act, now = dice.random(), clock.now()
        if act < 0.4 or not open_ones:
            open_ones.append(named(number))
            commit(folder, [pledge(open_ones[-1], dice.choice(["3", "0.5", None]))], clock)
        elif act < 0.5:
            release(folder, [pledge(open_ones.pop(dice.randrange(len(open_ones))))], now, why="no")
        elif act < 0.6:
            line = entry_line("began", now, "ada", dice.choice(open_ones), 1, began_at=now)
            folder.append(SCOPE, [line])
        else:
            is_final = dice.random() < 0.8
            place = dice.randrange(len(open_ones))
            run_id = open_ones.pop(place) if is_final else open_ones[place]
            done = settlement(run_id, dice.choice(["1.25", None]), now, is_final=is_final)
            settle(folder, done)
            if dice.random() < 0.1:
                settle(
                    folder, replace(done, billed_at=now + timedelta(seconds=5))
                )  # whoever was killed does it again
        quick, whole = folder.read(SCOPE), folder.read(SCOPE, whole=True)
        for unit in UNITS:
            assert quick.used(unit, now) == whole.used(unit, now), number
            assert folder.look(SCOPE).used(unit, now) == whole.used(unit, now), number
            assert quick.so_far(unit, now) == whole.so_far(unit, now), number
        assert quick.terms == whole.terms
    assert folder.file(SCOPE).read_bytes().count(compaction.MARK) > 3
    assert folder.read(SCOPE).lines < 100
    assert folder.file(SCOPE).read_bytes().count(b"\n") > 150


def test_what_was_settled_long_ago_is_not_settled_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(compaction, "AFTER_LINES", 5)
    folder, clock = begun(tmp_path), FakeClock(BEGIN)
    for number in range(10):
        commit(folder, [pledge(named(number))], clock)
        settle(folder, settlement(named(number), "1", clock.now(), is_final=True))
    assert (named(0), 1) not in folder.read(SCOPE).entries
    before = folder.size(SCOPE)
    settle(folder, settlement(named(0), "1", clock.now(), is_final=True))
    assert folder.size(SCOPE) == before


@pytest.mark.parametrize("how", ["torn", "moved"])
def test_a_line_that_is_not_whole_or_not_in_its_place_is_not_gone_by(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    monkeypatch.setattr(compaction, "AFTER_LINES", 5)
    folder, clock = begun(tmp_path), FakeClock(BEGIN)
    for number in range(6):
        commit(folder, [pledge(named(number))], clock)
        settle(folder, settlement(named(number), "1", clock.now(), is_final=True))
    file = folder.file(SCOPE)
    lines = file.read_bytes().splitlines(keepends=True)
    place = next(index for index, line in enumerate(lines) if line.startswith(compaction.MARK))
    if how == "torn":
        lines[place] = lines[place][:50] + b"\n"
    else:
        with folder.lock():
            commit_line = lines[1].replace(named(0).encode(), named(99).encode())
        lines.insert(place, commit_line)
    file.write_bytes(b"".join(lines))
    clock.advance(60)
    quick, whole = folder.read(SCOPE), folder.read(SCOPE, whole=True)
    assert quick.used("cost_usd", clock.now()) == whole.used("cost_usd", clock.now())


def test_without_locks_the_order_of_the_lines_decides(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two login nodes, whose locks hold on their own node only, or not at all."""
    folder, clock = begun(tmp_path, hard="11"), FakeClock(BEGIN)

    @contextmanager
    def no_lock(*_: object) -> Iterator[bool]:
        folder.path.mkdir(exist_ok=True)
        yield False

    monkeypatch.setattr(BudgetFolder, "lock", no_lock)
    append = BudgetFolder.append
    others = [pledge(named(98), by="grace")]

    def after_another(self: BudgetFolder, scope: Scope, lines: list[str]) -> None:
        if others:  # who has looked at the same moment, and writes first
            commit(folder, [others.pop()], clock)
        append(self, scope, lines)

    monkeypatch.setattr(BudgetFolder, "append", after_another)
    with pytest.raises(BudgetError, match=r"3\.00 USD committed to pending and"):
        commit(folder, [pledge(named(97), "4")], clock)
    budget = folder.read(SCOPE)
    assert [each.run_id for each in budget.committed_to()] == [named(98)]
    commit(folder, [pledge(named(96), "2.5")], clock)


def without_locks(monkeypatch: pytest.MonkeyPatch, folder: BudgetFolder) -> None:
    @contextmanager
    def no_lock(*_: object, **__: object) -> Iterator[bool]:
        folder.path.mkdir(exist_ok=True)
        yield False

    monkeypatch.setattr(BudgetFolder, "lock", no_lock)


def test_what_was_given_back_once_has_its_place_by_its_newest_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, clock = begun(tmp_path, hard="10"), FakeClock(BEGIN)
    commit(folder, [pledge(named(1))], clock)
    release(folder, [pledge(named(1))], clock.now(), why="refused")
    without_locks(monkeypatch, folder)
    append = BudgetFolder.append
    others = [pledge(named(2), by="grace")]

    def after_another(self: BudgetFolder, scope: Scope, lines: list[str]) -> None:
        if others:
            commit(folder, [others.pop()], clock)
        append(self, scope, lines)

    monkeypatch.setattr(BudgetFolder, "append", after_another)
    with pytest.raises(BudgetError):
        commit(folder, [pledge(named(1))], clock)
    assert [each.run_id for each in folder.read(SCOPE).committed_to()] == [named(2)]


def test_a_line_that_somebody_has_written_over_was_not_committed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, clock = begun(tmp_path, hard="10"), FakeClock(BEGIN)
    append = BudgetFolder.append

    def to_the_same_place(self: BudgetFolder, scope: Scope, lines: list[str]) -> None:
        append(self, scope, [lines[0].replace(named(1), named(2))])

    monkeypatch.setattr(BudgetFolder, "append", to_the_same_place)
    with pytest.raises(StorageError, match="at the same time"):
        commit(folder, [pledge(named(1))], clock)


def test_a_file_that_was_put_back_is_read_anew(tmp_path: Path) -> None:
    folder, clock = begun(tmp_path), FakeClock(BEGIN)
    commit(folder, [pledge(named(1), "3")], clock)
    assert folder.look(SCOPE).used("cost_usd", BEGIN).committed == 3
    file = folder.file(SCOPE)
    other = tmp_path / "backup"
    other.write_text(file.read_text().replace('"cost_usd": "3"', '"cost_usd": "4"'))
    other.replace(file)
    assert folder.look(SCOPE).used("cost_usd", BEGIN).committed == 4


def test_what_is_no_text_stops_nobody(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Somebody has written a name that cannot be encoded, and the budget has become long."""
    monkeypatch.setattr(compaction, "AFTER_LINES", 5)
    folder, clock = begun(tmp_path), FakeClock(BEGIN)
    odd = Change(
        BEGIN,
        "ada",
        Terms({"cost_usd": Limit(Decimal(100))}),
        why="WHY",
        opening=Opening(NOTHING, {"UNIT": 1}),
    )
    with folder.lock():
        line = odd.to_line().replace("UNIT", "\\ud800").replace("WHY", "\\udfff")
        folder.append(SCOPE, [line])
    for number in range(10):
        commit(folder, [pledge(named(number))], clock)
        settle(folder, settlement(named(number), "1", clock.now(), is_final=True))
    assert folder.file(SCOPE).read_bytes().count(compaction.MARK) > 0
    assert folder.read(SCOPE).used("cost_usd", clock.now()).spent == 10


def test_a_budget_counts_what_was_before_it_by_month_or_all_of_it(tmp_path: Path) -> None:
    desk = BudgetDesk(tmp_path)
    for _ in range(3):
        desk.train(desk.launch().job_id, minutes=20)
    spent = "6.00"
    desk.set(hard="100")
    assert desk.usd()[0] == spent
    desk.set(hard="100", per_month=True)
    assert desk.usd()[0] == spent, "it ended in this month"
    desk.clock.advance(40 * 86400)
    assert desk.usd()[0] == "0.00"
    desk.set("user:" + desk.settings.user, hard="100", per_month=True)
    assert desk.usd("user:" + desk.settings.user)[0] == "0.00"
    desk.set("user:" + desk.settings.user, hard="100")
    assert desk.usd("user:" + desk.settings.user)[0] == spent
    desk.set(hard="100")
    assert desk.usd()[0] == spent
