"""What a job was allocated, and for how long: the quantities of a bill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Usage:
    """What was allocated to one job, on all of its nodes together.

    Attributes:
        mem_mb: memory, in MiB.
        gpus: name of the type in the scheduler -> how many; under an empty name those of which it
            says no type.
    """

    nodes: int = 0
    cpus: int = 0
    mem_mb: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
