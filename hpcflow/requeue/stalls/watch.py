"""Record how long each running attempt has been watched without progress.

Clocks are neither compared nor trusted. Progress is a change: more signs in the attempt's events
than at the last look, or another size of its log. Each look without a change adds the time since
the last look to the attempt's silence, but at most :data:`GAP_MAX_S`, and at most a quarter of what
the run allows. So an attempt is called silent after at least four looks. A wrong clock of a job
adds nothing. A jump of the daemon's clock, or a daemon that was down, adds one such gap at most.

If several login nodes take turns, as with cron on each, each host counts by its own clock, from its
own last look, without the time that the others have counted since. It counts nothing for an attempt
that another host saw move, or gave the notice, after that look.

Errors only delay the detection of a stall. The state is one file in HPCFLOW_HOME, because each
round may be another process. Without it, or if it is damaged, watching starts again.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, fields, replace
from datetime import datetime
from typing import Any, Final

from hpcflow.clock import from_text, to_text
from hpcflow.ledger.rhythm import Rhythm
from hpcflow.requeue.stalls.policy import Terms
from hpcflow.runtime.reading import MAX_FILE_BYTES, open_file, parse_json
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import FOLDER_MODE, write_durably
from hpcflow.storage.layout import Home

#: The most that one look adds to a silence.
GAP_MAX_S: Final = 300.0
#: The longest time between two looks. A tick between them costs one small read.
LOOK_S: Final = 60.0
#: Login nodes that take turns. A host with an older look is dropped; its next look counts no time.
_MOST_HOSTS: Final = 16
_FORMAT: Final = 3


@dataclass(frozen=True)
class Turn:
    """A look of one host that begins now.

    Attributes:
        elapsed_s: time since its last look by its own clock, without what other hosts counted.
        number: counted over all hosts.
        last: number of its last look.
    """

    elapsed_s: float
    number: int = 1
    last: int = 0


@dataclass(frozen=True)
class Entry:
    """One attempt at the last look.

    Attributes:
        signs: signs of progress in its events.
        log_bytes: size of its log, if that is watched.
        silent_s: how long it has been watched without a change of either.
        log_gap_s: the longest silence before its log grew.
        log_grew: whether the log ever grew while it was watched.
        before: rhythm of the earlier attempts.
        stalls: how many of them stalled.
        is_suspected: whether its journal may have an act about its silence.
        was_told: whether its notice file has been seen since.
        cancelled_s: how long it has been watched since its cancel was last tried.
        since: number of the look at which it was first watched, last moved, or last acted on; a
            host with no look since counts no time for it.
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
    was_told: bool = False
    cancelled_s: float = 0.0
    since: int = 0

    def looked_at(self, signs: int, log_bytes: int | None, turn: Turn) -> Entry:
        log_grew = log_bytes is not None and log_bytes != self.log_bytes
        is_silent = signs == self.signs and not log_grew
        if self.terms.after_s is None and is_silent:
            return self
        elapsed_s = turn.elapsed_s if turn.last >= self.since else 0.0
        elapsed_s = max(0.0, min(elapsed_s, GAP_MAX_S, (self.terms.after_s or GAP_MAX_S) / 4))
        cancelled_s = self.cancelled_s + elapsed_s if self.is_suspected else 0.0
        if is_silent:
            silent_s = self.silent_s + elapsed_s
            return replace(self, silent_s=silent_s, cancelled_s=cancelled_s)
        return replace(
            self,
            cancelled_s=cancelled_s,
            signs=signs,
            log_bytes=log_bytes,
            silent_s=0.0,
            log_gap_s=max(self.log_gap_s, self.silent_s) if log_grew else self.log_gap_s,
            log_grew=self.log_grew or log_grew,
            since=turn.number,
        )


@dataclass(frozen=True)
class Look:
    """The last look of one host.

    Attributes:
        at: when, by its own clock.
        watched_s: how much time all hosts had counted then.
        number: counted over all hosts.
    """

    at: datetime
    watched_s: float = 0.0
    number: int = 0


@dataclass
class Watch:
    """The state of the watch.

    Attributes:
        pause_s: time from a look to the next.
        entries: run id -> entry.
        problems: run id -> error of the last look, repeated until the next look.
        looks: host -> its last look, the latest last.
    """

    pause_s: float = 0.0
    entries: dict[str, Entry] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    looks: dict[str, Look] = field(default_factory=dict)

    def is_fresh(self, host: str, now: datetime) -> bool:
        look = self.looks.get(host)
        return look is not None and 0 <= (now - look.at).total_seconds() < self.pause_s

    def turn(self, host: str, now: datetime) -> Turn:
        number = max((look.number for look in self.looks.values()), default=0) + 1
        look = self.looks.get(host)
        if look is None:
            return Turn(0.0, number)
        by_others_s = self._watched_s - look.watched_s
        elapsed_s = max(0.0, (now - look.at).total_seconds() - by_others_s)
        return Turn(elapsed_s, number, look.number)

    def looks_after(self, turn: Turn, host: str, now: datetime) -> dict[str, Look]:
        look = Look(now, self._watched_s + turn.elapsed_s, turn.number)
        others = {name: each for name, each in self.looks.items() if name != host}
        return dict([*others.items(), (host, look)][-_MOST_HOSTS:])

    @property
    def _watched_s(self) -> float:
        return max((look.watched_s for look in self.looks.values()), default=0.0)


