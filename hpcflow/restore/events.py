"""Remove start and end events of a job from fetched events.

If the journal does not record how an attempt ended, its events would decide, and a user who can
write to the store could complete a run. So hpcflow drops these events and asks Slurm.
"""

from __future__ import annotations

import json
from collections.abc import Iterable
from pathlib import Path
from typing import Any, Final

from hpcflow.model.events import finite_metrics, parse_event
from hpcflow.runtime.files import NewFile
from hpcflow.runtime.reading import read_lines
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.layout import RunDir

#: The kinds of the dropped events, as they appear in JSON.
_START_AND_END: Final = ('"started"', '"exited"')


def drop_start_and_end(run_dir: RunDir, attempts: Iterable[int]) -> None:
    """Rewrite the events of these attempts; a ``finished`` event becomes ``progress``."""
    for number in attempts:
        path = run_dir.attempt(number).events
        if path.exists():
            _rewrite(path)


def _sanitized(line: bytes) -> bytes | None:
    """Return the line as hpcflow would write it; None if it must be dropped.

    The job script greps for text and hpcflow parses JSON: both must find the same event.
    """
    event = parse_event(line)
    if event is None:
        return None
    if event["event"] == "finished":
        event = _as_progress(event)
    try:
        text = json.dumps(event)
    except RecursionError:
        return None
    return None if any(word in text for word in _START_AND_END) else text.encode()


def _as_progress(finished: dict[str, Any]) -> dict[str, Any]:
    said = {"at": finished["at"], "event": "progress"}
    if type(finished.get("train_step")) is int:
        said["train_step"] = finished["train_step"]
    metrics = dict(finite_metrics(finished.get("metrics")))
    return {**said, "metrics": metrics}


def _rewrite(path: Path) -> None:
    new = path.with_name(f".{path.name}.kept")
    with storage_errors("write", new):
        file = NewFile(new)
        try:
            for line in read_lines(path):
                sanitized = _sanitized(line)
                if sanitized is not None:
                    file.write(sanitized + b"\n")
        finally:
            file.close()
        new.replace(path)
