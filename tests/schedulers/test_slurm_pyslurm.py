"""Slurm through pyslurm, on the real cluster, wherever pyslurm is installed; and without it."""

from __future__ import annotations

import importlib.util
import os
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.schedulers.base import Scheduler
from hpcflow.schedulers.slurm.pyslurm import SlurmWithPyslurm
from hpcflow.testing.cluster import User
from hpcflow.testing.scheduler_contract import LostAnswerContract
from tests.schedulers.as_user import AsUser
from tests.schedulers.test_slurm_commands import losing_path

_IS_INSTALLED = importlib.util.find_spec("pyslurm") is not None


@pytest.mark.skipif(
    not _IS_INSTALLED,
    reason="pyslurm is not installed: it is optional, and must be built for the site's Slurm",
)
def test_pyslurm_is_installed_and_keeps_the_contract() -> None:
    """One line in the report instead of one for each test of the contract."""


@pytest.mark.cluster
class TestContract(LostAnswerContract):
    """The same as by commands; the calls really go through the library."""

    __test__ = _IS_INSTALLED

    @pytest.fixture
    def scheduler(self, researcher: User) -> Scheduler:
        scheduler = AsUser(SlurmWithPyslurm(clock=SystemClock()), researcher, _python_path())
        tried = SlurmWithPyslurm(clock=SystemClock())
        assert scheduler.call(lambda: tried.uses_pyslurm), "pyslurm is installed but does not work"
        return scheduler

    @pytest.fixture
    def forgetful(self, researcher: User, directory: Path) -> Scheduler:
        extra = {"PATH": losing_path(researcher, directory), **_python_path()}
        return AsUser(SlurmWithPyslurm(clock=SystemClock()), researcher, extra)


def _python_path() -> dict[str, str]:
    return {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}


BROKEN_IMPORTS = {
    "no such module": "raise ImportError('libslurm.so.99: cannot open shared object file')",
    "ends the process, as libslurm does without a configuration": "import os; os._exit(1)",
    "crashes": "import os; os.kill(os.getpid(), 11)",
    "has another interface": "",
}


@pytest.mark.cluster
@pytest.mark.parametrize("code", BROKEN_IMPORTS.values(), ids=list(BROKEN_IMPORTS))
def test_a_pyslurm_that_does_not_work_leaves_everything_to_the_commands(
    researcher: User, directory: Path, code: str
) -> None:
    (directory / "pyslurm.py").write_text(code)
    broken = SlurmWithPyslurm(clock=SystemClock())
    scheduler = AsUser(broken, researcher, {"PYTHONPATH": str(directory)})
    assert not scheduler.call(lambda: broken.uses_pyslurm)
    assert scheduler.queue(["66999999"]) == []
    scheduler.cancel(["66999999"])
