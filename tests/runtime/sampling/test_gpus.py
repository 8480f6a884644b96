"""Which GPUs are the job's, and what is seen of them, whatever NVIDIA's library says."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from hpcflow.runtime.sampling.gpus import GpuUse, Nvml, NvmlError, find_gpus
from tests.runtime.sampling.libnvidia import LIBRARIES, MIG

BUSY = GpuUse(97, 30_000, 80_000)
UNUSED = GpuUse(0, 4, 80_000)
PART = GpuUse(None, 9_000, 10_000)


@pytest.fixture(params=LIBRARIES, ids=lambda each: each.__name__)
def library(request: pytest.FixtureRequest, tmp_path: Path) -> Any:
    make: Callable[[Path], Any] = request.param
    return make(tmp_path)


@pytest.mark.parametrize(
    ("visible", "expected"),
    [
        ("0", {"0": BUSY}),
        ("0,1", {"0": BUSY, "1": UNUSED}),
        ("1, 0", {"1": UNUSED, "0": BUSY}),
        ("GPU-bbbb", {"GPU-bbbb": UNUSED}),
        ("GPU-aaaa1111-0000", {"GPU-aaaa1111": BUSY}),
        (MIG, {MIG[:12]: PART}),
        ("0,7,1", {"0": BUSY}),  # as in CUDA, the rest does not count
        ("0,-1,1", {"0": BUSY}),
        ("", {}),
        ("NoDevFiles", {}),
        ("GPU-", {}),  # of which one?
        ("2", {"2": PART}),
        ("0,3", {"0": BUSY}),  # it fell off the bus
        (None, {"0": BUSY, "1": UNUSED, "2": PART}),  # all four are the job's
    ],
)
def test_the_jobs_own_gpus_are_looked_at_and_no_others(
    library: Any, visible: str | None, expected: dict[str, GpuUse]
) -> None:
    assert find_gpus(visible, 4, Nvml(library)).look() == expected


def test_parts_of_one_gpu_are_told_apart_also_by_the_names_that_older_drivers_give_them() -> None:
    # Before 470, a part is called after its GPU, with two numbers.
    old = SimpleNamespace(
        nvmlInit_v2=lambda: 0,
        nvmlDeviceGetHandleByUUID=lambda *_: 0,
        nvmlDeviceGetMemoryInfo=lambda *_: 0,
        nvmlDeviceGetUtilizationRates=lambda *_: 3,
    )
    parts = [f"MIG-GPU-8aaf53b8-1111-2222-3333-444455556666/{number}/0" for number in (7, 8, 9)]
    seen = find_gpus(",".join(parts), 3, Nvml(old)).look()
    assert len(seen) == 3


def test_where_nothing_says_which_gpus_are_the_jobs_none_are_looked_at(library: Any) -> None:
    assert find_gpus(None, 2, Nvml(library)).look() == {}


def test_a_job_without_gpus_does_not_open_the_library() -> None:
    assert find_gpus("0", 0).look() == {}


def test_a_node_without_a_driver_is_no_error() -> None:
    assert find_gpus("0,1", 2).look() == {}
    with pytest.raises(NvmlError):
        Nvml(SimpleNamespace(nvmlInit_v2=lambda: 9))  # the driver is not loaded


def test_an_old_driver_without_a_function_is_no_error() -> None:
    nvml = Nvml(SimpleNamespace(nvmlInit_v2=lambda: 0))
    assert find_gpus("0", 1, nvml).look() == {}


def test_a_gpu_that_keeps_failing_is_left_alone(library: Any) -> None:
    """A driver that has lost a GPU may take long for every answer."""
    gpus = find_gpus("3", 1, Nvml(library))
    for _ in range(30):
        assert gpus.look() == {}
    assert gpus._failures == {"3": 20}
