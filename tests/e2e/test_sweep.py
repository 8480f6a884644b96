"""Sweeps on the real cluster: trials in the preemptible partition, as jobs and as arrays."""

from __future__ import annotations

import random
import shlex
from collections import Counter
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import Counted
from tests.e2e.preempted import take_all_nodes
from tests.e2e.test_cron import FOREIGN, cron, crontab

__all__ = ["cron"]

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(3600)]

SWEEP = """
name: {name}
base: {base}
space:
  lr: {{low: 1.0e-3, high: 1.0, log: true}}
  momentum: {{low: 0.0, high: 0.95}}
  hidden: {{low: 8, high: 128, step: 8}}
  batch_size: {{choices: [16, 32, 64, 128]}}
  activation: {{choices: [relu, tanh]}}
objective: {{metric: accuracy, direction: maximize}}
parallel: 8
{more}
"""


#: A trial that ends when it is told to: whatever is to happen before has the time that it needs.
PATIENT = """
import time
from pathlib import Path

from hpcflow import runtime

run = runtime.start()
run.restore()
for train_step in run.train_steps(4_000):
    run.log(accuracy=run.params.momentum)
    time.sleep(0.1)
    if Path({go!r}).exists():
        break
run.finish(accuracy=run.params.momentum)
"""


class Search:
    """A sweep in the partition whose jobs are preempted: of the small digits, or of a script."""

    def __init__(
        self,
        hpcflow: Hpcflow,
        name: str,
        more: str,
        *,
        pause_s: float = 0.1,
        script: Path | None = None,
        base: str = "",
        text: str = SWEEP,
    ) -> None:
        self.hpcflow, self.name = hpcflow, name
        example = hpcflow.software.examples / "sweep" / "config.yaml"
        program = f"params: {{pause_s: {pause_s}}}" if script is None else f"script: {script}"
        path = hpcflow.write_config(
            f"{name}-base.yaml",
            f"extends: {example}\n{program}\nresources: {{partition: spot, mem: 500M}}\n"
            "launch: {launcher: srun}\n"  # a job step hears of its preemption at once
            f"{base}",
        )
        text = text.format(name=name, base=path, more=more)
        self.file = hpcflow.write_config(f"{name}.yaml", text)

    def start(self) -> Any:
        return self.hpcflow.json("sweep", "start", self.file, "--site", "devcluster")

    def status(self) -> Any:
        return self.hpcflow.json("sweep", "status", self.name)

    def trials(self) -> list[dict[str, Any]]:
        found = self.hpcflow.json("sweep", "trials", self.name)["trials"]
        assert isinstance(found, list)
        return found

    def runs(self) -> list[Counted]:
        """What has been sent. Its files are read: a look with hpcflow costs as much as a trial."""
        home = self.hpcflow.home
        links = sorted((home / "runs").glob("*/scratch"))
        return [Counted(link.parent.name, link.resolve(), home) for link in links]

    def tick(self, *, killed_after_s: float | None = None) -> None:
        """A round; killed with all that it has started, if it takes longer."""
        command = " ".join(
            [f"{name}={shlex.quote(value)}" for name, value in self.hpcflow.env.items()]
            + ["hpcflow", "sweep", "tick"]
        )
        if killed_after_s is None:
            self.hpcflow("sweep", "tick", check=False)
            return
        limit = f"timeout --signal=KILL {killed_after_s:.2f} sh -c {shlex.quote(command)}"
        self.hpcflow.user.run(["sh", "-c", limit], check=False)

    def until_over(
        self, chance: random.Random, preempts: User | None = None, *, preempted: int = 0
    ) -> int:
        """Rounds, many of them killed, until it is over; how many were killed.

        ``preempts`` takes the nodes until so many attempts were ``preempted``, at least.
        """
        killed, is_enough = 0, preempts is None

        def is_over() -> bool:
            nonlocal killed, is_enough
            if chance.random() < 0.4:
                killed += 1
                self.tick(killed_after_s=chance.uniform(0.2, 2.5))
            else:
                self.tick()
                runs = self.runs()
                is_enough |= sum(len(run.job_ids) - 1 for run in runs) >= preempted
                if preempts is not None and not is_enough and any(map(_is_training, runs)):
                    take_all_nodes(preempts)  # some have just begun
            is_at_rest = all(len(run.ends) >= len(run.job_ids) for run in self.runs())
            return is_at_rest and bool(self.status()["state"] == "over")

        poll(is_over, 2100, "the sweep never ended")
        return killed


def _is_training(run: Counted) -> bool:
    is_over = len(run.ends) >= len(run.job_ids)
    return not is_over and bool(run.events(len(run.job_ids), "progress"))


def still_there(hpcflow: Hpcflow) -> str:
    """Why the line may not have removed itself."""
    logs = [path.read_text()[-2000:] for path in (hpcflow.home / "daemon").glob("*.log")]
    crons = hpcflow.user.run(["pgrep", "-ax", "cron"], check=False).stdout
    table = crontab(hpcflow.user, "-l")
    return (
        f"the line is there\n{table}\nlogs: {logs}\nat work: {crons}\n{hpcflow.json('sweep', 'ls')}"
    )


def seconds_by_sacct(user: User, trials: list[dict[str, Any]]) -> float:
    """What the jobs of all runs ran, straight from accounting, duplicates included."""
    runs = {run for trial in trials for run in trial["runs"]}
    out = user.run(
        ["sacct", "--user", user.name, "--allocations", "--duplicates", "--noheader",
         "--parsable2", "--starttime", "now-1hours", "--format", "JobName,Start,End"]
    ).stdout  # fmt: skip
    total = timedelta()
    for line in out.splitlines():
        name, start, end = line.rsplit("|", 2)
        if name.split(":")[0] in runs and start not in (
            "None", "Unknown"
        ):  # fmt: skip
            total += datetime.fromisoformat(end) - datetime.fromisoformat(start)
    return total.total_seconds()


