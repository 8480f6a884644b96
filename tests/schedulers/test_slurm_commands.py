"""Slurm by its commands, on the real cluster, as an ordinary user."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.schedulers.base import Scheduler
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.testing.cluster import User
from hpcflow.testing.scheduler_contract import LostAnswerContract
from tests.schedulers.as_user import AsUser

pytestmark = [pytest.mark.cluster, pytest.mark.every_slurm]


class TestContract(LostAnswerContract):
    @pytest.fixture
    def scheduler(self, researcher: User) -> Scheduler:
        return AsUser(SlurmCommands(clock=SystemClock()), researcher)

    @pytest.fixture
    def forgetful(self, researcher: User, directory: Path) -> Scheduler:
        extra = {"PATH": losing_path(researcher, directory)}
        return AsUser(SlurmCommands(clock=SystemClock()), researcher, extra)


def test_a_user_whom_slurm_does_not_know_stands_nowhere(researcher: User) -> None:
    scheduler = AsUser(SlurmCommands(clock=SystemClock()), researcher)
    standing = scheduler.standing("hpcf-nobody")
    assert standing is not None
    assert (standing.associations, standing.share("physics")) == ((), None)


def losing_path(user: User, folder: Path) -> str:
    """A PATH with an sbatch that does its work and then prints nonsense."""
    programs = folder / "bin"
    programs.mkdir()
    sbatch = programs / "sbatch"
    real = user.program("sbatch")
    sbatch.write_text(f'#!/bin/sh\n{real} "$@" >/dev/null\necho "%%% garbled"\n')
    sbatch.chmod(0o755)
    return f"{programs}:{user.environment()['PATH']}"
