"""A real job script with real processes: what they use is told, and nobody is hurt by that."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcflow.runtime.sampling import command
from hpcflow.runtime.sampling.command import Sampler, _End
from hpcflow.runtime.sampling.processes import CgroupUse, JobCgroup, began_at
from hpcflow.storage.runtime_copy import add_runtime
from hpcflow.testing.cluster import poll
from tests.rendering.executed import Bench, kinds, written

PROGRAM = """
import multiprocessing, resource, time

def burn():
    end = time.monotonic() + 13
    while time.monotonic() < end and time.process_time() < 3:
        pass
    time.sleep(max(0, end - time.monotonic()))

held = bytearray(300 << 20)
worker = multiprocessing.Process(target=burn)
worker.start()
worker.join()
used = resource.getrusage(resource.RUSAGE_CHILDREN)
print("cpu_s", used.ru_utime + used.ru_stime)
"""
NAME = b"hpcflow.runtime.sampling"
ROOT = str(Path(__file__).resolve().parents[3])


@pytest.fixture
def bench(tmp_path: Path) -> Bench:
    bench = Bench(tmp_path / "a bench's $folder")
    runtime = bench.run_dir.path / "runtime"
    runtime.mkdir()
    add_runtime(runtime, tmp_path / "shared", [])
    return bench


def samplers(bench: Bench) -> list[int]:
    """Those that belong to this run: nothing else shows it, for they are nobody's children."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            is_one = NAME in (entry / "cmdline").read_bytes().split(b"\0")
            if is_one and bytes(bench.attempt.path) in (entry / "environ").read_bytes():
                found.append(int(entry.name))
        except OSError:  # noqa: PERF203 - each can have ended meanwhile
            continue
    return found


def test_what_a_program_and_its_worker_use_is_told_at_the_end(bench: Bench) -> None:
    written(bench, sys.executable, "-c", PROGRAM)
    assert bench.execute() == 0
    assert kinds(bench) == ["started", "usage", "exited"]
    (usage,) = [event for event in bench.events() if event["event"] == "usage"]
    assert usage["asked"]["gpus"] == 0
    assert usage["nodes"] == 1
    assert usage["mem_by"] in ("processes", "cgroup")
    # The worker is forked, and what it shares with its parent counts for both.
    assert 300 <= usage["mem_peak_mb"] <= 700
    burned_s = float(bench.log().split("cpu_s")[1])
    assert 0.3 * burned_s <= usage["cpu_s"] <= burned_s + 1, "until it was looked at last"
    assert usage["cores_mean"] == pytest.approx(usage["cpu_s"] / usage["seconds"], abs=0.02)
    poll(lambda: not samplers(bench), 120, "the end of the sampler")
    usage_dir = bench.attempt.path / ".usage"
    assert sorted(path.name for path in usage_dir.iterdir()) == ["0.json", "event"]
    assert all(path.stat().st_mode & 0o077 == 0 for path in (usage_dir, *usage_dir.iterdir()))


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGKILL])
def test_nothing_is_left_of_it_whatever_ends_the_program(
    bench: Bench, number: signal.Signals
) -> None:
    written(bench, "sh", "-c", "echo $$ > pid; exec sleep 600")
    job = bench.start()
    poll(lambda: samplers(bench), 120, "the sampler")
    pid = int(
        poll(lambda: (bench.work / "pid").exists() and (bench.work / "pid").read_text(), 120, "it")
    )
    (sampler,) = samplers(bench)
    os.kill(sampler, signal.SIGTERM)  # Slurm tells every process of a job
    os.kill(pid, number)
    assert job.wait(120) == 128 + number
    poll(lambda: not samplers(bench), 120, "the end of the sampler")
    assert "Traceback" not in bench.log()


def test_the_program_does_not_wait_for_it_and_has_no_child_by_it(bench: Bench) -> None:
    """A program that waits for all of its children would wait for this one, too."""
    written(bench, "sh", "-c", 'sleep 1; cat /proc/$$/task/$$/children; echo "end of list"')
    assert bench.execute() == 0
    listed = bench.log().partition("end of list")[0].split()
    assert len([word for word in listed if word.isdecimal()]) <= 1, "its own cat alone"


@pytest.mark.parametrize("lacks", ["python", "runtime"])
def test_without_python_or_without_the_runtime_the_program_runs_as_ever(
    bench: Bench, lacks: str
) -> None:
    if lacks == "python":
        bench.program("python3", "#!/bin/sh\necho noise; echo noise >&2; exit 1\n")
    else:
        (bench.run_dir.path / "runtime").rename(bench.folder / "gone")
    written(bench, "sh", "-c", "echo it ran")
    assert bench.execute() == 0
    assert bench.log().split("\n") == ["it ran", ""]


@pytest.fixture
def program() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "600"]) as process:
        yield process
        process.kill()


def a_sampler(folder: Path, program: subprocess.Popen[bytes], **variables: str) -> Sampler:
    environ = {
        "HPCFLOW_ATTEMPT_DIR": str(folder),
        "HPCFLOW_EVENTS": str(folder / "events.jsonl"),
        **variables,
    }
    return Sampler(environ, program.pid, program.pid, {"cpus": 1})


