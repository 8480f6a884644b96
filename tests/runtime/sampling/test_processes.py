"""Real processes: what a tree of them uses is seen, and nothing of anybody else."""

from __future__ import annotations

import os
import subprocess
import sys
import textwrap
from collections.abc import Callable, Iterator

import pytest

from hpcflow.runtime.sampling.processes import ProcessTree, began_at
from hpcflow.testing.cluster import poll

MIB = 1 << 20
#: Says "ready" when it has what it wants, and ends when nobody writes to it any more.
HOLDS = "import sys; held = bytearray({mib} << 20); print('ready', flush=True); sys.stdin.read()"
BURNS = """
import os, sys, time
child = os.fork()
while time.process_time() < 1.0:
    pass
if child == 0:
    os._exit(0)
os.waitpid(child, 0)
print("ready", flush=True)
sys.stdin.read()
"""
#: A shell whose child has a child; then the one in the middle goes.
LEAVES = """
import subprocess, sys
middle = subprocess.Popen(
    [sys.executable, "-c", "import subprocess, sys; "
     "child = subprocess.Popen([sys.executable, '-c', 'import sys; sys.stdin.read()']); "
     "print(child.pid, flush=True); sys.stdin.readline()"],
    stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
print(middle.stdout.readline().strip(), flush=True)
sys.stdin.readline()
middle.stdin.write("go\\n"); middle.stdin.flush(); middle.wait()
print("gone", flush=True)
sys.stdin.read()
"""
Start = Callable[[str], "subprocess.Popen[str]"]


@pytest.fixture
def start() -> Iterator[Start]:
    started = []

    def begin(text: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-c", textwrap.dedent(text)]
        process = subprocess.Popen(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        started.append(process)
        return process

    yield begin
    for process in started:
        process.communicate(timeout=120)


def said(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    return process.stdout.readline().strip()


def test_the_memory_of_a_program_is_seen(start: Start) -> None:
    program = start(HOLDS.format(mib=300))
    assert said(program) == "ready"
    seen = ProcessTree(program.pid, with_root=True).read()
    assert seen.count == 1
    assert 300 * MIB < seen.rss_bytes < 340 * MIB


def test_memory_that_was_there_between_two_looks_is_a_spike(start: Start) -> None:
    text = "held = bytearray(200 << 20); del held; import sys; print('ready', flush=True)"
    program = start(f"{text}; sys.stdin.read()")
    assert said(program) == "ready"
    seen = ProcessTree(program.pid, with_root=True).read()
    assert seen.rss_bytes < 100 * MIB
    assert 190 * MIB < seen.spike_bytes < 220 * MIB


def test_memory_that_was_given_back_before_the_last_look_is_no_spike_any_more(
    start: Start,
) -> None:
    program = start(
        "import sys\nfor mib in (200, 100, 300):\n"
        "    held = bytearray(mib << 20); del held; print('ready', flush=True)\n"
        "    sys.stdin.readline()"
    )
    tree = ProcessTree(program.pid, with_root=True)
    spikes = []
    for _ in range(3):
        assert said(program) == "ready"
        spikes.append(tree.read().spike_bytes // MIB)
        assert program.stdin is not None
        program.stdin.write("go\n")
        program.stdin.flush()
    assert spikes == [pytest.approx(200, abs=20), 0, pytest.approx(300, abs=20)]


def test_cpu_time_of_children_counts_also_when_they_have_ended(start: Start) -> None:
    program = start(BURNS)
    assert said(program) == "ready"
    cpu_s = ProcessTree(program.pid, with_root=True).read().cpu_s
    assert 1.9 < cpu_s < 2.6


def test_below_a_process_that_is_none_of_the_programs_it_alone_is_not_counted(
    start: Start,
) -> None:
    """As with the daemon of a job step, which is Slurm's."""
    program = start(HOLDS.format(mib=1))
    assert said(program) == "ready"
    tree = ProcessTree(os.getpid(), with_root=False)
    assert program.pid in tree._below(tree._own())
    assert os.getpid() not in tree._below(tree._own())


def test_a_child_whose_parent_has_gone_is_still_counted(start: Start) -> None:
    program = start(LEAVES)
    orphan = int(said(program))
    tree = ProcessTree(program.pid, with_root=True)
    assert tree.read().count == 3
    assert program.stdin is not None
    program.stdin.write("go\n")
    program.stdin.flush()
    assert said(program) == "gone"
    tree.read()
    assert orphan in tree._known


def test_what_the_job_has_on_the_node_beside_the_program_is_counted(
    monkeypatch: pytest.MonkeyPatch, start: Start
) -> None:
    """Ranks that the program starts with srun are Slurm's children, not its own."""
    monkeypatch.setenv("SLURM_JOB_ID", "4711")
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    program, rank = start(HOLDS.format(mib=1)), start(HOLDS.format(mib=300))
    monkeypatch.setenv("SLURMD_NODENAME", "n2")
    elsewhere = start(HOLDS.format(mib=200))
    monkeypatch.setenv("SLURMD_NODENAME", "n1")
    monkeypatch.setenv("SLURM_JOB_ID", "47110")
    other = start(HOLDS.format(mib=400))
    assert [said(each) for each in (program, rank, elsewhere, other)] == ["ready"] * 4
    seen = ProcessTree(program.pid, with_root=True, job_id="4711", node="n1").read()
    assert seen.count == 2
    assert 300 * MIB < seen.rss_bytes < 380 * MIB
    assert ProcessTree(program.pid, with_root=True, job_id="4711").read().count == 3
    for hidden in (None, ""):
        tree = ProcessTree(program.pid, with_root=True, job_id=hidden, node="n1")
        assert tree.read().count == 1, "not a job of Slurm's"


def test_when_a_process_has_ended_it_did_not_begin_at_any_time() -> None:
    process = subprocess.Popen(["true"])
    poll(lambda: began_at(process.pid) is None, 120, "its end")  # before it was waited for, too
    process.wait()
    assert began_at(process.pid) is None
    assert began_at(os.getpid()) is not None


def test_a_root_that_is_gone_has_no_processes() -> None:
    process = subprocess.Popen(["true"])
    process.wait()
    seen = ProcessTree(process.pid, with_root=True).read()
    assert (seen.count, seen.rss_bytes, seen.spike_bytes) == (0, 0, 0)
