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

#: After this many lost or deferred submissions of a round no more are tried. More than one, because
#: one can be the run's own fault; few, because each costs an extra squeue.
_MOST_IN_VAIN: Final = 3
#: After this many refusals likewise: the reason may be the account, or each run by itself.
_MOST_REFUSED: Final = 30
_log = logging.getLogger(__name__)


@dataclass
class RunErrors:
    """The errors of runs in one round.

    Attributes:
        of_runs: run id -> error; the next round tries again.
        silent_sites: sites whose Slurm did not answer, or lost submissions repeatedly; no further
            action is tried there in this round.
    """

    of_runs: dict[str, str] = field(default_factory=dict)
    silent_sites: set[str] = field(default_factory=set)
    _full: Counter[tuple[str | None, ...]] = field(default_factory=Counter)
    _refused: Counter[tuple[str | None, ...]] = field(default_factory=Counter)
    _lost: Counter[str] = field(default_factory=Counter)

    @contextmanager
    def of_sending(self, run: Run) -> Iterator[None]:
        """Count the errors of a submission of ``run``, and raise them on."""
        try:
            yield
        except SubmissionDelayed:
            self._full[_share(run)] += 1
            raise
        except SubmissionRefused:
            self._refused[_share(run)] += 1
            raise
        except SubmissionInDoubt as doubt:
            if isinstance(doubt.__cause__, SchedulerUnavailable):
                self.silent_sites.add(run.site)
            raise
        except SubmissionLost:
            # An overloaded controller needs a pause, but one run whose submissions are always lost
            # must not stop the others.
            self._lost[run.site] += 1
            if self._lost[run.site] >= _MOST_IN_VAIN:
                self.silent_sites.add(run.site)
            raise

    def has_room_for(self, run: Run) -> bool:
        """Return whether few jobs with the same limits were deferred or refused in this round."""
        share = _share(run)
        return self._full[share] < _MOST_IN_VAIN and self._refused[share] < _MOST_REFUSED

    @contextmanager
    def of(self, run_id: str, site: str) -> Iterator[None]:
        """Record an error of the block for one run; raise only LedgerError and LeaseLostError."""
        try:
            yield
        except (LedgerError, LeaseLostError):
            raise
        except Exception as error:  # a bug must not affect other runs either
            _log.debug("run %s", run_id, exc_info=True)
            if isinstance(error, SchedulerUnavailable):
                self.silent_sites.add(site)
            if (words := words_for(error)) is not None:
                self.of_runs[run_id] = words


def _share(run: Run) -> tuple[str | None, ...]:
    """Return what Slurm's limits, and most refusals, depend on."""
    resources = run.spec.resources
    return run.site, run.partition, resources.account, resources.qos
