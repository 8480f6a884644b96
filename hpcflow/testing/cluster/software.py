"""hpcflow and its libraries where every user can run them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Software:
    """Where things are."""

    venv: Path
    bin: Path
    examples: Path
    sbatch: Path


def refresh(tree: Path, python: Path, target: Path) -> Software:
    raise NotImplementedError
