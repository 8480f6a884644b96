"""Check whether a run in a store seems to be active elsewhere.

The mirror is some minutes late, so this is only a warning, not a lock: a job that is pending for
days, or a cluster without access to the store, gives no sign.
"""

from __future__ import annotations

import re
from datetime import datetime, timedelta
from typing import Final

from hpcflow.clock import from_text
from hpcflow.errors import InputError, shell_word
from hpcflow.history import RunHistory
from hpcflow.model.events import parse_event
from hpcflow.restore.remote_run import RemoteRun

#: Longer than the lag of a mirror, and than most programs take between two events.
FRESH: Final = timedelta(hours=1)
#: Enough for the last lines of a file of events.
_TAIL_BYTES: Final = 64 << 10
#: The suggested commands contain this name, which comes from the store: accept no shell syntax.
_MACHINE: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


def require_at_rest(remote: RemoteRun, history: RunHistory, now: datetime) -> str | None:
    """Check that a run to take over does not seem to be active elsewhere.

    Returns:
        A warning if no terminal state is recorded; else None.

    Raises:
        InputError: it has no terminal state, and its last sign is newer than ``FRESH``.
    """
    if history.is_at_rest:
        return None
    where = _where(history)
    sign = last_sign(remote, history)
    hold = f"on {where}: hpcflow hold {remote.run_id}"
    if sign is not None and now - sign < FRESH:
        minutes = max(0, round((now - sign).total_seconds() / 60))
        raise InputError(
            f"run {remote.run_id} may be active on {where}: its last sign is {minutes} minutes "
            "old, and two clusters must not train it at once",
            next_action=f"{hold}; once that is mirrored, repeat the restore. If {where} is lost: "
            f"hpcflow restore --from {shell_word(remote.url)} --even-if-running",
        )
    return f"no terminal state is recorded; if it is still submitted there, {hold}"


def last_sign(remote: RemoteRun, history: RunHistory) -> datetime | None:
    """Return the time of the newest mirrored journal record or event of the last job."""
    times = [record.at for record in history.records]
    numbers = history.intended_attempts
    name = f"attempts/{numbers[-1]:04d}/events.jsonl" if numbers else ""
    if name in remote.objects.small:
        end = remote.entry(name).size_bytes
        tail = remote.remote.read_range(remote.name(name), max(0, end - _TAIL_BYTES), end)
        for line in tail.split(b"\n"):
            if (event := parse_event(line)) is not None:
                try:
                    times.append(from_text(event["at"]))
                except (ValueError, OverflowError):
                    continue
    return max(times, default=None)


def _where(history: RunHistory) -> str:
    intent = history.last.intent
    if intent is None:
        return "another machine"
    name = intent.cluster or (intent.host or "").removesuffix(" (array)")
    return name if _MACHINE.fullmatch(name) else "another machine"
