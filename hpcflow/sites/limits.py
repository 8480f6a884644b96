"""Check whether a run fits a partition, and has the options that the site requires.

A check that fails raises :class:`Complaint`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from hpcflow.errors import SpecError, Where, shell_word
from hpcflow.model.execution import Resources
from hpcflow.model.units import counted
from hpcflow.sites.schema import SchedulerKind, Site

if TYPE_CHECKING:
    from hpcflow.documents import Document


class Complaint(Exception):
    """A run does not fit: the wrong key, the reason, and the next action."""

    def __init__(self, key: str, message: str, action: str, *, lines: Sequence[str] = ()) -> None:
        super().__init__(message)
        self.key = key
        self.message = message
        self.action = action
        self.lines = lines

    def as_error(self, document: Document | None) -> SpecError:
        """Return the error for the user, with file and line if ``document`` has the key."""
        where = Where(key=self.key)
        return SpecError(
            self.message,
            where=document.located(where) if document else where,
            next_action=self.action,
            lines=self.lines,
        )


def check_nodes(resources: Resources, site: Site, name: str) -> None:
    """Check the number of nodes, and of GPUs per node."""
    options, nodes = site.partitions[name], resources.nodes
    if site.scheduler is SchedulerKind.LOCAL and nodes > 1:
        raise Complaint(
            "resources.nodes",
            f"site {site.name} is this machine alone, and the run requests {nodes} nodes",
            "set resources.nodes=1, or name a cluster: --site NAME",
        )
    if options.nodes_max is not None and nodes > options.nodes_max:
        raise Complaint(
            "resources.nodes",
            f"{counted(nodes, 'node')}, and partition {name} allows at most {options.nodes_max}",
            f"ask for {options.nodes_max} or fewer",
        )
    if nodes < options.nodes_min:
        raise Complaint(
            "resources.nodes",
            f"{counted(nodes, 'node')}, and partition {name} requires at least {options.nodes_min}",
            f"ask for {options.nodes_min} or more, or for another partition",
        )
    if resources.gpus_per_node > options.gpus_per_node:
        raise Complaint(
            "resources.gpus_per_node",
            f"{counted(resources.gpus_per_node, 'GPU')} per node, and a node of partition {name} "
            f"has {options.gpus_per_node or 'none'}",
            f"ask for {options.gpus_per_node} or fewer"
            if options.gpus_per_node
            else f"ask for a partition with GPUs: hpcflow site show {shell_word(site.name)}",
        )


def check_machine(
    resources: Resources, site: Site, name: str, ranks_per_node: int, cpus_per_task: int
) -> None:
    """Check CPU cores and memory per node.

    A local site reserves nothing, and its ranks may share a core, so it refuses nothing.
    """
    if site.scheduler is SchedulerKind.LOCAL:
        return
    options, cpus = site.partitions[name], ranks_per_node * cpus_per_task
    if cpus > options.cpus_per_node:
        most = options.cpus_per_node // ranks_per_node
        raise Complaint(
            "resources.cpus_per_task" if resources.cpus_per_task else "resources.tasks_per_node",
            f"{counted(ranks_per_node, 'rank')} × {counted(cpus_per_task, 'CPU core')}, "
            f"and a node of partition {name} has {options.cpus_per_node}",
            f"set resources.cpus_per_task={most}"
            if most
            else f"set resources.tasks_per_node={options.cpus_per_node} or less",
        )
    most_mb = options.mem_per_node_mb
    if resources.mem_mb is not None and most_mb is not None and resources.mem_mb > most_mb:
        raise Complaint(
            "resources.mem",
            f"{memory_text(resources.mem_mb)} of memory, and a node of partition {name} "
            f"has {memory_text(most_mb)}",
            f"ask for {memory_text(most_mb)} or less",
        )


def check_refused_words(resources: Resources, site: Site) -> None:
    """Check for options that the site refuses: ``mem``; ``dependency``, ``begin`` if local."""
    for key in ("dependency", "begin"):
        if getattr(resources, key) is not None and site.scheduler is SchedulerKind.LOCAL:
            raise Complaint(
                f"resources.{key}",
                f"site {site.name} is this machine alone, where jobs start at once",
                "leave it out, or name a cluster: --site NAME",
            )
    if resources.mem_mb is not None and not site.dialect.mem:
        raise Complaint(
            "resources.mem",
            f"sbatch on site {site.name} refuses --mem: a job gets the memory of its nodes",
            "leave resources.mem out",
        )


def check_required(given: Mapping[str, object], site: Site) -> None:
    for key in site.dialect.required:
        if key in given and given[key] is None:
            raise Complaint(
                f"resources.{key}",
                f"site {site.name} requires it, and the run names none",
                f"add it to the config, or type --set resources.{key}=…",
            )


def memory_text(size_mb: int) -> str:
    """Return the exact size as in a config."""
    return f"{size_mb // 1024}G" if size_mb % 1024 == 0 else f"{size_mb}M"
