"""What attempts took: from accounting, exactly once each, whenever it speaks."""

from __future__ import annotations

import shutil
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hpcflow.costs.audit import Audit, audit
from hpcflow.costs.report import report
from hpcflow.costs.running import running_rows
from hpcflow.ledger.rows import AttemptRow, DueBill
from hpcflow.ledger.store import open_ledger
from hpcflow.model.ids import job_name
from hpcflow.model.journal import Accounted, Ended, Intended, JournalRecord, Submitted
from hpcflow.model.state import AttemptState, Cause
from hpcflow.model.usage import Usage
from hpcflow.reconcile.billing import record_of
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage import journal
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.layout import RunDir
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.requeue.restarts import sluid_of
from tests.requeue.watched import Watched
from tests.run_dirs import run_dir_at

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)
GPUS = "resources: {time_limit: 2h, account: physics, gpus_per_node: 2, partition: gpu}\n"


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    desk = Watched(tmp_path)
    begin = desk.config.read_text().partition("resources:")[0]
    desk.config.write_text(begin + GPUS)
    return desk


def attempts(desk: Watched, run_id: str) -> list[AttemptRow]:
    with open_ledger(desk.settings.ledger_url) as ledger:
        return ledger.known([run_id])[run_id].attempts


def bills(run_dir: Path) -> list[Accounted]:
    return [each for each in journal.read(run_dir_at(run_dir)) if isinstance(each, Accounted)]


def audited(desk: Watched) -> Audit:
    with open_ledger(desk.settings.ledger_url) as ledger:
        return audit(
            ledger,
            ledger.bills(since=BEGIN, until=desk.clock.now(), filters={}),
            user=desk.settings.user,
            since=None,
            until=desk.clock.now(),
            connect=lambda _: desk.slurm,
            find_site=lambda _: desk.site,
            now=desk.clock.now(),
        )


def look_later(desk: Watched, after_s: float = 60) -> None:
    desk.clock.advance(after_s)
    desk.look()


def due_and_record(desk: Watched) -> tuple[DueBill, JobInfo]:
    """The bill that is due a minute after the end of the only attempt, and its record."""
    desk.look()
    desk.clock.advance(60)
    with open_ledger(desk.settings.ledger_url) as ledger:
        (due,) = ledger.due_bills(desk.clock.now(), user=desk.settings.user, limit=9)
    job_ids = [due.attempt.job_id or ""]
    (record,) = desk.slurm.accounting(job_ids, due.attempt.submitted_at or BEGIN)
    return due, record


def test_the_bill_comes_from_accounting_once(desk: Watched) -> None:
    launched = desk.launch()
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    assert bills(launched.run_dir) == [], "slurmdbd is a moment behind"
    for _ in range(3):
        look_later(desk)
    (bill,) = bills(launched.run_dir)
    assert bill.source == "accounting"
    assert (bill.elapsed_s, bill.gpu_hours) == (Decimal(3600), Decimal(2))
    assert bill.cost_usd == Decimal(6)
    (row,) = attempts(desk, launched.run_id)
    assert (row.billed_by, row.elapsed_s, row.gpu_hours) == ("accounting", 3600, 2)
    seen = desk.seen(launched.run_id).run
    assert (Decimal(seen.cost_usd or 0), seen.gpu_hours) == (Decimal(6), 2.0)
    desk.assert_rebuilt_alike(launched.run_id)


def test_every_attempt_counts_also_those_of_one_job_that_slurm_restarts(desk: Watched) -> None:
    launched = desk.launch()
    for _ in range(5):
        desk.clock.advance(1800)
        desk.tick()
        desk.slurm.requeue(launched.job_id)
        desk.tick()
        desk.slurm.start(launched.job_id)
        desk.tick()
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    for _ in range(5):
        desk.clock.advance(60)
        desk.tick()
    rows = attempts(desk, launched.run_id)
    assert [row.job_id for row in rows] == [launched.job_id] * 6
    assert [row.billed_by for row in rows] == ["accounting"] * 6
    assert [row.elapsed_s for row in rows[:5]] == [1800] * 5
    assert Decimal(desk.seen(launched.run_id).run.cost_usd or 0) == Decimal("21")
    assert len(bills(launched.run_dir)) == 6