def test_the_first_node_tells_what_all_nodes_have_seen(
    tmp_path: Path, program: subprocess.Popen[bytes]
) -> None:
    first = a_sampler(tmp_path, program, SLURM_NODEID="0", SLURMD_NODENAME="n1")
    second = a_sampler(tmp_path, program, SLURM_NODEID="1", SLURMD_NODENAME="n2")
    for elapsed_s in (10.0, 70.0):
        for sampler in (second, first):
            sampler._look(elapsed_s)
            sampler._write(elapsed_s, is_last=False)
    (tmp_path / ".usage" / "2.json").write_text("{half of a fi")
    first._look(400.0)
    first._write(400.0, is_last=False)
    lines = (tmp_path / "events.jsonl").read_text().splitlines()
    assert len(lines) == 2, "one after a minute, one long after that, all of them by the first node"
    assert all('"nodes": 2' in line for line in lines)


class GroupOf(JobCgroup):
    """A job's cgroup that has used more each time."""

    def __init__(self, *uses: CgroupUse) -> None:
        super().__init__(None, None, None)
        self._uses = list(uses)

    def read(self) -> CgroupUse:
        return self._uses.pop(0)


def test_where_there_is_a_cgroup_it_counts_from_when_the_program_began(
    tmp_path: Path, program: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Verifying a checkpoint takes the CPU for minutes before, and file pages of all memory."""
    mib = 1 << 20
    group = GroupOf(
        CgroupUse(500.0, 100 * mib, 9000 * mib),
        CgroupUse(520.0, 200 * mib, 9000 * mib),
        CgroupUse(540.0, 150 * mib, 9000 * mib),
    )
    monkeypatch.setattr(command, "find_cgroup", lambda _job_id, **_sluid: group)
    sampler = a_sampler(tmp_path, program)
    for elapsed_s in (10.0, 20.0):
        sampler._look(elapsed_s)
    facts = sampler._tally.facts()
    assert (facts["cpu_s"], facts["cores_mean"]) == (40.0, 2.0)
    assert 200 <= facts["mem_peak_mb"] < 300
    assert sampler._mem_by == "cgroup"


class Ends:
    """A program that ends after so many seconds of a clock of its own."""

    def __init__(self, at_s: float, event: Path) -> None:
        self.now_s, self.at_s, self.event = 0.0, at_s, event
        self.told: dict[str, Any] = {}

    def wait(self, seconds: float) -> bool:
        self.now_s = min(self.now_s + seconds, self.at_s)
        if self.now_s < self.at_s:
            return False
        self.told = json.loads(f"{{{self.event.read_text()}}}")  # as the job script does, at once
        return True


def test_a_peak_shortly_before_the_end_is_there_when_the_job_script_looks(
    tmp_path: Path, program: subprocess.Popen[bytes], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A short run that saves at its end, when the node's file was just written."""
    mib = 1 << 20
    end = Ends(19.0, tmp_path / ".usage" / "event")

    class Saves(JobCgroup):
        def read(self) -> CgroupUse:
            return CgroupUse(0.0, (710 if end.now_s > 14 else 100) * mib, None)

    monkeypatch.setattr(command, "find_cgroup", lambda _job_id, **_sluid: Saves(None, None, None))
    sampler = a_sampler(tmp_path, program)
    monkeypatch.setattr(sampler, "_end", end)
    monkeypatch.setattr(command, "time", SimpleNamespace(monotonic=lambda: end.now_s))
    sampler.watch()
    assert end.told["mem_peak_mb"] >= 710


def test_a_folder_that_takes_nothing_is_no_error(
    tmp_path: Path, program: subprocess.Popen[bytes]
) -> None:
    (tmp_path / ".usage").write_text("a file is in the way")
    sampler = a_sampler(tmp_path, program)
    sampler._look(100.0)
    sampler._write(100.0, is_last=False)
    assert not (tmp_path / "events.jsonl").exists()


@pytest.mark.parametrize("can_be_told", [True, False])
def test_the_end_of_the_program_is_seen_on_old_systems_too(
    program: subprocess.Popen[bytes], can_be_told: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not can_be_told:
        monkeypatch.delattr(os, "pidfd_open", raising=False)
    end = _End(program.pid)
    assert not end.wait(0.01)
    program.kill()
    assert end.wait(120)
    program.wait()
    assert _End(program.pid).wait(120), "it ended before anybody looked"
    assert began_at(program.pid) is None


@pytest.mark.parametrize("arguments", [[], ["x", "1"], ["1"], ["1", "1", "cpus"]])
def test_nonsense_is_silence(arguments: list[str], tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-S", "-m", "hpcflow.runtime.sampling", *arguments],
        env={"PYTHONPATH": ROOT, "HPCFLOW_ATTEMPT_DIR": str(tmp_path)},
        capture_output=True,
        timeout=120,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
