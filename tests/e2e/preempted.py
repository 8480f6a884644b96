"""The digits training, preempted again and again: it ends as one does that nobody disturbed."""

from __future__ import annotations

import random
from pathlib import Path
from time import monotonic

from hpcflow.testing.cluster import User, poll
from tests.e2e.conftest import TWO_NODES, Hpcflow, events
from tests.e2e.counted import Counted
from tests.e2e.test_main_job import assert_same, weights

#: One in so many preemptions, but at least one, comes while the attempt is starting: programs are
#: loaded, nothing is trained.
ONE_STARTING_IN = 5
STARTING_S = 6.0
#: Cron's clock has no smaller hand than a minute, and the round that sends may be the third.
SENT_S = 300
#: After each train step: a training that is to be preempted takes a while, and leaves the cores to
#: others.
PAUSE_S = 0.03
#: Towards the end it might be over before the nodes are taken.
LAST_TRAIN_STEPS = 100


def take_all_nodes(user: User) -> None:
    """Run a short job of higher priority on every node; returns when it is over.

    It shares no node: a job that leaves it the GPUs, or some cores, would be left alone.
    """
    command = ["sbatch", "--parsable", "--partition=gpu", "--nodes=4", "--exclusive"]
    sent = user.run([*command, "--time=1", "--output=/dev/null", "--wrap=sleep 1"])
    ask = ["squeue", "--noheader", "--states=all", f"--jobs={sent.stdout.strip()}", "--format=%T"]
    # `sbatch --wait` looks after 2, 6, 14, 30 and 62 seconds.
    poll(lambda: user.run(ask).stdout.strip() == "COMPLETED", 300, "nobody made room", every_s=0.3)


def unhurried(hpcflow: Hpcflow) -> Path:
    """The config of the digits training, with a pause after each train step."""
    program = hpcflow.digits.with_name("train.py").read_text()
    step = "            optimizer.step()\n"
    assert program.count(step) == 1
    slow = program.replace(step, f"{step}            __import__('time').sleep({PAUSE_S})\n")
    script = hpcflow.write_config("train.py", slow)
    return hpcflow.write_config("slow.yaml", f"extends: {hpcflow.digits}\nscript: {script}\n")


def assert_survives(hpcflow: Hpcflow, grace: User, preemptions: int) -> None:
    """A run that is preempted so often, at random moments, completes with the weights of one that
    is not, and its history tells the story. Who sends it again is the caller's affair."""
    config = unhurried(hpcflow)
    long = ("--set", f"params.epochs={4 + 4 * preemptions}")  # an epoch: a second, with its pauses
    undisturbed = hpcflow.json("run", hpcflow.digits, *TWO_NODES, *long, "--wait")
    undisturbed = hpcflow.json("show", undisturbed["run_id"])
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    run = hpcflow.json(
        "run",
        config,
        *TWO_NODES,
        *long,
        *("--set", "resources.partition=spot", "--set", "resources.gpus_per_node=1"),
    )
    run_dir = Path(run["run_dir"])

    def wait_for_train_step(attempt: int, train_step: int) -> None:
        def is_reached() -> bool:
            said = [each["train_step"] for each in events(run_dir, attempt) if "train_step" in each]
            return bool(said) and max(said) >= train_step

        poll(is_reached, SENT_S, f"attempt {attempt} never came to train step {train_step}")

    def wait_for_a_moment_of_its_start(attempt: int) -> None:
        poll(lambda: events(run_dir, attempt), SENT_S, f"attempt {attempt} never started")
        moment = monotonic() + chance.uniform(0, STARTING_S)
        poll(lambda: monotonic() >= moment, 300, "time stands still")

    starts = max(1, preemptions // ONE_STARTING_IN)
    starting = set(chance.sample(range(1, preemptions + 1), starts))
    last = undisturbed["total_train_steps"] - LAST_TRAIN_STEPS
    train_steps = iter(sorted(chance.sample(range(last), preemptions)))
    for attempt in range(1, preemptions + 1):
        train_step = next(train_steps)
        if attempt in starting:
            wait_for_a_moment_of_its_start(attempt)
        else:
            wait_for_train_step(attempt, train_step)
        take_all_nodes(grace)

    counted = Counted(run["run_id"], run_dir, hpcflow.home)
    poll(lambda: counted.causes[-1:] == ["completed"], SENT_S, "it never completed")
    shown = hpcflow.json("show", run["run_id"])
    causes = [attempt["cause"] for attempt in shown["attempts"]]
    assert causes == ["preempted"] * preemptions + ["completed"]
    story = hpcflow.json("history", run["run_id"])
    told = story["attempts"]
    assert {chapter["lost_train_steps"] for chapter in told[:-1]} <= {0, None}
    rules = [each["rule"] for each in story["entries"] if each["kind"] == "decided"]
    assert rules.count("go_on") == preemptions
    assert all(chapter["nodes"] for chapter in told)
    lines = hpcflow("history", run["run_id"]).stdout.splitlines()
    assert sum("  preempted" in line for line in lines) == preemptions
    assert sum("resubmit (go_on): attempt" in line for line in lines) == preemptions
    assert sum(" after the previous end" in line for line in lines) >= preemptions - starts
    assert hpcflow("ledger", "check").returncode == 0
    assert_same(weights(shown), weights(undisturbed))
