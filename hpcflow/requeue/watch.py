"""How long each running attempt has been watched without progress: remembered between two looks.

No two clocks are compared, and no clock is trusted. Progress is a *change*: more signs in the
attempt's events than at the look before, or a log of another size. Silence is what was watched: at
each look in which nothing had changed, the time since the look before is added to it, but never
more than :data:`GAP_MAX_S`, nor more than a quarter of what the run allows. So:

- a job's clock may be wrong by any amount;
- ours may jump an hour ahead, which adds five minutes, or back, which adds nothing;
- a daemon that was down for a weekend has seen five minutes of silence, not a weekend;
- nothing is called silent that was not looked at at least four times.

Every error is one to the late side. It is kept in one file in the home, for the daemon, killed at
any moment, or started by cron every two minutes, is another process the next time. Whoever finds no
such file, or a damaged one, begins anew: the only harm is a stall that is noticed later.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final

from hpcflow.clock import from_text, to_text
from hpcflow.errors import StorageError
from hpcflow.ledger.rhythm import Rhythm
from hpcflow.requeue.patience import Terms
from hpcflow.storage.files import FOLDER_MODE, storage_error, write_durably
from hpcflow.storage.layout import Home

#: The most that the time between two looks counts for.
GAP_MAX_S: Final = 300.0
#: Between two looks, where no run asks for more. A tick between them costs one small read.
LOOK_S: Final = 60.0
_FORMAT: Final = 1


@dataclass(frozen=True)
class Entry:
    """One attempt, as it was at the last look.

    Attributes:
        signs: signs of progress in its events.
        log_bytes: size of its log, where that is watched.
        silent_s: how long it has been watched without a change of either.
        log_gap_s: the longest that this was before its log grew.
        log_grew: whether the log ever grew while it was watched.
        terms: what its run says.
        before: the rhythm of the attempts before; ``stalls``: how many of them stalled.
        is_suspected: whether its journal may say that something was done about its silence.
    """

    attempt: int
    signs: int
    terms: Terms
    log_bytes: int | None = None
    silent_s: float = 0.0
    log_gap_s: float = 0.0
    log_grew: bool = False
    before: Rhythm = field(default_factory=Rhythm)
    stalls: int = 0
    is_suspected: bool = False

    def looked_at(self, signs: int, log_bytes: int | None, elapsed_s: float) -> Entry:
        """The entry after another look, ``elapsed_s`` after the last."""
        log_grew = log_bytes is not None and log_bytes != self.log_bytes
        if signs == self.signs and not log_grew:
            if self.terms.after_s is None:
                return self
            elapsed_s = min(elapsed_s, GAP_MAX_S, self.terms.after_s / 4)
            return replace(self, silent_s=self.silent_s + max(0.0, elapsed_s))
        return replace(
            self,
            signs=signs,
            log_bytes=log_bytes,
            silent_s=0.0,
            log_gap_s=max(self.log_gap_s, self.silent_s) if log_grew else self.log_gap_s,
            log_grew=self.log_grew or log_grew,
        )


@dataclass
class Watch:
    """All entries by run id, and when they were looked at.

    Attributes:
        problems: what went wrong at that look, so that what lasts is said once.
    """

    at: datetime | None = None
    again_s: float = 0.0
    entries: dict[str, Entry] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)

    def is_fresh(self, now: datetime) -> bool:
        """Whether it is too soon for another look."""
        return self.at is not None and 0 <= (now - self.at).total_seconds() < self.again_s

    def elapsed_s(self, now: datetime) -> float:
        """The time since the last look, by a clock that may have been set meanwhile."""
        return (now - self.at).total_seconds() if self.at is not None else 0.0


def pause_s(entries: Iterable[Entry]) -> float:
    """How long until the next look: an eighth of the least that any run allows, or a minute."""
    allowed = [LOOK_S]
    for entry in entries:
        if entry.terms.after_s is not None:
            allowed.append(entry.terms.after_s / 8)
        if entry.is_suspected:
            allowed.append(entry.terms.notice_s / 4)
    return min(allowed)


class WatchFile:
    """The file of one ledger and cluster: a daemon for each may have the same home."""

    def __init__(self, home: Home, ledger_url: str, cluster: str | None) -> None:
        name = hashlib.sha256(f"{ledger_url}@{cluster or ''}".encode()).hexdigest()[:16]
        self._path = home.watch / f"{name}.json"

    def load(self) -> Watch:
        """What was kept; nothing where that is no such file."""
        try:
            return _decode(json.loads(self._path.read_bytes()))
        except (OSError, ValueError, TypeError, KeyError, AttributeError, RecursionError):
            return Watch()

    def save(self, watch: Watch) -> None:
        """Keep it, whole.

        Raises:
            StorageError: it could not be written.
        """
        if not watch.entries and not self._path.exists():
            return
        try:
            self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error("write", self._path, error) from error
        write_durably(self._path, json.dumps(_encode(watch)))


def _encode(watch: Watch) -> dict[str, Any]:
    if watch.at is None:
        raise StorageError("a watch that has never looked cannot be kept")
    entries = {run_id: _thin(entry) for run_id, entry in watch.entries.items()}
    return {
        "format": _FORMAT,
        "at": to_text(watch.at),
        "again_s": watch.again_s,
        "problems": watch.problems,
        "entries": entries,
    }


def _thin(entry: Entry) -> dict[str, Any]:
    """Without what is as it is for most: ten thousand of them are written at a time."""
    terms = entry.terms
    said: dict[str, Any] = {
        "attempt": entry.attempt,
        "signs": entry.signs,
        "terms": [terms.after_s, terms.factor, terms.log, terms.notice_s],
    }
    for name, usual in _USUAL.items():
        if (value := getattr(entry, name)) != usual:
            said[name] = value
    if entry.before != Rhythm():
        said["before"] = asdict(entry.before)
    return said


#: Field -> what it is in most entries.
_USUAL: Final[dict[str, Any]] = {
    each.name: each.default
    for each in fields(Entry)
    if each.name not in ("attempt", "signs", "terms", "before")
}


def _decode(said: dict[str, Any]) -> Watch:
    if said["format"] != _FORMAT:
        return Watch()
    return Watch(
        from_text(said["at"]),
        float(said["again_s"]),
        {run_id: _entry(each) for run_id, each in said["entries"].items()},
        dict(said["problems"]),
    )


def _entry(said: dict[str, Any]) -> Entry:
    terms = Terms(*said.pop("terms"))
    before = said.pop("before", None)
    if before is None:
        return Entry(terms=terms, **said)
    gaps = {int(index): count for index, count in before.pop("gaps").items()}
    return Entry(terms=terms, before=Rhythm(gaps=gaps, **before), **said)
