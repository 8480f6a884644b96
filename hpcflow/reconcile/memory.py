"""Recognize jobs that ran out of memory; without cgroups, Slurm only reports a kill."""

from __future__ import annotations

from typing import Final

from hpcflow.model.measured import kept_of
from hpcflow.model.views import AttemptView
from hpcflow.runtime.reading import JsonError, parse_object, read_file
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.layout import AttemptDir, RunDir

_SIGKILL: Final = 9
#: The part of its memory that a sample must show: a job can grow after the last sample.
_NEARLY_ALL: Final = 0.9
_MAX_BYTES: Final = 1 << 20


def memory_when_killed(run_dir: RunDir, attempt: AttemptView, job: JobInfo | None) -> str | None:
    """Return what a job used, if it was killed with nearly all of its memory in use; else None."""
    files = run_dir.attempt(attempt.attempt)
    if not _was_killed(files, attempt, job):
        return None
    try:
        # The sampler keeps the next usage event here; a job that is killed cannot write it itself.
        members = read_file(files.usage, _MAX_BYTES).decode()
        used = kept_of(parse_object(f"{{{members}}}")) or {}
    except (OSError, JsonError, UnicodeDecodeError):
        return None
    peak_mb, had_mb = used.get("mem_peak_mb"), used.get("mem_mb")
    if not peak_mb or not had_mb or peak_mb < _NEARLY_ALL * had_mb:
        return None
    return f"killed when it used {peak_mb} of {had_mb} MB"


def _was_killed(files: AttemptDir, attempt: AttemptView, job: JobInfo | None) -> bool:
    codes = {attempt.exit_code, job.exit_code if job is not None else None}
    is_job_killed = job is not None and job.signal == _SIGKILL
    return is_job_killed or 128 + _SIGKILL in codes or files.killed.exists()
