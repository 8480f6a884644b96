"""Parse trackable resources, ``cpu=8,gres/gpu:a100=4,mem=2000M,node=1``, into a :class:`Usage`."""

from __future__ import annotations

import re
from typing import Final

from hpcflow.model.usage import Usage

_GPU: Final = "gres/gpu"
_COUNT: Final = re.compile(r"(\d+(?:\.\d+)?)([KMGTPE]?)", re.ASCII)
_KIB: Final = {"": 1024, "K": 1, "M": 1024, "G": 1024**2, "T": 1024**3, "P": 1024**4, "E": 1024**5}


def parse_tres(text: str) -> Usage | None:
    """Return the usage in ``text``; None if there is none.

    Slurm has the number of all GPUs and, if the site tracks types, of each type. Memory without a
    unit is in MiB. Unknown and unreadable resources are skipped.
    """
    counts = tres_counts(text)
    mem_mb = counts.pop("mem", 0)
    if not counts and not mem_mb:
        return None
    gpus = {
        name.removeprefix(f"{_GPU}:"): count
        for name, count in counts.items()
        if name.startswith(f"{_GPU}:")
    }
    untyped = counts.get(_GPU, 0) - sum(gpus.values())
    if untyped > 0:
        gpus[""] = untyped
    return Usage(
        nodes=counts.get("node", 0),
        cpus=counts.get("cpu", 0),
        mem_mb=mem_mb,
        gpus=dict(sorted(gpus.items())),
    )


def tres_counts(text: str) -> dict[str, int]:
    """Return Slurm's resource name -> count; ``mem`` in MiB, also if it has no unit."""
    counts: dict[str, int] = {}
    for part in text.strip().split(","):
        name, _, value = part.partition("=")
        read = _COUNT.fullmatch(value.strip())
        if read is None:
            continue
        number, unit = float(read[1]), read[2]
        if name == "mem":
            counts[name] = round(number * _KIB[unit] / 1024)
        else:
            counts[name] = round(number * (1000 ** " KMGTPE".index(unit or " ")))
    return counts
