"""Budget lines of a teammate with extreme values, and the commands that read them."""

from __future__ import annotations

import json
import tracemalloc
from pathlib import Path

import pytest

from tests.budgets.extremes import ATTACKS, COMMITTED, EXTREME, attack
from tests.cli.desk import Desk
from tests.cli.test_budget import config, mine

__all__ = ["mine"]  # a fixture


@pytest.mark.parametrize("name", ATTACKS)
def test_no_command_fails_over_the_lines_of_a_teammate(mine: Desk, home: Path, name: str) -> None:
    budgets = home / "budgets"
    for number, value in enumerate(EXTREME):
        attack(budgets / "project" / f"p{number}.jsonl", ATTACKS[name], value)
    mine.say("budget", "ls")
    assert len(mine.json("budget", "ls")["budgets"]) == len(EXTREME)
    mine.say("daemon", "--once")
    for number in range(4):
        mine.say("budget", "show", f"project:p{number}")
        mine.json("budget", "show", f"project:p{number}")
        attack(budgets / "project" / "vision.jsonl", ATTACKS[name], EXTREME[number])
        for options in ((), ("--dry-run",)):
            code = mine.code("run", config(mine, "true"), *options)
            assert code in (0, 2), "sent, or refused as there is no room"


def test_a_budget_that_cannot_be_read_any_more_is_a_warning_after_the_job_was_sent(
    mine: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    mine.say("budget", "set", "project:vision", "--soft", "1")

    def fails(*_: object) -> list[str]:
        raise ValueError("Exceeds the limit (4300 digits) for integer string conversion")

    monkeypatch.setattr("hpcflow.launch.committing.warnings_of", fails)
    assert "budget project:vision: ValueError" in mine.error("run", config(mine, "true"), code=0)


def test_a_list_of_large_budgets_takes_the_memory_of_one(mine: Desk, home: Path) -> None:
    mine.say("budget", "set", "user:eve0", "--hard", "500")
    first = (home / "budgets" / "user" / "eve0.jsonl").read_text()
    for user in range(8):
        with (home / "budgets" / "user" / f"eve{user}.jsonl").open("w") as file:
            file.write(first)
            for number in range(1, 500):
                line = {
                    **COMMITTED,
                    "by": "eve",
                    "attempt": number,
                    "home": "\U0001f600" + "x" * 4000,
                }
                file.write(json.dumps(line) + "\n")
    mine.json("budget", "ls")["budgets"]
    tracemalloc.start()
    try:
        found = mine.json("budget", "ls")["budgets"]
        assert tracemalloc.get_traced_memory()[1] < 3 * 8 << 20
    finally:
        tracemalloc.stop()
    assert [each["amounts"]["cost_usd"]["committed"] for each in found] == ["499"] * 8
