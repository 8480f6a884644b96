"""Select the bad nodes that a job excludes, but never so many that it fits nowhere. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hpcflow.model.run import Run
from hpcflow.requeue.nodes import BAD_FROM, Evidence, Standing
from hpcflow.schedulers.slurm.hostlist import expand
from hpcflow.sites.placement import added_options
from hpcflow.sites.schema import Partition, SchedulerKind, Site

#: A job may exclude a tenth of a partition, or two nodes if the partition's size is unknown.
_PART: Final = 10
_OF_UNKNOWN: Final = 2
#: The least assumed size of a partition: it has more nodes than the few seen lately.
_LEAST_SIZE: Final = 8


def most_excluded(partition: Partition | None, nodes: int, already: int = 0) -> int:
    """Return how many nodes a job on ``nodes`` nodes may exclude.

    That is a tenth of the partition, and at least one node. But half of the partition remains, and
    one node more than the job needs, because another may go down while the job is pending. The
    size is taken from ``nodes_max``, the most nodes of one job. If that is unknown, a job on
    several nodes excludes none.

    Args:
        already: number of nodes that the run itself excludes.
    """
    size = partition.nodes_max if partition is not None else None
    if size is None:
        return _OF_UNKNOWN if nodes == 1 else 0
    left = min(size - nodes - 1, size // 2) - already
    return max(0, min(max(1, size // _PART), left))


def outliers(evidence: Evidence, site_name: str, site: Site | None) -> list[Standing]:
    """Return the bad nodes that are clearly worse than the median node of each of their partitions.

    If most nodes of a partition fail, the reason is a program, a file system or a network, and
    excluding some nodes would not help.
    """
    standings = evidence.standings.get(site_name, ())
    usual = _usual(standings, evidence.seen.get(site_name, {}), site)
    return [
        each
        for each in standings
        if each.is_bad and all(each.score - usual[name] >= BAD_FROM for name in each.partitions)
    ]


def _usual(
    standings: Sequence[Standing], seen: Mapping[str, int], site: Site | None
) -> dict[str, float]:
    """Return partition -> median score of its nodes; nodes without failures have 0."""
    scores_in: dict[str, list[float]] = defaultdict(list)
    for each in standings:
        for name in each.partitions:
            scores_in[name].append(each.score)
    found = {}
    for name, scores in scores_in.items():
        scores.sort(reverse=True)
        partition = site.partitions.get(name) if site is not None else None
        size = partition.nodes_max if partition is not None else None
        middle = max(size or _LEAST_SIZE, seen.get(name, 0), len(scores)) // 2
        found[name] = scores[middle] if middle < len(scores) else 0.0
    return found


def choose(standings: Iterable[Standing], most: int, partition: str) -> list[str]:
    """Return at most ``most`` bad nodes to exclude: first this partition's, and the worst first."""
    bad = [each for each in standings if each.is_bad]
    bad.sort(
        key=lambda each: (partition not in each.partitions, -each.score, -each.total, each.node)
    )
    return sorted(each.node for each in bad[:most])


def excludes(site: Site, run: Run | None = None) -> bool:
    """Return whether hpcflow excludes nodes: only in Slurm, and not if options of the site, or of
    this run and its partition, request nodes by name."""
    added = site.dialect.options
    if run is not None:
        added = added_options(site, site.partitions.get(run.partition), run.spec.resources)
    options = [option[2:].partition("=")[0] for option in added]
    named = any("nodelist".startswith(name) or "nodefile".startswith(name) for name in options)
    return site.scheduler is SchedulerKind.SLURM and not named


def excluded_in(evidence: Evidence, site_name: str, site: Site | None) -> dict[str, list[str]]:
    """Return bad node -> the partitions in which a one-node job excludes it now."""
    standings = outliers(evidence, site_name, site)
    found: dict[str, list[str]] = {each.node: [] for each in standings}
    if site is not None and not excludes(site):
        return found
    partitions = site.partitions if site is not None else {}
    for name in sorted({name for each in standings for name in each.partitions}):
        for node in choose(standings, most_excluded(partitions.get(name), 1), name):
            found[node].append(name)
    return found


def to_avoid(evidence: Evidence, run: Run, site: Site) -> list[str]:
    """Return the nodes that the next attempt of ``run`` excludes; none if the user disabled it."""
    if not run.spec.retry.avoid_bad_nodes or not excludes(site, run):
        return []
    try:
        already = set(expand(run.spec.resources.exclude or ""))
    except ValueError:
        return []  # Slurm will report the error
    standings = [each for each in outliers(evidence, run.site, site) if each.node not in already]
    most = most_excluded(site.partitions.get(run.partition), run.spec.resources.nodes, len(already))
    chosen = choose(standings, most, run.partition)
    own = evidence.own.get(run.run_id)
    if own is not None and own not in {*chosen, *already} and len(chosen) < most:
        chosen = sorted([*chosen, own])
    return chosen
