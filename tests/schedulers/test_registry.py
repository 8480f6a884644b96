"""Which scheduler serves a site, and what is imported for it."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import SystemClock
from hpcflow.launch.connecting import connect
from hpcflow.schedulers.local import LocalScheduler
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.schedulers.slurm.pyslurm import SlurmWithPyslurm
from hpcflow.sites.schema import Site


def _said(scheduler: str) -> dict[str, Any]:
    return {
        "name": "here",
        "scheduler": scheduler,
        "partitions": {"cpu": {"cpus_per_node": 1}},
        "scratch": {"path": "/tmp"},
    }


def _site(scheduler: str) -> Site:
    return Site.model_validate(_said(scheduler))


def test_the_site_decides(tmp_path: Path) -> None:
    assert isinstance(connect(_site("local"), clock=SystemClock(), home=tmp_path), LocalScheduler)
    slurm = connect(_site("slurm"), clock=SystemClock(), home=tmp_path)
    assert isinstance(slurm, SlurmCommands)
    assert slurm.name == "slurm"


def test_pyslurm_is_used_where_it_is_installed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "pyslurm.py").write_text("raise SystemExit('imported too early')")
    monkeypatch.syspath_prepend(tmp_path)
    slurm = connect(_site("slurm"), clock=SystemClock(), home=tmp_path)
    assert isinstance(slurm, SlurmWithPyslurm)


@pytest.mark.parametrize("scheduler", ["slurm", "local"])
def test_only_what_is_needed_is_imported(scheduler: str) -> None:
    code = (
        "import sys; from pathlib import Path\n"
        "from hpcflow.clock import SystemClock\n"
        "from hpcflow.sites.schema import Site\n"
        "from hpcflow.launch.connecting import connect\n"
        f"site = Site.model_validate({_said(scheduler)!r})\n"
        "connect(site, clock=SystemClock(), home=Path('/nowhere'))\n"
        "print(*sys.modules)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=120
    )
    modules = set(done.stdout.split())
    assert not modules & {"submitit", "numpy", "pyslurm", "rich", "sqlmodel", "torch"}
    other = "local" if scheduler == "slurm" else "slurm.commands"
    assert f"hpcflow.schedulers.{other}" not in modules