def test_until_accounting_speaks_there_is_an_estimate_and_then_it_is_corrected(
    desk: Watched,
) -> None:
    launched = desk.launch()
    desk.clock.advance(1800)
    desk.slurm.end(launched.job_id, "FAILED", exit_code=1)
    desk.look()
    records, desk.slurm.forgets_records = desk.slurm.forgets_records, True
    look_later(desk)
    look_later(desk)
    estimate = bills(launched.run_dir)[-1]
    assert (estimate.source, estimate.cost_usd) == ("events", Decimal(3))
    assert desk.seen(launched.run_id).run.is_estimate
    desk.slurm.forgets_records = records
    look_later(desk, 7200)
    *_, bill = bills(launched.run_dir)
    assert (bill.source, bill.cost_usd) == ("accounting", Decimal(3))
    assert not desk.seen(launched.run_id).run.is_estimate
    desk.assert_rebuilt_alike(launched.run_id)


def test_accounting_that_is_down_is_asked_again_and_nothing_is_guessed(desk: Watched) -> None:
    launched = desk.launch()
    desk.clock.advance(1800)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    desk.slurm.is_accounting_down = True
    look_later(desk)
    assert bills(launched.run_dir) == []
    desk.slurm.is_accounting_down = False
    look_later(desk, 3600)
    assert [bill.source for bill in bills(launched.run_dir)] == ["accounting"]


def test_without_slurmdbd_the_estimate_stays(desk: Watched) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", has_accounting=False)
    launched = desk.launch()
    desk.clock.advance(1800)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    for _ in range(20):
        look_later(desk, timedelta(days=2).total_seconds())
    found = bills(launched.run_dir)
    assert {bill.source for bill in found} == {"events"}
    assert len(found) == 9, "nobody asks for ever"
    assert found[-1].cost_usd == Decimal(3)
    assert desk.seen(launched.run_id).run.is_estimate


def test_a_job_that_never_started_costs_nothing(desk: Watched) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=False)
    launched = desk.launch()
    desk.cancel(desk.dir_of(launched))
    desk.look()
    look_later(desk)
    (bill,) = bills(launched.run_dir)
    assert bill.source == "accounting"
    assert (bill.elapsed_s, bill.cost_usd) == (Decimal(0), Decimal(0))
    assert not desk.seen(launched.run_id).run.is_estimate


def test_an_attempt_that_never_ran_where_there_is_no_price_leaves_the_sum_of_its_run(
    desk: Watched,
) -> None:
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=False)
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    desk.clock.advance(3600)
    desk.end(launched.job_id, "PREEMPTED", checkpoint=10)
    for _ in range(2):
        desk.tick()
        desk.clock.advance(60)
    assert any(job.job_id != launched.job_id for job in desk.slurm.queue())
    desk.cancel(desk.dir_of(launched))
    gpu = desk.site.partitions["gpu"].model_copy(update={"price": None})
    desk.site = desk.site.model_copy(update={"partitions": {"gpu": gpu}})
    desk.look()
    look_later(desk)
    found = [(row.elapsed_s, row.cost_usd) for row in attempts(desk, launched.run_id)]
    assert found == [(3600, "6.00000000"), (0, None)]
    assert Decimal(desk.seen(launched.run_id).run.cost_usd or 0) == 6


def test_a_partition_without_a_price_is_counted_in_hours(desk: Watched) -> None:
    gpu = desk.site.partitions["gpu"].model_copy(update={"price": None})
    partitions = {**desk.site.partitions, "gpu": gpu}
    desk.site = desk.site.model_copy(update={"partitions": partitions})
    launched = desk.launch()
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    look_later(desk)
    seen = desk.seen(launched.run_id).run
    assert (seen.cost_usd, seen.gpu_hours) == (None, 2)


