"""A teammate can write to the budget directory, and attacks hpcflow through it."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import stat
import tracemalloc
from collections.abc import Callable
from contextlib import suppress
from decimal import Decimal
from functools import partial
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from hpcflow.budgets import budget_file, folder
from hpcflow.budgets.amounts import UNITS, Amounts
from hpcflow.budgets.folder import BudgetFolder
from hpcflow.budgets.records import Change, Limit, Terms, entry_line
from hpcflow.budgets.scope import Scope
from hpcflow.errors import StorageError
from tests.hostile import KINDS, SECRET, bounded, put
from tests.storage.runs import CREATED_AT

SCOPE = Scope("project", "vision")
LINE = Change(CREATED_AT, "ada", Terms({"cost_usd": Limit()})).to_line()
#: Lines that say nothing: a budget is shared, and who wrote a line is anybody's guess.
HARMLESS = {"nothing", "noughts", "garbage", "deep lists", "deep objects", "a list", "numbers"}
HARMLESS |= {"other keys", "file of another user"}


def shared(place: Path) -> BudgetFolder:
    team = place / "team"
    team.mkdir(mode=0o770)
    team.chmod(0o2770)
    return BudgetFolder(team, "devcluster")


def spend(budgets: BudgetFolder) -> None:
    """What a submission does."""
    with budgets.lock(wait_s=0.1):
        assert budgets.read(SCOPE).skipped == budgets.look(SCOPE).skipped
        budgets.append(SCOPE, [LINE])


class Private:
    """A folder of the victim, and what it has to stay."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "private"
        self.path.mkdir(mode=0o700)
        self.file = self.path / "key"
        self.file.write_text(SECRET)
        self.file.chmod(0o600)
        for name in ("vision.jsonl", "lock"):  # found behind a link, too, if one is followed
            (self.path / name).write_text(SECRET)

    def require_untouched(self) -> None:
        assert stat.S_IMODE(self.path.stat().st_mode) == 0o700
        assert stat.S_IMODE(self.file.stat().st_mode) == 0o600
        assert sorted(path.name for path in self.path.iterdir()) == ["key", "lock", "vision.jsonl"]
        assert {path.read_text() for path in self.path.iterdir()} == {SECRET}


def exchange_folders(team: Path, private: Path) -> None:
    for path in list(team.iterdir()):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
            path.symlink_to(private)


def exchange_files(team: Path, private: Path) -> None:
    for path in [*team.glob("lock"), *team.glob("*/*"), *team.glob(".*"), *team.glob("*/.*")]:
        if path.is_file() and not path.is_symlink():
            path.unlink()
            path.symlink_to(private / "key")


def exchange_the_folder(team: Path, private: Path) -> None:
    if not team.is_symlink():
        shutil.rmtree(team)
        team.symlink_to(private)


class Exchanged:
    """Attacks once: before the call of this number that looks up, makes or changes a name."""

    NAMES = ("open", "mkdir", "rename", "link", "unlink", "chmod", "lstat", "stat", "fchmod")

    def __init__(self, moment: int, attack: Callable[[], None], patch: pytest.MonkeyPatch) -> None:
        self.is_done = False
        self._left, self._attack, self._patch = moment, attack, patch
        for name in self.NAMES:
            patch.setattr(os, name, partial(self._call, getattr(os, name)))

    def _call(self, real: Callable[..., Any], *args: Any, **options: Any) -> Any:
        if self._left == 0 and not self.is_done:
            self.is_done = True
            self._patch.undo()
            self._attack()
        self._left -= 1
        return real(*args, **options)


@pytest.mark.parametrize("attack", [exchange_folders, exchange_files, exchange_the_folder])
@pytest.mark.parametrize("is_new", [True, False])
def test_no_exchange_at_any_moment_reaches_a_private_folder(
    tmp_path: Path, attack: Callable[[Path, Path], None], is_new: bool
) -> None:
    for moment in count():
        place = tmp_path / str(moment)
        place.mkdir()
        budgets, private = shared(place), Private(place)
        if not is_new:
            spend(budgets)
        with pytest.MonkeyPatch.context() as patch:
            exchange = partial(attack, budgets.path, private.path)
            exchanged = Exchanged(moment, exchange, patch)
            with suppress(StorageError):
                spend(budgets)
        private.require_untouched()
        if not exchanged.is_done:
            assert moment > 10
            return


