"""Estimate the mean time between unplanned ends in a partition, for ``checkpoint.interval: auto``.

The ledger's observations are combined with a gamma prior of the rate, which counts as one end in a
day. With few observations the result is near the prior, with many it is the observed mean::

    mtbf = (24 h + hours that attempts ran) / (1 + their ends)
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Final

from hpcflow.errors import HpcflowError
from hpcflow.ledger.url import parse_url
from hpcflow.model.kinds import AUTO
from hpcflow.model.run import Run
from hpcflow.model.state import Cause
from hpcflow.settings import Settings

if TYPE_CHECKING:
    from hpcflow.ledger.ends import Observed

#: Unplanned ends. A time limit is planned, and an error of the program recurs however often it
#: saves.
UNFORESEEN: Final = frozenset({Cause.PREEMPTED, Cause.NODE_FAIL, Cause.VANISHED})

_PRIOR_S: Final = 24 * 3600.0
_PRIOR_ENDS: Final = 1
#: Older observations do not count, because a partition changes.
_WINDOW: Final = timedelta(days=30)


def mtbf_s(observed: Observed, prior_s: float = _PRIOR_S) -> int:
    """Return the mean time between two ends in whole seconds, at least 1.

    Args:
        prior_s: expected mean time before anything was observed.
    """
    return max(1, round((prior_s + observed.running_s) / (_PRIOR_ENDS + observed.ends)))


def mtbf_of(run: Run, settings: Settings, now: datetime) -> int | None:
    """Return the MTBF for an attempt that is submitted now; None if its interval is not `auto`."""
    if run.spec.checkpoint.interval_s != AUTO:
        return None
    return mtbf_s(seen_in([run.partition], run.site, settings, now)[run.partition])


def seen_in(
    partitions: Iterable[str], site: str, settings: Settings, now: datetime
) -> dict[str, Observed]:
    """Return partition -> what the ledger has observed lately; nothing if it does not answer.

    Args:
        site: as the runs name it.
    """
    from hpcflow.ledger.ends import Observed  # few runs need it
    from hpcflow.ledger.store import open_ledger

    seen = {name: Observed() for name in partitions}
    try:
        url = parse_url(settings.ledger_url)
        if url.is_own and not url.path.exists():
            return seen  # opening it would create it
        with open_ledger(settings.ledger_url) as ledger:
            since = now - _WINDOW
            for name in seen:
                seen[name] = ledger.observed(
                    UNFORESEEN, site=site, partition=name, since=since, now=now
                )
    except HpcflowError:
        pass
    return seen
