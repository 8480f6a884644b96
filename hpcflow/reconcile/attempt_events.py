"""Read an attempt's own files: its first notice, its last sign of life, how and why it ended.

The events of a week are hundreds of megabytes, so only a part of them is in memory.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import suppress
from datetime import datetime, timezone
from functools import partial
from pathlib import Path
from typing import Final

from hpcflow.clock import from_text
from hpcflow.model.events import MAX_LINE_BYTES, parse_event
from hpcflow.model.ids import sluid_number
from hpcflow.model.journal import Ended
from hpcflow.model.measured import kept_of
from hpcflow.model.state import Cause
from hpcflow.model.views import AttemptView
from hpcflow.runtime.reading import (
    MAX_LINES_FILE_BYTES,
    JsonError,
    open_file,
    parse_object,
    read_file,
)
from hpcflow.schedulers.base import JobInfo
from hpcflow.storage.disk_errors import storage_error
from hpcflow.storage.failure import read_failure
from hpcflow.storage.layout import AttemptDir, RunDir

_PORTION_BYTES: Final = 1 << 20
_SIGKILL: Final = 9
#: The part of its memory that a sample must show: a job can grow after the last sample.
_NEARLY_ALL: Final = 0.9
_MAX_USAGE_BYTES: Final = 1 << 20
#: The events that show whether a program trains or has finished.
_TRAINING: Final = frozenset({"started", "train_started", "progress", "finished"})


def last_sign(run_dir: RunDir, number: int) -> datetime | None:
    """Return when the job last wrote an event or a line of its log, by the file's clock, which may
    be ahead."""
    files = run_dir.attempt(number)
    times = []
    for path in (files.events, files.log):
        with suppress(OSError, ValueError, OverflowError):  # such as the year 10000
            times.append(_written_at(path.stat()))
    return max(times, default=None)


def time_there(run_dir: RunDir, number: int) -> datetime | None:
    """Return the time now by the clock of :func:`last_sign`; None if it is invalid."""
    from tempfile import TemporaryFile  # ten milliseconds, and few commands need it

    folder = run_dir.attempt(number).path
    try:
        with TemporaryFile(dir=folder) as file:
            return _written_at(os.fstat(file.fileno()))
    except (ValueError, OverflowError):
        return None
    except OSError as error:
        raise storage_error("write to", folder, error) from error


def _written_at(status: os.stat_result) -> datetime:
    whole_ms = status.st_mtime_ns // 1_000_000  # as it is kept in the journal
    return datetime.fromtimestamp(whole_ms / 1000, timezone.utc)


def first_notice(run_dir: RunDir, number: int) -> str | None:
    lines = _lines(run_dir.attempt(number).events)
    events = (parse_event(line) for line in lines if b'"notice"' in line)
    notices = (event for event in events if event and event["event"] == "notice")
    return next((str(event.get("signal")) for event in notices), None)


def has_finished(run_dir: RunDir, number: int) -> bool:
    """Return whether the program reported that it finished, and has not trained since."""
    events = map(parse_event, _lines_from_end(run_dir.attempt(number).events))
    kinds = (event["event"] for event in events if event)
    return next((kind for kind in kinds if kind in _TRAINING), "") == "finished"


def was_told_to_leave(run_dir: RunDir, number: int) -> bool:
    """Return whether the job got a notice: the script's trap writes the file, the program the
    event."""
    return run_dir.attempt(number).notice.exists() or first_notice(run_dir, number) is not None


def own_record(run_dir: RunDir, number: int) -> int | None:
    """Return the accounting record number of the attempt's job, from the SLUID that it reported at
    its start; None without one."""
    lines = _lines(run_dir.attempt(number).events)
    events = (parse_event(line) for line in lines if b'"started"' in line)
    started = (event for event in events if event and event["event"] == "started")
    return sluid_number(next(started, {}).get("sluid"))


def last_exit(run_dir: RunDir, number: int) -> tuple[int, datetime] | None:
    """Return the exit code that the job recorded last, and when; None if there is none."""
    lines = _lines_from_end(run_dir.attempt(number).events)
    words = (each for each in lines if b'"exited"' in each or b'"started"' in each)
    for event in map(parse_event, words):
        if event is None or event["event"] not in ("exited", "started"):
            continue
        code = event.get("exit_code")
        if event["event"] == "started" or type(code) is not int:
            return None
        with suppress(ValueError):
            return code, from_text(event["at"])
    return None


def last_event_at(run_dir: RunDir, number: int) -> datetime | None:
    for event in map(parse_event, _lines_from_end(run_dir.attempt(number).events)):
        if event is not None:
            with suppress(ValueError):
                return from_text(event["at"])
    return None


def memory_when_killed(run_dir: RunDir, attempt: AttemptView, job: JobInfo | None) -> str | None:
    """Return what a job used, if it was killed with nearly all of its memory in use; else None.

    Without cgroups, Slurm only reports a kill.
    """
    files = run_dir.attempt(attempt.attempt)
    if not _was_killed(files, attempt, job):
        return None
    try:
        # The sampler keeps the next usage event here; a job that is killed cannot write it itself.
        members = read_file(files.usage, _MAX_USAGE_BYTES).decode()
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


def with_log_digest(run_dir: RunDir, ended: Ended) -> Ended:
    """Return ``ended``; the end of an attempt that failed gets a digest of how its log ends, so
    that two attempts can be compared."""
    if ended.cause is not Cause.FAILED:
        return ended
    failure = read_failure(run_dir, ended.attempt)
    return ended.model_copy(update={"log_digest": failure.digest if failure else None})


def _lines(path: Path) -> Iterator[bytes]:
    """Yield the lines of a file; none if it cannot be read. A line that is too long comes in
    pieces; all but the last are too long themselves."""
    with suppress(OSError), open_file(path, max_bytes=MAX_LINES_FILE_BYTES) as file:
        yield from iter(partial(file.readline, MAX_LINE_BYTES + 1), b"")


def _lines_from_end(path: Path) -> Iterator[bytes]:
    """Yield the lines, last first; a line that is too long is cut, but remains too long."""
    with suppress(OSError), open_file(path, max_bytes=MAX_LINES_FILE_BYTES) as file:
        begin, rest = file.seek(0, os.SEEK_END), b""
        while begin > 0:
            end, begin = begin, max(0, begin - _PORTION_BYTES)
            file.seek(begin)
            rest, *lines = (file.read(end - begin) + rest).split(b"\n")
            yield from reversed(lines)
            rest = rest[: MAX_LINE_BYTES + 1]
        yield rest
