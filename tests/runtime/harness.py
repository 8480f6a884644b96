"""Starting real ranks of :mod:`tests.runtime.program` and looking at what they left.

The ranks are processes forked from a server that has imported torch already: real processes with
real signals, without two seconds of imports each. That the same works under torchrun, with
everything imported again, is shown in test_torchrun.py.
"""

from __future__ import annotations

import json
import multiprocessing
import os
import runpy
import signal
import socket
import sys
import time
import uuid
from collections.abc import Sequence
from dataclasses import dataclass, field
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import torch

from hpcflow.model.events import parse_event
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.manifest import manifest_bytes
from hpcflow.runtime.reading import read_lines
from hpcflow.testing.cluster import poll
from tests.runtime import program

_LIMIT_S = 120.0

context = multiprocessing.get_context("forkserver")
context.set_forkserver_preload(["tests.runtime.preload"])


@dataclass
class RunFolder:
    """A run directory, as far as the runtime sees it."""

    path: Path
    attempt: int = 1
    variables: dict[str, str] = field(default_factory=dict)

    @property
    def attempt_dir(self) -> Path:
        return self.path / "attempts" / f"{self.attempt:04d}"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def resubmit(self) -> Path:
        return self.attempt_dir / "resubmit"

    def environ(self) -> dict[str, str]:
        """What the job script would set."""
        self.attempt_dir.mkdir(parents=True, exist_ok=True)
        return {
            "HPCFLOW_RUN_ID": "digits-20260101-aaaaaaaa",
            "HPCFLOW_RUN_DIR": str(self.path),
            "HPCFLOW_ATTEMPT": str(self.attempt),
            "HPCFLOW_ATTEMPT_DIR": str(self.attempt_dir),
            "HPCFLOW_EVENTS": str(self.attempt_dir / "events.jsonl"),
            "HPCFLOW_NOTICE": str(self.attempt_dir / "notice"),
            "HPCFLOW_CHECKPOINT_DIR": str(self.checkpoints),
            "HPCFLOW_RESUBMIT_EXIT_CODE": "75",
            "OMP_NUM_THREADS": "1",
            **self.variables,
        }

    def complete(self) -> list[int]:
        """Train steps of the checkpoints that are visible."""
        if not self.checkpoints.is_dir():
            return []
        return sorted(int(p.name) for p in self.checkpoints.iterdir() if p.name.isdecimal())

    def checkpoint(self, train_step: int) -> Path:
        return self.checkpoints / f"{train_step:09d}"

    def events(self, kind: str | None = None) -> list[dict[str, Any]]:
        """What the login side can read of this attempt's events."""
        file = self.attempt_dir / "events.jsonl"
        lines = list(read_lines(file)) if file.exists() else []
        events = [event for event in map(parse_event, lines) if event is not None]
        assert len(events) == len(lines)
        return [event for event in events if kind in (None, event["event"])]


@dataclass
class Training:
    """The ranks of one attempt."""

    processes: Sequence[BaseProcess]
    log_path: Path

    def exit_codes(self) -> list[int | None]:
        """Wait until all have ended; as srun does, end the others once a rank was killed."""
        deadline = time.monotonic() + _LIMIT_S
        while any(process.is_alive() for process in self.processes):
            if any((process.exitcode or 0) < 0 for process in self.processes):
                self.kill()
            if time.monotonic() > deadline:
                self.kill()
                raise AssertionError(f"the ranks hang:\n{self.log()}")
            multiprocessing.connection.wait(
                [process.sentinel for process in self.processes if process.is_alive()], 5
            )
        return [process.exitcode for process in self.processes]

    def wait_saved(self, folder: RunFolder, train_step: int = 1) -> None:
        """Wait until ``folder`` has a checkpoint of this train step or a later one."""

        def has_saved() -> bool:
            assert all(process.is_alive() for process in self.processes), self.log()
            return max(folder.complete(), default=0) >= train_step

        poll(has_saved, _LIMIT_S, self.log, every_s=0.02)

    def exit_codes_by_themselves(self) -> list[int | None]:
        """Wait until all have ended, with nobody to end them."""
        for process in self.processes:
            process.join(_LIMIT_S)
        return [process.exitcode for process in self.processes]

    def kill(self) -> None:
        for process in self.processes:
            process.kill()

    def log(self) -> str:
        return self.log_path.read_text(errors="replace")


