"""Check whether a budget has room for an attempt, and say why not. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from decimal import ROUND_UP, Decimal
from typing import Final

from hpcflow.budgets.amounts import UNITS, Amounts, shown
from hpcflow.budgets.records import Terms, entry_line
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Budget, Standing
from hpcflow.errors import BudgetError, shell_word
from hpcflow.model.units import counted, format_duration
from hpcflow.resources import doc_page

_CENT: Final = Decimal("0.01")


@dataclass(frozen=True)
class Pledge:
    """The most that an attempt may use, before its submission.

    Attributes:
        by: its user.
        amounts: the most that it may use in all of ``limit_s``.
        limit_s: its time limit and ``overrun_s``; None without a time limit.
        partition: for people.
        overrun_s: how long it may run after its time limit.
        own: the budget in the run's config.
        home: the home whose passes will settle it; a user may have several.
        instead_of: an attempt whose commitment is released before.
        site: the site whose file names the folder of the budgets, as the run names it; None for the
            user's own folder.
    """

    run_id: str
    attempt: int
    by: str
    scopes: tuple[Scope, ...]
    amounts: Amounts
    limit_s: int | None
    partition: str
    overrun_s: int = 0
    own: Terms | None = None
    home: str | None = None
    instead_of: tuple[str, int] | None = None
    site: str | None = None

    @property
    def key(self) -> tuple[str, int]:
        return self.run_id, self.attempt

    def to_line(self, now: datetime) -> str:
        return entry_line(
            "committed",
            now,
            self.by,
            *self.key,
            amounts=self.amounts,
            limit_s=self.limit_s,
            home=self.home,
        )


@dataclass(frozen=True)
class Refusal:
    """Why a budget has no room: in short, in numbers, and what to do."""

    short: str
    message: str
    next_action: str

    def as_error(self, *, fits: int = 0) -> BudgetError:
        """Return the refusal as an error; ``fits`` as there."""
        return BudgetError(self.message, next_action=self.next_action, fits=fits, short=self.short)


def refusal(budget: Budget, pledge: Pledge, now: datetime) -> Refusal | None:
    """Return why ``budget`` has no room for an attempt; None if it has room or no hard limit.

    An unknown amount is not 0. An attempt with one fits only if another limit counts a known amount
    of it.
    """
    hard = {unit: limit for unit in UNITS if (limit := budget.limit(unit).hard) is not None}
    if not hard:
        return None
    known = {unit: limit for unit, limit in hard.items() if pledge.amounts.of(unit) is not None}
    for unit, limit in known.items():
        found = _limit_refusal(budget, pledge, unit, limit, now)
        if found is not None:
            return found
    unknown = [unit for unit in hard if unit not in known]
    is_held = any(pledge.amounts.of(unit) for unit in known)
    return _unpriced_refusal(budget, pledge, unknown) if unknown and not is_held else None


def _limit_refusal(
    budget: Budget, pledge: Pledge, unit: str, limit: Decimal, now: datetime
) -> Refusal | None:
    wanted = pledge.amounts.of(unit) or Decimal(0)
    used, own = budget.used(unit, now), _already_committed(budget, pledge, unit)
    taken = used.taken - own
    if not wanted or taken + wanted <= limit:
        return None
    scope, left = budget.scope, limit - taken
    needed = (taken + wanted).quantize(_CENT, ROUND_UP)
    where = _site_option(pledge.site)
    steps = [
        f"raise it: hpcflow budget set {shell_word(scope)} --hard {needed}"
        f"{_unit_option(unit)}{where}"
    ]
    if scope.kind == "run" and pledge.own is not None and pledge.attempt == 1:
        # A run that was never submitted leaves nothing, and its next id differs.
        steps = [f"raise it: --set budget.{unit}={needed}"]
    if pledge.limit_s:
        fits_min = int((left * pledge.limit_s / wanted - pledge.overrun_s) // 60)
        if fits_min > 0:
            steps.append(f"or request less: fewer GPUs, or --set resources.time_limit={fits_min}m")
    if used.committed > own:
        steps.append("or wait: pending and running jobs release what they do not use")
    if budget.terms is not None and budget.terms.per_month:
        steps.append("or wait for the next month, in UTC")
    over = f" ({shown(-left, unit)} beyond it)" if left < 0 else ""
    in_its = _time_words(pledge)
    return Refusal(
        short=f"budget {scope} of {shown(limit, unit)} has no room for {shown(wanted, unit)}",
        message=f"budget {scope} has no room: of {shown(limit, unit)}, "
        f"{shown(used.spent, unit)} are spent, {shown(used.committed - own, unit)} committed to "
        f"pending and running jobs, and {shown(max(left, Decimal(0)), unit)} left{over}; this "
        f"attempt may take {shown(wanted, unit)}{in_its}",
        next_action=f"{'; '.join(steps)}. See what uses it: hpcflow budget show "
        f"{shell_word(scope)}{where}",
    )


def _already_committed(budget: Budget, pledge: Pledge, unit: str) -> Decimal:
    """Return what is already committed to this attempt, or to the one that it replaces.

    A killed process may have left the commitment.
    """
    keys = {pledge.key, pledge.instead_of or pledge.key}
    entries = [budget.entries[key] for key in keys if key in budget.entries]
    return sum(
        (
            each.amounts.of(unit) or Decimal(0)
            for each in entries
            if each.standing is Standing.COMMITTED
        ),
        Decimal(0),
    )


def _time_words(pledge: Pledge) -> str:
    """Return `` in its 30m 00s and up to 1m 00s after them``; empty without a time limit."""
    if not pledge.limit_s:
        return ""
    words = f" in its {format_duration(pledge.limit_s - pledge.overrun_s)}"
    if not pledge.overrun_s:
        return words
    return f"{words} and up to {format_duration(pledge.overrun_s)} after them"


def _unpriced_refusal(budget: Budget, pledge: Pledge, unknown: list[str]) -> Refusal:
    """Return the refusal of an attempt of which no limited amount is known."""
    scope = budget.scope
    names = " and ".join(UNITS[unit] for unit in unknown)
    if pledge.limit_s is None:
        why = f"it has no time limit, so its share of the {names} is not known"
        then = "give it one: --set resources.time_limit=4h"
    else:
        why = f"partition {pledge.partition} has no price in {names}"
        then = f"write `price` into the site file: {doc_page('costs')}"
        if pledge.amounts.gpu_hours:
            limit = f"--hard 100 --unit gpu_hours{_site_option(pledge.site)}"
            then = f"limit it in hours: hpcflow budget set {shell_word(scope)} {limit}; or {then}"
    return Refusal(
        short=f"an attempt without a price cannot be counted in budget {scope}",
        message=f"budget {scope} is limited in {names}, but this attempt cannot be counted: {why}",
        next_action=then,
    )


def reached(budget: Budget, now: datetime) -> str | None:
    """Return a text if spent and running amounts reach a hard limit; None if they do not."""
    for unit in UNITS:
        limit = budget.limit(unit).hard
        if limit is None:
            continue
        so_far = budget.used(unit, now).spent + budget.so_far(unit, now)
        if so_far >= limit and so_far > 0:
            return f"budget {budget.scope} of {shown(limit, unit)} is reached"
    return None


def warnings_of(budget: Budget, now: datetime, site: str | None = None) -> list[str]:
    """Return warnings about a budget: exceeded soft limits, and attempts that it cannot count."""
    found = []
    for unit in UNITS:
        limit = budget.limit(unit)
        if limit.soft is None and limit.hard is None:
            continue
        used = budget.used(unit, now)
        if limit.soft is not None and used.taken > limit.soft:
            of = f" of {shown(limit.hard, unit)}" if limit.hard is not None else ""
            found.append(
                f"budget {budget.scope}: {shown(used.taken, unit)}{of} are spent or committed, "
                f"more than {shown(limit.soft, unit)}: hpcflow budget show "
                f"{shell_word(budget.scope)}{_site_option(site)}"
            )
        if used.unknown:
            hours = budget.used("gpu_hours", now).taken
            found.append(
                f"budget {budget.scope}: {counted(used.unknown, 'attempt')} without a price in "
                f"{UNITS[unit]}, counted only in hours; all of its attempts use {hours:.2f} "
                "GPU hours"
            )
    return found


def _site_option(site: str | None) -> str:
    """Return the option that names the right one of several budgets of the same name."""
    return f" --site {shell_word(site)}" if site is not None else ""


def _unit_option(unit: str) -> str:
    return "" if unit == "cost_usd" else f" --unit {unit.removeprefix('cost_')}"
