"""What Slurm says that a job was allocated."""

from __future__ import annotations

import pytest

from hpcflow.model.usage import Usage
from hpcflow.schedulers.slurm.units import parse_tres


@pytest.mark.parametrize(
    ("text", "usage"),
    [
        ("", None),
        ("billing=4", Usage()),
        ("billing=1,cpu=1,mem=500M,node=1", Usage(nodes=1, cpus=1, mem_mb=500)),
        (
            "billing=8,cpu=8,gres/gpu:a100=4,gres/gpu=4,mem=2000M,node=2",
            Usage(nodes=2, cpus=8, mem_mb=2000, gpus={"a100": 4}),
        ),
        ("cpu=1,gres/gpu=2,node=1", Usage(nodes=1, cpus=1, gpus={"": 2})),
        (
            "cpu=1,gres/gpu:a100=1,gres/gpu:h100=2,gres/gpu=4,node=1",
            Usage(nodes=1, cpus=1, gpus={"": 1, "a100": 1, "h100": 2}),
        ),
        ("mem=1.5G,node=1", Usage(nodes=1, mem_mb=1536)),
        ("mem=2T", Usage(mem_mb=2 * 1024**2)),
        ("mem=4096K", Usage(mem_mb=4)),
        ("mem=500", Usage(mem_mb=500)),
        ("cpu=1K,node=1K", Usage(cpus=1000, nodes=1000)),
        ("energy=18446744073709551614,fs/disk=1,license/matlab=2,cpu=2", Usage(cpus=2)),
        ("nonsense,cpu=x,=3,node=1", Usage(nodes=1)),
    ],
)
def test_trackable_resources(text: str, usage: Usage | None) -> None:
    assert parse_tres(text) == usage
