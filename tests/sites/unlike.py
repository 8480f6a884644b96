"""Clusters unlike the development cluster, by the layouts of hpcflow.testing.cluster: what is asked
of every partition that a detected site file has.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import takewhile
from typing import Any

from hpcflow.model.execution import Launcher
from hpcflow.model.run import Run
from hpcflow.rendering.directives import directives
from hpcflow.sites.placement import place
from hpcflow.sites.schema import GpuDialect, Site
from tests.rendering.samples import a_run, script_of
from tests.sites.build import spec

#: Partitions that take no job of ``hpcf-ada``, who has the account physics and no reservation.
CLOSED = {
    "unlike": {"biologists", "staff", "operators", "reserved", "drained"},
    "alone": set[str](),
}
#: Partitions whose nodes have one type of GPU, and not all have the same number.
UNEQUAL = {"all-a100", "spot-a100"}


@dataclass(frozen=True)
class Request:
    """A run for one partition of a site file."""

    partition: str
    run: Run
    site: Site

    @property
    def options(self) -> str:
        """What sbatch is asked for, without what is the same for all jobs."""
        placement = place(self.run.spec, self.site)
        tasks = placement.ranks_per_node if placement.launcher is Launcher.SRUN else 1
        found = directives(self.run, self.site, placement, attempt=1, tasks_per_node=tasks)
        return " ".join(takewhile(lambda option: not option.startswith("--job-name="), found))

    def script(self) -> str:
        """What is submitted."""
        return script_of(self.run, self.site)


def requests(site: Site) -> Iterator[Request]:
    """For each partition: all of one node, all nodes, no GPU, several ranks; in both dialects."""
    seen = set()
    for request in _requests(site):
        if (request.partition, request.options) not in seen:
            seen.add((request.partition, request.options))
            yield request


def _requests(site: Site) -> Iterator[Request]:
    dialect = site.dialect.model_copy(update={"gpus": GpuDialect.GPUS_PER_NODE})
    other = site.model_copy(update={"dialect": dialect})
    for name, options in site.partitions.items():
        fewest, most = options.nodes_min, options.nodes_max or options.nodes_min
        gpus, cpus, mem_mb = options.gpus_per_node, options.cpus_per_node, options.mem_per_node_mb
        node = {"nodes": fewest, "gpus_per_node": gpus}
        nodes = {"nodes": most, "gpus_per_node": min(gpus, 1) if name in UNEQUAL else gpus}
        asked: list[dict[str, Any]] = [
            *(node, nodes),
            {"nodes": fewest},
            {"nodes": fewest, "cpus_per_task": cpus, "tasks_per_node": 1},
            *([{"nodes": fewest, "mem": f"{mem_mb}M"}] if mem_mb else []),
        ]
        yield from (_request(site, name, each) for each in asked)
        if gpus:
            yield from (_request(other, name, each) for each in (node, nodes))
        if cpus > 1:
            yield _request(site, name, {**node, "tasks_per_node": 2}, framework="mpi")


def _request(
    site: Site, name: str, resources: dict[str, Any], framework: str = "pytorch"
) -> Request:
    run = spec(**resources, partition=name, launch={"framework": framework})
    return Request(name, a_run(run), site)
