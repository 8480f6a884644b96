"""A training of one train step: ``resume_program.py hpcflow|torch save|load FOLDER BYTES``.

Prints as JSON how long it took to import torch, to make the model, and to save or load it.
"""

from __future__ import annotations

import json
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

_TENSOR_BYTES = 250_000_000


def main() -> None:
    """Save the state, or load it into a model of other numbers."""
    program, what, folder, size_bytes = sys.argv[1:]
    began = time.perf_counter()
    import torch

    torch_s = time.perf_counter() - began
    count = max(1, int(size_bytes) // _TENSOR_BYTES)
    width = int(size_bytes) // count // 4
    model: Any = torch.nn.ParameterList(
        torch.full((width,), float(what == "save")) for _ in range(count)
    )
    ways = {"hpcflow": _hpcflow, "torch": _torch}
    work_s = ways[program](what, Path(folder), model)
    if what == "load":
        assert all(tensor[-1].item() == 1.0 for tensor in model), "it was loaded"
    print(json.dumps({"torch_s": torch_s, "work_s": work_s}))


def _hpcflow(what: str, folder: Path, model: Any) -> float:
    os.environ["HPCFLOW_CHECKPOINT_DIR"] = str(folder)
    from hpcflow import runtime

    run = runtime.start()
    if what == "load":
        return _timed(lambda: run.restore(model=model))
    run.restore(model=model)
    train_steps = run.train_steps(1)
    next(train_steps)
    return _timed(lambda: next(train_steps, None))


def _torch(what: str, folder: Path, model: Any) -> float:
    import torch

    folder.mkdir(exist_ok=True)
    path = folder / "model.pt"
    if what == "load":
        return _timed(lambda: model.load_state_dict(torch.load(path, weights_only=True)))

    def save() -> None:
        with path.open("wb") as file:
            torch.save(model.state_dict(), file)
            file.flush()
            os.fsync(file.fileno())

    return _timed(save)


def _timed(work: Callable[[], object]) -> float:
    began = time.perf_counter()
    work()
    return time.perf_counter() - began


if __name__ == "__main__":
    main()
