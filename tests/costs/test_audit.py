"""The audit finds what differs from accounting, and nothing else."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from decimal import Decimal
from pathlib import Path

import pytest

from hpcflow.costs.audit import Audit, audit
from hpcflow.errors import SiteError
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.ids import parse_job_name
from hpcflow.model.usage import Usage
from hpcflow.schedulers.base import SubmitRequest
from hpcflow.sites.schema import Site
from hpcflow.testing.fake_scheduler import FakeScheduler
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
    complete(desk, launched.job_id)
    return desk


def complete(desk: Watched, job_id: str, *, after_s: int = 3600) -> None:
    """A job ends, that is seen, and then it has its bill."""
    desk.clock.advance(after_s)
    desk.slurm.end(job_id, "COMPLETED", exit_code=0)
    for _ in range(2):
        desk.look()
        desk.clock.advance(60)


def audited(desk: Watched, since: datetime | None = None) -> Audit:
    desk.look()
    with open_ledger(desk.settings.ledger_url) as ledger:
        return audited_by(desk, ledger, since)


def audited_by(desk: Watched, ledger: Ledger, since: datetime | None = None) -> Audit:
    """By a ledger that has not looked again."""
    return audit(
        ledger,
        ledger.bills(since=since or BEGIN, until=desk.clock.now(), filters={}),
        user=desk.settings.user,
        since=since,
        until=desk.clock.now() + timedelta(days=1),
        connect=lambda _: desk.slurm,
        find_site=lambda _: desk.site,
        now=desk.clock.now(),
    )


def test_what_is_as_accounting_says_is_no_difference(desk: Watched) -> None:
    found = audited(desk)
    assert (found.checked, found.differences, found.problems) == (1, [], [])
    assert (found.unknown, found.helpers) == ([], [])


def test_another_price_is_found(desk: Watched) -> None:
    gpu = desk.site.partitions["gpu"]
    assert gpu.price is not None
    dear = gpu.model_copy(update={"price": gpu.price.model_copy(update={"gpu_hour_usd": 4})})
    desk.site = desk.site.model_copy(update={"partitions": {"gpu": dear}})
    (found,) = audited(desk).differences
    assert (found.what, found.billed) == ("cost_usd", "6.00000000")
    assert found.now == "8.00000000"


def test_every_difference_is_found_be_it_less_than_a_cent(desk: Watched) -> None:
    """A hundred thousand of them are hundreds of dollars."""
    gpu = desk.site.partitions["gpu"]
    assert gpu.price is not None
    dear = gpu.price.model_copy(update={"gpu_hour_usd": Decimal("3.001")})
    changed = gpu.model_copy(update={"price": dear})
    desk.site = desk.site.model_copy(update={"partitions": {"gpu": changed}})
    (found,) = audited(desk).differences
    assert (found.what, found.billed, found.now) == ("cost_usd", "6.00000000", "6.00200000")


def test_what_it_would_have_cost_where_nobody_is_preempted_is_audited_too(desk: Watched) -> None:
    launched = desk.launch()
    desk.slurm.move(launched.job_id, "spot")
    complete(desk, launched.job_id)
    gpu, spot = desk.site.partitions["gpu"], desk.site.partitions["spot"]
    here = gpu.model_copy(update={"gpu_type": "fake"})
    desk.site = desk.site.model_copy(update={"partitions": {"gpu": here, "spot": spot}})
    what = {(each.run_id, each.what, each.now) for each in audited(desk).differences}
    assert what == {(launched.run_id, "on_demand_usd", None)}


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
    assert found.what == "accounting no longer has this record"


def test_accounting_that_is_silent_is_a_problem_and_no_difference(desk: Watched) -> None:
    desk.slurm.is_accounting_down = True
    found = audited(desk)
    assert (found.checked, found.uncheckable, found.differences) == (0, 1, [])
    assert "devcluster" in found.problems[0]


def sent_by_nobody(desk: Watched, name: str, hours: float = 1) -> str:
    """A job of this name that ran, and that no home knows."""
    script = desk.folder / "job.sbatch"
    script.write_text("#!/bin/bash\n#SBATCH --partition=gpu\n#SBATCH --gpus-per-node=2\n")
    job_id = desk.slurm.submit(SubmitRequest(script, desk.folder, name)).job_id
    desk.clock.advance(hours * 3600)
    desk.slurm.end(job_id, "COMPLETED", exit_code=0)
    return job_id


def test_jobs_of_hpcflows_that_no_run_knows_are_listed_with_one_question(desk: Watched) -> None:
    (row,) = [job for job in desk.slurm.queue() if parse_job_name(job.job_name)]
    job_id = sent_by_nobody(desk, "lost-20260301-abcdefgh:1")
    again = sent_by_nobody(desk, f"{row.job_name[:-1]}7", hours=0.5)
    sent_by_nobody(desk, "hpcflow-daemon-0815")
    sent_by_nobody(desk, "of-mine")
    desk.clock.advance(60)
    before = desk.slurm.calls.count("accounting")
    found = audited(desk)
    assert desk.slurm.calls.count("accounting") == before + 1
    assert [(each.job_id, each.run_id, each.why) for each in found.unknown] == [
        (job_id, "lost-20260301-abcdefgh", "no run in this ledger has this job"),
        (again, row.job_name.split(":")[0], "its run has no such attempt"),
    ]
    assert (found.unknown[0].hours, found.unknown[0].gpu_hours) == (1, 2)
    assert found.unknown[0].cost_usd == "6.00000000"
    assert [each.job_name for each in found.helpers] == ["hpcflow-daemon-0815"]
    assert (found.checked, found.differences) == (1, [])
    assert audited(desk, since=desk.clock.now()).unknown == []


def test_a_job_that_ended_in_this_time_is_found_however_long_ago_it_was_sent(
    desk: Watched,
) -> None:
    job_id = sent_by_nobody(desk, "lost-20260301-abcdefgh:1", hours=72)
    late = desk.launch()
    complete(desk, late.job_id, after_s=60)
    since = desk.clock.now() - timedelta(hours=1)
    found = audited(desk, since)
    assert (found.checked, [each.job_id for each in found.unknown]) == (1, [job_id])


def test_of_two_site_files_for_one_cluster_each_stray_job_is_listed_once(desk: Watched) -> None:
    job_id = sent_by_nobody(desk, "lost-20260301-abcdefgh:1")
    sent_by_nobody(desk, "hpcflow-daemon-0815")
    desk.look()
    with open_ledger(desk.settings.ledger_url) as ledger:
        (billed,) = ledger.bills(since=BEGIN, until=desk.clock.now(), filters={})
        found = audit(
            ledger,
            [billed, replace(billed, run_id="b-1", site="other-name")],
            user=desk.settings.user,
            since=None,
            until=desk.clock.now() + timedelta(days=1),
            connect=lambda _: desk.slurm,
            find_site=lambda _: desk.site,
            now=desk.clock.now(),
        )
    assert [each.job_id for each in found.unknown] == [job_id]
    assert len(found.helpers) == 1


def test_what_runs_what_never_ran_and_what_is_known_is_no_stranger(desk: Watched) -> None:
    desk.launch()  # it runs
    desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", starts_at_once=False)
    script = desk.folder / "job.sbatch"
    script.write_text("#!/bin/bash\n")
    refused = desk.slurm.submit(SubmitRequest(script, desk.folder, "x-20260301-abcdefgh:1"))
    desk.slurm.cancel([refused.job_id])
    assert audited(desk).unknown == []


def test_five_requeues_under_one_id_are_six_attempts_and_a_seventh_life_is_nobodys(
    desk: Watched,
) -> None:
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
    found = audited(desk)
    assert (found.checked, found.differences, found.unknown) == (7, [], [])
    desk.slurm.requeue(launched.job_id)  # by an admin, and nobody looked meanwhile
    desk.slurm.start(launched.job_id)
    desk.clock.advance(600)
    desk.slurm.end(launched.job_id, "COMPLETED", exit_code=0)
    with open_ledger(desk.settings.ledger_url) as ledger:
        found = audited_by(desk, ledger)
    assert [(each.job_id, each.why) for each in found.unknown] == [
        (launched.job_id, "a restart of its job that is not an attempt")
    ]
    assert found.differences == []


def test_a_job_that_its_owner_renamed_is_neither_a_difference_nor_a_job_of_hpcflows(
    desk: Watched,
) -> None:
    launched = desk.launch()
    desk.look()
    desk.slurm.rename(launched.job_id, "my best run")
    complete(desk, launched.job_id)
    found = audited(desk)
    assert (found.checked, found.differences) == (2, [])
    assert (found.unknown, found.helpers) == ([], [])


@pytest.mark.parametrize("name", ["hpcflow:my-best", "x-20260301-abcdefgh:1", "hpcflow-x"])
def test_a_job_is_known_by_its_id_and_time_whatever_its_owner_called_it(
    desk: Watched, name: str
) -> None:
    launched = desk.launch()
    desk.look()
    desk.slurm.rename(launched.job_id, name)
    desk.slurm.add_component(launched.job_id, "gpu", Usage(nodes=1, cpus=4, gpus={"a100": 1}))
    complete(desk, launched.job_id)
    found = audited(desk)
    assert (found.checked, found.differences) == (2, [])
    assert (found.unknown, found.helpers) == ([], [])


def test_an_id_that_was_given_again_is_another_job(desk: Watched) -> None:
    (job,) = desk.slurm.queue()
    desk.slurm.forget(job.job_id)
    desk.slurm.next_id = job.job_id
    sent_by_nobody(desk, "other-20260301-abcdefgh:1")
    found = audited(desk)
    assert found.differences == []
    assert [(each.job_id, each.run_id) for each in found.unknown] == [
        (job.job_id, "other-20260301-abcdefgh")
    ]


def test_of_a_heterogeneous_job_that_nobody_knows_each_component_is_listed(desk: Watched) -> None:
    job_id = sent_by_nobody(desk, "hpcflow-by-hand")
    desk.slurm.add_component(job_id, "spot", Usage(nodes=1, cpus=4, gpus={"a100": 1}))
    found = audited(desk).unknown
    assert [(each.job_id, each.gpu_hours) for each in found] == [(job_id, 2), (f"{job_id}+1", 1)]


def test_a_heterogeneous_job_is_one_bill_and_no_difference(tmp_path: Path) -> None:
    desk = Watched(tmp_path)
    begin = desk.config.read_text().partition("resources:")[0]
    desk.config.write_text(begin + GPUS)
    launched = desk.launch()
    desk.slurm.add_component(launched.job_id, "gpu", Usage(nodes=1, cpus=4, gpus={"a100": 4}))
    complete(desk, launched.job_id)
    found = audited(desk)
    assert (found.checked, found.differences, found.unknown) == (1, [], [])
    assert desk.seen(launched.run_id).run.cost_usd == "18.00000000"


def test_a_part_of_a_bill_that_is_booked_elsewhere_is_found(desk: Watched) -> None:
    launched = desk.launch()
    one = Usage(nodes=1, gpus={"a100": 1})
    desk.slurm.add_component(launched.job_id, "gpu", one, account="biology")
    complete(desk, launched.job_id)
    assert audited(desk).differences == []
    with open_ledger(desk.settings.ledger_url) as ledger:
        swapped = "replace(replace(parts, 'biology', 'x'), 'physics', 'biology')"
        ledger.connection().execute(f"UPDATE attempt SET parts = {swapped}")
        (found,) = audited_by(desk, ledger).differences
        assert (found.run_id, found.what) == (launched.run_id, "parts")
        assert "1.0 GPU hours for 3.00000000 USD" in (found.now or "")
        ledger.connection().execute("UPDATE attempt SET parts = NULL")  # of an older hpcflow
        assert audited_by(desk, ledger).differences == []


def test_a_site_that_is_gone_is_a_problem_only_where_there_is_something_to_compare(
    desk: Watched,
) -> None:
    def gone(name: str) -> Site:
        raise SiteError(f"there is no site {name}")

    desk.look()
    desk.clock.advance(timedelta(days=60).total_seconds())
    with open_ledger(desk.settings.ledger_url) as ledger:
        bills = ledger.bills(since=BEGIN, until=desk.clock.now(), filters={})
        for rows, problems in ((bills, 1), ([], 0)):
            found = audit(
                ledger,
                rows,
                user=desk.settings.user,
                since=None,
                until=desk.clock.now(),
                connect=lambda _: desk.slurm,
                find_site=gone,
                now=desk.clock.now(),
            )
            assert len(found.problems) == problems
