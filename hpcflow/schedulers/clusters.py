"""Check that this machine's Slurm is the cluster of a site."""

from __future__ import annotations

from hpcflow.errors import InputError, Where
from hpcflow.schedulers.base import Scheduler
from hpcflow.sites.schema import Site


def other_cluster(site: Site, scheduler: Scheduler) -> str | None:
    """Return the name of this cluster, if it is certainly not the site's."""
    here = scheduler.cluster()
    if here and site.cluster_name and here.lower() != site.cluster_name.lower():
        return here
    return None


def require_cluster(site: Site, scheduler: Scheduler) -> None:
    """Raise InputError if Slurm here is not the site's: clusters may share home and scratch."""
    if here := other_cluster(site, scheduler):
        raise InputError(
            f"site {site.name} is cluster {site.cluster_name}, but Slurm on this machine is of "
            f"cluster {here}",
            where=Where(key="--site"),
            next_action=f"log in to {site.cluster_name}, or name this cluster's site: "
            "hpcflow site list",
        )
