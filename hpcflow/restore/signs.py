"""Check whether a run in a store seems to be active elsewhere at this moment.

What is known is what was mirrored, some minutes late, so this is a warning system and no lock: a
job that waits in a queue for days, or a cluster that is cut off from the store, gives no sign.
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

#: Longer than a mirror is behind, and than most programs take between two lines.
FRESH: Final = timedelta(hours=1)
#: The last lines of a file of events: each is far shorter than that.
_TAIL_BYTES: Final = 64 << 10
#: The suggested commands contain this name, which comes from the store: accept no shell syntax.
_MACHINE: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


def require_at_rest(remote: RemoteRun, history: RunHistory, now: datetime) -> str | None:
    """Refuse to take over a run that seems to be trained elsewhere.

    Returns:
        What people should know before they send it here; None where it came to rest for good.

    Raises:
        InputError: it gave a sign a moment ago, and no word that it is over.
        MirrorError: the store.
    """
    if history.is_at_rest:
        return None
    where = _where(history)
    sign = last_sign(remote, history)
    hold = f"on {where}: hpcflow hold {remote.run_id}"
    if sign is not None and now - sign < FRESH:
        minutes = max(0, round((now - sign).total_seconds() / 60))
        raise InputError(
            f"run {remote.run_id} may be under way on {where}: its last sign is {minutes} minutes "
            "old, and two clusters must not train it at once",
            next_action=f"{hold}; and when that was mirrored, again here. If {where} is lost: "
            f"hpcflow restore --from {shell_word(remote.url)} --even-if-running",
        )
    return f"no terminal state is recorded; if it is still submitted there, {hold}"


def last_sign(remote: RemoteRun, history: RunHistory) -> datetime | None:
    """When the run last wrote anything that was mirrored: a record, or an event of its last job."""
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
