"""The resources of this machine, for a site file with ``machine`` instead of a number.

The shipped ``local`` site uses ``machine``, because it must fit a laptop and a GPU server.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

WORD: Final = "machine"


@dataclass(frozen=True)
class Machine:
    """The resources of one machine that this process may use."""

    cpus: int
    mem_mb: int
    gpus: int


def this_machine(environ: Mapping[str, str] = os.environ, devices: Path = Path("/dev")) -> Machine:
    """Return the machine of this process."""
    pages, page_bytes = os.sysconf("SC_PHYS_PAGES"), os.sysconf("SC_PAGE_SIZE")
    return Machine(
        cpus=len(os.sched_getaffinity(0)),
        mem_mb=max(1, pages * page_bytes >> 20),
        gpus=_gpus(environ, devices),
    )


def _gpus(environ: Mapping[str, str], devices: Path) -> int:
    """Count GPUs by their device files: a driver's tool takes up to a second."""
    found = len(list(devices.glob("nvidia[0-9]*")))
    if not found and (devices / "kfd").exists():
        found = len(list(devices.glob("dri/renderD*")))
    visible = environ.get("CUDA_VISIBLE_DEVICES")
    if visible is None:
        return found
    return min(found, len([each for each in visible.split(",") if each.strip() not in ("", "-1")]))


def fill_in(data: dict[str, Any], machine: Machine) -> None:
    """Replace the values ``machine`` in a local site's file by numbers."""
    numbers = {
        "cpus_per_node": machine.cpus,
        "mem_per_node": f"{machine.mem_mb}M",
        "gpus_per_node": machine.gpus,
    }
    partitions = data.get("partitions")
    for partition in partitions.values() if isinstance(partitions, dict) else ():
        if isinstance(partition, dict):
            for key, number in numbers.items():
                if partition.get(key) == WORD:
                    partition[key] = number
