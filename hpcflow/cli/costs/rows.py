"""Select the attempts that a cost command is about."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from typing import TYPE_CHECKING, Final

import click

from hpcflow.cli.output import site_text
from hpcflow.cli.session import Session, warn
from hpcflow.model.units import parse_duration_s
from hpcflow.storage.runs import is_path_untrusted

if TYPE_CHECKING:
    from hpcflow.costs.checkpoint_costs import CheckpointCosts
    from hpcflow.ledger.rows import BilledRow

_MOST_NAMED: Final = 5
_LONG_AGO: Final = datetime(2000, 1, 1, tzinfo=timezone.utc)


def ago_or_day(_ctx: click.Context, param: click.Parameter, value: str | None) -> object:
    """Parse ``30d``, a time ago, or ``2026-07-01``, a day in UTC."""
    if value is None:
        return None
    day: datetime | None = None
    with suppress(ValueError):
        day = datetime.fromisoformat(value)
    try:
        if day is not None:
            return day.astimezone(timezone.utc) if day.tzinfo else day.replace(tzinfo=timezone.utc)
        return timedelta(seconds=parse_duration_s(value))
    except (ValueError, OverflowError):  # its zone moves it outside the years of Python
        message = f"expected an age such as 30d, or a day such as 2026-07-01; got {value!r}"
        raise click.BadParameter(message, param=param) from None


since_option = click.option(
    "--since",
    callback=ago_or_day,
    metavar="AGO|DAY",
    help="Only attempts that ended since then: 30d, or 2026-07-01.",
)
until_option = click.option(
    "--until", callback=ago_or_day, metavar="AGO|DAY", help="Only attempts that ended before then."
)


@dataclass(frozen=True)
class Window:
    """A period; ``since`` is None if it was not given."""

    since: datetime | None
    until: datetime
    now: datetime


def window(
    session: Session, since: datetime | timedelta | None, until: datetime | timedelta | None
) -> Window:
    now = session.clock.now()
    begin = now - since if isinstance(since, timedelta) else since
    begin = None if begin is None else max(begin, _LONG_AGO)
    end = now - until if isinstance(until, timedelta) else until or now + timedelta(days=1)
    return Window(begin, end, now)


def kept(
    session: Session, when: Window, keys: Sequence[str], **filters: str | None
) -> CheckpointCosts:
    """Return what checkpoints cost in this period, on sites that price them."""
    from hpcflow.costs.checkpoint_costs import checkpoint_costs

    wanted = {name: value for name, value in filters.items() if value is not None}
    found = checkpoint_costs(
        session.ledger,
        keys,
        since=when.since or _LONG_AGO,
        until=min(when.until, when.now),
        filters=wanted,
        everyone=is_of_everyone(session, wanted),
        find_site=session.site_in_report,
        home=session.settings.home,
    )
    if found.problems:
        # Other roles can name any number of sites, so the user's own come first.
        names = sorted(found.problems, key=lambda name: name not in session.own_sites)
        shown = ", ".join(site_text(name)[:80] for name in names[:_MOST_NAMED])
        if (more := len(names) - _MOST_NAMED) > 0:
            shown += f" and {more} more"
        why = found.problems[names[0]][:200]
        warn(f"the cost of checkpoints on {shown} is unknown: {why}")
    return found


def rows(session: Session, when: Window, **filters: str | None) -> list[BilledRow]:
    """Return the attempts that ended in this period, with their bills."""
    wanted = {name: value for name, value in filters.items() if value is not None}
    return session.ledger.bills(
        since=when.since or _LONG_AGO,
        until=when.until,
        filters=wanted,
        everyone=is_of_everyone(session, wanted),
    )


def is_of_everyone(session: Session, filters: Mapping[str, str]) -> bool:
    """Return whether a report covers runs of other users, and so reads the rows of other roles."""
    return filters.get("user_name") != session.settings.user


def running(session: Session, *, project: str | None, user: str | None) -> list[BilledRow]:
    """Return the caller's own running attempts."""
    from hpcflow.costs.running import running_rows

    found = session.ledger.spending_under_way(user=session.settings.user)
    wanted = [row for row in found if project in (None, row.project) and user in (None, row.user)]
    wanted = [row for row in wanted if not is_path_untrusted(session.settings.home, row.run_id)]
    return running_rows(wanted, session.settings.home, session.site, session.clock.now())
