"""How long each running attempt has been watched without progress: remembered between two looks.

No two clocks are compared, and no clock is trusted. Where several login nodes take turns, as with
cron on each, every one of them counts by its own clock, from its own last look, and leaves out what
the others have counted since; and nothing at all for an attempt that another one has seen move, or
has told to leave, after that look. Progress is a *change*: more signs in the attempt's events than
at the look before, or a log of another size. Silence is what was watched: at each look in which
nothing had changed, the time since the look before is added to it, but never more than
:data:`GAP_MAX_S`, nor more than a quarter of what the run allows. So:

- a job's clock may be wrong by any amount;
- ours may jump an hour ahead, which adds five minutes, or back, which adds nothing;
- a daemon that was down for a weekend has seen five minutes of silence, not a weekend;
- nothing is called silent that was not looked at at least four times.

Every error is one to the late side. It is kept in one file in the home, for the daemon, killed at
any moment, or started by cron every two minutes, is another process the next time. A process that
finds no such file, or a damaged one, starts again: the only harm is a stall that is noticed later.
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
from hpcflow.requeue.stall_policy import Terms
from hpcflow.runtime.reading import MAX_FILE_BYTES, open_file, parse_json
from hpcflow.storage.files import FOLDER_MODE, storage_error, write_durably
from hpcflow.storage.layout import Home

#: The most that the time between two looks counts for.
GAP_MAX_S: Final = 300.0
#: Between two looks, where no run asks for more. A tick between them costs one small read.
LOOK_S: Final = 60.0
#: Login nodes that take turns; the one that was longest away is forgotten, and counts nothing once.
_MOST_HOSTS: Final = 16
_FORMAT: Final = 3


@dataclass(frozen=True)
class Turn:
    """A look of one host that begins.

    Attributes:
        elapsed_s: the time since its last look, by a clock that may have been set meanwhile,
            without what others have counted since.
        number: counted over all hosts.
        last: the number of its last look.
    """

    elapsed_s: float
    number: int = 1
    last: int = 0


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
        was_told: whether its notice file has been seen there since.
        cancelled_s: how long it has been watched since its cancel was last tried.
        since: the number of the look at which it was taken under watch, last moved, or something
            was last done: who has not looked since counts no time for it.
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
        """The entry after another look."""
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
    """A look of one host.

    Attributes:
        at: when, by its own clock.
        watched_s: how much time all of them had counted then.
        number: which look it was, counted over all hosts.
    """

    at: datetime
    watched_s: float = 0.0
    number: int = 0


@dataclass
class Watch:
    """All entries by run id, and when they were looked at.

    Attributes:
        resubmitted_s: how long until the next look.
        problems: what went wrong at that look, so that what lasts is said once.
        looks: host -> its last look, the latest last.
    """

    resubmitted_s: float = 0.0
    entries: dict[str, Entry] = field(default_factory=dict)
    problems: dict[str, str] = field(default_factory=dict)
    looks: dict[str, Look] = field(default_factory=dict)

    def is_fresh(self, host: str, now: datetime) -> bool:
        """Whether it is too soon for another look."""
        look = self.looks.get(host)
        return look is not None and 0 <= (now - look.at).total_seconds() < self.resubmitted_s

    def turn(self, host: str, now: datetime) -> Turn:
        """The look that begins now."""
        number = max((look.number for look in self.looks.values()), default=0) + 1
        look = self.looks.get(host)
        if look is None:
            return Turn(0.0, number)
        by_others_s = self._watched_s - look.watched_s
        elapsed_s = max(0.0, (now - look.at).total_seconds() - by_others_s)
        return Turn(elapsed_s, number, look.number)

    def looks_after(self, turn: Turn, host: str, now: datetime) -> dict[str, Look]:
        """The looks, with this one."""
        look = Look(now, self._watched_s + turn.elapsed_s, turn.number)
        others = {name: each for name, each in self.looks.items() if name != host}
        return dict([*others.items(), (host, look)][-_MOST_HOSTS:])

    @property
    def _watched_s(self) -> float:
        return max((look.watched_s for look in self.looks.values()), default=0.0)


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

    def head(self) -> Watch:
        """The same as :meth:`load` without the entries, in no time."""
        return self._load(with_entries=False)

    def load(self) -> Watch:
        """What was kept; nothing where that is no such file."""
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
        """Keep it, whole.

        Raises:
            StorageError: it could not be written.
        """
        if not (watch.entries or watch.problems or self._path.exists()):
            return
        try:
            self._path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        except OSError as error:
            raise storage_error("write", self._path, error) from error
        head = {
            "format": _FORMAT,
            "resubmitted_s": watch.resubmitted_s,
            "problems": watch.problems,
            "looks": {
                host: [to_text(look.at), look.watched_s, look.number]
                for host, look in watch.looks.items()
            },
        }
        entries = {run_id: _thin(entry) for run_id, entry in watch.entries.items()}
        write_durably(self._path, f"{json.dumps(head)}\n{json.dumps(entries)}\n")


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


def _entry(said: dict[str, Any]) -> Entry:
    """ValueError, TypeError or KeyError for what was never written here."""
    after_s, factor, log, notice_s = said["terms"]
    log_bytes, before = said.get("log_bytes"), said.get("before")
    return Entry(
        attempt=int(said["attempt"]),
        signs=int(said["signs"]),
        terms=Terms(after_s and int(after_s), int(factor), bool(log), int(notice_s)),
        log_bytes=None if log_bytes is None else int(log_bytes),
        silent_s=float(said.get("silent_s", 0)),
        log_gap_s=float(said.get("log_gap_s", 0)),
        log_grew=bool(said.get("log_grew")),
        before=_rhythm(before) if before else Rhythm(),
        stalls=int(said.get("stalls", 0)),
        is_suspected=bool(said.get("is_suspected")),
        was_told=bool(said.get("was_told")),
        cancelled_s=float(said.get("cancelled_s", 0)),
        since=int(said.get("since", 0)),
    )


def _rhythm(said: dict[str, Any]) -> Rhythm:
    return Rhythm(
        int(said["signs"]),
        {int(index): int(count) for index, count in said["gaps"].items()},
        float(said["longest_s"]),
        int(said["starts"]),
        float(said["start_up_s"]),
    )
