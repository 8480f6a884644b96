"""`auto` where limits are full now, or others wait: the table in docs/placement.md, row by row."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

import pytest

from hpcflow.schedulers.waiting import (
    ClusterQueue,
    IdleNode,
    PredictedStart,
    RunningJob,
    WaitingJob,
)
from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.standing import JOBS, Association, Limit, QosLimits, Standing
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.placement.test_choosing import CLUSTER, NOW, Cluster, asked

_DOCS: Final = Path(__file__).parents[2] / "docs" / "placement.md"
_RUNNING: Final = re.compile(r"(\w+)(?: of (\w+))? (\d+) in (\w+) (?:until (\d+)h|unseen)")
_WAITING: Final = re.compile(r"(\d+) in (\w+)(?: on (\w+))? (?:from (\d+)h|at no known time)")
_LIMIT: Final = re.compile(r"(?:(ada) in )?(\w+): (\w+) (\S+) (\d+)")


def _rows() -> Iterator[tuple[str, ...]]:
    section = _DOCS.read_text().partition("## What is full now")[2].partition("\n## ")[0]
    lines = [line for line in section.splitlines() if line.startswith("|")][2:]
    for line in lines:
        yield tuple(cell.strip() for cell in line.strip("|").split("|"))


@dataclass
class Used:
    """A job that counts; one without an end is not shown."""

    user: str
    account: str
    gpus: int
    partition: str
    ends_at: datetime | None

    def uses(self, resource: str) -> int:
        sizes = {"gres/gpu": self.gpus, "node": -(-self.gpus // 4), "cpu": self.gpus * 8, JOBS: 1}
        return sizes[resource]


def _hours(text: str) -> datetime | None:
    return NOW + timedelta(hours=int(text)) if text else None


def _used(text: str) -> list[Used]:
    return [
        Used(user, account or "physics", int(gpus), partition, _hours(until))
        for user, account, gpus, partition, until in _RUNNING.findall(text)
    ]


def _limits(text: str, jobs: list[Used]) -> Iterator[tuple[str, Limit]]:
    """Whose it is, and the limit, with what counts against it by Slurm's rules."""
    for user, whose, name, resource, allowed in _LIMIT.findall(text):
        counted = [
            job
            for job in jobs
            if (whose not in ("gpu", "spot") or job.partition == whose)
            and (whose != "physics" or job.account == "physics")
            and (not name.endswith("PerAccount") or job.account == "physics")
            and (job.user == "ada" or not (name.endswith("PerUser") or user))
        ]
        used = sum(job.uses(resource) for job in counted)
        holder = f"user ada in account {whose}" if user else whose
        of_account = name.endswith("PerAccount")
        words = f"account physics in QOS {whose}" if of_account else holder
        yield holder, Limit(name, resource, int(allowed), used, words)


class Full(FakeScheduler):
    """Two partitions, each with nodes and a QOS of its own."""

    caps_cpus = False

    def cluster_info(self) -> ClusterInfo:
        info = super().cluster_info()
        partitions = tuple(
            replace(
                each,
                qos=each.name,
                node_names=(f"{each.name[0]}1", f"{each.name[0]}9"),
                caps_cpus=self.caps_cpus,
            )
            for each in info.partitions
        )
        return replace(info, partitions=partitions)

    def _predicted(self, partition: str) -> PredictedStart | None:
        starts_at = self.starts.get(partition, NOW)
        return PredictedStart(starts_at or NOW, partition, (f"{partition[0]}1",))


def _waiting(text: str) -> Iterator[WaitingJob]:
    for count, partition, node, since in _WAITING.findall(text):
        for number in range(int(count)):
            yield WaitingJob(
                f"{partition}{number}",
                (partition,),
                "Priority",
                expected_nodes=(node or f"{partition[0]}1",) if since else (),
                expected_start=_hours(since),
            )


def _standing(limits: list[tuple[str, Limit]]) -> Standing:
    def of(*names: str) -> tuple[Limit, ...]:
        return tuple(limit for holder, limit in limits if holder in names)

    own = of("physics", "user ada in account physics")
    association = Association("physics", None, "normal", ("normal",), own, is_default=True)
    qos = (QosLimits("normal", limits=of("normal")),)
    other = tuple(QosLimits(name, limits=of(name)) for name in ("gpu", "spot"))
    return Standing("ada", (association,), qos, other_qos=other)


ROWS: Final = list(_rows())


def test_there_are_thirty_situations() -> None:
    assert len(ROWS) >= 30


@pytest.mark.parametrize("row", ROWS, ids=lambda row: "; ".join(filter(None, row[:4])) or "nothing")
def test_the_table_is_what_auto_and_plan_say(tmp_path: Path, row: tuple[str, ...]) -> None:
    limits, running, waiting, room, goes_to, starts = row
    cluster = Cluster(tmp_path, CLUSTER)
    cluster.slurm = Full(cluster.clock)
    jobs = _used(running)
    names = ("gres/gpu", "node", "cpu")
    shown = [
        RunningJob(
            str(number),
            job.partition,
            job.user,
            job.account,
            "normal",
            {name: job.uses(name) for name in names},
            job.ends_at,
        )
        for number, job in enumerate(jobs)
        if job.ends_at is not None
    ]
    cluster.slurm.others = ClusterQueue(tuple(_waiting(waiting)), tuple(shown))
    cluster.slurm.starts = {
        name: _hours(hours) for name, hours in re.findall(r"(\w+) in (\d+)h", room)
    }
    cluster.slurm.idle = [
        IdleNode(f"{name[0]}1", (name,), {"cpu": 32, "mem": 64_000, "gres/gpu": 4}, is_empty=True)
        for name in ("gpu", "spot")
        if name not in cluster.slurm.starts
    ]
    cluster.stands(_standing(list(_limits(limits, jobs))))

    assert cluster.goes(asked())[0] == goes_to

    ranked = cluster.chooser.survey(asked()).ranked
    if starts == "unknown":
        assert not ranked
    else:
        best = ranked[0].candidate
        assert best.placement.partition == goes_to
        hours = re.search(r"\d+", starts)
        assert best.waits_s == (3600 * int(hours[0]) if hours else 0)


@pytest.mark.parametrize(
    ("caps_cpus", "is_empty", "goes_to"),
    [(False, False, "spot"), (True, True, "spot"), (True, False, "gpu")],
)
def test_only_empty_nodes_count_as_idle_if_the_partition_caps_cpus(
    tmp_path: Path, caps_cpus: bool, is_empty: bool, goes_to: str
) -> None:
    cluster = Cluster(tmp_path, CLUSTER)
    cluster.slurm = slurm = Full(cluster.clock)
    slurm.caps_cpus = caps_cpus
    cluster.slurm.others = ClusterQueue(tuple(_waiting("1 in spot from 9h")), ())
    cluster.slurm.starts = {"spot": _hours("6")}
    free = {"cpu": 32, "mem": 64_000, "gres/gpu": 4}
    cluster.slurm.idle = [
        IdleNode(f"{name[0]}1", (name,), free, is_empty=is_empty or name == "gpu")
        for name in ("gpu", "spot")
    ]
    cluster.stands(_standing([]))
    assert cluster.goes(asked(mem="4G"))[0] == goes_to
