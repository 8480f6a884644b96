"""Options of sbatch that hpcflow has no key for."""

from __future__ import annotations

from hpcflow.model.execution import Resources
from hpcflow.model.sbatch import as_options
from hpcflow.sites.schema import Partition, Site


def added_options(site: Site, partition: Partition | None, resources: Resources) -> list[str]:
    """Return what site, partition and run add, each an option such as ``--licenses=matlab``.

    The later one wins, for sbatch as well.
    """
    of_partition = partition.sbatch if partition is not None else {}
    return [*site.dialect.options, *as_options({**of_partition, **resources.sbatch})]