def start(folder: RunFolder, world_size: int = 1, **variables: object) -> Training:
    """Start all ranks of an attempt; variable PROGRAM names another script than program.py."""
    environ = folder.environ()
    environ.update({name: str(value) for name, value in variables.items()})
    if world_size > 1:
        environ["WORLD_SIZE"] = str(world_size)
        environ["MEET"] = f"file://{folder.attempt_dir}/meet-{uuid.uuid4().hex}"
        environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(_free_port()))
    log_path = folder.attempt_dir / "out.log"
    processes = []
    for rank in range(world_size):
        own = {**environ, "RANK": str(rank)} if world_size > 1 else environ
        process = context.Process(target=_rank, args=(own, str(log_path)))
        process.start()
        processes.append(process)
    return Training(processes, log_path)


def run(folder: RunFolder, world_size: int = 1, **variables: object) -> list[int | None]:
    """Start all ranks of an attempt and wait for their exit codes."""
    return start(folder, world_size, **variables).exit_codes()


def weights(folder: RunFolder, train_step: int) -> dict[str, Any]:
    """Every tensor and value of a checkpoint, random numbers and place in the data included."""
    path = folder.checkpoint(train_step)
    state: dict[str, Any] = {}
    for file in sorted(path.iterdir()):
        if file.suffix == ".pt":
            state.update(_flat(file.stem, torch.load(file, weights_only=True)))
        elif file.name != "manifest.json":
            state.update(_flat(file.stem, json.loads(file.read_bytes())))
    return state


def differing(one: dict[str, Any], other: dict[str, Any]) -> list[str]:
    """Names of what differs in a single bit."""
    assert one.keys() == other.keys()
    return [name for name in one if not _is_same(one[name], other[name])]


def rewritten(checkpoint: Path, name: str) -> None:
    """Let the manifest say of a file what it is now: as somebody does who means harm."""
    manifest = json.loads((checkpoint / "manifest.json").read_text())
    file = checkpoint / name
    manifest["files"][name] = {"size_bytes": file.stat().st_size, "sha256": sha256_of(file)}
    (checkpoint / "manifest.json").write_bytes(manifest_bytes(manifest))


def _is_same(one: Any, other: Any) -> bool:
    if isinstance(one, torch.Tensor):
        return bool(torch.equal(one, other))
    return bool(one == other)


def _flat(prefix: str, value: Any) -> dict[str, Any]:
    if isinstance(value, dict):
        flat: dict[str, Any] = {}
        for key, item in value.items():
            flat.update(_flat(f"{prefix}.{key}", item))
        return flat
    return {prefix: value}


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def _rank(environ: dict[str, str], log: str) -> None:
    """One rank: its own process, with its own environment, in a group of processes of its own."""
    os.setpgid(0, 0)
    descriptor = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    sys.stdout, sys.stderr = os.fdopen(1, "w"), os.fdopen(2, "w")
    os.environ.update(environ)
    if "FIRST_ON_PATH" in environ:
        sys.path.insert(0, environ["FIRST_ON_PATH"])
    # Else a DataLoader in here would start its workers from a server of its own.
    multiprocessing.set_start_method("fork", force=True)
    if "PROGRAM" in environ:
        sys.argv = [environ["PROGRAM"]]
        runpy.run_path(environ["PROGRAM"], run_name="__main__")
    else:
        program.train()


def die_at_call(number: int) -> None:
    """Let this process be killed at its ``number``-th call from now on that touches the disk."""
    left = number

    def count(event: str, _arguments: tuple[Any, ...]) -> None:
        nonlocal left
        if event == "open" or event.startswith(("os.", "shutil.")):
            left -= 1
            if left == 0:
                signal.raise_signal(signal.SIGKILL)

    sys.addaudithook(count)
