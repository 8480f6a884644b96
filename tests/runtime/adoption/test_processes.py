"""Real programs that write slowly, a real watcher, and kill -9 for both at any moment."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime.manifest import verify
from hpcflow.testing.cluster import poll
from tests.runtime.adoption import writer
from tests.runtime.adoption.bench import ROOT, Bench

STYLES: dict[str, dict[str, Any]] = {
    "overwritten": {"pattern": "ckpt.pt", "train_step": "count", "put_back": True},
    "marked": {"pattern": "checkpoint-*", "marker": "trainer_state.json"},
    "renamed": {"pattern": "step-*", "renamed": True},
}
KILLS = 4


class Attempt:
    """One attempt, as the job script makes it."""

    def __init__(self, bench: Bench, style: str, count: int) -> None:
        self.bench = bench
        begin = bench.call("begin")
        assert begin.returncode in (0, 3), begin.stderr
        self.resumed = Path(begin.stdout.strip()) if begin.returncode == 0 else None
        words = []
        if self.resumed is not None:
            (own,) = (self.resumed / "adopted").iterdir()
            words = ["--resume", str(own)]
            if style == "overwritten":
                assert own.read_bytes() == (bench.out / "ckpt.pt").read_bytes()
        bench.resumed = self.resumed
        self.log = bench.folder.attempt_dir / "out.log"
        self.program_file = bench.folder.attempt_dir / "program"
        with self.log.open("ab") as log:
            self.program = subprocess.Popen(
                [sys.executable, writer.__file__, style, str(bench.out), str(count), *words],
                stdout=log,
                stderr=log,
            )
        self.program_file.write_text(f"{self.program.pid}\n")
        self.watcher = bench.watcher()

    def wait(self) -> int:
        """The program ends, and whatever became of the watcher, there is a last look."""
        code = self.program.wait(120)
        with self.program_file.open("a") as file:
            file.write(f"{code}\n")
        self.watcher.send_signal(signal.SIGUSR1)
        self.watcher.wait(120)
        end = self.bench.call("end", str(code))
        assert end.returncode == 0, end.stderr
        return code

    def kill_all(self) -> None:
        """As a node that loses its power, nearly."""
        for process in (self.watcher, self.program):
            process.kill()
            process.wait()


def numbers(bench: Bench, style: str) -> list[int]:
    """What each checkpoint holds, in their order; half a one fails."""
    found = []
    for train_step in bench.folder.complete():
        path = bench.folder.checkpoint(train_step)
        verify(path)
        (own,) = (path / "adopted").iterdir()
        found.append(writer.load(style, own))
    return found


@pytest.mark.parametrize("style", STYLES)
def test_killed_at_any_moment_it_goes_on_from_what_it_has_written(bench: Bench, style: str) -> None:
    seed = random.randrange(2**32)
    print(f"seed {seed}")
    chance = random.Random(seed)
    bench.rule = {**STYLES[style], "stable_s": 0.1}
    count, before = KILLS + 3, 0
    for _ in range(KILLS):
        attempt = Attempt(bench, style, count)
        began = numbers(bench, style)[-1] if attempt.resumed else 0
        assert began >= before, "something that was adopted was lost"
        before = began
        first, second = attempt.watcher, attempt.program
        if chance.random() < 0.5:
            first, second = second, first
        time.sleep(chance.uniform(0.1, 0.5))
        first.kill()
        time.sleep(chance.uniform(0, 0.4))
        attempt.kill_all()
        numbers(bench, style)
        bench.next_attempt()
    attempt = Attempt(bench, style, count)
    assert attempt.wait() == 0, attempt.log.read_text()
    found = numbers(bench, style)
    assert found[-1] == count
    assert found == sorted(set(found)), "one was adopted twice"


def test_a_watcher_that_is_killed_costs_time_and_no_checkpoint(bench: Bench) -> None:
    bench.rule = {**STYLES["overwritten"], "stable_s": 0.1}
    attempt = Attempt(bench, "overwritten", 3)
    poll(lambda: "saved 1" in attempt.log.read_text(), 120, "it never saved")
    attempt.watcher.kill()
    assert attempt.wait() == 0
    assert numbers(bench, "overwritten")[-1] == 3


def test_the_watcher_ends_with_its_script(bench: Bench) -> None:
    """Whoever started it is gone: so is the job, and the next one adopts what is there."""
    bench.rule = {"stable_s": 0.1}
    assert bench.call("begin").returncode == 3
    watcher = bench.command("watch")
    shell = (
        f"trap 'kill $child' EXIT; {' '.join(watcher)} $$ & child=$!; echo $child; exec sleep 60"
    )
    with subprocess.Popen(
        ["sh", "-c", shell],
        env={"PYTHONPATH": str(ROOT), **bench.environ()},
        stdout=subprocess.PIPE,
        text=True,
    ) as script:
        assert script.stdout is not None
        pid = int(script.stdout.readline())
        script.kill()
    poll(lambda: not is_alive(pid), 120, "it lives on")


def is_alive(pid: int) -> bool:
    try:
        return ") Z " not in Path(f"/proc/{pid}/stat").read_text()
    except OSError:
        return False


def test_told_to_stop_it_finishes_its_copy(bench: Bench) -> None:
    bench.rule = {"pattern": "step-*", "stable_s": 0.1}
    assert bench.call("begin").returncode == 3
    for number in range(1, 4):
        watcher = bench.watcher()
        try:
            bench.write(f"step-{number}", b"x" * 50_000_000)
            poll(lambda: list(bench.folder.checkpoints.glob(".*.tmp")), 120, "it copies nothing")
            watcher.send_signal(signal.SIGUSR1)
            assert watcher.wait(120) == 0
        finally:
            watcher.kill()
            watcher.wait()
        assert bench.folder.complete()[-1] == number
