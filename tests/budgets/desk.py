"""A person with budgets, on a cluster that is in memory; a GPU costs 3 USD an hour there."""

from __future__ import annotations

import json
from datetime import timedelta
from decimal import Decimal
from typing import Any

from hpcflow.budgets.folder import BudgetFolder, budgets_of
from hpcflow.budgets.records import Change, Limit, OnExceeded, Terms
from hpcflow.budgets.scope import Scope, parse_scope
from hpcflow.budgets.state import Budget
from hpcflow.ledger.store import open_ledger
from hpcflow.reconcile.set_budget import set_budget
from tests.launch.desk import Desk
from tests.requeue.watched import Watched
from tests.sweeps.searched import Searched

#: Half an hour of two GPUs: at most 3 USD.
CONFIG = """
name: small
project: vision
command: ["true"]
launch: {framework: none, launcher: none}
resources: {partition: gpu, gpus_per_node: 2, time_limit: 30m, account: physics}
"""
VISION = Scope("project", "vision")


class Budgeted(Desk):
    """A person whose attempts may take 3 USD each, and an hour of GPU time."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.config.write_text(CONFIG)

    @property
    def budgets(self) -> BudgetFolder:
        return budgets_of(self.site, self.settings.home)

    def set(
        self,
        scope: str = "project:vision",
        *,
        hard: str | None = None,
        soft: str | None = None,
        unit: str = "cost_usd",
        per_month: bool = False,
        on_exceeded: OnExceeded = OnExceeded.FINISH,
    ) -> Budget:
        limit = Limit(*(None if each is None else Decimal(each) for each in (hard, soft)))
        terms = Terms({unit: limit}, per_month, on_exceeded)
        self.look()
        with open_ledger(self.settings.ledger_url) as ledger:
            return set_budget(
                ledger,
                self.budgets,
                parse_scope(scope),
                Change(self.clock.now(), self.settings.user, terms),
                home=self.settings.home,
                find_site=lambda _: self.site,
                clock=self.clock,
            )

    def budget(self, scope: str = "project:vision") -> Budget:
        return self.budgets.read(parse_scope(scope))

    def usd(self, scope: str = "project:vision") -> tuple[str, str]:
        """What is spent, and what is committed."""
        used = self.budget(scope).used("cost_usd", self.clock.now())
        return f"{used.spent:.2f}", f"{used.committed:.2f}"

    def lines(self, scope: str = "project:vision") -> list[dict[str, Any]]:
        text = self.budgets.file(parse_scope(scope)).read_text()
        return [json.loads(line) for line in text.splitlines()]

    def train(self, job_id: str, minutes: int, state: str = "COMPLETED") -> None:
        """A job runs so long, and accounting has heard of it."""
        self.slurm.start(job_id)
        self.look()
        self.clock.advance(minutes * 60)
        self.slurm.end(job_id, state)
        self.look()
        self.clock.advance(timedelta(minutes=1).total_seconds())
        self.look()


class BudgetDesk(Budgeted, Watched):
    """The same, with a daemon."""


class BudgetSweep(Budgeted, Searched):
    """The same, with a sweep."""
