"""Estimate the cost of an attempt by the prices of its site, before accounting has its record."""

from __future__ import annotations

from datetime import datetime, timedelta
from decimal import Decimal

from hpcflow.budgets.amounts import UNITS, Amounts
from hpcflow.model.usage import Usage
from hpcflow.sites.bill import Bill, bill_of
from hpcflow.sites.placement import Placement


def usage_of(placement: Placement) -> Usage:
    """Return the expected allocation. Without a memory request, all memory of a node is assumed."""
    options, nodes = placement.options, placement.nodes
    cpus = placement.ranks_per_node * placement.cpus_per_task
    mem_mb = placement.mem_mb or options.mem_per_node_mb or 0
    if options.whole_nodes:
        cpus, mem_mb = options.cpus_per_node, options.mem_per_node_mb or mem_mb
    gpus = nodes * placement.gpus_per_node
    return Usage(
        nodes=nodes,
        cpus=nodes * cpus,
        mem_mb=nodes * mem_mb,
        gpus={placement.gpu_type or "": gpus} if gpus else {},
    )


def estimate(placement: Placement, begin: datetime, took: timedelta) -> Bill:
    elapsed_s = Decimal(str(took.total_seconds()))
    price = placement.options.price
    return bill_of(usage_of(placement), price, begin=begin, end=begin + took, elapsed_s=elapsed_s)


def hourly_usd(placement: Placement, at: datetime) -> Decimal | None:
    """Return the cost of one hour of an attempt at that time; None without a price in money."""
    return estimate(placement, at, timedelta(hours=1)).cost_usd


def estimate_cost_usd(placement: Placement, begin: datetime) -> str | None:
    """Return the cost of one attempt over its whole time limit; None if price or limit is
    unknown."""
    if placement.time_limit_min is None:
        return None
    cost = estimate(placement, begin, timedelta(minutes=placement.time_limit_min)).cost_usd
    return None if cost is None else str(cost.quantize(Decimal("0.01")))


def amounts_of(placement: Placement, begin: datetime, limit_s: int | None) -> Amounts:
    """Return the most that an attempt can cost in ``limit_s``. Without a limit, only units without
    a cost are known: they are 0, the others None."""
    bill = estimate(placement, begin, timedelta(seconds=limit_s or 3600))
    amounts = Amounts(bill.cost_usd, bill.cost_su, bill.gpu_hours)
    if limit_s is not None:
        return amounts
    free = (Decimal(0) if value == 0 else None for value in map(amounts.of, UNITS))
    return Amounts(*free)
