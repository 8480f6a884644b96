"""Measures saving, and prints it as JSON: ``saving_program.py FOLDER ROUNDS``.

The state is a model of ten linear layers, and AdamW's of it. Under torchrun it is sharded over the
ranks by FSDP2; what is printed is then of the rank that took longest. ``torch.save`` is of the
whole state, which rank 0 is given first; ``torch.save of shards`` is of every rank's own, which
nobody could load with another number of ranks.
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
from torch.distributed.checkpoint.state_dict import StateDictOptions, get_state_dict
from torch.distributed.fsdp import fully_shard
from torch.distributed.tensor import DTensor
from torch.utils._pytree import tree_map

_EVERY = 8  # train steps, of which hpcflow needs some to publish
_WIDTH = 2900  # 10 layers x 3 tensors x 4 bytes x width² = 1.0 GB


def main() -> None:
    """Every way of saving in turn, after a round that does not count."""
    folder, rounds = Path(sys.argv[1]), int(sys.argv[2])
    if "WORLD_SIZE" in os.environ:
        dist.init_process_group("gloo")
        torch.set_num_threads(1)
    else:
        dist.init_process_group("gloo", store=dist.HashStore(), rank=0, world_size=1)
    model = torch.nn.Sequential(*(torch.nn.Linear(_WIDTH, _WIDTH) for _ in range(10)))
    if dist.get_world_size() > 1:
        fully_shard(model)
    optimizer = torch.optim.AdamW(model.parameters())
    for parameter in model.parameters():
        parameter.grad = torch.ones_like(parameter)
    optimizer.step()
    save = _hpcflow(folder / "hpcflow", model, optimizer)
    file, whole = folder / f"torch-{dist.get_rank()}.pt", folder / "whole.pt"

    def own() -> dict[str, Any]:
        state = {"model": model.state_dict(), "optimizer": optimizer.state_dict()}
        local: dict[str, Any] = tree_map(_local, state)
        return local

    def save_whole() -> None:
        options = StateDictOptions(full_state_dict=True, cpu_offload=True)
        state = get_state_dict(model, optimizer, options=options)
        if dist.get_rank() == 0:
            torch.save(state, whole)
        dist.barrier()

    def save_own() -> None:
        torch.save(own(), file)

    measured: dict[str, list[float]] = {}
    for number in range(rounds + 1):
        seconds = {
            "torch.save of shards": _timed(save_own),
            "torch.save": _timed(save_whole if dist.get_world_size() > 1 else save_own),
            **save(),
            **_async_save(folder / "dcp", model, optimizer),
            "write": _write(file, folder / f"raw-{dist.get_rank()}"),
        }
        for name, value in seconds.items():
            measured.setdefault(f"{name}, first" if number == 0 else name, []).append(
                _slowest(value)
            )
    measured["bytes"] = [float(sum(each.stat().st_size for each in folder.glob("torch-*.pt")))]
    if dist.get_rank() == 0:
        print(json.dumps(measured))
    dist.barrier()


def _hpcflow(folder: Path, model: Any, optimizer: Any) -> Callable[[], dict[str, float]]:
    """What takes a train step that is saved after: the time until the next one can begin, and
    until the checkpoint is visible."""
    os.environ["HPCFLOW_CHECKPOINT_DIR"] = str(folder)
    os.environ["HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS"] = str(_EVERY)
    os.environ["HPCFLOW_CHECKPOINT_KEEP"] = '{"last": 1}'
    from hpcflow import runtime
    from tests.runtime.program import wait_for_write

    run = runtime.start()
    run.restore(model=model, optimizer=optimizer)
    train_steps = run.train_steps(sys.maxsize)
    next(train_steps)

    def save() -> dict[str, float]:
        while run.train_step % _EVERY:
            next(train_steps)
        path = folder / f"{run.train_step:09d}"
        dist.barrier()
        began = time.perf_counter()
        next(train_steps)
        held_s = time.perf_counter() - began
        assert run._saving is not None
        while run._saving.is_under_way:
            assert run.train_step % _EVERY, "the next one is due"
            wait_for_write(run)
            dist.barrier()
            next(train_steps)
        visible_s = time.perf_counter() - began
        assert (path / "manifest.json").exists()
        _remove(path)
        return {"hpcflow": held_s, "hpcflow, visible": visible_s}

    return save


def _async_save(folder: Path, model: Any, optimizer: Any) -> dict[str, float]:
    dist.barrier()
    began = time.perf_counter()
    model_state, optimizer_state = get_state_dict(model, optimizer)
    state = {"model": model_state, "optimizer": optimizer_state}
    future = dcp.async_save(state, checkpoint_id=str(folder))
    held_s = time.perf_counter() - began
    future.result()
    _remove(folder)
    return {"async_save": held_s}


def _local(value: Any) -> Any:
    return value.to_local() if isinstance(value, DTensor) else value


def _remove(folder: Path) -> None:
    """Remove it, and leave nothing for the disk to do in what is measured next."""
    dist.barrier()
    if dist.get_rank() == 0:
        shutil.rmtree(folder)
        os.sync()
    dist.barrier()


def _slowest(seconds: float) -> float:
    tensor = torch.tensor(seconds, dtype=torch.float64)
    dist.all_reduce(tensor, op=dist.ReduceOp.MAX)
    return float(tensor)


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
    dist.barrier()
    began = time.perf_counter()
    work()
    seconds = time.perf_counter() - began
    os.sync()
    return seconds


if __name__ == "__main__":
    main()
    sys.stdout.flush()
    os._exit(0)  # its training has no end to wait for
