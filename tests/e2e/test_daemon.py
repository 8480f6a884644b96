"""The requeue daemon on a real cluster: a run that is preempted, again and again, finishes."""

from __future__ import annotations

import json
import random
import subprocess
from collections.abc import Iterator
from pathlib import Path
from time import monotonic
from typing import Any

import pytest

from hpcflow.testing.cluster import User, poll
from tests.e2e.conftest import TWO_NODES, Hpcflow
from tests.e2e.test_main_job import assert_same, weights

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]

PREEMPTIONS = 10
#: So many of them come while the attempt is starting: programs are loaded, nothing is trained.
WHILE_STARTING = 2
STARTING_S = 6.0
#: Long enough to be preempted so often: some 25 seconds of training, undisturbed.
LONG = ("--set", "params.epochs=240")
#: Towards the end it might be over before the nodes are taken.
LAST_TRAIN_STEPS = 1000


@pytest.fixture
def daemon(hpcflow: Hpcflow) -> Iterator[subprocess.Popen[str]]:
    """``hpcflow daemon`` of the same user, until the test is over."""
    process = hpcflow.user.popen(
        ["hpcflow", "daemon", "--interval", "1"],
        env=hpcflow.env,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
    )
    yield process
    process.terminate()
    process.communicate(timeout=60)


def take_all_nodes(user: User) -> None:
    """Run a short job of higher priority on every node; returns when it is over."""
    command = ["sbatch", "--wait", "--partition=gpu", "--nodes=4", "--gpus-per-node=4"]
    user.run([*command, "--time=1", "--output=/dev/null", "--wrap=sleep 1"], timeout=120)


def events(run_dir: Path, attempt: int) -> list[dict[str, Any]]:
    """What an attempt has reported so far; the line that is being written is left out."""
    path = run_dir / "attempts" / f"{attempt:04d}" / "events.jsonl"
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def test_a_run_that_is_preempted_ten_times_at_random_moments_finishes_by_itself(
    hpcflow: Hpcflow, grace: User, daemon: subprocess.Popen[str]
) -> None:
    undisturbed = hpcflow.json("run", hpcflow.digits, *TWO_NODES, *LONG, "--wait")
    undisturbed = hpcflow.json("show", undisturbed["run_id"])
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    run = hpcflow.json(
        "run",
        hpcflow.digits,
        *TWO_NODES,
        *LONG,
        *("--set", "resources.partition=spot", "--set", "resources.gpus_per_node=1"),
    )
    run_dir = Path(run["run_dir"])

    def wait_for_train_step(attempt: int, train_step: int) -> None:
        def is_reached() -> bool:
            said = [each["train_step"] for each in events(run_dir, attempt) if "train_step" in each]
            return bool(said) and max(said) >= train_step

        poll(is_reached, 120, f"attempt {attempt} never came to train step {train_step}")

    def wait_for_a_moment_of_its_start(attempt: int) -> None:
        poll(lambda: events(run_dir, attempt), 120, f"attempt {attempt} never started")
        moment = monotonic() + chance.uniform(0, STARTING_S)
        poll(lambda: monotonic() >= moment, 120, "time stands still")

    starting = set(chance.sample(range(1, PREEMPTIONS + 1), WHILE_STARTING))
    last = undisturbed["total_train_steps"] - LAST_TRAIN_STEPS
    train_steps = iter(sorted(chance.sample(range(last), PREEMPTIONS)))
    for attempt in range(1, PREEMPTIONS + 1):
        train_step = next(train_steps)
        if attempt in starting:
            wait_for_a_moment_of_its_start(attempt)
        else:
            wait_for_train_step(attempt, train_step)
        take_all_nodes(grace)

    def look() -> Any:
        return hpcflow.json("show", run["run_id"])

    poll(lambda: look()["state"] == "completed", 240, "it never completed")
    assert daemon.poll() is None
    shown = look()
    causes = [attempt["cause"] for attempt in shown["attempts"]]
    assert causes == ["preempted"] * PREEMPTIONS + ["completed"]
    story = hpcflow.json("history", run["run_id"])
    told = story["attempts"]
    assert {chapter["lost_train_steps"] for chapter in told[:-1]} <= {0, None}
    rules = [each["rule"] for each in story["entries"] if each["kind"] == "decided"]
    assert rules.count("go_on") == PREEMPTIONS
    assert all(chapter["nodes"] for chapter in told)
    lines = hpcflow("history", run["run_id"]).stdout.splitlines()
    assert sum("  preempted" in line for line in lines) == PREEMPTIONS
    assert sum("resubmit (go_on): attempt" in line for line in lines) == PREEMPTIONS
    assert sum(" after the end before" in line for line in lines) >= PREEMPTIONS - WHILE_STARTING
    assert hpcflow("ledger", "check").returncode == 0
    assert_same(weights(shown), weights(undisturbed))


def test_what_a_daemon_sends_has_the_limits_and_the_umask_of_the_first_attempt(
    hpcflow: Hpcflow,
) -> None:
    """The run is asked for in a login shell that has raised its limits, the daemon is cron's."""
    said = hpcflow.home.parent / "limits"
    program = (
        f"echo $(ulimit -Sn) $(ulimit -Ss) $(ulimit -Sl) $(umask) >> {said}; "
        f"test $(wc -l < {said}) = 2"
    )
    config = hpcflow.write_config(
        "limits.yaml",
        f"""
name: limits
command: [sh, -c, "{program}"]
launch: {{framework: none, launcher: none}}
resources: {{time_limit: 5m}}
retry: {{backoff: 1s}}
""",
    )

    def types(shell: str) -> None:
        hpcflow.user.run(["sh", "-c", shell], env=hpcflow.env, timeout=100)

    types(
        "umask 002; ulimit -Sn 8000; ulimit -Ss unlimited; "
        f"exec hpcflow run --site devcluster {config}"
    )

    def twice() -> bool:
        types("umask 022; ulimit -Sn 1024; ulimit -Ss 8192; exec hpcflow daemon --once")
        return said.exists() and len(said.read_text().splitlines()) == 2

    poll(twice, 120, "it is not sent again")
    first, second = said.read_text().splitlines()
    assert first == second
    assert first.endswith(" 0002")