@pytest.mark.usefixtures("cron")
@pytest.mark.parametrize(
    ("count", "preempted", "learned"),
    [(8, 2, 0.8), pytest.param(60, 10, 0.97, marks=pytest.mark.soak)],
)
def test_trials_by_cron_while_others_preempt_them_and_rounds_are_killed(
    hpcflow: Hpcflow, grace: User, count: int, preempted: int, learned: float
) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    search = Search(
        hpcflow,
        "digits",
        "sampler: {type: tpe, seed: 1}\n"
        "pruner: {type: asha, min_resource: 10, reduction_factor: 3}\n"
        f"budget: {{trials: {count}}}\n",
        pause_s=0.4,
        text=SWEEP.replace("parallel: 8", f"parallel: {min(8, count // 2)}"),
    )
    crontab(hpcflow.user, "-", text=FOREIGN)
    search.start()
    hpcflow("sweep", "install", "--yes")
    killed = search.until_over(chance, grace, preempted=preempted)
    assert killed >= max(1, count // 10)
    trials = search.trials()
    assert [trial["trial"] for trial in trials] == list(range(count))
    states = Counter(trial["state"] for trial in trials)
    assert states["complete"] + states["pruned"] == count, states
    assert states["pruned"] >= count // 10
    runs = [run for trial in trials for run in trial["runs"]]
    assert len(runs) == len(set(runs)) == count
    made = {path.name for path in (hpcflow.home / "runs").iterdir()}
    assert made == set(runs), "no run is nobody's"
    status = search.status()
    (best,) = status["best"]
    assert best["values"]["accuracy"] > learned
    attempts = [hpcflow.json("show", run)["attempts"] for run in runs]
    for each in attempts:
        assert [attempt["attempt"] for attempt in each] == list(range(1, len(each) + 1))
    causes = Counter(attempt["cause"] for each in attempts for attempt in each)
    again = [[attempt["cause"] for attempt in each] for each in attempts if len(each) > 1]
    assert causes["preempted"] >= preempted, again
    told = sum(trial["seconds"] for trial in trials)
    assert told == pytest.approx(seconds_by_sacct(hpcflow.user, trials), abs=1.0)
    hpcflow("sweep", "plot", "digits", "--output", str(hpcflow.home.parent / "plots"))
    names = {path.name for path in (hpcflow.home.parent / "plots").iterdir()}
    assert {path.suffix for path in map(Path, names)} == {".png", ".html", ".js"}
    poll(lambda: crontab(hpcflow.user, "-l") == FOREIGN, 240, lambda: still_there(hpcflow))
    crontab(hpcflow.user, "-r")


# test_costs.py has a small one in `make test`.
@pytest.mark.soak
def test_trials_as_arrays_are_preempted_and_go_on_one_by_one(hpcflow: Hpcflow, grace: User) -> None:
    go = hpcflow.home.parent / "go"
    script = hpcflow.write_config("patient.py", PATIENT.format(go=str(go)))
    more = "submit: array\nsampler: random\nbudget: {trials: 12}\n"
    search = Search(hpcflow, "arrays", more, script=script)
    sent = search.start()["first_round"]["sent"]
    assert len(sent) == 8
    assert len({job.partition("_")[0] for job in sent.values()}) == 1
    assert sorted(int(job.partition("_")[2]) for job in sent.values()) == list(range(8))

    poll(lambda: all(trial["at"] for trial in ticked(search)), 240, "some trials never began")
    take_all_nodes(grace)

    def are_all_sent_again() -> bool:
        search.tick()
        return all(run["number_of_attempts"] == 2 for run in hpcflow.json("ls")["runs"])

    poll(are_all_sent_again, 240, "not every trial was preempted and sent again")
    go.touch()
    search.until_over(random.Random(0))
    trials = search.trials()
    assert [trial["state"] for trial in trials] == ["complete"] * 12
    runs = [hpcflow.json("show", trial["runs"][0]) for trial in trials]
    causes = [[attempt["cause"] for attempt in run["attempts"]] for run in runs]
    assert causes == [["preempted", "completed"]] * 8 + [["completed"]] * 4
    logs = [hpcflow("logs", run["run_id"]).stdout for run in runs]
    assert all("Traceback" not in log for log in logs)


def ticked(search: Search) -> list[dict[str, Any]]:
    search.tick()
    return search.trials()


def test_a_pruned_trial_leaves_at_once_and_saves_nothing_more(hpcflow: Hpcflow) -> None:
    search = Search(
        hpcflow,
        "pruned",
        "sampler: random\nbudget: {trials: 2}\npruner: {type: threshold, lower: 2.0, warmup: 5}\n",
        pause_s=0.6,
        base="checkpoint: {interval: never}\n",  # it would save on notice alone
    )
    search.start()
    search.until_over(random.Random(1))
    trials = search.trials()
    assert [trial["state"] for trial in trials] == ["pruned", "pruned"]
    for trial in trials:
        shown = hpcflow.json("show", trial["runs"][0])
        assert (shown["state"], shown["cause"]) == ("cancelled", "pruned")
        assert shown["checkpoints"] == []
        assert f"{trial['runs'][0]}  pruned " in hpcflow("ls", "--all").stdout
