"""Fill in what a run did not request: launcher, ranks, CPU cores, time limit, constraint."""

from __future__ import annotations

import re
from typing import Final

from hpcflow.model.execution import Framework, Launcher, Resources
from hpcflow.model.spec import RunSpec
from hpcflow.model.units import counted, format_duration, format_minutes
from hpcflow.sites.limits import Complaint
from hpcflow.sites.schema import Partition, Site

#: Their ranks find each other by variables of srun tasks, one task per rank.
_NOT_BY_TORCHRUN: Final = frozenset({Framework.TENSORFLOW, Framework.JAX, Framework.MPI})

_FEATURE: Final = re.compile(r"[A-Za-z0-9_.:=+-]+")
_CONJUNCTION: Final = re.compile(r"[A-Za-z0-9_.:=+-]+(?:&[A-Za-z0-9_.:=+-]+)*")


def launcher_and_ranks(spec: RunSpec, site: Site) -> tuple[Launcher, int]:
    """Return the launcher, and the number of ranks per node.

    Raises:
        Complaint: launcher none with several nodes or ranks, or a launcher with which the ranks
            would never find each other.
    """
    framework = spec.launch.framework
    launcher = spec.launch.launcher or _default_launcher(spec, site)
    if launcher is Launcher.TORCHRUN and framework in _NOT_BY_TORCHRUN:
        raise Complaint(
            "launch.launcher",
            f"torchrun sets up no rendezvous for {framework.value}: each rank would train alone",
            f"set launch.launcher=srun, the default for {framework.value}; "
            "or launch.framework=pytorch, if it is a torch program",
        )
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


def _default_launcher(spec: RunSpec, site: Site) -> Launcher:
    framework, resources = spec.launch.framework, spec.resources
    if framework is not Framework.PYTORCH:
        return Launcher.NONE if framework is Framework.NONE else Launcher.SRUN
    # The environment of a one-rank command may lack torch. srun makes it a job step, because Slurm
    # signals a preemption to job steps at once, and to the batch script too late.
    is_one_rank = resources.nodes == 1 and resources.ranks_per_node == 1
    return Launcher.SRUN if spec.command is not None and is_one_rank else site.launch.pytorch


def default_cpus_per_task(resources: Resources, options: Partition, ranks_per_node: int) -> int:
    """Return the CPU cores of a rank if the run names none.

    On whole nodes, the ranks share all cores. On shared nodes, they share the cores in proportion
    to the requested GPUs; a rank without GPU gets one core.
    """
    if options.whole_nodes:
        cpus = options.cpus_per_node
    elif resources.gpus_per_node and options.gpus_per_node:
        cpus = options.cpus_per_node * resources.gpus_per_node // options.gpus_per_node
    else:
        return 1
    return max(1, cpus // ranks_per_node)


def time_limit(resources: Resources, site: Site, name: str) -> int | None:
    """Return the time limit in minutes: the run's, or the partition's default or maximum, or None.

    Raises:
        Complaint: it exceeds the partition's maximum.
    """
    options = site.partitions[name]
    longest, asked = options.time_limit_for(resources.nodes), resources.time_limit_min
    if asked is None:
        default = options.time_limit_default_min or longest
        return default if default is None or longest is None else min(default, longest)
    if longest is not None and asked > longest:
        size = (
            ""
            if longest == options.time_limit_max_min
            else f" to {counted(resources.nodes, 'node')}"
        )
        raise Complaint(
            "resources.time_limit",
            f"{format_duration(asked * 60)}, and partition {name} allows{size} "
            f"at most {format_duration(longest * 60)}",
            f"set resources.time_limit={format_minutes(longest)} or less: "
            "the next attempt continues from the checkpoint",
        )
    return asked


def combined_constraint(asked: str | None, needed: str | None, name: str) -> str | None:
    """Return the constraint that combines the run's features with those of the partition.

    Raises:
        Complaint: the run's expression is not a plain `a&b`, and lacks a feature that the partition
            needs.
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