def test_a_private_folder_in_the_place_of_a_new_one_is_not_opened_to_others(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    budgets = shared(tmp_path)
    private = budgets.path / "private"
    private.mkdir(mode=0o700)
    (private / "key").write_text(SECRET)
    real = os.mkdir

    def mkdir(path: Any, mode: int = 0o777, *, dir_fd: int | None = None) -> None:
        real(path, mode, dir_fd=dir_fd)
        (budgets.path / path).rmdir()
        private.rename(budgets.path / path)

    monkeypatch.setattr(os, "mkdir", mkdir)
    with pytest.raises(StorageError, match="another user replaced this folder"):
        budgets.append(SCOPE, [LINE])
    (moved,) = (path for path in budgets.path.iterdir() if (path / "key").exists())
    assert stat.S_IMODE(moved.stat().st_mode) & 0o777 == 0o700


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("name", ["project", "project/vision.jsonl", "lock"])
def test_whatever_is_in_a_place_of_ours_is_refused_or_says_nothing(
    tmp_path: Path, kind: str, name: str
) -> None:
    budgets = shared(tmp_path)
    spend(budgets)
    put(kind, budgets.path / name)
    is_harmless = (name != "project" and kind in HARMLESS) or (name, kind) == ("project", "folder")

    with bounded():
        for act in (budgets.scopes, lambda: budgets.look(SCOPE), lambda: budgets.read(SCOPE)):
            try:
                act()
            except StorageError:  # noqa: PERF203 - three of them
                assert not is_harmless
        try:
            spend(budgets)
        except StorageError as error:
            assert not is_harmless, error
            assert str(budgets.path) in str(error)
        else:
            assert is_harmless or (name, kind) == ("lock", "three gigabytes")


def test_as_open_as_the_folder_that_is_shared(tmp_path: Path) -> None:
    budgets = shared(tmp_path)
    old = os.umask(0o077)
    try:
        spend(budgets)
    finally:
        os.umask(old)
    assert stat.S_IMODE((budgets.path / "project").stat().st_mode) == 0o2770
    for path in (budgets.file(SCOPE), budgets.path / "lock"):
        assert stat.S_IMODE(path.stat().st_mode) == 0o660


@pytest.mark.parametrize(
    ("folder_mode", "lock_mode", "file_mode"),
    [
        (0o2770, 0o660, 0o660),
        (0o2775, 0o660, 0o664),
        (0o755, 0o600, 0o644),
        (0o2750, 0o600, 0o640),
        (0o1777, 0o666, 0o666),
    ],
)
def test_only_who_may_write_in_the_folder_can_hold_its_lock(
    tmp_path: Path, folder_mode: int, lock_mode: int, file_mode: int
) -> None:
    """A lock can be held by a process that has only opened the file for reading."""
    budgets = shared(tmp_path)
    budgets.path.chmod(folder_mode)
    spend(budgets)
    assert stat.S_IMODE((budgets.path / "lock").stat().st_mode) == lock_mode
    assert stat.S_IMODE(budgets.file(SCOPE).stat().st_mode) == file_mode


def test_a_lock_that_all_users_can_hold_is_told(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """An older hpcflow made it."""
    budgets = shared(tmp_path)
    budgets.path.chmod(0o2775)
    lock = budgets.path / "lock"
    lock.touch()
    lock.chmod(0o664)
    for _ in range(2):
        spend(budgets)
    (said,) = caplog.messages
    assert f"any user of this machine can lock {lock}" in said
    assert "chmod o-rwx" in said


def test_a_link_in_the_place_of_the_folder_is_told(tmp_path: Path) -> None:
    budgets = shared(tmp_path)
    link = tmp_path / "link"
    link.symlink_to(budgets.path)
    with pytest.raises(StorageError, match="is a symbolic link"):
        spend(BudgetFolder(link, "devcluster"))


DEAR: dict[str, tuple[Callable[[int], str], str]] = {
    "compacted lines": (
        lambda number: f'{{"record": "carried", "at_byte": {number}}}\n',
        "too many damaged compacted lines",
    ),
    "lines that are none": (lambda number: f"{number}\n", "too many damaged lines"),
    "attempts without end": (
        lambda number: (
            entry_line(
                *("committed", CREATED_AT, "eve", "x-20260102-abcdefgh", number + 1),
                amounts=Amounts(Decimal(1), Decimal(1), Decimal(1)),
            )
            + '{"at": 0, "record": "carried"}\n'
        ),  # which begins a new count of lines
        "too many lines",
    ),
}


@pytest.mark.parametrize(("line", "said"), DEAR.values(), ids=list(DEAR))
def test_no_file_takes_long_or_much_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, line: Callable[[int], str], said: str
) -> None:
    """The search for each damaged compacted line reads a MiB: a file of one MiB took minutes."""
    monkeypatch.setattr(budget_file, "_MOST_LINES", 20_000)
    budgets = shared(tmp_path)
    spend(budgets)
    with budgets.file(SCOPE).open("a") as file:
        file.writelines(line(number) for number in range(30_000))
    with pytest.raises(StorageError, match=said):
        budgets.read(SCOPE)


def _nested(months: int) -> str:
    opening = (
        '{"unpriced": {}, "months": {"2026-01": ' * months
        + '{"unpriced": {}'
        + "}" * (2 * months + 1)
    )
    return f'{LINE.rstrip()[:-1]}, "opening": {opening}}}\n'


LONG = "x" * 5000
COMMITTED = json.loads(entry_line("committed", CREATED_AT, "eve", "x-20260102-abcdefgh", 1))
COMMITTED["amounts"] = {}


@pytest.mark.parametrize("field", ["by", "how", "why", "record", "on_exceeded", "at"])
def test_a_line_with_a_deep_value_is_skipped(tmp_path: Path, field: str) -> None:
    budgets = shared(tmp_path)
    spend(budgets)
    deep = "[" * 900 + "]" * 900
    with budgets.file(SCOPE).open("a") as file:
        file.write(f'{LINE.rstrip()[:-1]}, "{field}": {deep}}}\n')
    spend(budgets)
    assert budgets.read(SCOPE).skipped == 1


def test_a_month_has_no_months(tmp_path: Path) -> None:
    """The deepest of these lines are skipped as a whole, as too deep for JSON. Which ones depends
    on the stack of the reader.
    """
    budgets = shared(tmp_path)
    spend(budgets)
    for months in (2, *range(300, 500, 10)):
        with budgets.file(SCOPE).open("a") as file:
            file.write(_nested(months))
        (month,) = budgets.read(SCOPE).opening.months.values()
        assert not month.months


@pytest.mark.parametrize(
    "line",
    [
        {**COMMITTED, "by": LONG},
        {**COMMITTED, "home": LONG},
        {**COMMITTED, "home": [LONG]},
        *({**json.loads(LINE), field: LONG} for field in ("by", "how", "why")),
    ],
)
def test_a_line_with_too_long_a_text_is_skipped(tmp_path: Path, line: dict[str, Any]) -> None:
    budgets = shared(tmp_path)
    spend(budgets)
    with budgets.file(SCOPE).open("a") as file:
        file.write(json.dumps(line) + "\n")
    assert budgets.read(SCOPE).skipped == 1


def test_lines_that_would_fill_the_memory_are_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budget_file, "_MOST_BYTES", 1 << 20)
    budgets = shared(tmp_path)
    spend(budgets)
    with budgets.file(SCOPE).open("a") as file:
        for number in range(1, 1000):
            file.write(json.dumps({**COMMITTED, "attempt": number, "home": LONG[:4000]}) + "\n")
    with pytest.raises(StorageError, match="or 1 MiB"):
        budgets.read(SCOPE)


