"""Loading takes no more memory than what is loaded, however many ranks load it."""

from __future__ import annotations

import gc
import resource
from pathlib import Path

import torch

from hpcflow.runtime.files import NewFile
from hpcflow.runtime.program_state import ProgramState
from hpcflow.runtime.ranks import Alone
from tests.runtime.harness import context

SIZE_BYTES = 128 << 20


def adam(device: str) -> torch.optim.Optimizer:
    """An optimizer with a state of as many bytes, once it has done a train step."""
    return torch.optim.AdamW([torch.nn.Parameter(torch.zeros(SIZE_BYTES // 8, device=device))])


def load(folder: Path, device: str) -> None:
    optimizer = adam(device)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    ProgramState({"optimizer": optimizer}, Alone()).load(folder, is_same_size=True)
    grown_bytes = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) << 10

    (state,) = optimizer.state.values()
    assert {str(state[key].device) for key in ("exp_avg", "exp_avg_sq")} == {device}
    assert state["step"].item() == 1
    if device == "cpu":
        assert state["exp_avg"].sum() != 0
    else:
        assert grown_bytes < SIZE_BYTES // 4, "all of it was read into memory of the CPU"
    gc.collect()
    assert "optimizer.pt" not in Path("/proc/self/maps").read_text(), "needed after it is removed"


def test_the_state_of_an_optimizer_goes_from_the_disk_to_where_its_parameters_are(
    tmp_path: Path,
) -> None:
    """Of eight ranks with a GPU each, all would have a copy in host memory besides."""
    optimizer = adam("cpu")
    optimizer.param_groups[0]["params"][0].grad = torch.ones(SIZE_BYTES // 8)
    optimizer.step()
    for part in ProgramState({"optimizer": optimizer}, Alone()).capture(tmp_path, None):
        part.write(tmp_path, NewFile)

    for device in ("meta", "cpu"):  # "meta" stands for a GPU: it has memory of its own, or none
        process = context.Process(target=load, args=(tmp_path, device))
        process.start()
        process.join()
        assert process.exitcode == 0, device
