"""Query one site's accounting about jobs that the queue does not know.

Jobs are queried by id, and by name if the id is not known; slurmdbd can refuse queries by name.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Final

from hpcflow.clock import Clock
from hpcflow.errors import SchedulerUnavailable
from hpcflow.ledger.rows import DueBill
from hpcflow.model.journal import Intended
from hpcflow.model.views import AttemptView, LiveRun
from hpcflow.schedulers.base import JobInfo, Scheduler
from hpcflow.storage.files import FOLDER_MODE
from hpcflow.storage.layout import Home

#: sacct is queried from a day before the oldest job, because clocks differ; the submission time is
#: compared exactly afterwards.
_MARGIN: Final = timedelta(days=1)
#: Jobs older than this are queried separately: a site may refuse long time ranges (slurmdbd's
#: MaxQueryTimeRange), and a journal from a store may contain any time.
_RECENT: Final = timedelta(days=30)
#: How long accounting is not queried after a failure.
LASTS: Final = timedelta(minutes=2)


@dataclass(frozen=True)
class _Wanted:
    """Job ids and job names to query, each with its time of submission."""

    ids: list[tuple[str, datetime]]
    names: list[tuple[str, datetime]]

    def where(self, is_wanted: Callable[[datetime], bool]) -> _Wanted:
        return _Wanted(
            [each for each in self.ids if is_wanted(each[1])],
            [each for each in self.names if is_wanted(each[1])],
        )

    def __bool__(self) -> bool:
        return bool(self.ids or self.names)


class Silence:
    """Remember, across commands, when a site's accounting did not answer.

    A sacct that hangs costs every command its whole time limit. So the time of the last failure is
    kept in ``HPCFLOW_HOME/silent/``, and accounting is not queried for a while.
    """

    def __init__(self, home: Home, site: str) -> None:
        """``site``: a name, or the path of a site file."""
        self._mark = home.silent / hashlib.sha256(site.encode()).hexdigest()[:16]

    def is_fresh(self, now: datetime) -> bool:
        try:
            age_s = now.timestamp() - self._mark.stat().st_mtime
        except OSError:
            return False
        return 0 <= age_s < LASTS.total_seconds()

    def remember(self, now: datetime) -> None:
        """Record a failure at ``now``, if the home can be written."""
        with suppress(OSError):
            self._mark.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._mark.touch(mode=0o600)
            os.utime(self._mark, (now.timestamp(), now.timestamp()))


class Accounting:
    def __init__(
        self, scheduler: Scheduler, clock: Clock, home: Home, site: str, warnings: list[str]
    ) -> None:
        """``warnings`` receives what could not be queried; it is queried again later."""
        self._scheduler, self._clock = scheduler, clock
        self._silence, self._silence_of_old = Silence(home, site), Silence(home, f"{site} old")
        self._warnings = warnings
        self._unanswered: set[str] = set()

    def answered(self, job: str | None) -> bool:
        """Return whether accounting answered about a job, given by id or name, or was not asked."""
        return job not in self._unanswered

    def ask(
        self,
        forgotten: list[tuple[LiveRun, AttemptView]],
        unknown: list[Intended],
        bills: list[DueBill],
    ) -> list[JobInfo]:
        """Return the records of jobs that the queue does not know, and of those with a due bill."""
        now = self._clock.now()
        wanted = _Wanted(
            [(each.job_id or "", each.submitted_at or run.created_at) for run, each in forgotten]
            + [(each.attempt.job_id or "", each.attempt.submitted_at or now) for each in bills],
            [(intent.job_name, intent.at) for intent in unknown],
        )
        recent = wanted.where(lambda at: now - at <= _RECENT)
        old = wanted.where(lambda at: now - at > _RECENT)
        is_needed = bool(forgotten or unknown)  # bills can wait
        found = self._ask(recent, now, self._silence, is_needed=is_needed)
        return found + self._ask(old, now, self._silence_of_old, is_needed=is_needed)

    def _ask(
        self, wanted: _Wanted, now: datetime, silence: Silence, *, is_needed: bool
    ) -> list[JobInfo]:
        """Query, unless accounting failed to answer a moment ago: each failure costs the whole time
        limit."""
        if wanted and silence.is_fresh(now):
            self._unanswered.update(job for job, _ in (*wanted.ids, *wanted.names))
            if is_needed:
                self._warnings.append("accounting did not answer a moment ago; ends may show late")
            return []
        found: list[JobInfo] = []
        try:
            if wanted.ids:
                since = min(at for _, at in wanted.ids) - _MARGIN
                found = self._scheduler.accounting([job_id for job_id, _ in wanted.ids], since)
        except SchedulerUnavailable as error:
            self._unanswered.update(job for job, _ in (*wanted.ids, *wanted.names))
            silence.remember(now)
            self._warnings.append(f"{error.message}; ends may show late")
            return []
        # Separate, because slurmdbd can refuse a query by name and answer one by id.
        try:
            if wanted.names:
                since = min(at for _, at in wanted.names) - _MARGIN
                names = [name for name, _ in wanted.names]
                found = found + self._scheduler.accounting([], since, job_names=names)
        except SchedulerUnavailable as error:
            self._unanswered.update(name for name, _ in wanted.names)
            if not wanted.ids:  # perhaps it does not answer at all
                silence.remember(now)
            self._warnings.append(f"{error.message}; a submission stays in doubt")
        return found
