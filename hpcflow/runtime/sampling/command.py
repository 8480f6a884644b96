"""Sample the program of one node until it has ended.

::

    python3 -S -m hpcflow.runtime.sampling PROGRAM ROOT [cpus=N] [gpus=N] [mem_mb=N] …

``PROGRAM`` is the process whose end is awaited. All descendants of ``ROOT`` are counted. The
numbers are the job's resources on every node; they go into the event.

It samples and writes often at first, then more rarely. A job of ten days takes about 29,000
samples, of which only sums are kept, and writes about 500 events of some hundred bytes, at most
4 KiB: its event file grows by at most 2 MiB.
"""

from __future__ import annotations

import json
import os
import select
import signal
import socket
import sys
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from itertools import zip_longest
from pathlib import Path
from typing import Any

from hpcflow.runtime.events import EventLog
from hpcflow.runtime.reading import JsonError, read_object
from hpcflow.runtime.sampling.gpus import find_gpus
from hpcflow.runtime.sampling.processes import ProcessTree, began_at, find_cgroup
from hpcflow.runtime.sampling.tally import Tally, usage_event

_MIB = 1 << 20
#: The file of a node has one line.
_MAX_NODE_BYTES = 1 << 16
#: Signals for the job; this process ends with the program.
_IGNORED = (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2)
#: How often to check whether the program lives, without pidfd_open.
_POLL_S = 1.0
#: Longest time between two samples: a shorter peak can be missed.
EVERY_S = 30.0
#: Nothing is written for a program that ended sooner: it does not show what a job needs.
FIRST_FILE_S = 10.0
_FILE_EVERY_S = 60.0
#: A peak that grew by less waits for the next file: advice has a margin of a quarter.
_GROWTH = 1.05
_FIRST_EVENT_S = 60.0
_EVENT_GROWTH = 0.25
_EVENT_EVERY_S = 1800.0


def next_sample_s(elapsed_s: float) -> float:
    """Return the seconds until the next sample: half of the elapsed time, from 1 to 30."""
    return min(EVERY_S, max(1.0, elapsed_s / 2))


def is_file_due(elapsed_s: float, written_s: float | None) -> bool:
    """Return whether to rewrite the node's file.

    Args:
        written_s: when it was last written, on the clock of ``elapsed_s``.
    """
    if written_s is None:
        return elapsed_s >= FIRST_FILE_S
    return elapsed_s - written_s >= min(_FILE_EVERY_S, written_s)


def has_grown(peaks_mb: Sequence[int], written_mb: Sequence[int]) -> bool:
    """Return whether a peak grew so much that the node's file must be written now.

    The job script reads that file at the end of the program, without waiting.

    Args:
        peaks_mb: the current peaks; those at the end may be new.
        written_mb: the peaks in the file.
    """
    pairs = zip_longest(peaks_mb, written_mb, fillvalue=0)
    return any(now > _GROWTH * then for now, then in pairs)


def is_event_due(elapsed_s: float, written_s: float | None) -> bool:
    """Return whether to append an event: after a minute, and then whenever a quarter more time
    has passed, or half an hour."""
    if written_s is None:
        return elapsed_s >= _FIRST_EVENT_S
    wait_s = max(_FIRST_EVENT_S, _EVENT_GROWTH * written_s)
    return elapsed_s - written_s >= min(_EVENT_EVERY_S, wait_s)


def main(arguments: Sequence[str] | None = None) -> int:
    """Sample one program to its end; always return 0."""
    try:
        given = list(sys.argv[1:] if arguments is None else arguments)
        for number in _IGNORED:
            signal.signal(number, signal.SIG_IGN)
        os.nice(10)  # the training goes first
        asked = {
            name: int(number) for name, _, number in (each.partition("=") for each in given[2:])
        }
        Sampler(os.environ, int(given[0]), int(given[1]), asked).watch()
    except Exception:  # noqa: S110 - sampling must not disturb the job
        pass
    return 0


