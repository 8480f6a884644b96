"""A daemon whose runs a budget has no room for: they wait, and go on by themselves."""

from __future__ import annotations

from collections.abc import Sequence
from decimal import Decimal
from pathlib import Path

import pytest

from hpcflow.cli.output import next_words
from hpcflow.errors import BudgetError, StorageError
from hpcflow.model.journal import Decided, JournalRecord, Standby, Submitted
from hpcflow.model.state import RunState
from hpcflow.requeue.budget_facts import BudgetFacts
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.budgets.desk import VISION, BudgetDesk
from tests.requeue.standbys import begins, waiting_standby
from tests.run_dirs import run_dir_at


@pytest.fixture
def desk(tmp_path: Path) -> BudgetDesk:
    return BudgetDesk(tmp_path)


def decided(run_dir: Path) -> list[tuple[str, str]]:
    records = journal.read(run_dir_at(run_dir))
    return [(each.action, each.rule) for each in records if isinstance(each, Decided)]


def test_a_preempted_run_waits_for_its_budget_and_goes_on_once_it_is_raised(
    desk: BudgetDesk,
) -> None:
    desk.set(hard="5")
    launched = desk.launch()
    desk.tick()
    desk.set("project:vision", hard="3.50")
    desk.clock.advance(900)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    for _ in range(5):
        desk.clock.advance(60)
        desk.tick()
    assert desk.alive() == []
    assert desk.usd() == ("1.50", "0.00")
    seen = desk.seen(launched.run_id)
    assert seen.run.state is RunState.WAITING
    words = "wait: budget project:vision of 3.50 USD has no room for 3.00 USD"
    assert next_words(seen.run) == words
    assert decided(launched.run_dir) == [("wait", "over_budget")], "said once"
    desk.set("project:vision", hard="4.50")
    desk.clock.advance(60)
    report = desk.tick()
    assert list(report.sent) == [launched.run_id]
    assert desk.usd() == ("1.50", "3.00")
    assert desk.seen(launched.run_id).run.next_action is None
    desk.assert_rebuilt_alike(launched.run_id)


def test_a_run_that_waits_goes_on_when_other_jobs_left_money(desk: BudgetDesk) -> None:
    desk.set(hard="6")
    first, second = desk.launch(), desk.launch()
    desk.tick()
    desk.clock.advance(60)
    desk.slurm.end(first.job_id, "PREEMPTED")
    desk.tick()
    desk.set(hard="5")
    desk.clock.advance(60)
    assert desk.tick().sent == {}
    desk.slurm.end(second.job_id, "COMPLETED")
    desk.tick()
    desk.clock.advance(60)
    desk.tick()
    desk.tick()
    assert len(desk.alive()) == 1


def test_of_two_that_wait_only_one_gets_what_is_left(desk: BudgetDesk) -> None:
    desk.set(hard="6")
    runs = [desk.launch(), desk.launch()]
    desk.tick()
    desk.set(hard="3")
    for each in runs:
        desk.slurm.end(each.job_id, "PREEMPTED")
    for _ in range(3):
        desk.clock.advance(60)
        report = desk.tick()
        assert report.problems == {}
    assert len(desk.alive()) == 1
    assert sorted(desk.usd()) == ["0.00", "3.00"]


def test_a_standby_has_room_of_its_own_or_there_is_none(desk: BudgetDesk) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    desk.set(hard="5")
    launched = desk.launch()
    begins(desk, launched, 1, launched.job_id)
    report = desk.tick()
    assert (report.standbys, report.problems) == ({}, {})
    assert desk.usd() == ("0.00", "3.00")
    desk.set(hard="6")
    assert list(desk.tick().standbys) == [launched.run_id]
    assert desk.usd() == ("0.00", "6.00")
    desk.slurm.end(launched.job_id, "COMPLETED")
    desk.clock.advance(400)
    desk.tick()
    desk.clock.advance(400)
    desk.tick()
    assert desk.alive() == []
    assert desk.usd()[1] == "0.00", "what was committed to the standby is free again"


def test_a_standby_that_goes_on_asks_for_nothing_more(desk: BudgetDesk) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    desk.set(hard="6")
    desk.slurm._starts_at_once = False
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    begins(desk, launched, 1, launched.job_id)
    standby = desk.tick().standbys[launched.run_id]
    desk.clock.advance(1200)
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.tick()
    assert desk.tick().problems == {}
    assert desk.alive() == [standby]
    desk.clock.advance(60)
    desk.tick()
    assert desk.usd() == ("2.00", "3.00")


def test_a_life_that_slurm_began_anew_is_counted_too(desk: BudgetDesk) -> None:
    desk.set(hard="3")
    launched = desk.launch()
    begins(desk, launched, 1, launched.job_id)
    desk.tick()
    desk.clock.advance(600)
    desk.slurm.requeue(launched.job_id)
    desk.tick()
    desk.clock.advance(200)
    desk.tick()
    desk.tick()
    assert len(desk.seen(launched.run_id).attempts) == 2
    assert desk.usd() == ("1.00", "3.00"), "it runs, whether there is room or not"


def test_a_standby_whose_job_exists_keeps_its_share_although_that_could_not_be_written(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    desk.set(hard="6.50")
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=False)
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    begins(desk, launched, 1, launched.job_id)
    append_all = journal.append_all

    def full(run_dir: RunDir, records: Sequence[JournalRecord], *, begins: bool = False) -> int:
        for record in records:
            if isinstance(record, Standby) and isinstance(record.says, Submitted):
                raise StorageError("No space left")
        return append_all(run_dir, records, begins=begins)

    with monkeypatch.context() as patch:
        patch.setattr(journal, "append_all", full)
        assert "No space left" in str(desk.tick().problems)
    assert len(desk.alive()) == 2
    assert desk.usd() == ("0.00", "6.00")
    for _ in range(4):
        desk.clock.advance(120)
        desk.tick()
    assert desk.usd()[1] == "6.00"
    with pytest.raises(BudgetError):
        desk.launch()


