"""Whether a run fits into one partition, and the defaults that follow from that partition."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Final

from hpcflow.errors import SpecError, Where
from hpcflow.model.spec import Framework, Launcher, Resources, RunSpec
from hpcflow.model.units import format_duration, format_minutes
from hpcflow.sites.schema import Partition, SchedulerKind, Site

if TYPE_CHECKING:
    from hpcflow.documents import Document

_FEATURE: Final = re.compile(r"[A-Za-z0-9_.:=+-]+")
_CONJUNCTION: Final = re.compile(r"[A-Za-z0-9_.:=+-]+(?:&[A-Za-z0-9_.:=+-]+)*")


class Complaint(Exception):
    """Why a run cannot go somewhere: which key, what is wrong with it, what to do next."""

    def __init__(self, key: str, message: str, action: str) -> None:
        super().__init__(message)
        self.key = key
        self.message = message
        self.action = action

    def as_error(self, document: Document | None) -> SpecError:
        """The error for people, with the place in ``document`` when there is one."""
        path = tuple(self.key.split("."))
        where = document.where(path) if document else Where(key=self.key)
        return SpecError(self.message, where=where, next_action=self.action)


def check_nodes(resources: Resources, site: Site, name: str) -> None:
    """Number of nodes, and GPUs on each.

    Raises:
        Complaint: too many, or too few nodes.
    """
    options, nodes = site.partitions[name], resources.nodes
    if site.scheduler is SchedulerKind.LOCAL and nodes > 1:
        raise Complaint(
            "resources.nodes",
            f"site {site.name} is this one machine, and the run asks for {nodes} nodes",
            "set resources.nodes=1, or name a cluster: --site NAME",
        )
    if options.nodes_max is not None and nodes > options.nodes_max:
        raise Complaint(
            "resources.nodes",
            f"{nodes} nodes, and partition {name} allows at most {options.nodes_max}",
            f"ask for {options.nodes_max} or fewer",
        )
    if nodes < options.nodes_min:
        raise Complaint(
            "resources.nodes",
            f"{_count(nodes, 'node')}, and partition {name} wants at least {options.nodes_min}",
            f"ask for {options.nodes_min} or more, or for another partition",
        )
    if resources.gpus_per_node > options.gpus_per_node:
        raise Complaint(
            "resources.gpus_per_node",
            f"{resources.gpus_per_node} GPUs per node, and a node of partition {name} "
            f"has {options.gpus_per_node or 'none'}",
            f"ask for {options.gpus_per_node} or fewer"
            if options.gpus_per_node
            else f"ask for a partition with GPUs: hpcflow site show {site.name}",
        )


def default_cpus_per_task(resources: Resources, options: Partition, ranks_per_node: int) -> int:
    """CPU cores for a rank of a run that names none.

    On whole nodes all cores, shared by the ranks. On shared nodes the cores that go with the GPUs
    that the run takes; one for a rank that takes no GPU.
    """
    if options.whole_nodes:
        cpus = options.cpus_per_node
    elif resources.gpus_per_node and options.gpus_per_node:
        cpus = options.cpus_per_node * resources.gpus_per_node // options.gpus_per_node
    else:
        return 1
    return max(1, cpus // ranks_per_node)


def check_machine(
    resources: Resources, site: Site, name: str, ranks_per_node: int, cpus_per_task: int
) -> None:
    """CPU cores and memory of a node.

    On a local site nothing is reserved and ranks may share a core, so nothing is refused.

    Raises:
        Complaint: more than a node has.
    """
    if site.scheduler is SchedulerKind.LOCAL:
        return
    options, cpus = site.partitions[name], ranks_per_node * cpus_per_task
    if cpus > options.cpus_per_node:
        most = options.cpus_per_node // ranks_per_node
        raise Complaint(
            "resources.cpus_per_task" if resources.cpus_per_task else "resources.tasks_per_node",
            f"{_count(ranks_per_node, 'rank')} × {_count(cpus_per_task, 'CPU core')}, "
            f"and a node of partition {name} has {options.cpus_per_node}",
            f"set resources.cpus_per_task={most}" if most else "ask for fewer ranks on a node",
        )
    most_mb = options.mem_per_node_mb
    if resources.mem_mb is not None and most_mb is not None and resources.mem_mb > most_mb:
        raise Complaint(
            "resources.mem",
            f"{_memory(resources.mem_mb)} of memory, and a node of partition {name} "
            f"has {_memory(most_mb)}",
            f"ask for {_memory(most_mb)} or less",
        )


def time_limit(resources: Resources, site: Site, name: str) -> int | None:
    """The time limit in minutes: the run's, the partition's default, the longest there is, None.

    Raises:
        Complaint: longer than the partition allows.
    """
    options = site.partitions[name]
    longest, asked = options.time_limit_for(resources.nodes), resources.time_limit_min
    if asked is None:
        default = options.time_limit_default_min or longest
        return default if default is None or longest is None else min(default, longest)
    if longest is not None and asked > longest:
        size = "" if longest == options.time_limit_max_min else f" to {resources.nodes} nodes"
        raise Complaint(
            "resources.time_limit",
            f"{format_duration(asked * 60)}, and partition {name} allows{size} "
            f"at most {format_duration(longest * 60)}",
            f"set resources.time_limit={format_minutes(longest)} or less: "
            "a run goes on from its checkpoint in the next attempt",
        )
    return asked


def launcher_and_ranks(spec: RunSpec, site: Site) -> tuple[Launcher, int]:
    """Who starts the processes, and how many on a node.

    Raises:
        Complaint: one process cannot be on several nodes, or several ranks.
    """
    launcher = spec.launch.launcher or _default_launcher(spec.launch.framework, site)
    if launcher is not Launcher.NONE:
        return launcher, spec.resources.ranks_per_node
    why = "launcher none starts the command once, on the first node"
    if spec.resources.nodes > 1:
        key, what = "resources.nodes", f"the other {spec.resources.nodes - 1} would idle"
    elif (spec.resources.tasks_per_node or 1) > 1:
        key, what = "resources.tasks_per_node", f"not {spec.resources.tasks_per_node} times"
    else:
        return launcher, 1
    raise Complaint(key, f"{why}: {what}", "set launch.launcher=srun, or launch.framework=pytorch")


def _default_launcher(framework: Framework, site: Site) -> Launcher:
    if framework is Framework.PYTORCH:
        return site.launch.pytorch
    return Launcher.NONE if framework is Framework.NONE else Launcher.SRUN


def combined_constraint(asked: str | None, needed: str | None, name: str) -> str | None:
    """What ``--constraint`` says when the run asks for features and the partition needs some.

    Raises:
        Complaint: the run's expression is not a plain `a&b`, and lacks what the partition needs.
    """
    if not asked or not needed:
        return asked or needed
    missing = [each for each in needed.split("&") if each not in _FEATURE.findall(asked)]
    if not missing:
        return asked
    if not _CONJUNCTION.fullmatch(asked):
        raise Complaint(
            "resources.constraint",
            f"partition {name} needs the constraint {needed}, and this one lacks it",
            f"write the whole constraint, with {needed} in it",
        )
    return "&".join([*missing, asked])


def check_refused_words(resources: Resources, site: Site) -> None:
    """What this site's sbatch may not be told.

    Raises:
        Complaint: ``mem`` where ``--mem`` is refused.
    """
    if resources.mem_mb is not None and not site.dialect.mem:
        raise Complaint(
            "resources.mem",
            f"sbatch on site {site.name} refuses --mem: a job gets the memory of its nodes",
            "leave resources.mem out",
        )


def check_required(given: Mapping[str, object], site: Site) -> None:
    """What this site's sbatch must be told; ``given`` holds what it would be.

    Raises:
        Complaint: neither the run nor the site says it.
    """
    for key in site.dialect.required:
        if key in given and given[key] is None:
            raise Complaint(
                f"resources.{key}",
                f"site {site.name} needs it and the run names none",
                f"add it to the config, or say --set resources.{key}=…",
            )


def _count(number: int, thing: str) -> str:
    return f"{number} {thing}{'' if number == 1 else 's'}"


def _memory(size_mb: int) -> str:
    """As the config would write it, exactly."""
    return f"{size_mb // 1024}G" if size_mb % 1024 == 0 else f"{size_mb}M"
