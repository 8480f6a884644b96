"""sbatch options for which hpcflow has no key."""

from __future__ import annotations

from hpcflow.model.execution import Resources
from hpcflow.model.sbatch import as_options
from hpcflow.sites.schema import Partition, Site


def added_options(site: Site, partition: Partition | None, resources: Resources) -> list[str]:
    """Return the added options of site, partition and run. sbatch uses the last of equal ones."""
    of_partition = partition.sbatch if partition is not None else {}
    return [*site.dialect.options, *as_options({**of_partition, **resources.sbatch})]
