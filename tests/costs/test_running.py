"""What runs is an estimate by the price of the place where it runs."""

from __future__ import annotations

import json
from dataclasses import replace
from decimal import Decimal
from pathlib import Path

from hpcflow.budgets.amounts import Amounts
from hpcflow.cli.look.show import cost_text
from hpcflow.costs.running import running_rows
from hpcflow.ledger.store import open_ledger
from hpcflow.reconcile.budgets import adopted
from hpcflow.storage.rundir import read_run
from tests.requeue.watched import Watched

AUTO = "resources: {time_limit: 2h, account: physics, gpus_per_node: 2, partition: auto}\n"


def test_a_run_that_auto_sent_to_a_cheap_partition_is_counted_at_its_price(tmp_path: Path) -> None:
    desk = Watched(tmp_path)
    desk.config.write_text(desk.config.read_text().partition("resources:")[0] + AUTO)
    gpu, spot = (desk.site.partitions[name] for name in ("gpu", "spot"))
    spot = spot.model_copy(update={"auto": True})
    desk.site = desk.site.model_copy(update={"partitions": {"spot": spot, "gpu": gpu}})
    launched = desk.launch()
    desk.look()
    assert read_run(desk.dir_of(launched)).partition == "spot"
    desk.site = desk.site.model_copy(update={"partitions": {"gpu": gpu, "spot": spot}})
    desk.clock.advance(3600)
    with open_ledger(desk.settings.ledger_url) as ledger:
        rows = ledger.spending_under_way(user=desk.settings.user)
    (row,) = running_rows(rows, desk.settings.home, lambda _: desk.site, desk.clock.now())
    assert (row.partition, row.gpu_hours) == ("spot", 2.0)
    assert Decimal(row.cost_usd or 0) == 2, "two GPU hours for a dollar each"
    line = adopted(rows[0], 1, desk.settings.home, lambda _: desk.site, desk.clock)
    assert Decimal(json.loads(line or "")["amounts"]["cost_usd"]) == 4, (
        "and at most two hours of them"
    )


def test_what_runs_without_a_price_is_said_beside_what_had_one(tmp_path: Path) -> None:
    desk = Watched(tmp_path)
    launched = desk.launch()
    desk.look()
    detail = desk.seen(launched.run_id)
    billed = replace(detail, run=replace(detail.run, cost_usd="6.00"))
    said = cost_text(billed, Amounts(gpu_hours=Decimal(1000)))
    assert said.startswith("about 6.00 USD so far, and 1000.00 GPU hours without a price; ")
    assert "without a price" not in cost_text(billed, Amounts(cost_usd=Decimal(1)))
