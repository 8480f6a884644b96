"""What goes wrong with one run in a round is a trouble of that run, and ends no other."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field

from hpcflow.errors import HpcflowError, LedgerError, SchedulerUnavailable, StorageError
from hpcflow.requeue.surroundings import OustedError

_log = logging.getLogger(__name__)


@dataclass
class Troubles:
    """The troubles of one round.

    Attributes:
        of_runs: run id -> what went wrong with it; it is tried again in the next round.
        silent_sites: those whose Slurm did not answer. It would not answer to the next run either,
            after as long a wait: who acts asks here first.
    """

    of_runs: dict[str, str] = field(default_factory=dict)
    silent_sites: set[str] = field(default_factory=set)

    @contextmanager
    def of(self, run_id: str, site: str) -> Iterator[None]:
        """What is done about one run.

        Raises:
            LedgerError: the database does not answer.
            OustedError: nothing more may be done.
        """
        try:
            yield
        except (LedgerError, OustedError):
            raise
        except SchedulerUnavailable as error:
            self.silent_sites.add(site)
            self.of_runs[run_id] = error.message
        except StorageError as error:
            if not error.retryable:  # else somebody is sending it at this moment
                self.of_runs[run_id] = error.message
        except HpcflowError as error:
            self.of_runs[run_id] = error.message
        except Exception as error:  # a bug, or files that nobody foresaw
            _log.debug("run %s", run_id, exc_info=True)
            self.of_runs[run_id] = f"{type(error).__name__}: {error}"
