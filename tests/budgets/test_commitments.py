"""What is committed before an attempt is sent, and what becomes of it."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from hpcflow.errors import (
    BudgetError,
    SchedulerUnavailable,
    ScratchError,
    SubmissionInDoubt,
    SubmissionRefused,
)
from hpcflow.testing.fake_scheduler import Fault
from tests.budgets.desk import VISION, BudgetDesk


@pytest.fixture
def desk(tmp_path: Path) -> BudgetDesk:
    return BudgetDesk(tmp_path)


def test_without_a_budget_nothing_is_written(desk: BudgetDesk) -> None:
    desk.launch()
    desk.look()
    assert not desk.settings.home.budgets.exists()


def test_a_hard_budget_stops_the_next_submission_and_says_what_to_do(desk: BudgetDesk) -> None:
    desk.set(hard="7", soft="5")
    desk.launch()
    desk.launch()
    assert desk.usd() == ("0.00", "6.00")
    before = list(desk.settings.home.runs.iterdir())
    with pytest.raises(BudgetError) as caught:
        desk.launch()
    said = str(caught.value)
    assert caught.value.exit_code == 2
    assert "of 7.00 USD, 0.00 USD are spent, 6.00 USD committed to pending and" in said
    assert "1.00 USD left; this attempt may take 3.00 USD in its 30m" in said
    assert "hpcflow budget set project:vision --hard 9.00" in said
    assert "--set resources.time_limit=10m" in said
    assert "or wait: pending and running jobs release what they do not use" in said
    assert list(desk.settings.home.runs.iterdir()) == before, "nothing of it is left"
    assert len(desk.alive()) == 2


def test_what_a_job_may_cost_after_its_time_limit_is_committed_too(desk: BudgetDesk) -> None:
    """Slurm looks at limits every 30 s, and gives processes another 30 s to end."""
    desk.site = desk.site.model_copy(update={"time_limit_overrun_s": 60})
    desk.set(hard="3.10")
    launched = desk.launch()
    assert desk.usd() == ("0.00", "3.10")
    desk.train(launched.job_id, minutes=31, state="TIMEOUT")
    assert desk.usd() == ("3.10", "0.00"), "all of it, and no more"


def test_advice_of_a_shorter_limit_leaves_room_for_what_comes_after_it(desk: BudgetDesk) -> None:
    desk.site = desk.site.model_copy(update={"time_limit_overrun_s": 60})
    desk.set(hard="1.10")
    with pytest.raises(BudgetError) as caught:
        desk.launch()
    said = str(caught.value)
    assert "may take 3.10 USD in its 30m 00s and up to 1m 00s after them" in said
    assert "--set resources.time_limit=10m" in said
    desk.config.write_text(desk.config.read_text().replace("30m", "10m"))
    desk.launch()
    assert desk.usd() == ("0.00", "1.10")


def test_a_bill_takes_the_place_of_what_was_committed(desk: BudgetDesk) -> None:
    desk.set(hard="5")
    launched = desk.launch()
    with pytest.raises(BudgetError):
        desk.launch()
    desk.train(launched.job_id, minutes=10)
    assert desk.usd() == ("1.00", "0.00")
    assert [line["record"] for line in desk.lines()] == [
        *("set", "committed", "began"),
        *("settled", "settled"),  # by its times, and then by its bill
    ]
    desk.launch()
    assert desk.usd() == ("1.00", "3.00")


def test_what_slurm_refuses_is_given_back(desk: BudgetDesk) -> None:
    desk.set(hard="3")
    desk.slurm.faults.append(Fault.REFUSED)
    with pytest.raises(SubmissionRefused):
        desk.launch()
    assert desk.usd() == ("0.00", "0.00")
    desk.slurm.faults.append(Fault.UNAVAILABLE)
    with pytest.raises(SchedulerUnavailable) as caught:
        desk.launch()
    assert desk.usd() == ("0.00", "0.00")
    kept = desk.settings.home.run_dir(Path(str(caught.value.details["run_dir"])))
    assert desk.resume(kept).attempt == 1, "its number is free again, and so is its money"
    assert desk.usd() == ("0.00", "3.00")


def test_what_is_in_doubt_stays_committed_until_somebody_knows(desk: BudgetDesk) -> None:
    desk.set(hard="3")
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    with pytest.raises(SubmissionInDoubt):
        desk.launch()
    assert desk.usd() == ("0.00", "3.00")
    desk.slurm.is_controller_down = False
    desk.look()
    assert desk.usd() == ("0.00", "3.00"), "its job was found"
    desk.slurm.end(desk.alive()[0], "CANCELLED by 1000")
    desk.look()
    desk.clock.advance(60)
    desk.look()
    assert desk.usd() == ("0.00", "0.00"), "it never ran"


def test_what_was_withdrawn_is_given_back_by_whoever_looks(desk: BudgetDesk) -> None:
    desk.set(hard="3")
    desk.slurm.faults.append(Fault.LOST_REQUEST)
    with pytest.raises(Exception, match="no job of this name exists"):
        desk.launch()
    desk.look()
    assert desk.usd() == ("0.00", "0.00")


def test_every_budget_that_counts_an_attempt_must_have_room(desk: BudgetDesk) -> None:
    desk.set("project:vision", hard="100")
    user = f"user:{desk.settings.user}"
    desk.set(user, hard="2", unit="gpu_hours")
    launched = desk.launch()
    desk.launch()
    with pytest.raises(BudgetError, match=rf"budget {user} has no room: of 2.00 GPU hours"):
        desk.launch()
    assert desk.usd() == ("0.00", "6.00"), "nothing was committed to what another refused"
    desk.set(f"run:{launched.run_id}", hard="4")
    assert desk.usd(f"run:{launched.run_id}") == ("0.00", "3.00"), "it runs already"
    desk.train(launched.job_id, minutes=20, state="PREEMPTED")
    desk.set(user, hard="200", unit="gpu_hours")
    with pytest.raises(BudgetError, match=r"budget run:small-\S+ has no room: of 4.00 USD, 2.00"):
        desk.resume(desk.dir_of(launched))


def test_a_budget_begins_with_what_was_spent_before(desk: BudgetDesk) -> None:
    first, second = desk.launch(), desk.launch()
    desk.train(first.job_id, minutes=10)
    assert desk.set(hard="3").used("cost_usd", desk.clock.now()).spent == 1
    assert desk.usd() == ("1.00", "3.00"), "what runs counts with all that it may take"
    with pytest.raises(BudgetError, match=r"\(1.00 USD beyond it\)"):
        desk.launch()
    desk.train(second.job_id, minutes=15)
    assert desk.usd() == ("2.50", "0.00")


def test_what_a_budget_began_with_is_not_settled_once_more(desk: BudgetDesk) -> None:
    first = desk.launch()
    desk.train(first.job_id, minutes=10, state="PREEMPTED")
    desk.set(hard="100")
    second = desk.resume(desk.dir_of(first))
    desk.slurm.start(second.job_id)
    desk.look()
    desk.clock.advance(600)
    desk.slurm.end(second.job_id, "COMPLETED")
    desk.look()
    desk.clock.advance(60)
    with desk.budgets.lock():  # so that the bills of this run are settled at a later look
        assert any("another process has held" in each for each in desk.look())
    desk.look()
    assert desk.usd() == ("2.00", "0.00")


def test_a_job_that_was_never_committed_to_counts_from_the_next_look(desk: BudgetDesk) -> None:
    launched = desk.launch()
    desk.set(hard="10")
    file = desk.budgets.file(VISION)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text(lines[0])  # as one that was sent in the moment in which the budget was set
    assert desk.usd() == ("0.00", "0.00")
    desk.look()
    assert desk.usd() == ("0.00", "3.00")
    desk.train(launched.job_id, minutes=10)
    assert desk.usd() == ("1.00", "0.00")


def test_an_estimate_is_corrected_once_accounting_speaks(desk: BudgetDesk) -> None:
    desk.set(hard="10")
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    desk.look()
    desk.clock.advance(600)
    desk.slurm.end(launched.job_id, "COMPLETED")
    desk.look()
    records, desk.slurm._records = desk.slurm._records, list  # type: ignore[method-assign]
    desk.clock.advance(10)
    desk.look()
    settled = [line for line in desk.lines() if line["record"] == "settled"]
    assert [line["is_final"] for line in settled] == [False]
    assert desk.usd() == ("1.00", "0.00")
    desk.slurm._records = records  # type: ignore[method-assign]
    desk.clock.advance(60)
    desk.look()
    settled = [line for line in desk.lines() if line["record"] == "settled"]
    assert [line["is_final"] for line in settled] == [False, True]
    assert desk.usd() == ("1.00", "0.00")
    desk.clock.advance(3600)
    desk.look()
    assert len([line for line in desk.lines() if line["record"] == "settled"]) == 2


def test_a_budget_of_a_month_begins_anew_with_the_next(desk: BudgetDesk) -> None:
    desk.set(hard="3.50", per_month=True)
    launched = desk.launch()
    desk.train(launched.job_id, minutes=10)
    with pytest.raises(BudgetError, match="or wait for the next month, in UTC"):
        desk.launch()
    desk.clock.advance(timedelta(days=31).total_seconds())
    desk.launch()
    assert desk.usd() == ("0.00", "3.00")


def test_a_purged_run_takes_what_its_job_used(desk: BudgetDesk) -> None:
    desk.set(hard="10")
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    desk.look()
    shutil.rmtree(launched.run_dir)
    desk.look()
    assert desk.usd() == ("0.00", "3.00"), "it may still need all of it"
    desk.clock.advance(20 * 60)
    desk.slurm.end(launched.job_id, "COMPLETED")
    desk.look()
    assert desk.usd() == ("2.00", "0.00"), "six dollars an hour"


def test_a_torn_line_says_nothing_and_a_folder_that_is_closed_stops_everything(
    desk: BudgetDesk,
) -> None:
    desk.set(hard="7")
    with desk.budgets.file(VISION).open("a") as file:
        file.write('{"record": "committed", "at": "2026-')
    desk.launch()
    assert desk.usd() == ("0.00", "3.00")
    assert desk.budget().skipped == 1
    desk.budgets.file(VISION).unlink()
    desk.budgets.file(VISION).mkdir()
    with pytest.raises(ScratchError, match="it is not a regular file"):
        desk.launch()
    assert len(desk.alive()) == 1


def test_what_is_no_line_of_a_budget_is_skipped(desk: BudgetDesk) -> None:
    desk.set(hard="7")
    bad = [
        "[]",
        '{"record": "committed"}',
        '{"record": "committed", "at": "x", "by": "a", "run_id": "r", "attempt": 1}',
        json.dumps({**_line(desk), "amounts": {"cost_usd": "-5"}}),
        json.dumps({**_line(desk), "amounts": {"cost_usd": "NaN"}}),
        json.dumps({**_line(desk), "record": "gift"}),
    ]
    with desk.budgets.file(VISION).open("a") as file:
        file.write("\n".join(bad) + "\n")
    assert desk.budget().skipped == len(bad)
    assert desk.usd() == ("0.00", "0.00")


def _line(desk: BudgetDesk) -> dict[str, object]:
    return {
        "record": "committed",
        "at": "2026-03-01T00:00:00.000Z",
        "by": desk.settings.user,
        "run_id": "r",
        "attempt": 1,
        "amounts": {"cost_usd": "5"},
    }