def pause_s(entries: Iterable[Entry]) -> float:
    """Return the time until the next look: :data:`LOOK_S`, or a fraction of the shortest limit."""
    allowed = [LOOK_S]
    for entry in entries:
        if entry.terms.after_s is not None:
            allowed.append(entry.terms.after_s / 8)
        if entry.is_suspected:
            allowed.append(entry.terms.notice_s / 4)
    return min(allowed)


class WatchFile:
    """The file of one ledger and cluster; daemons of several may share a home."""

    def __init__(self, home: Home, ledger_url: str, cluster: str | None) -> None:
        name = hashlib.sha256(f"{ledger_url}@{cluster or ''}".encode()).hexdigest()[:16]
        self._path = home.watch / f"{name}.json"

    def head(self) -> Watch:
        """Read the first line only: the state without the entries."""
        return self._load(with_entries=False)

    def load(self) -> Watch:
        """Read the state; empty if the file is missing or damaged."""
        return self._load(with_entries=True)

    def _load(self, *, with_entries: bool) -> Watch:
        try:
            with open_file(self._path, max_bytes=MAX_FILE_BYTES) as file:
                head = parse_json(file.readline())
                entries = parse_json(file.read()) if with_entries else {}
            return _decode(head, entries)
        except (OSError, ValueError, TypeError, KeyError, AttributeError):
            return Watch()

    def save(self, watch: Watch) -> None:
        """Write the state atomically."""
        if not (watch.entries or watch.problems or self._path.exists()):
            return
        with storage_errors("write", self._path):
            self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        head = {
            "format": _FORMAT,
            "resubmitted_s": watch.pause_s,
            "problems": watch.problems,
            "looks": {
                host: [to_text(look.at), look.watched_s, look.number]
                for host, look in watch.looks.items()
            },
        }
        entries = {run_id: _thin(entry) for run_id, entry in watch.entries.items()}
        write_durably(self._path, f"{json.dumps(head)}\n{json.dumps(entries)}\n")


def _thin(entry: Entry) -> dict[str, Any]:
    """Return an entry without its default values: ten thousand may be written at a time."""
    terms = entry.terms
    values: dict[str, Any] = {
        "attempt": entry.attempt,
        "signs": entry.signs,
        "terms": [terms.after_s, terms.factor, terms.log, terms.notice_s],
    }
    for name, usual in _USUAL.items():
        if (value := getattr(entry, name)) != usual:
            values[name] = value
    if entry.before != Rhythm():
        values["before"] = asdict(entry.before)
    return values


#: Field -> default.
_USUAL: Final[dict[str, Any]] = {
    each.name: each.default
    for each in fields(Entry)
    if each.name not in ("attempt", "signs", "terms", "before")
}


def _decode(head: dict[str, Any], entries: dict[str, Any]) -> Watch:
    if head["format"] != _FORMAT:
        return Watch()
    return Watch(
        float(head["resubmitted_s"]),
        {run_id: _entry(each) for run_id, each in entries.items()},
        {str(run_id): str(problem) for run_id, problem in head["problems"].items()},
        {
            str(host): Look(from_text(at), float(watched_s), int(number))
            for host, (at, watched_s, number) in head["looks"].items()
        },
    )


def _entry(values: dict[str, Any]) -> Entry:
    """Parse an entry; raises ValueError, TypeError or KeyError if it is damaged."""
    after_s, factor, log, notice_s = values["terms"]
    log_bytes, before = values.get("log_bytes"), values.get("before")
    return Entry(
        attempt=int(values["attempt"]),
        signs=int(values["signs"]),
        terms=Terms(after_s and int(after_s), int(factor), bool(log), int(notice_s)),
        log_bytes=None if log_bytes is None else int(log_bytes),
        silent_s=float(values.get("silent_s", 0)),
        log_gap_s=float(values.get("log_gap_s", 0)),
        log_grew=bool(values.get("log_grew")),
        before=_rhythm(before) if before else Rhythm(),
        stalls=int(values.get("stalls", 0)),
        is_suspected=bool(values.get("is_suspected")),
        was_told=bool(values.get("was_told")),
        cancelled_s=float(values.get("cancelled_s", 0)),
        since=int(values.get("since", 0)),
    )


def _rhythm(values: dict[str, Any]) -> Rhythm:
    return Rhythm(
        int(values["signs"]),
        {int(index): int(count) for index, count in values["gaps"].items()},
        float(values["longest_s"]),
        int(values["starts"]),
        float(values["start_up_s"]),
    )
