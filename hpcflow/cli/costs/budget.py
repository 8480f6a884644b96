"""``hpcflow budget``."""

from __future__ import annotations

from dataclasses import replace
from decimal import Decimal
from functools import cache
from typing import TYPE_CHECKING, Final, TypedDict

import click

from hpcflow.budgets.amounts import amount_from
from hpcflow.budgets.folder import BudgetFolder, budgets_of
from hpcflow.budgets.records import Change, Limit, OnExceeded, Terms
from hpcflow.budgets.scope import COLUMNS, Scope, parse_scope
from hpcflow.cli.arguments import json_option, site_option
from hpcflow.cli.costs.budget_look import (
    BudgetJson,
    ShownBudget,
    as_values,
    print_budgets,
    print_details,
    shown_budget,
    warn_about,
)
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session, warn
from hpcflow.errors import (
    InputError,
    LedgerError,
    NotFoundError,
    StorageError,
    Where,
    next_step,
    shell_word,
)
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.ledger.store import Ledger


class Budgets(TypedDict):
    """Budgets, without the details of `budget show`."""

    budgets: list[BudgetJson]


class RemovedBudget(TypedDict):
    """A budget that was removed."""

    scope: str
    removed: bool


#: Value of --unit -> unit of amounts.
_UNITS: Final = {"usd": "cost_usd", "su": "cost_su", "gpu_hours": "gpu_hours"}

_NONE: Final = "none"

scope_argument = click.argument("scope", metavar="SCOPE")
why_option = click.option("--why", help="Reason, for the history.")


@click.group("budget", short_help="Set spending limits; show what is left.")
def command() -> None:
    """Set what a project, a user, a sweep or a run may spend, and show what is left.

    SCOPE is project:NAME, user:NAME, sweep:ID or run:ID.
    """


@command.command("set")
@scope_argument
@click.option("--hard", metavar="AMOUNT", help="Limit for all submissions together, or `none`.")
@click.option("--soft", metavar="AMOUNT", help="Warn from this amount on, or `none`.")
@click.option(
    "--unit",
    type=click.Choice(tuple(_UNITS)),
    default="usd",
    show_default=True,
    help="Unit of the amounts. A budget can limit several.",
)
@click.option(
    "--per",
    type=click.Choice(("month", "ever")),
    help="Count attempts that ended in this month (UTC), or all. Default: unchanged; `ever` for a "
    "new budget.",
)
@click.option(
    "--on-exceeded",
    type=click.Choice(("finish", "save_and_stop")),
    help="What happens to running jobs when a hard limit is reached. Default: unchanged; "
    "`finish` for a new budget.",
)
@why_option
@site_option
@json_option(BudgetJson)
def set_command(
    scope: str,
    hard: str | None,
    soft: str | None,
    unit: str,
    per: str | None,
    on_exceeded: str | None,
    why: str | None,
    site: str | None,
    as_json: bool,
) -> int:
    """Set a budget, or change one.

    Options that you omit keep their values, except --unit: its default is usd.

    SCOPE is project:NAME, user:NAME, sweep:ID or run:ID.

    \b
    hpcflow budget set project:vision --hard 500 --soft 400
    hpcflow budget set user:ada --hard 1000 --unit gpu_hours --per month
    """
    from hpcflow.reconcile.set_budget import set_budget

    session = Session()
    wanted = parse_scope(scope)
    folder = _folder(session, site)
    before = folder.read(wanted).terms

    def terms_from(found: Terms | None) -> Terms:
        return changed_terms(found, _UNITS[unit], hard, soft, per, on_exceeded)

    terms = terms_from(before)  # first, because it may raise an InputError
    ledger: Ledger | None = None
    try:
        session.refresh()
        ledger = session.ledger
    except LedgerError as error:
        if before is None:  # only the ledger knows what was spent before
            raise
        warn(f"{error.message}; the budget is set anyway")
    change = Change(session.clock.now(), session.settings.user, terms, why=why)
    budget = set_budget(
        ledger,
        folder,
        wanted,
        change,
        home=session.settings.home,
        find_site=session.site,
        clock=session.clock,
        terms_from=terms_from,
        warn=warn,
    )
    if before is None and ledger is not None:
        _warn_if_unused(ledger, wanted)
    now = session.clock.now()
    if as_json:
        print_json(as_values(budget, now))
    else:
        print_budgets([budget], now)
    warn_about([budget], now)
    return 0


@command.command("ls")
@site_option
@json_option(Budgets)
def ls_command(site: str | None, as_json: bool) -> int:
    """List the budgets, with what is spent and left.

    Budgets of single runs are listed only while an attempt is pending or running.
    """
    session = Session()
    folder = _folder(session, site)
    _reconcile(session, folder, None)
    budgets, now = [], session.clock.now()
    for scope in folder.scopes():
        try:
            found = folder.read(scope)
        except StorageError as error:
            warn(f"{error.message}{next_step(error)}")
            continue
        if (damage := folder.damage(found)) is not None:
            warn(damage)
        if found.terms is not None and (scope.kind != "run" or found.committed_to()):
            budgets.append(found.summed(now))  # all budgets in full may not fit in memory
    if as_json:
        print_json(Budgets(budgets=[as_values(budget, now) for budget in budgets]))
    elif budgets:
        print_budgets(budgets, now)
        warn_about(budgets, now)
    else:
        echo("no budgets; set one: hpcflow budget set project:NAME --hard 500 --soft 400")
    return 0


