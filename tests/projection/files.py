"""Run directories whose files grow, and everything that a ledger says about them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from hpcflow.ledger.store import Ledger
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import create_run
from tests.storage.runs import make_run


def new_run(root: Path, **spec: Any) -> RunDir:
    """A run directory below ``root``, entered into the home ``root/home``."""
    return create_run(make_run(root / "scratch", **spec), Home(root / "home"))


def grow(path: Path, *data: bytes) -> None:
    """Append bytes as they are: a line, half a line, garbage."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("ab") as file:
        file.write(b"".join(data))


def everything(ledger: Ledger, run_dirs: Sequence[RunDir]) -> Any:
    """All rows of these runs."""
    ids = sorted(run_dir.path.name for run_dir in run_dirs)
    return ledger.known(ids), ledger.checkpoints(ids), ledger.mirrored(ids)
