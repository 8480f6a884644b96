"""A training as a researcher would write it, small, and able to hurt itself at a chosen train step.

Everything that must come back after a resume takes part in its weights: shuffled data, dropout,
Python's and numpy's random numbers, a scheduler that steps once per epoch, a counter of its own.
The environment says what happens: ``HURT`` is a list of ``rank:train_step:what``, with ``PATIENT``
it waits for whatever is being written, and with ``STATEFUL`` its loader keeps its place itself.
"""

from __future__ import annotations

import multiprocessing
import os
import random
import resource
import signal
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import torch
import torch.distributed as dist
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from hpcflow import runtime
from hpcflow.runtime.files import NewFile

EPOCHS = 4
BATCHES = 10


def train() -> None:
    """One rank of the training."""
    torch.set_num_threads(1)
    rank, world_size = int(os.environ.get("RANK", 0)), int(os.environ.get("WORLD_SIZE", 1))
    if world_size > 1:
        meet = os.environ.get("MEET")  # torchrun has its own way
        dist.init_process_group("gloo", init_method=meet, rank=rank, world_size=world_size)
    run = runtime.start({"epochs": EPOCHS})
    RUNS.append(run)
    change_disk()
    torch.manual_seed(1)
    data = TensorDataset(torch.randn(8 * world_size * BATCHES, 6))
    workers, kind, placed = int(os.environ.get("WORKERS", 0)), DataLoader, {}
    if os.environ.get("STATEFUL"):
        from torchdata import stateful_dataloader

        kind = stateful_dataloader.StatefulDataLoader
    if world_size > 1:
        sampler = DistributedSampler(data, world_size, rank)
        loader = kind(data, batch_size=8, sampler=sampler, num_workers=workers)
    else:
        own = torch.Generator().manual_seed(5) if os.environ.get("GENERATOR") else None
        loader = kind(data, batch_size=8, shuffle=True, num_workers=workers, generator=own)
    if os.environ.get("STATEFUL"):
        placed = {"loader": loader}
    model: nn.Module = nn.Sequential(
        nn.Linear(6, 16), nn.ReLU(), nn.Dropout(0.3), nn.Linear(16, 6), nn.Linear(6, 6)
    )
    if world_size > 1:
        model = DistributedDataParallel(model)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.01)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 1, gamma=0.7)
    count: dict[str, int] = {"train_steps": 0, "epochs": 0}
    for seed in (random.seed, np.random.seed, torch.manual_seed):
        seed(100 + rank)

    run.restore(model=model, optimizer=optimizer, scheduler=scheduler, count=count, **placed)
    for epoch in run.epochs(run.params.epochs):
        if world_size > 1:
            sampler.set_epoch(epoch)
        shift = random.random()
        for (batch,) in run.batches(loader):
            noise = shift + random.random() + np.random.random()
            optimizer.zero_grad()
            loss = (model(batch * noise) - batch).pow(2).mean()
            loss.backward()
            optimizer.step()
            count["train_steps"] += 1
            if os.environ.get("PATIENT"):
                wait_for_write(run)
            run.log(loss=loss)
            hurt(rank, run.train_step)
        scheduler.step()
        count["epochs"] += 1
        hurt(rank, run.train_step, "after_epoch_")
    run.finish(loss=loss if run.train_step and "loss" in locals() else 0.0)
    if dist.is_initialized():
        dist.destroy_process_group()


def wait_for_write(run: runtime.Run) -> None:
    """Train no faster than this rank writes: four train steps later a checkpoint is visible."""
    flight = run._saving._flight if run._saving else None
    if flight is not None and flight.work is not None:
        flight.work.wait()


def change_disk() -> None:
    """Make the disk slow, or deadly, as the environment says.

    ``SLOW``: what is written in the background gets there when so many train steps more are done,
    at the latest when the training is told to leave, or comes to its end. ``DIE_AT_CALL``: the
    process is killed at that call, counted over both threads, which opens, writes, renames or
    removes something.
    """
    write = NewFile.write
    slow, calls = int(os.environ.get("SLOW", 0)), int(os.environ.get("DIE_AT_CALL", 0))

    def changed(file: NewFile, data: bytes | memoryview) -> int:
        sys.audit("os.write")
        flight = RUNS[-1]._saving._flight if RUNS[-1]._saving else None
        if threading.current_thread() is not threading.main_thread() and flight is not None:
            while (
                RUNS[-1].train_step <= min(flight.train_step + slow, EPOCHS * BATCHES - 1)
                and threading.main_thread().is_alive()
                and not RUNS[-1]._notice.seen()
            ):
                time.sleep(0.001)
        return write(file, data)

    def count(event: str, _arguments: tuple[object, ...]) -> None:
        nonlocal calls
        if event == "open" or event.startswith(("os.", "shutil.")):
            calls -= 1
            if calls == 0:
                signal.raise_signal(signal.SIGKILL)

    if slow or calls:
        NewFile.write = changed  # type: ignore[method-assign, assignment]
    if calls:
        sys.addaudithook(count)


def hurt(rank: int, train_step: int, when: str = "") -> None:
    """Do to this process what ``HURT`` says."""
    for fault in os.environ.get("HURT", "").split():
        on_rank, at, what = fault.split(":")
        if (int(on_rank), int(at)) == (rank, train_step) and what.startswith(when or what):
            HURTS[what.removeprefix(when)]()


def _raise() -> None:
    raise ZeroDivisionError("a mistake in the program")


def _no_more_disk() -> None:
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (3000, resource.RLIM_INFINITY))


def _disk_again() -> None:
    resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))


def _term_workers() -> None:
    for worker in multiprocessing.active_children():
        worker.terminate()


def _flag() -> None:
    Path(os.environ["HPCFLOW_NOTICE"]).touch()
    time.sleep(1.0)  # it is looked for once a second, and all of this training takes less


def _be_succeeded() -> None:
    claim = Path(os.environ["HPCFLOW_RUN_DIR"], "attempts", "0002", "claim")
    claim.parent.mkdir()
    claim.write_text("7\n")


def _wait_for_notice() -> None:
    while not RUNS[-1]._notice.seen():
        time.sleep(0.01)


RUNS: list[runtime.Run] = []
HURTS: dict[str, Callable[[], None]] = {
    "STOP": lambda: os.kill(os.getpid(), signal.SIGSTOP),
    "KILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "TERM": lambda: os.kill(os.getpid(), signal.SIGTERM),
    "USR2": lambda: os.kill(os.getpid(), signal.SIGUSR2),
    "TERM_ALL": lambda: os.killpg(os.getpgid(0), signal.SIGTERM),
    "TERM_WORKERS": _term_workers,
    "flag": _flag,
    "raise": _raise,
    "disk_full": _no_more_disk,
    "disk_free": _disk_again,
    "TERM_PARENT": lambda: os.kill(os.getppid(), signal.SIGTERM),
    "be_succeeded": _be_succeeded,
    "wait_for_notice": _wait_for_notice,
}


if __name__ == "__main__":
    train()
    sys.exit(0)
