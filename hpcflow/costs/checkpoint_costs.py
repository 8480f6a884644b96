"""Compute the cost of stored and fetched checkpoints, from the records of runs and their sites."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime

from hpcflow.costs.facts import SCRATCH, Facts, add_known, add_scratch, add_store
from hpcflow.costs.storage import StorageReport, storage_report
from hpcflow.errors import HpcflowError
from hpcflow.ledger.rows import MirroredRow, StoringRow
from hpcflow.ledger.store import Ledger
from hpcflow.sites.prices import ScratchPrice, StorePrice, price_of_store
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import Home
from hpcflow.storage.runs import is_linked


@dataclass(frozen=True)
class CheckpointCosts:
    """The cost of checkpoints, and what is unknown about it.

    Attributes:
        facts: also counts the unknown.
        problems: site -> why its file could not be read, so its prices are unknown.
    """

    report: StorageReport
    facts: Facts = field(default_factory=Facts)
    problems: dict[str, str] = field(default_factory=dict)


def checkpoint_costs(
    ledger: Ledger,
    keys: Sequence[str],
    *,
    since: datetime,
    until: datetime,
    filters: Mapping[str, str],
    everyone: bool,
    find_site: Callable[[str], Site],
    home: Home,
) -> CheckpointCosts:
    """Return what checkpoints cost between two times; nothing if no site prices them.

    Args:
        until: not after now.
        everyone: also count the runs of other users.
        home: only run directories with a link in it are read. Of other runs, only the ledger's data
            about their stores is used.
    """
    sites: dict[str, Site] = {}
    problems: dict[str, str] = {}
    for name in ledger.sites(filters=filters, everyone=everyone):
        try:
            site = find_site(name)
        except HpcflowError as error:
            problems[name] = error.message
            continue
        if site.scratch.price is not None or (site.mirror is not None and site.mirror.price):
            sites[name] = site
    facts = Facts()
    runs = ledger.storing(list(sites), filters=filters, everyone=everyone)
    # The files of finished runs whose checkpoints are all removed need not be read.
    left_store, left_scratch = ledger.left(list(sites), since, everyone=everyone)
    in_stores = [
        run
        for run in runs
        if run.run_id not in left_store and _price(sites, run, run.mirror_url) is not None
    ]
    known: dict[str, list[MirroredRow]] = {}
    for row in ledger.mirrored([run.run_id for run in in_stores], everyone=everyone):
        known.setdefault(row.run_id, []).append(row)
    for run in in_stores:
        sent = known.get(run.run_id, ())
        if is_linked(home, run.run_id, run.run_dir):
            add_store(facts, home, run, sent)
        else:
            add_known(facts, run, sent)
    for run in runs:
        if run.run_id not in left_scratch and sites[run.site].scratch.price is not None:
            if is_linked(home, run.run_id, run.run_dir):
                add_scratch(facts, home, run)
            else:
                facts.lost_runs.add(run.run_id)
    found = storage_report(
        facts.stored,
        facts.fetched,
        keys,
        since=since,
        until=until,
        price_of=lambda run, place: _price(sites, run, place),
    )
    return CheckpointCosts(found, facts, problems)


def _price(
    sites: Mapping[str, Site], run: StoringRow, place: str | None
) -> ScratchPrice | StorePrice | None:
    site = sites[run.site]
    if place == SCRATCH:
        return site.scratch.price
    return None if place is None else price_of_store(site, place)