def test_a_file_that_is_read_on_and_on_does_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each look reads only what was added, and few lines of it."""
    monkeypatch.setattr(budget_file, "_MOST_MEMORY", 1 << 20)
    budgets = shared(tmp_path)
    spend(budgets)
    for first in range(1, 1200, 400):
        assert len(budgets.look(SCOPE).entries) < 1000
        write_attempts(budgets, SCOPE, first, 400)
    for _ in range(2):
        with pytest.raises(StorageError, match="too many attempts and changes"):
            budgets.look(SCOPE)
    assert len(budgets.read(SCOPE, whole=True).entries) == 1200
    write_attempts(budgets, SCOPE, 1201, 1200)
    with pytest.raises(StorageError, match="too many attempts and changes"):
        budgets.read(SCOPE, whole=True)


def write_attempts(
    budgets: BudgetFolder, scope: Scope, first: int, count: int, **more: Any
) -> None:
    file = budgets.file(scope)
    file.parent.mkdir(exist_ok=True)
    with file.open("a") as opened:
        for number in range(first, first + count):
            opened.write(json.dumps({**COMMITTED, "attempt": number, **more}) + "\n")


#: One of these makes Python keep 4 bytes for each character.
WIDE = "\U0001f600"


@pytest.mark.parametrize(
    "more",
    [
        {},
        {"amounts": dict.fromkeys(UNITS, "123456.12345678"), "limit_s": 86400},
        {"by": WIDE * 250},
        {"home": WIDE + "x" * 4000},
        {"home": "x" * 4000},
    ],
    ids=["short", "long", "names", "wide paths", "paths"],
)
def test_the_memory_of_a_budget_is_known(tmp_path: Path, more: dict[str, Any]) -> None:
    budgets = shared(tmp_path)
    write_attempts(budgets, SCOPE, 1, 1000, **more)
    tracemalloc.start()
    try:
        budget = budgets.read(SCOPE)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert len(budget.entries) == 1000
    assert taken < 1.1 * budget.memory < 3 * taken


def test_the_memory_of_changes_and_months_is_known(tmp_path: Path) -> None:
    budgets = shared(tmp_path)
    sums = {"cost_usd": "1.12345", "unpriced": {"cost_usd": 5000}}
    months = {f"{year}-{month:02d}": sums for year in range(1000, 1100) for month in range(1, 13)}
    line = {**json.loads(LINE), "why": WIDE * 500, "opening": {**sums, "months": months}}
    budgets.file(SCOPE).parent.mkdir()
    budgets.file(SCOPE).write_text(f"{json.dumps(line)}\n" * 20)
    tracemalloc.start()
    try:
        budget = budgets.read(SCOPE)
        taken = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert (len(budget.changes), len(budget.opening.months)) == (20, 1200)
    assert taken < 1.1 * budget.memory < 3 * taken


def test_many_budgets_do_not_fill_the_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The limit of a file was no limit of a folder: four files of 60 MB took a GB."""
    monkeypatch.setattr(folder, "MOST_MEMORY", 4 << 20)
    folder._CACHE.clear()
    budgets = shared(tmp_path)
    scopes = [Scope("user", f"user{number}") for number in range(12)]
    for scope in scopes:
        write_attempts(budgets, scope, 1, 100, home=WIDE + "x" * 4000)
    tracemalloc.start()
    try:
        for _ in range(2):
            for scope in scopes:
                assert len(budgets.look(scope).entries) == 100
        assert tracemalloc.get_traced_memory()[0] < 6 << 20
    finally:
        tracemalloc.stop()
    assert 1 < len(folder._CACHE) < 12