def test_the_price_of_its_time_stays_when_the_site_file_changes(desk: Watched) -> None:
    launched = desk.launch()
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    look_later(desk)
    dear = desk.site.partitions["gpu"].model_copy(update={"price": None})
    desk.site = desk.site.model_copy(update={"partitions": {"gpu": dear}})
    look_later(desk)
    assert Decimal(desk.seen(launched.run_id).run.cost_usd or 0) == 6
    desk.assert_rebuilt_alike(launched.run_id)


def test_a_thousand_ends_are_one_question(desk: Watched) -> None:
    launched = [desk.launch() for _ in range(20)]
    desk.tick()
    for each in launched:
        desk.slurm.end(each.job_id, "CANCELLED by 1000")
    desk.tick()
    desk.clock.advance(60)
    before = desk.slurm.calls.count("accounting")
    desk.tick()
    assert desk.slurm.calls.count("accounting") == before + 1
    assert all(len(bills(each.run_dir)) == 1 for each in launched)


def test_a_job_of_another_name_with_the_same_id_is_not_its_bill(desk: Watched) -> None:
    launched = desk.launch()
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    desk.slurm.rename_record(launched.job_id, "somebody-elses")
    look_later(desk)
    assert [bill.source for bill in bills(launched.run_dir)] == ["events"]


def test_a_job_that_its_owner_renamed_is_known_by_its_id_and_when_it_was_submitted(
    desk: Watched,
) -> None:
    launched = desk.launch()
    desk.look()
    desk.slurm.rename(launched.job_id, "my best run")
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    look_later(desk)
    (bill,) = bills(launched.run_dir)
    assert (bill.source, bill.cost_usd) == ("accounting", Decimal(6))


