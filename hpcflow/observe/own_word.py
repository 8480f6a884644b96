"""What an attempt itself left behind: its last exit, its first notice, its end, its last sign."""

from __future__ import annotations

from contextlib import suppress
from datetime import datetime, timezone
from typing import Final

from hpcflow.clock import from_text
from hpcflow.model.events import parse_event
from hpcflow.storage.files import read_file
from hpcflow.storage.layout import RunDir

#: The events that tell whether a program is at it, or done.
_TRAINING: Final = frozenset({"started", "train_started", "progress", "finished"})


def last_sign(run_dir: RunDir, number: int) -> datetime | None:
    """When the job last wrote an event or a line of its log, by the clock that its file was given
    its time by; it may lie ahead."""
    files = run_dir.attempt(number)
    times = []
    for path in (files.events, files.log):
        with suppress(OSError, ValueError, OverflowError):  # the year 10000 is no time
            times.append(datetime.fromtimestamp(path.stat().st_mtime, timezone.utc))
    return max(times, default=None)


def first_notice(run_dir: RunDir, number: int) -> str | None:
    """The signal of the first notice that the job reported."""
    events = (parse_event(line) for line in _lines(run_dir, number) if b'"notice"' in line)
    return next((str(event.get("signal")) for event in events if event), None)


def has_finished(run_dir: RunDir, number: int) -> bool:
    """Whether its program said that it finished, and has trained no further since."""
    events = (parse_event(line) for line in reversed(_lines(run_dir, number)))
    kinds = (event["event"] for event in events if event)
    return next((kind for kind in kinds if kind in _TRAINING), "") == "finished"


def was_told_to_leave(run_dir: RunDir, number: int) -> bool:
    """Whether the job had a notice: the script's trap writes the file, the program the event."""
    return run_dir.attempt(number).notice.exists() or first_notice(run_dir, number) is not None


def last_exit(run_dir: RunDir, number: int) -> tuple[int, datetime] | None:
    """The exit code that the job wrote down as its last word, and when; None if there is none."""
    lines = _lines(run_dir, number)
    words = (each for each in lines if b'"exited"' in each or b'"started"' in each)
    for event in (parse_event(line) for line in reversed(list(words))):
        if event is None or event["event"] not in ("exited", "started"):
            continue
        code = event.get("exit_code")
        if event["event"] == "started" or type(code) is not int:
            return None
        with suppress(ValueError, OverflowError):
            return code, from_text(event["at"])
    return None


def _lines(run_dir: RunDir, number: int) -> list[bytes]:
    try:
        return read_file(run_dir.attempt(number).events).splitlines()
    except OSError:
        return []
