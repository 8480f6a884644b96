"""Select the bad nodes that a job excludes, but never so many that it fits nowhere. Pure."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from hpcflow.model.run import Run
from hpcflow.requeue.nodes import BAD_FROM, Evidence, Standing
from hpcflow.schedulers.slurm.hostlist import expand
from hpcflow.sites.added import added_options
from hpcflow.sites.schema import Partition, SchedulerKind, Site

#: How much of a partition may be excluded where its size is known, and how many nodes where not.
_PART: Final = 10
_OF_UNKNOWN: Final = 2
#: A partition of unknown size has more nodes than the few that were seen in it of late.
_LEAST_SIZE: Final = 8


def most_excluded(partition: Partition | None, nodes: int, already: int = 0) -> int:
    """How many nodes a job on ``nodes`` nodes may keep away from.

    A tenth of the partition, and at least one; but half of it stays, and one node more than the job
    needs: another may go down while it waits. A site file does not say how many nodes there are:
    there are at least as many as one job may have. Where it does not say that either, nobody knows
    whether a job on several nodes would have enough.

    Args:
        already: nodes that the run itself keeps away from.
    """
    size = partition.nodes_max if partition is not None else None
    if size is None:
        return _OF_UNKNOWN if nodes == 1 else 0
    left = min(size - nodes - 1, size // 2) - already
    return max(0, min(max(1, size // _PART), left))


def outliers(evidence: Evidence, site_name: str, site: Site | None) -> list[Standing]:
    """The bad nodes that are clearly worse than the others of each partition in which they failed.

    What fails on most nodes of a partition is a program, a file system or a network: keeping away
    from some of them would help nobody. So a node is compared with the middle one.
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
    """Partition -> the score of the middle one of its nodes; of most, nothing is known: zero."""
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
    """The bad nodes to keep away from, ``most`` at most: first those of this partition, for those
    of others do no harm there; among them the worst."""
    bad = [each for each in standings if each.is_bad]
    bad.sort(
        key=lambda each: (partition not in each.partitions, -each.score, -each.total, each.node)
    )
    return sorted(each.node for each in bad[:most])


def excludes(site: Site, run: Run | None = None) -> bool:
    """Whether nodes are excluded there at all: not on one machine, and not where options of the
    site, or of this run and its partition, ask for nodes by name."""
    added = site.dialect.options
    if run is not None:
        added = added_options(site, site.partitions.get(run.partition), run.spec.resources)
    options = [option[2:].partition("=")[0] for option in added]
    named = any("nodelist".startswith(name) or "nodefile".startswith(name) for name in options)
    return site.scheduler is SchedulerKind.SLURM and not named


def excluded_in(evidence: Evidence, site_name: str, site: Site | None) -> dict[str, list[str]]:
    """Node -> the partitions in which a job on one node is kept away from it now."""
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
    """The nodes that the next attempt of ``run`` had better not get.

    None where the user has said otherwise.
    """
    if not run.spec.retry.avoid_bad_nodes or not excludes(site, run):
        return []
    try:
        already = set(expand(run.spec.resources.exclude or ""))
    except ValueError:
        return []  # Slurm will say what is wrong with it
    standings = [each for each in outliers(evidence, run.site, site) if each.node not in already]
    most = most_excluded(site.partitions.get(run.partition), run.spec.resources.nodes, len(already))
    chosen = choose(standings, most, run.partition)
    own = evidence.own.get(run.run_id)
    if own is not None and own not in {*chosen, *already} and len(chosen) < most:
        chosen = sorted([*chosen, own])
    return chosen
