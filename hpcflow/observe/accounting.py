"""Asking one site's accounting, in one look, about jobs that the queue does not know.

By id, and by name for submissions whose id is not known: slurmdbd can refuse the second.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Final

from hpcflow.clock import Clock
from hpcflow.errors import SchedulerUnavailable
from hpcflow.ledger.rows import DueBill
from hpcflow.model.journal import Intended
from hpcflow.model.views import AttemptView, LiveRun
from hpcflow.observe.silence import Silence
from hpcflow.schedulers.base import JobInfo, Scheduler

#: sacct is asked from a day before the oldest job that is looked for: clocks differ, and the time
#: of submission is compared exactly afterwards.
_MARGIN: Final = timedelta(days=1)


class Accounting:
    """The accounting of one site, in one look.

    Attributes:
        answered: whether it answered, or was not asked.
        names_answered: whether it answered questions by name, or was not asked any.
    """

    def __init__(
        self, scheduler: Scheduler, clock: Clock, silence: Silence, warnings: list[str]
    ) -> None:
        """``warnings`` gets a text for whatever could not be asked; it is asked again later."""
        self._scheduler, self._clock = scheduler, clock
        self._silence, self._warnings = silence, warnings
        self.answered = self.names_answered = True

    def ask(
        self,
        forgotten: list[tuple[LiveRun, AttemptView]],
        unknown: list[Intended],
        bills: list[DueBill],
    ) -> list[JobInfo]:
        """What accounting says of jobs that the queue does not know, and of those whose bill is
        due. One that was silent a moment ago is not asked again: a large database takes long to say
        nothing."""
        if not forgotten and not unknown and not bills:
            return []
        now = self._clock.now()
        if self._silence.is_fresh(now):
            self.answered = self.names_answered = False
            if forgotten or unknown:
                self._warnings.append("accounting did not answer a moment ago; ends may show late")
            return []
        told: list[JobInfo] = []
        try:
            if forgotten or bills:
                times = [attempt.submitted_at or run.created_at for run, attempt in forgotten]
                times += [each.attempt.submitted_at or now for each in bills]
                job_ids = [
                    *(attempt.job_id or "" for _, attempt in forgotten),
                    *(each.attempt.job_id or "" for each in bills),
                ]
                told = self._scheduler.accounting(job_ids, min(times) - _MARGIN)
        except SchedulerUnavailable as error:
            self.answered = self.names_answered = False
            self._silence.remember(now)
            self._warnings.append(f"{error.message}; ends may show late")
            return []
        return told + self._ask_names(unknown, now, is_silent=not (forgotten or bills))

    def _ask_names(
        self, unknown: list[Intended], now: datetime, *, is_silent: bool
    ) -> list[JobInfo]:
        """What accounting says of jobs without a known id.

        slurmdbd can refuse a question by name, and answer one by id: these have an answer then.

        Args:
            is_silent: whether a refusal says that accounting does not answer at all.
        """
        if not unknown:
            return []
        since = min(intent.at for intent in unknown) - _MARGIN
        names = [intent.job_name for intent in unknown]
        try:
            return self._scheduler.accounting([], since, job_names=names)
        except SchedulerUnavailable as error:
            self.names_answered = False
            if is_silent:
                self._silence.remember(now)
            self._warnings.append(f"{error.message}; a submission stays in doubt")
            return []
