"""Read the environment variables that the job script sets.

This creates no file. Each variable enables one feature, so a program also runs outside of hpcflow,
and ``HPCFLOW_CHECKPOINT_DIR=checkpoints python train.py`` is enough to try saving and resuming.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from hpcflow.runtime.adoption.rule import AdoptRule, parse_adopt_rule
from hpcflow.runtime.reading import JsonError, read_object
from hpcflow.runtime.rule import Rule, parse_rule

#: "Saved, resubmit me": EX_TEMPFAIL of sysexits.h.
RESUBMIT_EXIT_CODE = 75

#: The default mean time to an unplanned end of a job.
_A_DAY_S = 24 * 3600

_Value = TypeVar("_Value")


@dataclass(frozen=True)
class Job:
    """This process and its place in the run.

    Attributes:
        run_dir: paths in events are relative to it.
        mirror_url: the object store to which the mirror copies checkpoints; None without one.
        attempt_dir: holds the file that requests a resubmission.
        events: the file that events are appended to.
        notice: exists once the job has the notice to save and exit.
        checkpoint_dir: None if the runtime makes no checkpoints.
        resume_from: a checkpoint to resume from if ``checkpoint_dir`` holds none.
        begin_from: a checkpoint of another run, used if the run has no intact one of its own.
        verified: the SHA-256 of the manifest of the checkpoint that the job script has verified at
            its start.
        interval_s: seconds between saves; None for no saves by time, or ``auto``.
        mtbf_s: mean time to an unplanned end of the job, for the interval ``auto``; None otherwise.
        every_train_steps: train steps between saves; None for no saves by count.
        skip_when_busy: skip a save by count while another checkpoint is being written, instead of
            waiting for it.
        keep: which checkpoints to keep; None to remove none.
        results: train steps of final checkpoints from before the run was extended; they are kept.
        adopt: how to find the checkpoints that the program writes; None if the runtime saves.
        exit_code: exit code of a process that exits on notice.
        rank: index of this process, from 0.
        world_size: number of processes.
    """

    run_id: str | None = None
    attempt: int | None = None
    run_dir: Path | None = None
    mirror_url: str | None = None
    attempt_dir: Path | None = None
    events: Path | None = None
    notice: Path | None = None
    checkpoint_dir: Path | None = None
    resume_from: Path | None = None
    begin_from: Path | None = None
    verified: str | None = None
    params_file: Path | None = None
    tensorboard_dir: Path | None = None
    interval_s: float | None = None
    mtbf_s: float | None = None
    every_train_steps: int | None = None
    skip_when_busy: bool = False
    keep: Rule | None = None
    results: tuple[int, ...] = ()
    adopt: AdoptRule | None = None
    exit_code: int = RESUBMIT_EXIT_CODE
    rank: int = 0
    world_size: int = 1

    @property
    def cancel(self) -> Path | None:
        """Return the file that tells the run to end without resubmission."""
        return self.run_dir / "cancel" if self.run_dir is not None else None

    def relative(self, path: Path) -> str:
        """Return ``path`` relative to the run directory; unchanged if there is none."""
        return os.path.relpath(str(path), str(self.run_dir)) if self.run_dir else str(path)


def job_from(environ: Mapping[str, str]) -> Job:
    """Read the job from environment variables.

    Raises:
        ValueError: a variable has an invalid value; the text names it.
    """
    is_auto = environ.get("HPCFLOW_CHECKPOINT_INTERVAL_S") == "auto"

    def path(name: str) -> Path | None:
        return Path(os.path.abspath(environ[name])) if environ.get(name) else None  # noqa: PTH100

    return Job(
        run_id=environ.get("HPCFLOW_RUN_ID"),
        attempt=_number(environ, "HPCFLOW_ATTEMPT"),
        run_dir=path("HPCFLOW_RUN_DIR"),
        mirror_url=environ.get("HPCFLOW_MIRROR_URL") or None,
        attempt_dir=path("HPCFLOW_ATTEMPT_DIR"),
        events=path("HPCFLOW_EVENTS"),
        notice=path("HPCFLOW_NOTICE"),
        checkpoint_dir=path("HPCFLOW_CHECKPOINT_DIR"),
        resume_from=path("HPCFLOW_RESUME_FROM"),
        begin_from=path("HPCFLOW_BEGIN_FROM"),
        verified=environ.get("HPCFLOW_RESUME_VERIFIED") or None,
        params_file=path("HPCFLOW_PARAMS"),
        tensorboard_dir=path("HPCFLOW_TENSORBOARD_DIR"),
        interval_s=None if is_auto else _number(environ, "HPCFLOW_CHECKPOINT_INTERVAL_S"),
        mtbf_s=(_number(environ, "HPCFLOW_MTBF_S") or _A_DAY_S) if is_auto else None,
        every_train_steps=_number(environ, "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS"),
        skip_when_busy=_parsed(environ, "HPCFLOW_CHECKPOINT_WHEN_BUSY", _is_skip) or False,
        keep=_parsed(environ, "HPCFLOW_CHECKPOINT_KEEP", parse_rule),
        results=_parsed(environ, "HPCFLOW_CHECKPOINT_RESULTS", _steps) or (),
        adopt=_parsed(environ, "HPCFLOW_ADOPT", parse_adopt_rule),
        exit_code=_number(environ, "HPCFLOW_RESUBMIT_EXIT_CODE") or RESUBMIT_EXIT_CODE,
        rank=_number(environ, "RANK") or 0,
        world_size=_number(environ, "WORLD_SIZE") or 1,
    )


def read_params(path: Path | None) -> dict[str, Any]:
    """Return the run's parameters from their file; empty without a file.

    Raises:
        ValueError: the file is not a JSON object.
    """
    if path is None:
        return {}
    try:
        return read_object(path)
    except JsonError as error:
        raise ValueError(f"{path}: {error}") from None


def _number(environ: Mapping[str, str], name: str) -> int | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        return int(text)
    except ValueError:
        raise ValueError(f"{name}={text!r}: not a whole number") from None


def _is_skip(text: str) -> bool:
    if text not in ("wait", "skip"):
        raise ValueError("not wait or skip")
    return text == "skip"


def _steps(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def _parsed(environ: Mapping[str, str], name: str, parse: Callable[[str], _Value]) -> _Value | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{name}={text!r}: {error}") from None
