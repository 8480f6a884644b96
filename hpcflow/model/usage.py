"""What a job was allocated, and for how long: the quantities of a bill."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field


@dataclass(frozen=True)
class Usage:
    """The allocation of one job, over all its nodes.

    Attributes:
        mem_mb: memory, in MiB.
        gpus: type name in the scheduler -> count; the empty name for GPUs of unknown type.
    """

    nodes: int = 0
    cpus: int = 0
    mem_mb: int = 0
    gpus: Mapping[str, int] = field(default_factory=dict)