@command.command("show")
@scope_argument
@site_option
@json_option(ShownBudget)
def show_command(scope: str, site: str | None, as_json: bool) -> int:
    """Show one budget: what was spent and committed, and who changed it."""
    session = Session()
    wanted = parse_scope(scope)
    folder = _folder(session, site)
    _require_set(folder, wanted, is_history_enough=True)
    _reconcile(session, folder, wanted)
    budget, now = folder.read(wanted, whole=True), session.clock.now()
    if as_json:
        print_json(shown_budget(budget, now))
        return 0
    if budget.terms is not None:
        print_budgets([budget], now)
    else:
        echo(f"{budget.scope} was removed; it limits nothing now")
    print_details(budget, now)
    warn_about([budget], now)
    return 0


@command.command("remove")
@scope_argument
@why_option
@site_option
@json_option(RemovedBudget)
def remove_command(scope: str, why: str | None, site: str | None, as_json: bool) -> int:
    """Remove a budget. Its history stays."""
    session = Session()
    wanted = parse_scope(scope)
    folder = _folder(session, site)
    _require_set(folder, wanted)
    with folder.lock(session.clock):
        change = Change(session.clock.now(), session.settings.user, None, why=why)
        folder.append(wanted, [change.to_line()])
    if as_json:
        print_json(RemovedBudget(scope=str(wanted), removed=True))
    else:
        echo(f"{wanted} is removed; its history: hpcflow budget show {shell_word(wanted)}")
    return 0


def changed_terms(
    before: Terms | None,
    unit: str,
    hard: str | None,
    soft: str | None,
    per: str | None,
    on_exceeded: str | None,
) -> Terms:
    """Return the terms ``before`` with the given values.

    Raises:
        InputError: no limit is left, or the soft one is more than the hard one.
    """
    terms = before or Terms()
    limit = terms.limits.get(unit)
    found = _limit(limit.hard if limit else None, hard, "--hard")
    warned = _limit(limit.soft if limit else None, soft, "--soft")
    if found is not None and warned is not None and warned > found:
        raise InputError(
            f"the soft limit, {warned}, is more than the hard one, {found}",
            next_action="give --soft a lower amount than --hard",
        )
    limits = {**terms.limits}
    limits.pop(unit, None)
    if found is not None or warned is not None:
        limits[unit] = Limit(found, warned)
    if not limits:
        raise InputError(
            "a budget needs a limit, and this one would have none",
            next_action="give one: --hard 500 or --soft 400; or remove it: hpcflow budget remove",
        )
    terms = replace(terms, limits=limits)
    if per is not None:
        terms = replace(terms, per_month=per == "month")
    if on_exceeded is not None:
        terms = replace(terms, on_exceeded=OnExceeded(on_exceeded))
    return terms


def _limit(before: Decimal | None, value: str | None, option: str) -> Decimal | None:
    if value is None:
        return before
    if value == _NONE:
        return None
    try:
        return amount_from(value)
    except ValueError as error:
        raise click.UsageError(f"{option}: {error}, or `none`; got {value[:100]!r}") from None


def _folder(session: Session, site: str | None) -> BudgetFolder:
    the_site = session.site(site or session.settings.site, named_in=Where(key="--site"))
    return budgets_of(the_site, session.settings.home)


def _reconcile(session: Session, folder: BudgetFolder, scope: Scope | None) -> None:
    """Bring the budgets up to date; warn if the ledger is down."""
    from hpcflow.reconcile.budgets import reconcile_budgets

    try:
        session.refresh()
        context = session.refresh_context(session.ledger)
        context = replace(context, find_site=cache(context.find_site))
        problems = reconcile_budgets(context, [folder], scope)
    except LedgerError as error:
        problems = [f"{error.message}; shown without the ledger, amounts may be out of date"]
    for problem in problems:
        warn(problem)


def _warn_if_unused(ledger: Ledger, scope: Scope) -> None:
    """Warn if no run counts against a new budget: its name may be mistyped."""
    if not ledger.sites(filters={COLUMNS[scope.kind]: scope.name}, everyone=True):
        warn(
            f"no known run counts against {scope} yet; if the name is wrong: "
            f"hpcflow budget remove {shell_word(scope)}"
        )


def _require_set(folder: BudgetFolder, scope: Scope, *, is_history_enough: bool = False) -> None:
    budget = folder.read(scope)
    if (damage := folder.damage(budget)) is not None:
        warn(damage)
    if budget.terms is None and not (is_history_enough and budget.changes):
        raise NotFoundError(
            f"there is no budget of {scope}",
            next_action=f"set one: hpcflow budget set {shell_word(scope)} --hard 500; "
            "list all: hpcflow budget ls",
        )
