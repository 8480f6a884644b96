"""What checkpoints cost: runs of the ledger, what they wrote down, what their sites charge."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from decimal import Decimal
from pathlib import Path

import pytest

from hpcflow.clock import to_text
from hpcflow.costs.checkpoint_costs import CheckpointCosts, checkpoint_costs, decimal
from hpcflow.errors import SiteError
from hpcflow.ledger.store import open_ledger
from hpcflow.sites.prices import ScratchPrice, StorePrice
from hpcflow.sites.schema import Site, SiteMirror
from hpcflow.storage.runs import list_runs
from tests.requeue.watched import Watched

MONTH = timedelta(hours=730)
GB = 10**9


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    """With a run of which a store has had two checkpoints of 10 GB for a month, and then one."""
    desk = Watched(tmp_path)
    price = StorePrice(storage_usd_per_gb_month=Decimal("0.02"))
    mirror = SiteMirror(url="s3://lab/$USER", price=price)
    desk.site = desk.site.model_copy(update={"mirror": mirror})
    run_dir = desk.launch().run_dir
    lines = [("mirrored", 100, 10 * GB), ("mirrored", 200, 10 * GB)]
    for what, step, size_bytes in lines:
        record(desk, run_dir, what, step, size_bytes)
    desk.clock.advance(MONTH.total_seconds())
    record(desk, run_dir, "removed", 100, 0)
    desk.clock.advance(MONTH.total_seconds())
    desk.look()
    return desk


def record(desk: Watched, run_dir: Path, what: str, step: int, size_bytes: int) -> None:
    url = f"s3://lab/{desk.settings.user}"
    said = {"at": to_text(desk.clock.now()), "what": what, "url": url, "train_step": step}
    facts = {"size_bytes": size_bytes, "manifest_sha256": "0" * 64}
    with (run_dir / "mirror.jsonl").open("a") as file:
        file.write(json.dumps({**said, **facts}) + "\n")


def kept(desk: Watched, **filters: str) -> CheckpointCosts:
    now = desk.clock.now()
    with open_ledger(desk.settings.ledger_url) as ledger:
        return checkpoint_costs(
            ledger,
            ("user", "month"),
            since=now - 10 * MONTH,
            until=now,
            filters=filters,
            everyone=True,
            find_site=lambda _: desk.site,
            home=desk.settings.home,
        )


def test_it_is_what_was_written_down_times_the_price(desk: Watched) -> None:
    found = kept(desk)
    assert found.report.total.gb_months == 30
    assert decimal(found.report.total.storage_usd) == Decimal("0.60000000")
    assert {line.by[0] for line in found.report.lines} == {desk.settings.user}
    assert [line.by[1] for line in sorted(found.report.lines, key=lambda line: line.by)] == [
        *("2026-03", "2026-04")
    ]
    assert (found.problems, found.facts.lost_runs) == ({}, set())


def test_only_those_of_a_project_or_user_that_was_asked_for(desk: Watched) -> None:
    assert kept(desk, user_name="nobody").report.lines == []
    assert kept(desk, user_name=desk.settings.user).report.lines


def test_where_no_site_prices_it_no_file_is_even_read(desk: Watched) -> None:
    assert desk.site.mirror is not None
    mirror = desk.site.mirror.model_copy(update={"price": None})
    desk.site = desk.site.model_copy(update={"mirror": mirror})
    found = kept(desk)
    assert (found.report.lines, found.facts.stored) == ([], [])


def test_scratch_is_charged_where_the_site_says_so(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "FAILED", checkpoint=100)
    desk.look()
    scratch = desk.site.scratch.model_copy(
        update={"price": ScratchPrice(storage_usd_per_gb_month=Decimal(1))}
    )
    desk.site = desk.site.model_copy(update={"scratch": scratch, "mirror": None})
    assert kept(desk).facts.lost_checkpoints == 1, "said by the job, and not there"


def test_files_of_runs_that_kept_nothing_since_are_not_read(desk: Watched) -> None:
    price = ScratchPrice(storage_usd_per_gb_month=Decimal(1))
    scratch = desk.site.scratch.model_copy(update={"price": price})
    desk.site = desk.site.model_copy(update={"scratch": scratch, "mirror": None})
    launched = desk.launch()
    desk.end(launched.job_id, "COMPLETED", exit_code=0)
    desk.look()
    shutil.rmtree(launched.run_dir)
    desk.clock.advance(MONTH.total_seconds())
    assert kept(desk).facts.lost_runs == {launched.run_id}, "as it was missed"
    now = desk.clock.now()
    with open_ledger(desk.settings.ledger_url) as ledger:
        lately = checkpoint_costs(
            ledger,
            ("run",),
            since=now - timedelta(days=1),
            until=now,
            filters={},
            everyone=True,
            find_site=lambda _: desk.site,
            home=desk.settings.home,
        )
    assert lately.facts.lost_runs == set()


def test_only_directories_to_which_a_link_of_this_home_leads_are_read(desk: Watched) -> None:
    """In a shared ledger another role can name any path."""
    price = ScratchPrice(storage_usd_per_gb_month=Decimal(1))
    scratch = desk.site.scratch.model_copy(update={"price": price})
    desk.site = desk.site.model_copy(update={"scratch": scratch})
    (run_dir,) = list_runs(desk.settings.home)
    run_id = run_dir.path.name
    link = desk.settings.home.scratch_link(run_id)
    assert kept(desk).report.total.gb_months == 30
    for other in (None, run_dir.path.parent / "other" / run_id):
        link.unlink(missing_ok=True)
        if other is not None:
            link.symlink_to(other)
        found = kept(desk)
        assert found.facts.lost_runs == {run_id}
        assert found.report.total.gb_months == 20, "what the ledger knows"


def test_a_site_that_cannot_be_read_is_said(desk: Watched) -> None:
    def find(name: str) -> Site:
        raise SiteError(f"there is no site {name}")

    with open_ledger(desk.settings.ledger_url) as ledger:
        now = desk.clock.now()
        found = checkpoint_costs(
            ledger,
            ("run",),
            since=now - MONTH,
            until=now,
            filters={},
            everyone=True,
            find_site=find,
            home=desk.settings.home,
        )
    assert found.problems == {"devcluster": "there is no site devcluster"}
