"""How long an attempt runs in a partition before an unplanned end.

For ``checkpoint.interval: auto``. What the ledger has observed is joined with what is expected
before anything was: a gamma distribution of the rate, worth one end in a day. With little to go by
the answer is about that, and with much it is what was observed::

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
    from hpcflow.ledger.rates import Observed

#: The ends that come unforeseen. A time limit is foreseen, and a mistake in the program comes again
#: however often it saves.
UNFORESEEN: Final = frozenset({Cause.PREEMPTED, Cause.NODE_FAIL, Cause.VANISHED})

_PRIOR_S: Final = 24 * 3600.0
_PRIOR_ENDS: Final = 1
#: A partition changes: what was longer ago does not count.
_WINDOW: Final = timedelta(days=30)


def mtbf_s(observed: Observed, prior_s: float = _PRIOR_S) -> int:
    """Mean time between two ends, in whole seconds; at least one.

    Args:
        prior_s: within how many seconds one end is expected before anything was observed.
    """
    return max(1, round((prior_s + observed.running_s) / (_PRIOR_ENDS + observed.ends)))


def mtbf_of(run: Run, settings: Settings, now: datetime) -> int | None:
    """What an attempt of ``run`` has to expect that is sent now; None where nobody asks.

    A ledger that is not there, or does not answer, has observed nothing.
    """
    if run.spec.checkpoint.interval_s != AUTO:
        return None
    return mtbf_s(seen_in([run.partition], run.site, settings, now)[run.partition])


def seen_in(
    partitions: Iterable[str], site: str, settings: Settings, now: datetime
) -> dict[str, Observed]:
    """What the ledger has observed of each partition of late.

    A ledger that is not there, or does not answer, has observed nothing.

    Args:
        site: as the runs name it.
    """
    from hpcflow.ledger.rates import Observed  # few runs ask
    from hpcflow.ledger.store import open_ledger

    seen = {name: Observed() for name in partitions}
    try:
        url = parse_url(settings.ledger_url)
        if url.is_own and not url.path.exists():
            return seen  # opening it would make it
        with open_ledger(settings.ledger_url) as ledger:
            since = now - _WINDOW
            for name in seen:
                seen[name] = ledger.observed(
                    UNFORESEEN, site=site, partition=name, since=since, now=now
                )
    except HpcflowError:
        pass
    return seen
