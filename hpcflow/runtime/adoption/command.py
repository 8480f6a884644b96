"""``python3 -m hpcflow.runtime adopt begin | watch PID | end EXIT_CODE``, for job scripts."""

from __future__ import annotations

import os
import signal
from pathlib import Path

from hpcflow.runtime.adoption.adopter import Adopter
from hpcflow.runtime.adoption.rule import AdoptRule
from hpcflow.runtime.job import Job

#: Shortest and longest interval between two looks.
_LOOK_EVERY_S = (0.2, 5.0)
#: The job script sends it: finish the current copy, and exit.
_STOP = signal.SIGUSR1


def begin(job: Job) -> Path | None:
    """Adopt what the earlier attempt left; return the newest checkpoint, if there is any.

    Raises:
        OSError, CheckpointError: see :meth:`Adopter.begin`.
        ValueError: this job adopts no checkpoints.
    """
    return _adopter(job)[0].begin()


def watch(job: Job, script: int) -> None:
    """Adopt complete checkpoints while the program runs, until :data:`_STOP` arrives.

    Args:
        script: process id of the job script, the parent of this process.

    Raises:
        ValueError: this job adopts no checkpoints.
    """
    signal.pthread_sigmask(signal.SIG_BLOCK, {_STOP})
    adopter, rule = _adopter(job)
    adopter.watch()
    os.nice(10)  # the training goes first
    while not signal.sigtimedwait({_STOP}, _look_every_s(rule)):
        if os.getppid() != script or not (job.run_dir and job.run_dir.is_dir()):
            return  # the next process continues; or the run was removed
        adopter.look()


def end(job: Job, exit_code: int) -> None:
    """Adopt what the program has left.

    Args:
        exit_code: the exit code of the job.

    Raises:
        ValueError: this job adopts no checkpoints.
    """
    _adopter(job)[0].end(is_well=exit_code in (0, job.exit_code))


def _adopter(job: Job) -> tuple[Adopter, AdoptRule]:
    if job.adopt is None or job.run_dir is None or job.checkpoint_dir is None:
        raise ValueError("HPCFLOW_ADOPT is not set: this job adopts no checkpoints")
    return Adopter(job, job.run_dir, job.checkpoint_dir, job.adopt), job.adopt


def _look_every_s(rule: AdoptRule) -> float:
    least, most = _LOOK_EVERY_S
    return 1.0 if rule.renamed else min(most, max(least, rule.stable_s / 3))