class Sampler:
    """Samples the program of one node.

    Args:
        environ: the environment of the job.
        program: process id of the program.
        root: process id of the ancestor of all processes to count.
        asked: the job's resources on every node.
    """

    def __init__(
        self, environ: Mapping[str, str], program: int, root: int, asked: dict[str, int]
    ) -> None:
        self._index = environ.get("SLURM_NODEID", "0")
        self._node = environ.get("SLURMD_NODENAME") or socket.gethostname()
        self._folder = Path(environ["HPCFLOW_ATTEMPT_DIR"], ".usage")
        self._events = EventLog(Path(environ["HPCFLOW_EVENTS"]))
        self._asked = asked
        self._end = _End(program)
        job_id = environ.get("SLURM_JOB_ID")
        self._tree = ProcessTree(
            root,
            with_root=root == program,
            job_id=job_id,
            node=environ.get("SLURMD_NODENAME"),
        )
        self._cgroup = find_cgroup(job_id, sluid=environ.get("SLURM_JOB_SLUID"))
        self._cpu_before_s = self._cgroup.read().cpu_s or 0.0  # of the job before the program
        self._gpus = find_gpus(environ.get("CUDA_VISIBLE_DEVICES"), asked.get("gpus", 0))
        self._tally = Tally()
        self._mem_by = "processes"
        self._file_s: float | None = None
        self._file_mb: tuple[int, ...] = ()
        self._event_s: float | None = None

    def watch(self) -> None:
        """Sample until the program has ended."""
        began = time.monotonic()
        elapsed_s = 0.0
        while True:
            has_ended = self._end.wait(next_sample_s(elapsed_s))
            elapsed_s = time.monotonic() - began
            if not has_ended:
                self._look(elapsed_s)
            is_last = has_ended and elapsed_s >= FIRST_FILE_S
            if is_last or self._is_due(elapsed_s):
                self._write(elapsed_s, is_last=is_last)
            if has_ended:
                return

    def _look(self, elapsed_s: float) -> None:
        try:
            processes = self._tree.read()
            group = self._cgroup.read()
        except OSError:
            return
        cpu_s = processes.cpu_s if group.cpu_s is None else group.cpu_s - self._cpu_before_s
        mem, peak = processes.rss_bytes, processes.rss_bytes + processes.spike_bytes
        if group.mem_bytes is not None:
            self._mem_by = "cgroup"
            mem, peak = group.mem_bytes, group.mem_bytes + processes.spike_bytes
            if group.highest_bytes is not None:
                peak = max(mem, min(peak, group.highest_bytes))
        self._tally.add(
            elapsed_s,
            cpu_s=cpu_s,
            mem_mb=mem / _MIB,
            mem_peak_mb=peak / _MIB,
            processes=processes.count,
            gpus=self._gpus.look(),
        )

    def _is_due(self, elapsed_s: float) -> bool:
        if is_file_due(elapsed_s, self._file_s):
            return True
        return self._file_s is not None and has_grown(self._tally.peaks_mb, self._file_mb)

    def _write(self, elapsed_s: float, *, is_last: bool) -> None:
        """Write the node's file; on the first node, also the event of all nodes."""
        self._file_s, self._file_mb = elapsed_s, self._tally.peaks_mb
        mine = {"node": self._node, "mem_by": self._mem_by, **self._tally.facts()}
        try:
            self._folder.mkdir(mode=0o700, exist_ok=True)
            self._replace(f"{self._index}.json", json.dumps(mine))
            if self._index != "0":
                return
            facts = usage_event([mine, *self._others()], self._asked)
            self._replace("event", json.dumps(facts)[1:-1])
        except OSError:
            return  # the disk may be full; the next write tries again
        if not is_last and is_event_due(elapsed_s, self._event_s):
            self._event_s = elapsed_s
            self._events.append("usage", **facts)

    def _others(self) -> list[dict[str, Any]]:
        found = []
        for path in sorted(self._folder.glob("*.json")):
            with suppress(OSError, JsonError):
                if path.stem != "0":
                    found.append(read_object(path, _MAX_NODE_BYTES))
        return found

    def _replace(self, name: str, text: str) -> None:
        """Replace a file at once. It is not synced, because losing a sample does no harm."""
        new = self._folder / f".{name}.new"
        with suppress(FileNotFoundError):
            new.unlink()
        with new.open("x", encoding="utf-8") as file:  # follows no link
            file.write(text + "\n")
        new.replace(self._folder / name)


class _End:
    """The end of another process, which need not be a child of this one."""

    def __init__(self, pid: int) -> None:
        self._pid, self._began = pid, began_at(pid)
        self._descriptor: int | None = None
        if hasattr(os, "pidfd_open"):
            try:
                self._descriptor = os.pidfd_open(pid)
            except OSError:  # it has ended, or the kernel is older than 5.3
                self._descriptor = None

    def wait(self, seconds: float) -> bool:
        """Wait for the process to end, at most ``seconds``; return whether it has."""
        if self._began is None:
            return True
        if self._descriptor is not None:
            return bool(select.select([self._descriptor], [], [], seconds)[0])
        deadline = time.monotonic() + seconds
        while began_at(self._pid) == self._began:
            left_s = deadline - time.monotonic()
            if left_s <= 0:
                return False
            time.sleep(min(_POLL_S, left_s))
        return True
