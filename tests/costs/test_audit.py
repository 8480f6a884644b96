"""The audit finds what differs from accounting, and nothing else."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from hpcflow.costs.audit import Audit, audit
from hpcflow.ledger.store import open_ledger
from tests.requeue.watched import Watched

GPUS = "resources: {time_limit: 2h, account: physics, gpus_per_node: 2, partition: gpu}\n"
BEGIN = datetime(2020, 1, 1, tzinfo=timezone.utc)


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    """With a run that has its bill."""
    desk = Watched(tmp_path)
    begin = desk.config.read_text().partition("resources:")[0]
    desk.config.write_text(begin + GPUS)
    launched = desk.launch()
    desk.clock.advance(3600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    for _ in range(2):
        desk.look()
        desk.clock.advance(60)
    return desk


def audited(desk: Watched) -> Audit:
    desk.look()
    with open_ledger(desk.settings.ledger_url) as ledger:
        return audit(
            ledger,
            ledger.bills(since=BEGIN, until=desk.clock.now(), filters={}),
            connect=lambda _: desk.slurm,
            find_site=lambda _: desk.site,
            now=desk.clock.now(),
        )


def test_what_is_as_accounting_says_is_no_difference(desk: Watched) -> None:
    found = audited(desk)
    assert (found.checked, found.differences, found.problems) == (1, [], [])


def test_another_price_is_found(desk: Watched) -> None:
    gpu = desk.site.partitions["gpu"]
    assert gpu.price is not None
    dear = gpu.model_copy(update={"price": gpu.price.model_copy(update={"gpu_hour_usd": 4})})
    desk.site = desk.site.model_copy(update={"partitions": {"gpu": dear}})
    (found,) = audited(desk).differences
    assert (found.what, found.billed) == ("cost_usd", "6.00000000")
    assert found.now == "8.00000000"


def test_another_time_is_found(desk: Watched) -> None:
    job = desk.slurm.queue()[0]
    desk.slurm.change_record(job.job_id, ended_at=desk.clock.now())
    what = {each.what for each in audited(desk).differences}
    assert what == {"elapsed_s", "gpu_hours", "cost_usd"}


def test_an_estimate_that_accounting_knows_better_is_found(desk: Watched) -> None:
    launched = desk.launch()
    desk.clock.advance(600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    desk.slurm.forgets_records = True
    for _ in range(6):
        desk.clock.advance(3600)
        desk.look()
    desk.slurm.forgets_records = False
    (found,) = audited(desk).differences
    assert (found.run_id, found.what) == (launched.run_id, "its bill is an estimate")


def test_a_record_that_is_gone_is_found(desk: Watched) -> None:
    other = desk.launch()
    desk.slurm.rename_record(desk.slurm.queue()[0].job_id, "somebody-elses")
    desk.slurm.end(other.job_id, "COMPLETED", exit_code=0)
    for _ in range(3):
        desk.look()
        desk.clock.advance(60)
    (found,) = audited(desk).differences
    assert found.what == "accounting has no such record any more"


def test_accounting_that_is_silent_is_a_problem_and_no_difference(desk: Watched) -> None:
    desk.slurm.is_accounting_down = True
    found = audited(desk)
    assert found.differences == []
    assert "devcluster" in found.problems[0]
