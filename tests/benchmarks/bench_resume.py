"""What a preempted training of 1 GB and of 10 GB waits for until it can go on."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from tests.benchmarks.timing import Row

_GB: Final = 1_000_000_000
_ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAM: Final = Path(__file__).with_name("resume_program.py")
_SAVED_S: Final = 30.0
_ONES: Final = struct.pack("<f", 1.0) * 250_000


def rows() -> list[Row]:
    """Measure on the disk of ``/var/tmp``, with nothing of the files in memory."""
    return [*_measure(1, 6), *_measure(10, 2)]


def _measure(size_gb: int, rounds: int) -> list[Row]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hpcflow-bench-resume-") as name:
        folder = Path(name)
        dd_s, saved_s, resumed = [], [], []
        for number in range(rounds):
            if number % 2 == 0:
                dd_s.append(_dd(folder, size_gb))
            saved_s.append(_run("hpcflow", "save", folder / "saved", size_gb)["work_s"])
            if number % 2 == 1:  # the one that comes second finds a disk that is slower
                dd_s.append(_dd(folder, size_gb))
            resumed.append(_resume(folder / "saved", size_gb))
            _empty(folder)
        _run("torch", "save", folder / "saved", size_gb)
        _forget(folder)
        peer = _run("torch", "load", folder / "saved", size_gb)
    speed = median(dd / saved for dd, saved in zip(dd_s, saved_s, strict=True))
    typical = sorted(resumed, key=lambda each: each.seconds)[rounds // 2]
    return [
        Row(
            f"{size_gb} GB saved in place, as on notice, checksums and fsync included",
            f"{median(saved_s):.1f} s ({speed:.2f} × `dd conv=fsync` of the same bytes from "
            f"memory, {median(dd_s):.1f} s)",
            "at least 0.8 ×" + (f", under {_SAVED_S:.0f} s" if size_gb == 10 else ""),
            speed >= 0.8 and (size_gb != 10 or median(saved_s) < _SAVED_S),
        ),
        Row(
            f"{size_gb} GB resumed: from the job script's check of it to the first train step",
            f"{typical.seconds:.1f} s (check {typical.check_s:.1f} s, import torch "
            f"{typical.torch_s:.1f} s, load {typical.load_s:.1f} s; `torch.load` alone, which "
            f"verifies nothing, {peer['work_s']:.1f} s)",
            "none",
            True,
        ),
    ]


@dataclass(frozen=True)
class _Resumed:
    """What a job waits for, one after the other."""

    check_s: float
    torch_s: float
    load_s: float

    @property
    def seconds(self) -> float:
        return self.check_s + self.torch_s + self.load_s


def _resume(folder: Path, size_gb: int) -> _Resumed:
    """The check, and what follows, as the job script of templates/parts/resume.j2 has it."""
    _forget(folder)
    began = time.perf_counter()
    checked = subprocess.run(
        [sys.executable, "-m", "hpcflow.runtime", "resume-path"],
        env=_environ(folder),
        stdout=subprocess.PIPE,
        check=True,
        text=True,
    )
    check_s = time.perf_counter() - began
    path = Path(checked.stdout.strip())
    verified = hashlib.sha256((path / "manifest.json").read_bytes()).hexdigest()
    resume = {"HPCFLOW_RESUME_FROM": str(path), "HPCFLOW_RESUME_VERIFIED": verified}
    loaded = _run("hpcflow", "load", folder, size_gb, **resume)
    return _Resumed(check_s, loaded["torch_s"], loaded["work_s"])


def _run(program: str, what: str, folder: Path, size_gb: int, **environ: str) -> dict[str, float]:
    arguments = [program, what, str(folder), str(size_gb * _GB)]
    done = subprocess.run(
        [sys.executable, str(_PROGRAM), *arguments],
        env={**_environ(folder), **environ},
        stdout=subprocess.PIPE,
        check=True,
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    os.sync()
    return measured


def _environ(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_ROOT), "HPCFLOW_CHECKPOINT_DIR": str(folder)}


def _dd(folder: Path, size_gb: int) -> float:
    """The bytes of such a model, from memory to the disk."""
    path = folder / "dd"
    with tempfile.NamedTemporaryFile(dir="/dev/shm") as source:
        for _ in range(size_gb * _GB // len(_ONES)):
            source.write(_ONES)
        source.flush()
        argv = ["dd", f"if={source.name}", f"of={path}", "bs=1M", "conv=fsync"]
        began = time.perf_counter()
        subprocess.run(argv, stderr=subprocess.DEVNULL, check=True)
        seconds = time.perf_counter() - began
    path.unlink()
    os.sync()
    return seconds


def _empty(folder: Path) -> None:
    for path in folder.iterdir():
        shutil.rmtree(path)
    os.sync()


def _forget(folder: Path) -> None:
    """The job that goes on may be on another node, whose memory has nothing of it."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
