"""A budget in the config of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.budgets.records import OnExceeded
from hpcflow.cli.output import next_words
from hpcflow.errors import BudgetError, SpecError
from hpcflow.launch.plan import make_plan
from hpcflow.launch.run import rehearse
from hpcflow.storage.rundir import read_run
from tests.budgets.desk import BudgetDesk


@pytest.fixture
def desk(tmp_path: Path) -> BudgetDesk:
    return BudgetDesk(tmp_path)


def test_all_attempts_of_a_run_together_take_no_more(desk: BudgetDesk) -> None:
    desk.config.write_text(desk.config.read_text() + "budget: {cost_usd: 4}\n")
    launched, other = desk.launch(), desk.launch()
    scope = f"run:{launched.run_id}"
    assert desk.usd(scope) == ("0.00", "3.00")
    assert desk.usd(f"run:{other.run_id}") == ("0.00", "3.00"), "each has its own"
    (change,) = desk.budget(scope).changes
    assert (change.how, change.by) == ("config", desk.settings.user)
    desk.clock.advance(1200)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=1)
    for _ in range(3):
        desk.tick()
        desk.clock.advance(60)
    seen = desk.seen(launched.run_id)
    assert next_words(seen.run) == f"wait: budget {scope} of 4.00 USD has no room for 3.00 USD"
    with pytest.raises(BudgetError):
        desk.resume(desk.dir_of(launched))
    assert desk.resume(desk.dir_of(launched), overrides=["budget.cost_usd=5.5"])
    assert [change.how for change in desk.budget(scope).changes] == ["config", "config"]
    assert desk.usd(scope) == ("2.00", "3.00")


def test_what_is_more_than_all_of_it_is_refused_before_anything_is_made(desk: BudgetDesk) -> None:
    desk.config.write_text(desk.config.read_text() + "budget: {cost_usd: 2}\n")
    plan = make_plan(desk.config, settings=desk.settings, clock=desk.clock, site=desk.site)
    with pytest.raises(BudgetError):
        rehearse(plan, settings=desk.settings, clock=desk.clock)
    with pytest.raises(BudgetError, match=r"--set resources.time_limit=20m"):
        desk.launch()
    assert desk.alive() == []
    assert list(desk.budgets.path.rglob("*.jsonl")) == []


def test_a_budget_that_the_config_does_not_ask_for_any_more_is_gone(desk: BudgetDesk) -> None:
    desk.config.write_text(desk.config.read_text() + "budget: {cost_usd: 4}\n")
    launched = desk.launch()
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.look()
    desk.resume(desk.dir_of(launched), overrides=["budget=null"])
    budget = desk.budget(f"run:{launched.run_id}")
    assert budget.terms is None
    assert [(each.how, each.terms is None) for each in budget.changes] == [
        ("config", False),
        ("config", True),
    ]


def test_what_a_person_has_set_since_stays(desk: BudgetDesk) -> None:
    more = "budget: {gpu_hours: 1, on_exceeded: save_and_stop}\n"
    desk.config.write_text(desk.config.read_text() + more)
    launched = desk.launch()
    scope = f"run:{launched.run_id}"
    terms = desk.budget(scope).terms
    assert terms is not None
    assert terms.on_exceeded is OnExceeded.SAVE_AND_STOP
    desk.set(scope, hard="100")
    desk.clock.advance(600)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=1)
    for _ in range(3):
        desk.tick()
        desk.clock.advance(60)
    assert len(desk.alive()) == 1
    assert [change.how for change in desk.budget(scope).changes] == ["config", "command"]


def test_a_budget_that_comes_later_begins_with_what_was_spent(desk: BudgetDesk) -> None:
    launched = desk.launch()
    desk.clock.advance(1200)
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.look()
    desk.clock.advance(60)
    desk.look()
    desk.resume(desk.dir_of(launched), overrides=["budget.cost_usd=5.5"])
    assert desk.usd(f"run:{launched.run_id}") == ("2.00", "3.00")


def test_an_estimate_that_a_budget_began_with_is_corrected_and_not_counted_twice(
    desk: BudgetDesk,
) -> None:
    launched = desk.launch()
    scope = f"run:{launched.run_id}"
    desk.slurm.start(launched.job_id)
    desk.look()
    desk.clock.advance(1200)
    desk.slurm.end(launched.job_id, "PREEMPTED")
    records, desk.slurm._records = desk.slurm._records, list  # type: ignore[method-assign]
    for _ in range(2):
        desk.look()
        desk.clock.advance(10)
    desk.resume(desk.dir_of(launched), overrides=["budget.cost_usd=5.5"])
    assert desk.usd(scope) == ("2.00", "3.00"), "by its times"
    desk.slurm._records = records  # type: ignore[method-assign]
    desk.clock.advance(60)
    desk.look()
    assert desk.usd(scope) == ("2.00", "3.00"), "by accounting"


def test_what_has_no_bill_yet_counts_with_all_that_it_may_take(desk: BudgetDesk) -> None:
    launched = desk.launch()
    run_dir, scope = desk.dir_of(launched), f"run:{launched.run_id}"
    desk.slurm.start(launched.job_id)
    desk.look()
    desk.clock.advance(1200)
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.look()
    with pytest.raises(BudgetError, match=r"3\.00 USD committed"):
        desk.resume(run_dir, overrides=["budget.cost_usd=5.5"])
    assert read_run(run_dir).spec.budget is None, "nothing was changed"
    desk.clock.advance(60)
    desk.look()
    desk.resume(run_dir, overrides=["budget.cost_usd=5.5"])
    assert desk.usd(scope) == ("2.00", "3.00")


@pytest.mark.parametrize(
    ("said", "problem"),
    [
        ("{cost_usd: 0}", "must be more than 0"),
        ("{cost_usd: 1e-35}", "at most 8 decimal places"),
        ("{cost_usd: '1e-9999999999'}", "at most 8 decimal places"),
        ("{cost_usd: -3}", "must be more than 0"),
        ("{cost_usd: many}", "expected an amount like 50 or 12.50"),
        ("{cost_usd: true}", "expected an amount like 50 or 12.50"),
        ("{cost_eur: 3}", "cost_eur"),
        ("{on_exceeded: kill}", "on_exceeded"),
    ],
)
def test_what_is_no_budget(desk: BudgetDesk, said: str, problem: str) -> None:
    desk.config.write_text(desk.config.read_text() + f"budget: {said}\n")
    with pytest.raises(SpecError, match=problem):
        desk.launch()
