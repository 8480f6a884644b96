"""Isolate the errors of one run from the other runs of a round of the daemon."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from hpcflow.errors import (
    LedgerError,
    SchedulerUnavailable,
    SubmissionDelayed,
    SubmissionInDoubt,
    SubmissionLost,
    SubmissionRefused,
    words_for,
)
from hpcflow.model.run import Run
from hpcflow.requeue.round_context import LeaseLostError

#: So many submissions are lost, or turned away, in one round; the next ones would be, too. Not the
#: first alone, for it can be its own fault. Each is looked up, which is a squeue of its own.
_MOST_IN_VAIN: Final = 3
#: What Slurm will never take may be the account's fault or each run's own: its words do not tell.
_MOST_REFUSED: Final = 30
_log = logging.getLogger(__name__)


@dataclass
class RunErrors:
    """The errors of runs in one round.

    Attributes:
        of_runs: run id -> what went wrong with it; it is tried again in the next round.
        silent_sites: those whose Slurm did not answer, or lost what it was sent, again and again.
            The next run would not fare better, after as long a wait: who acts asks here first.
    """

    of_runs: dict[str, str] = field(default_factory=dict)
    silent_sites: set[str] = field(default_factory=set)
    _full: Counter[tuple[str | None, ...]] = field(default_factory=Counter)
    _refused: Counter[tuple[str | None, ...]] = field(default_factory=Counter)
    _lost: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def of_sending(self, run: Run) -> Iterator[None]:
        """The sending of a job of ``run``; what is raised goes on to the caller."""
        try:
            yield
        except SubmissionDelayed:
            self._full[_share(run)] += 1
            raise
        except SubmissionRefused:
            self._refused[_share(run)] += 1
            raise
        except SubmissionInDoubt as doubt:
            if isinstance(doubt.__cause__, SchedulerUnavailable):  # nobody could be asked
                self.silent_sites.add(run.site)
            raise
        except SubmissionLost:
            # A controller that has too much to do is better left alone; but one run whose every
            # submission is lost is no reason to send none of the others.
            self._lost[run.site] += 1
            if self._lost[run.site] >= _MOST_IN_VAIN:
                self.silent_sites.add(run.site)
            raise

    def has_room_for(self, run: Run) -> bool:
        """Whether hardly any job with the same limits was turned away in this round."""
        share = _share(run)
        return self._full[share] < _MOST_IN_VAIN and self._refused[share] < _MOST_REFUSED

    @contextmanager
    def of(self, run_id: str, site: str) -> Iterator[None]:
        """What is done about one run.

        Raises:
            LedgerError: the database does not answer.
            LeaseLostError: nothing more may be done.
        """
        try:
            yield
        except (LedgerError, LeaseLostError):
            raise
        except Exception as error:  # whatever it is, it ends no other run
            _log.debug("run %s", run_id, exc_info=True)
            if isinstance(error, SchedulerUnavailable):
                self.silent_sites.add(site)
            if (words := words_for(error)) is not None:
                self.of_runs[run_id] = words


def _share(run: Run) -> tuple[str | None, ...]:
    """What Slurm's limits depend on, and most of its refusals."""
    resources = run.spec.resources
    return run.site, run.partition, resources.account, resources.qos
