"""Appending to ``events.jsonl``: what the program has to say to the login side.

A line is one ``write`` to a file opened for appending, so that lines of several writers (the job
script writes too) never mix. The file is opened for each: over NFS that is what makes a line
visible elsewhere at once, and there is at most about one line a second.
"""

from __future__ import annotations

import json
import math
import operator
import os
import threading
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpcflow.runtime.reading import require_safe
from hpcflow.runtime.warn import warn

#: Readers skip a longer line.
_MAX_LINE_BYTES = 1 << 20


class EventLog:
    """The event file of an attempt. Losing an event never ends a training."""

    def __init__(self, path: Path | None) -> None:
        self._path = path
        self._is_torn = False
        self._lock = threading.Lock()  # a checkpoint is reported by the thread that wrote it
        self.lost = 0

    def append(self, event: str, **facts: Any) -> None:
        """Append one event; facts that are None are left out, numbers that are no number null, and
        so is what JSON does not have."""
        if self._path is None:
            return
        kept = {key: value for key, value in facts.items() if value is not None}
        try:
            plain = _plain({"at": now_text(), "event": event, **kept})
            line = json.dumps(plain, default=_whole).encode() + b"\n"
            if len(line) > _MAX_LINE_BYTES:
                raise OSError(f"a line of {len(line)} bytes is too long")
            with self._lock:
                self._write(line)
        except (OSError, ValueError) as error:  # the latter: a whole number of 5000 digits
            if not self.lost:
                warn(f"{self._path}: {error}; events are lost, the training continues")
            self.lost += 1

    def _write(self, line: bytes) -> None:
        if self._is_torn:
            line = b"\n" + line
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK
        descriptor = os.open(str(self._path), flags, 0o600)
        try:
            require_safe(descriptor, str(self._path))
            written = os.write(descriptor, line)
            self._is_torn = written < len(line)
            if self._is_torn:
                raise OSError(f"only {written} of {len(line)} bytes could be written")
        finally:
            os.close(descriptor)


def _plain(value: Any) -> Any:
    """``value`` with NaN and infinities, which JSON does not have, as null."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _whole(value: Any) -> int | None:
    """A whole number of another library, such as one of NumPy's; None for what JSON lacks."""
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # a tensor may say any of these
        return None


def now_text() -> str:
    """The time, as all files of hpcflow keep it: UTC, milliseconds, ``Z``."""
    now = datetime.now(timezone.utc)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
