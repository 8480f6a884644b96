"""Sweeps whose rounds are killed, each at another moment; what must be so after the next ones."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import count
from pathlib import Path

from hpcflow.model.ids import parse_job_name
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.requeue.killing import Killer
from tests.sweeps.searched import Searched


def killed_at_each(killer: Killer, folder: Path) -> Iterator[tuple[int, Searched]]:
    """A desk for each moment, and the moment; until whatever is armed is over before it comes."""
    for moment in count(1):
        (folder / str(moment)).mkdir()
        desk = Searched(folder / str(moment))
        # A queue that forgets nothing: every job that there ever was can be counted.
        desk.slurm = FakeScheduler(desk.clock, cluster_name="devcluster", min_job_age_s=10**7)
        killer.aim_at(moment)
        yield moment, desk
        if not killer.has_struck:
            return


def sent(desk: Searched) -> Counter[str]:
    """Run id -> how many jobs of it there ever were."""
    names = (parse_job_name(job.job_name) for job in desk.jobs())
    return Counter(name[0] for name in names if name is not None)


def assert_once(desk: Searched, moment: int) -> None:
    """Every trial has its runs, every run its one job, and nobody else has any."""
    trials = desk.progress.trials
    assert [trial.number for trial in trials] == list(range(len(trials)))
    runs = [run_id for trial in trials for run_id in trial.all_runs]
    assert len(set(runs)) == len(runs)
    jobs = sent(desk)
    assert set(jobs.values()) <= {1}, f"killed at moment {moment}: sent twice"
    assert set(jobs) == set(runs), f"killed at moment {moment}: lost, or nobody's"
