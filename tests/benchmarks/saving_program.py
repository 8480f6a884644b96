"""Measures saving in one process, and prints it as JSON: ``saving_program.py FOLDER ROUNDS``.

The state is a model of ten linear layers, and AdamW's of it.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp

_WIDTH = 1770  # 10 layers x 3 tensors x 4 bytes x width² = 376 MB


def main() -> None:
    """Every way of saving in turn, after a round that does not count."""
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.Sequential(*(torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(10)))
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    save = _hpcflow(folder / "hpcflow", model, optimizer)

    def state() -> dict[str, Any]:
        return {"model": model.state_dict(), "optimizer": optimizer.state_dict()}

    measured: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        seconds = {
            "torch.save": _timed(lambda: torch.save(state(), folder / "torch.pt")),
            **save(),
            **_async_save(folder / "dcp", state()),
            "write": _write(folder / "torch.pt", folder / "raw"),
        }
        for name, value in seconds.items():
            measured.setdefault(f"{name}, first" if number == 0 else name, []).append(value)
    measured["bytes"] = [float((folder / "torch.pt").stat().st_size)]
    print(json.dumps(measured))


def _hpcflow(folder: Path, model: Any, optimizer: Any) -> Callable[[], dict[str, float]]:
    """What takes a train step that is saved after: the time until the next one can begin, and
    until the checkpoint is visible."""
    os.environ["HPCFLOW_CHECKPOINT_DIR"] = str(folder)
    os.environ["HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS"] = "3"
    from hpcflow import runtime
    from tests.runtime.program import wait_for_write

    run = runtime.start()
    run.restore(model=model, optimizer=optimizer)
    train_steps = run.train_steps(sys.maxsize)
    next(train_steps)

    def save() -> dict[str, float]:
        while run.train_step % 3:
            next(train_steps)
        began = time.perf_counter()
        next(train_steps)
        held_s = time.perf_counter() - began
        wait_for_write(run)
        visible_s = time.perf_counter() - began
        path = folder / f"{run.train_step - 1:09d}"
        assert (path / "manifest.json").exists()
        shutil.rmtree(path)
        os.sync()
        return {"hpcflow": held_s, "hpcflow, visible": visible_s}

    return save


def _async_save(folder: Path, state: dict[str, Any]) -> dict[str, float]:
    began = time.perf_counter()
    future = dcp.async_save(state, checkpoint_id=str(folder))
    held_s = time.perf_counter() - began
    future.result()
    shutil.rmtree(folder)
    os.sync()
    return {"async_save": held_s}


def _write(source: Path, target: Path) -> float:
    """The limit of the disk: the same bytes, written and synced."""
    data = source.read_bytes()

    def write() -> None:
        with target.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())

    seconds = _timed(write)
    target.unlink()
    os.sync()
    return seconds


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    os.sync()
    return seconds


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # its training has no end to wait for