def test_the_components_of_a_heterogeneous_job_are_lines_of_one_sum(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm.add_component(launched.job_id, "spot", Usage(nodes=2, cpus=8, gpus={"a100": 4}))
    desk.slurm.add_component(launched.job_id, "gpu", Usage(nodes=1, cpus=4))
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    look_later(desk)
    (bill,) = bills(launched.run_dir)
    gpu_lines = [(line.hours, line.cost_usd) for line in bill.charges if line.kind == "gpu:a100"]
    assert gpu_lines == [(Decimal(2), Decimal(6)), (Decimal(4), Decimal(4))]
    assert (bill.cost_usd, bill.gpu_hours, bill.elapsed_s) == (
        Decimal(10),
        Decimal(6),
        Decimal(3600),
    )
    assert (bill.nodes, bill.gpus) == (4, {"a100": 6})
    assert bill.on_demand_usd == Decimal(18), "with spot's four GPUs on gpu"
    parts = [(part.partition, part.gpu_type, part.cost_usd) for part in bill.parts or ()]
    assert parts == [("gpu", "a100", Decimal(6)), ("spot", "a100", Decimal(4))]
    desk.assert_rebuilt_alike(launched.run_id)


#: What reports are by -> what each line of such a one costs, of the job below.
BOOKED: dict[tuple[str, ...], dict[str, Decimal]] = {
    ("partition",): {"gpu": Decimal(18), "spot": Decimal(8)},
    ("account",): {"physics": Decimal(10), "biology": Decimal(16)},
    ("account", "partition"): {
        "physics gpu": Decimal(6),
        "physics spot": Decimal(4),
        "biology gpu": Decimal(12),
        "biology spot": Decimal(4),
    },
    ("month",): {"2026-03": Decimal(26)},
}


def test_each_component_is_booked_to_its_partition_and_account(desk: Watched) -> None:
    launched = desk.launch()
    gpus = Usage(nodes=1, gpus={"a100": 4})
    for partition, account in (("spot", "physics"), ("spot", "biology"), ("gpu", "biology")):
        desk.slurm.add_component(launched.job_id, partition, gpus, account)
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    look_later(desk)
    with open_ledger(desk.settings.ledger_url) as ledger:
        rows = ledger.bills(since=BEGIN, until=desk.clock.now(), filters={})
    for keys, costs in BOOKED.items():
        found = report(rows, keys)
        assert {" ".join(line.by): line.cost_usd for line in found.lines} == costs
        assert {line.attempts for line in found.lines} == {1}
        total = found.total
        assert (total.attempts, total.hours, total.gpu_hours) == (1, 1, 14)
        assert (total.cost_usd, total.saved_usd) == (Decimal(26), Decimal(16))
    assert audited(desk).differences == []


def test_before_its_bill_an_attempt_is_booked_to_the_account_that_it_asks_for(
    desk: Watched,
) -> None:
    launched = desk.launch()
    desk.look()
    (row,) = attempts(desk, launched.run_id)
    assert (row.billed_by, row.account) == (None, "physics")
    with open_ledger(desk.settings.ledger_url) as ledger:
        under_way = ledger.spending_under_way(user=desk.settings.user)
        (used,) = ledger.used()
    (running,) = running_rows(under_way, desk.settings.home, lambda _: desk.site, desk.clock.now())
    assert (running.account, used.account) == ("physics", "physics")


def test_a_component_without_a_price_leaves_the_sum_without_one(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm.add_component(launched.job_id, "secret", Usage(nodes=1, gpus={"a100": 1}))
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    look_later(desk)
    (bill,) = bills(launched.run_dir)
    assert (bill.cost_usd, bill.gpu_hours) == (None, Decimal(3))


def test_a_job_that_was_moved_to_another_partition_has_the_price_of_that(desk: Watched) -> None:
    """By ``scontrol update partition=…``, while it waited."""
    launched = desk.launch()
    desk.slurm.move(launched.job_id, "spot")
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    look_later(desk)
    (bill,) = bills(launched.run_dir)
    assert (bill.partition, bill.cost_usd, bill.on_demand_usd) == ("spot", Decimal(2), Decimal(6))
    (row,) = attempts(desk, launched.run_id)
    assert row.partition == "spot"
    desk.assert_rebuilt_alike(launched.run_id)


def test_of_several_names_for_a_partition_of_slurms_that_stays_which_the_job_was_sent_to(
    desk: Watched,
) -> None:
    gpu = desk.site.partitions["gpu"]
    debug = gpu.model_copy(update={"slurm_partition": "gpu", "qos": "debug", "price": None})
    desk.site = desk.site.model_copy(update={"partitions": {"debug": debug, "gpu": gpu}})
    launched = desk.launch()
    desk.look()
    desk.clock.advance(1800)
    desk.slurm.resize(launched.job_id, ["n1", "n2"])  # another record, of the same job
    desk.clock.advance(900)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    look_later(desk)
    (bill,) = bills(launched.run_dir)
    assert (bill.partition, bill.parts, bill.cost_usd) == ("gpu", None, Decimal(6))


def test_a_record_that_ran_and_says_not_with_what_is_no_bill_over_nothing(desk: Watched) -> None:
    launched = desk.launch()
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.slurm.tells_no_usage = True
    desk.look()
    look_later(desk)
    (bill,) = bills(launched.run_dir)
    assert (bill.source, bill.cost_usd) == ("events", Decimal(6))
    desk.slurm.tells_no_usage = False
    look_later(desk)
    assert [each.source for each in bills(launched.run_dir)] == ["events", "accounting"]


def test_while_a_component_of_a_heterogeneous_job_is_not_over_its_bill_is_to_come(
    desk: Watched,
) -> None:
    launched = desk.launch()
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    due, record = due_and_record(desk)
    running = replace(
        record, job_id=f"{record.job_id}+1", ended_at=None, state=AttemptState.RUNNING
    )
    assert record_of(due, [record, running]) is None
    over = replace(running, ended_at=record.ended_at, state=AttemptState.ENDED)
    assert record_of(due, [record, over]) == record


def test_the_record_of_a_former_life_is_not_that_of_one_whose_submission_nobody_saw(
    desk: Watched,
) -> None:
    """Each is billed once, also while the record of the second is on its way to slurmdbd."""
    launched = desk.launch()
    desk.clock.advance(1800)
    desk.slurm.end(launched.job_id, "NODE_FAIL")
    due, record = due_and_record(desk)
    assert record_of(due, [record]) == record
    now = desk.clock.now()
    second = replace(due.attempt, attempt=2, submitted_at=now, started_at=now, ended_at=now)
    assert record_of(replace(due, attempt=second), [record]) is None
    unseen = replace(due.attempt, submitted_at=now, started_at=None)
    assert record_of(replace(due, attempt=unseen), [record]) == record, "that may be its own"


def test_a_job_that_ends_in_the_second_of_its_start_is_billed_by_its_record(desk: Watched) -> None:
    """Nobody saw its submission; its own start has milliseconds, and the end in sacct has none."""
    launched = desk.launch()
    desk.clock.advance(1)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    due, record = due_and_record(desk)
    assert record.ended_at is not None
    started_at = record.ended_at + timedelta(milliseconds=36)
    unseen = replace(due.attempt, submitted_at=None, started_at=started_at)
    assert record_of(replace(due, attempt=unseen), [record]) == record


def test_a_life_that_knows_its_sluid_is_billed_by_its_own_record_and_no_other(
    desk: Watched,
) -> None:
    """Nobody saw when it was submitted, and its owner has renamed the job since."""
    launched = desk.launch()
    for _ in range(3):
        desk.clock.advance(1800)
        desk.slurm.requeue(launched.job_id)
        desk.slurm.start(launched.job_id)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    desk.clock.advance(60)
    with open_ledger(desk.settings.ledger_url) as ledger:
        due, *_ = ledger.due_bills(desk.clock.now(), user=desk.settings.user, limit=9)
    told = desk.slurm.accounting([launched.job_id], BEGIN)
    told = [replace(each, job_name="mine") for each in told]
    assert len(told) == len({each.record_id for each in told}) == 4
    unseen = replace(due.attempt, submitted_at=None, started_at=None, ended_at=None)
    assert record_of(replace(due, attempt=unseen), told) is None, "it may be any of them"
    for record in told:
        report = {"sluid": sluid_of(record.record_id)}
        for at in (None, told[0].submitted_at):
            attempt = replace(unseen, submitted_at=at, report=report)
            rest = [each for each in told if each != record]
            assert record_of(replace(due, attempt=attempt), told) == record
            assert record_of(replace(due, attempt=attempt), rest) is None, "it is to come"


def test_a_run_directory_that_is_gone_keeps_no_other_from_its_bill(desk: Watched) -> None:
    gone, other = desk.launch(), desk.launch()
    for each in (gone, other):
        desk.slurm.end(each.job_id, "COMPLETED", exit_code=0)
    desk.look()
    shutil.rmtree(gone.run_dir)
    look_later(desk)
    assert len(bills(other.run_dir)) == 1


def test_bills_that_can_never_be_written_keep_no_others_waiting_and_nobody_asks_for_them(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("hpcflow.reconcile.refresh._BILLS_AT_ONCE", 2)
    gone = [desk.launch() for _ in range(2)]
    for each in gone:
        desk.slurm.end(each.job_id, "COMPLETED", exit_code=0)
    desk.look()
    for each in gone:
        shutil.rmtree(each.run_dir)
    desk.clock.advance(60)
    other = desk.launch()
    desk.slurm.end(other.job_id, "COMPLETED", exit_code=0)
    desk.look()
    look_later(desk)
    assert len(bills(other.run_dir)) == 1
    before = desk.slurm.calls.count("accounting")
    look_later(desk)
    assert desk.slurm.calls.count("accounting") == before


@pytest.mark.parametrize("is_forgotten", [False, True])
def test_a_job_that_was_resized_is_one_attempt_and_all_of_it_is_charged(
    desk: Watched, is_forgotten: bool
) -> None:
    launched = desk.launch()
    desk.look()
    desk.clock.advance(1800)
    desk.slurm.resize(launched.job_id, ["n1", "n2"])
    desk.clock.advance(3600)
    desk.slurm.resize(launched.job_id, ["n1"])
    desk.clock.advance(1800)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    if is_forgotten:
        desk.slurm.forget(launched.job_id)
    for _ in range(3):
        look_later(desk)
    (row,) = attempts(desk, launched.run_id)
    assert (row.cause, row.elapsed_s, row.gpu_hours) == ("completed", 7200, 6)
    (bill,) = bills(launched.run_dir)
    assert (bill.cost_usd, bill.nodes) == (Decimal(18), 1)
    assert (bill.ended_at, bill.parts) == (row.ended_at, None)
    found = audited(desk)
    assert (found.checked, found.differences, found.unknown) == (1, [], [])


def test_while_accounting_does_not_say_how_a_resized_job_went_on_its_bill_is_to_come(
    desk: Watched,
) -> None:
    launched = desk.launch()
    desk.look()
    desk.clock.advance(1800)
    desk.slurm.resize(launched.job_id, ["n1", "n2"])
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    desk.clock.advance(60)
    with open_ledger(desk.settings.ledger_url) as ledger:
        (due,) = ledger.due_bills(desk.clock.now(), user=desk.settings.user, limit=9)
    told = desk.slurm.accounting([launched.job_id], due.attempt.submitted_at or BEGIN)
    assert record_of(due, told) == told[0]
    assert record_of(due, told[:1]) is None


def test_who_looks_from_another_cluster_writes_no_bill_for_good(desk: Watched) -> None:
    """Homes are common to many clusters: what the one of the run knows is asked there."""
    launched = desk.launch()
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    here, desk.slurm = desk.slurm, FakeScheduler(desk.clock, cluster_name="another")
    look_later(desk)
    desk.slurm = here
    look_later(desk)
    assert [bill.source for bill in bills(launched.run_dir)][-1] == "accounting"
    assert all(bill.cost_usd == 6 for bill in bills(launched.run_dir))


def test_a_journal_with_any_number_of_bills_to_come_holds_up_no_look(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A run from a store brings such a journal."""
    launched, other = desk.launch(), desk.launch()
    run_dir, now = desk.dir_of(launched), desk.clock.now()
    for number in range(2, 132):
        name = job_name(launched.run_id, number)
        journal.append_all(
            run_dir,
            [
                Intended(at=now, attempt=number, job_name=name, scheduler="slurm"),
                Submitted(at=now, attempt=number, job_id=str(10**6 + number)),
                Ended(at=now, attempt=number, cause=Cause.PREEMPTED, raw_state="", rule="x"),
            ],
        )
    mark_dirty(desk.settings.home, run_dir)
    desk.slurm.end(other.job_id, "COMPLETED", exit_code=0)
    desk.look()
    read = []

    def counted(some: RunDir) -> list[JournalRecord]:
        read.append(some)
        return real(some)

    real = journal.read
    monkeypatch.setattr(journal, "read", counted)
    found = []
    for _ in range(3):
        desk.clock.advance(6)
        desk.look()
        found.append(len(bills(launched.run_dir)))
    assert found == [50, 100, 130]
    assert len(bills(other.run_dir)) == 1
    assert len(read) < 30


def test_no_record_is_charged_to_two_attempts(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A life that nobody saw, and that accounting does not know, is not charged for the next."""
    told = desk.slurm.accounting

    def only_the_last_life(*args: Any) -> list[JobInfo]:
        return list({each.job_id: each for each in told(*args)}.values())

    monkeypatch.setattr(desk.slurm, "accounting", only_the_last_life)
    launched = desk.launch()
    desk.clock.advance(60)
    desk.slurm.requeue(launched.job_id)
    desk.look()
    desk.slurm.start(launched.job_id)
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    for _ in range(10):
        look_later(desk, 3600)
    charged = {
        each.attempt: each.elapsed_s
        for each in bills(launched.run_dir)
        if each.source == "accounting"
    }
    assert charged == {2: Decimal(3600)}
