"""What the environment says about this job: the variables that the job script sets.

Nothing is created or opened here. Every variable switches on one thing, so that a program under
no hpcflow at all runs too, and ``HPCFLOW_CHECKPOINT_DIR=checkpoints python train.py`` is enough to
try saving and resuming at a desk.
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

#: "Checkpointed, send me again": EX_TEMPFAIL of sysexits.h.
RESUBMIT_EXIT_CODE = 75

#: How often something ends a job of which nobody knows more.
_A_DAY_S = 24 * 3600

_Said = TypeVar("_Said")


@dataclass(frozen=True)
class Job:
    """This process and its place in the run.

    Attributes:
        run_dir: what paths in events are relative to.
        has_mirror: whether checkpoints are copied to an object store from outside.
        attempt_dir: where the word "send me again" is left.
        events: the file that events are appended to.
        notice: exists once the job was told to save and leave.
        checkpoint_dir: where checkpoints go; None when there are none to make.
        resume_from: a checkpoint to begin from when ``checkpoint_dir`` holds none.
        begin_from: a checkpoint of another run, taken when none of this run's own is whole.
        verified: the SHA-256 of the manifest of the checkpoint that the job script has read and
            found whole when it began.
        tensorboard_dir: where TensorBoard files go.
        interval_s: save when so many seconds have passed; None for never by time, or ``auto``.
        mtbf_s: mean time to an unplanned end of the job, where the interval is to follow from that;
            None where it is given.
        every_train_steps: save after every so many train steps; None for never by count.
        skip_when_busy: leave a checkpoint out that is due by count while another is being written,
            instead of waiting for that one.
        keep: which checkpoints stay; None: nothing is ever removed.
        results: train steps of final checkpoints from before the run was extended; they stay.
        adopt: how checkpoints look that the program writes by itself; then nothing else saves.
        exit_code: what a process that leaves on notice exits with.
        rank: index of this process among all, from 0.
        world_size: number of processes.
    """

    run_id: str | None = None
    attempt: int | None = None
    run_dir: Path | None = None
    has_mirror: bool = False
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
        """The file that says that the run shall end for good."""
        return self.run_dir / "cancel" if self.run_dir is not None else None

    def relative(self, path: Path) -> str:
        """``path`` as events name it: relative to the run directory where there is one."""
        return os.path.relpath(str(path), str(self.run_dir)) if self.run_dir else str(path)


def job_from(environ: Mapping[str, str]) -> Job:
    """The job that ``environ`` describes.

    Raises:
        ValueError: a variable holds something else than it should; the text names it.
    """

    is_auto = environ.get("HPCFLOW_CHECKPOINT_INTERVAL_S") == "auto"

    def path(name: str) -> Path | None:
        return Path(os.path.abspath(environ[name])) if environ.get(name) else None  # noqa: PTH100

    return Job(
        run_id=environ.get("HPCFLOW_RUN_ID"),
        attempt=_number(environ, "HPCFLOW_ATTEMPT"),
        run_dir=path("HPCFLOW_RUN_DIR"),
        has_mirror=_choice(environ, "HPCFLOW_MIRROR", ("0", "1")) == "1",
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
        skip_when_busy=_choice(environ, "HPCFLOW_CHECKPOINT_WHEN_BUSY", ("wait", "skip")) == "skip",
        keep=_parsed(environ, "HPCFLOW_CHECKPOINT_KEEP", parse_rule),
        results=_parsed(environ, "HPCFLOW_CHECKPOINT_RESULTS", _steps) or (),
        adopt=_parsed(environ, "HPCFLOW_ADOPT", parse_adopt_rule),
        exit_code=_number(environ, "HPCFLOW_RESUBMIT_EXIT_CODE") or RESUBMIT_EXIT_CODE,
        rank=_number(environ, "RANK") or 0,
        world_size=_number(environ, "WORLD_SIZE") or 1,
    )


def read_params(path: Path | None) -> dict[str, Any]:
    """The run's parameters; none where no file holds any.

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


def _choice(environ: Mapping[str, str], name: str, choices: tuple[str, ...]) -> str:
    """The first of ``choices`` where the variable says nothing."""
    text = environ.get(name) or choices[0]
    if text not in choices:
        raise ValueError(f"{name}={text!r}: not {' or '.join(choices)}")
    return text


def _steps(text: str) -> tuple[int, ...]:
    return tuple(map(int, text.split()))


def _parsed(environ: Mapping[str, str], name: str, parse: Callable[[str], _Said]) -> _Said | None:
    text = environ.get(name)
    if not text:
        return None
    try:
        return parse(text)
    except ValueError as error:
        raise ValueError(f"{name}={text!r}: {error}") from None
