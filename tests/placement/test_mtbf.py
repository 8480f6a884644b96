"""How often to save follows from what the ledger has seen, as far as it has seen anything."""

from __future__ import annotations

import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from hpcflow.errors import LedgerError
from hpcflow.launch.plan import make_plan
from hpcflow.ledger.ends import Observed
from hpcflow.placement.mtbf import mtbf_s
from tests.launch.desk import Desk

DAY_S = 24 * 3600
AUTO = "checkpoint: {interval: auto}\n"


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


@pytest.mark.parametrize(
    ("hours", "ends", "expected_h"),
    [
        (0, 0, 24),  # nothing is known
        (1, 1, 12.5),  # bad luck, perhaps
        (24, 0, 48),
        (1000, 100, 1024 / 101),  # it is so
        (10_000, 0, 10_024),
        (0, 10**6, 1 / 3600),  # never nothing, which nobody could divide by
    ],
)
def test_much_that_was_seen_outweighs_what_was_expected(
    hours: float, ends: int, expected_h: float
) -> None:
    assert mtbf_s(Observed(hours * 3600, ends)) == round(expected_h * 3600)


def lines(script: str) -> list[str]:
    return [line for line in script.splitlines() if "INTERVAL_S=" in line or "MTBF_S=" in line]


def planned(desk: Desk) -> list[str]:
    plan = make_plan(
        desk.config, settings=desk.settings, clock=desk.clock, site=desk.site, overrides=()
    )
    return lines(plan.script)


def test_a_config_that_does_not_ask_gets_no_answer(desk: Desk) -> None:
    assert planned(desk) == ["export HPCFLOW_CHECKPOINT_INTERVAL_S=600"]


def test_a_first_run_gets_what_is_expected_and_makes_no_ledger(desk: Desk) -> None:
    shutil.rmtree(desk.settings.home.path)
    desk.config.write_text(desk.config.read_text() + AUTO)
    assert planned(desk) == [
        "export HPCFLOW_CHECKPOINT_INTERVAL_S=auto",
        f"export HPCFLOW_MTBF_S={DAY_S}",
    ]
    assert not desk.settings.home.path.exists()


def test_each_attempt_gets_what_is_known_when_it_is_sent(desk: Desk) -> None:
    desk.config.write_text(desk.config.read_text() + AUTO)
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    desk.slurm.start(launched.job_id)
    desk.look()
    desk.clock.advance(6 * 3600)
    desk.slurm.preempt(launched.job_id)
    desk.look()

    desk.resume(run_dir)

    script = run_dir.attempt(2).script.read_text()
    assert lines(script)[1] == f"export HPCFLOW_MTBF_S={(DAY_S + 6 * 3600) // 2}"
    assert planned(desk)[1] == f"export HPCFLOW_MTBF_S={(DAY_S + 6 * 3600) // 2}"
    desk.clock.advance(timedelta(days=31).total_seconds())
    assert planned(desk)[1] == f"export HPCFLOW_MTBF_S={DAY_S}", "that was long ago"


def test_a_ledger_that_is_down_is_no_reason_not_to_train(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(_url: str) -> None:
        raise LedgerError("it does not answer")

    desk.config.write_text(desk.config.read_text() + AUTO)
    desk.launch()
    desk.look()
    monkeypatch.setattr("hpcflow.ledger.store.open_ledger", refuse)
    assert planned(desk)[1] == f"export HPCFLOW_MTBF_S={DAY_S}"