def test_a_teammate_who_holds_the_lock_of_a_budget_file_holds_up_nobody(tmp_path: Path) -> None:
    """Whoever can read a file can lock it for as long as they like. ``lock`` is waited for, then
    refused."""
    budgets = shared(tmp_path)
    spend(budgets)
    held = budgets.file(SCOPE).open("rb")
    with held, bounded():
        fcntl.flock(held, fcntl.LOCK_SH)
        spend(budgets)
        budgets.append(Scope("user", "ada"), [LINE])
    held = (budgets.path / "lock").open("rb")
    with held, bounded(), pytest.raises(StorageError, match="has held"):
        fcntl.flock(held, fcntl.LOCK_SH)
        spend(budgets)


def test_a_line_without_end_is_read_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each portion copied all of the line before it: a sparse file of a GiB took 20 s a command."""
    monkeypatch.setattr(budget_file, "_PORTION_BYTES", 1 << 12)
    budgets = shared(tmp_path)
    spend(budgets)
    with budgets.file(SCOPE).open("ab") as file:
        file.truncate(200 << 20)
        file.write(b"\n" + LINE.encode())
    with bounded():
        assert budgets.read(SCOPE, whole=True).skipped == 1


def test_a_budget_of_half_a_gigabyte_costs_next_to_no_memory(tmp_path: Path) -> None:
    budgets = shared(tmp_path)
    spend(budgets)
    with budgets.file(SCOPE).open("ab") as file:
        file.truncate(500 << 20)
        file.write(b"\n" + LINE.encode())
    tracemalloc.start()
    try:
        budget = budgets.read(SCOPE)
        assert (budget.lines, budget.skipped, len(budget.changes)) == (3, 1, 2)
        assert tracemalloc.get_traced_memory()[1] < 80 << 20
    finally:
        tracemalloc.stop()
