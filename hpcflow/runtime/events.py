"""Append events of the program to ``events.jsonl``, for hpcflow on the login node.

Each line is one ``write`` to a file opened for appending, so that lines of several writers, such as
the job script, do not mix. The file is opened for each line (at most about one a second), so that
over NFS other nodes see the line at once.
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
        """Append one event, without the facts that are None. NaN, infinities and values that JSON
        does not have become null."""
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
        except (OSError, ValueError) as error:  # ValueError: an integer of 5000 digits
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
    """Replace NaN and infinities, which JSON does not have, by None."""
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {str(key): _plain(item) for key, item in value.items()}
    return value


def _whole(value: Any) -> int | None:
    """Convert an integer of another library, such as NumPy; other values become None."""
    try:
        return operator.index(value)
    except (TypeError, ValueError, RuntimeError):  # a tensor may raise any of these
        return None


def now_text() -> str:
    """Return the time as in all files of hpcflow: UTC, milliseconds, ``Z``."""
    now = datetime.now(timezone.utc)
    return now.isoformat(timespec="milliseconds").replace("+00:00", "Z")