def test_a_run_that_needs_more_memory_waits_until_there_is_room_for_that(desk: BudgetDesk) -> None:
    partition = desk.site.partitions["gpu"]
    assert partition.price is not None
    price = partition.price.model_copy(update={"mem_gb_hour_usd": Decimal("0.10")})
    dear = partition.model_copy(update={"price": price})
    desk.site = desk.site.model_copy(update={"partitions": {**desk.site.partitions, "gpu": dear}})
    text = desk.config.read_text().replace("account: physics", "account: physics, mem: 2G")
    desk.config.write_text(text)
    desk.set(hard="3.20")
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    desk.tick()
    desk.clock.advance(600)
    desk.slurm.end(launched.job_id, "OUT_OF_MEMORY")
    desk.tick()
    desk.clock.advance(120)
    desk.tick()
    desk.set(hard="4.18")  # for as much memory as before
    for _ in range(5):
        desk.clock.advance(120)
        report = desk.tick()
        assert (report.sent, report.problems) == ({}, {})
    assert decided(launched.run_dir)[-1] == ("wait", "over_budget")
    written = len(journal.read(desk.dir_of(launched)))
    desk.clock.advance(120)
    desk.tick()
    assert len(journal.read(desk.dir_of(launched))) == written, "said once"
    desk.set(hard="4.30")
    desk.clock.advance(120)
    assert list(desk.tick().sent) == [launched.run_id]


def test_whoever_is_second_waits_for_the_budget_from_then_on(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.set(hard="4")
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    desk.tick()
    desk.set(hard="3")
    desk.clock.advance(600)
    desk.slurm.end(launched.job_id, "PREEMPTED")
    with monkeypatch.context() as patch:
        patch.setattr(BudgetFacts, "no_room", lambda *_, **__: None)
        report = desk.tick()
    assert (report.sent, report.problems) == ({}, {})
    assert decided(launched.run_dir)[-1] == ("wait", "over_budget")


def test_a_run_that_is_changed_has_the_share_of_its_standby(desk: BudgetDesk) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    desk.set(hard="6.50")
    launched, standby = waiting_standby(desk)
    desk.clock.advance(600)
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.look()
    desk.clock.advance(60)
    desk.look()
    assert desk.usd() == ("1.00", "3.00")
    with pytest.raises(BudgetError, match="has no room"):
        desk.resume(desk.dir_of(launched), overrides=["resources.time_limit=3h"])
    assert desk.alive() == [standby], "nothing was given up for what cannot be sent"
    sent = desk.resume(desk.dir_of(launched), overrides=["resources.time_limit=29m"])
    assert desk.alive() == [sent.job_id]
    assert desk.usd() == ("1.00", "2.90")


def test_a_standby_that_waits_while_a_budget_is_set_counts_too(desk: BudgetDesk) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    launched, _ = waiting_standby(desk)
    desk.clock.advance(60)
    desk.set(hard="7")
    assert desk.usd() == ("0.00", "6.00")
    for _ in range(4):
        desk.clock.advance(1500)
        desk.look()
    assert [line["record"] for line in desk.lines()] == ["set", "committed", "committed", "began"]
    with pytest.raises(BudgetError):
        desk.launch()
    desk.slurm.end(launched.job_id, "COMPLETED")
    for _ in range(3):
        desk.clock.advance(400)
        desk.tick()
    assert desk.alive() == []
    assert desk.usd()[1] == "0.00", "nobody needs it any more"


def test_a_standby_to_which_nothing_was_committed_counts_from_the_next_look(
    desk: BudgetDesk,
) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    desk.set(hard="7")
    waiting_standby(desk)
    file = desk.budgets.file(VISION)
    lines = file.read_text().splitlines(keepends=True)
    file.write_text("".join(line for line in lines if '"attempt": 2' not in line))
    assert desk.usd() == ("0.00", "3.00")
    desk.look()
    assert desk.usd() == ("0.00", "6.00")


def test_what_is_sent_instead_of_a_standby_has_its_share(desk: BudgetDesk) -> None:
    text = desk.config.read_text().replace("account: physics", "account: physics, mem: 2G")
    desk.config.write_text(f"{text}retry: {{standby: true}}\n")
    desk.set(hard="6.10")
    launched, standby = waiting_standby(desk)
    desk.clock.advance(100)
    desk.slurm.end(launched.job_id, "OUT_OF_MEMORY")
    for _ in range(2):
        desk.look()
        desk.clock.advance(60)
    assert desk.usd() == ("0.17", "3.00")
    report = desk.tick()
    assert desk.alive() == [report.sent[launched.run_id]] != [standby], "that had too little memory"
    assert desk.usd() == ("0.17", "3.00")


def test_a_standby_that_goes_on_keeps_its_share(desk: BudgetDesk) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {standby: true}\n")
    desk.set(hard="6.50")
    launched, standby = waiting_standby(desk)
    desk.clock.advance(600)
    desk.slurm.end(launched.job_id, "PREEMPTED")
    for _ in range(3):
        desk.tick()
        desk.clock.advance(40)
    assert desk.alive() == [standby]
    assert desk.usd() == ("1.00", "3.00")
    assert "released" not in [line["record"] for line in desk.lines()]
