"""What an attempt costs by the prices of its site, before accounting has spoken."""

from __future__ import annotations

from decimal import Decimal

from hpcflow.sites.placement import Placement


def hourly_usd(placement: Placement) -> Decimal | None:
    """What one hour of an attempt costs; None where the site has no price in money."""
    price = placement.options.price
    if price is None or (price.gpu_hour_usd is None and price.node_hour_usd is None):
        return None
    gpus = placement.nodes * placement.gpus_per_node
    return (price.gpu_hour_usd or 0) * Decimal(gpus) + (price.node_hour_usd or 0) * Decimal(
        placement.nodes
    )


def estimate_cost_usd(placement: Placement) -> str | None:
    """What one attempt costs with its whole time limit; None where price or limit is unknown."""
    hourly, limit_min = hourly_usd(placement), placement.time_limit_min
    if hourly is None or limit_min is None:
        return None
    return str((hourly * limit_min / 60).quantize(Decimal("0.01")))
