"""What attempts took: from accounting, exactly once each, whenever it speaks."""

from __future__ import annotations

import shutil
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from hpcflow.ledger.rows import AttemptRow
from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import Accounted
from hpcflow.model.usage import Usage
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.requeue.watched import Watched

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
    return [each for each in journal.read(RunDir(run_dir)) if isinstance(each, Accounted)]


def look_later(desk: Watched, after_s: float = 60) -> None:
    desk.clock.advance(after_s)
    desk.look()


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
    desk.cancel(RunDir(launched.run_dir))
    desk.look()
    look_later(desk)
    (bill,) = bills(launched.run_dir)
    assert bill.source == "accounting"
    assert (bill.elapsed_s, bill.cost_usd) == (Decimal(0), Decimal(0))
    assert not desk.seen(launched.run_id).run.is_estimate


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
    desk.assert_rebuilt_alike(launched.run_id)


def test_a_component_without_a_price_leaves_the_sum_without_one(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm.add_component(launched.job_id, "secret", Usage(nodes=1, gpus={"a100": 1}))
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    look_later(desk)
    (bill,) = bills(launched.run_dir)
    assert (bill.cost_usd, bill.gpu_hours) == (None, Decimal(3))


def test_a_run_directory_that_is_gone_keeps_no_other_from_its_bill(desk: Watched) -> None:
    gone, other = desk.launch(), desk.launch()
    for each in (gone, other):
        desk.slurm.end(each.job_id, "COMPLETED", exit_code=0)
    desk.look()
    shutil.rmtree(gone.run_dir)
    look_later(desk)
    assert len(bills(other.run_dir)) == 1
