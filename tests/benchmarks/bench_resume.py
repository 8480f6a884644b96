"""What a preempted training of 1 GB and of 10 GB waits for until it can go on."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Final

from tests.benchmarks.timing import Row

_GB: Final = 1_000_000_000
_ROOT: Final = Path(__file__).resolve().parents[2]
_PROGRAM: Final = Path(__file__).with_name("resume_program.py")
_SAVED_S: Final = 30.0


def rows() -> list[Row]:
    """Measure on the disk of ``/var/tmp``, with nothing of the files in memory."""
    return [*_measure(1), *_measure(10)]


def _measure(size_gb: int) -> list[Row]:
    with tempfile.TemporaryDirectory(dir="/var/tmp", prefix="hpcflow-bench-resume-") as name:
        folder = Path(name)
        dd_s = _dd(folder / "dd", size_gb)
        saved = _run("hpcflow", "save", folder, size_gb)
        _forget(folder)
        began = time.perf_counter()
        checked = [sys.executable, "-m", "hpcflow.runtime", "resume-path"]
        subprocess.run(checked, env=_environ(folder), stdout=subprocess.DEVNULL, check=True)
        check_s = time.perf_counter() - began
        _forget(folder)
        began = time.perf_counter()
        loaded = _run("hpcflow", "load", folder, size_gb)
        load_s = time.perf_counter() - began
        for path in folder.iterdir():
            shutil.rmtree(path)
        _run("torch", "save", folder, size_gb)
        _forget(folder)
        peer = _run("torch", "load", folder, size_gb)
    speed = dd_s / saved["work_s"]
    return [
        Row(
            f"{size_gb} GB saved in place, as on notice, checksums and fsync included",
            f"{saved['work_s']:.1f} s ({speed:.2f} × `dd conv=fsync`, {dd_s:.1f} s)",
            "at least 0.8 ×" + (f", under {_SAVED_S:.0f} s" if size_gb == 10 else ""),
            speed >= 0.8 and (size_gb != 10 or saved["work_s"] < _SAVED_S),
        ),
        Row(
            f"{size_gb} GB resumed: from the job script's check of it to the first train step",
            f"{check_s + load_s:.1f} s (check {check_s:.1f} s, import torch "
            f"{loaded['torch_s']:.1f} s, verify and load {loaded['work_s']:.1f} s; `torch.load` "
            f"alone, which verifies nothing, {peer['work_s']:.1f} s)",
            "none",
            True,
        ),
    ]


def _run(program: str, what: str, folder: Path, size_gb: int) -> dict[str, float]:
    arguments = [program, what, str(folder), str(size_gb * _GB)]
    done = subprocess.run(
        [sys.executable, str(_PROGRAM), *arguments],
        env=_environ(folder),
        stdout=subprocess.PIPE,
        check=True,
    )
    measured: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    os.sync()
    return measured


def _environ(folder: Path) -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": str(_ROOT), "HPCFLOW_CHECKPOINT_DIR": str(folder)}


def _dd(path: Path, size_gb: int) -> float:
    began = time.perf_counter()
    argv = ["dd", "if=/dev/zero", f"of={path}", "bs=1000000", f"count={size_gb * 1000}"]
    subprocess.run([*argv, "conv=fsync"], stderr=subprocess.DEVNULL, check=True)
    seconds = time.perf_counter() - began
    path.unlink()
    os.sync()
    return seconds


def _forget(folder: Path) -> None:
    """The job that goes on may be on another node, whose memory has nothing of it."""
    for path in folder.rglob("*"):
        if path.is_file():
            descriptor = os.open(path, os.O_RDONLY)
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(descriptor)
