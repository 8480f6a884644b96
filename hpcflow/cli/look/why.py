"""``hpcflow why``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal, TypedDict

import click

from hpcflow.cli.arguments import json_option, run_argument
from hpcflow.cli.look.shown_run import failure_of, frozen_run, print_failure
from hpcflow.cli.look.why_words import better_words, wait_lines
from hpcflow.cli.output import STATE_COLOURS, print_json
from hpcflow.cli.session import Session, warn
from hpcflow.errors import HpcflowError, StorageError
from hpcflow.model.next_action import CANCEL_JOBS, HELD
from hpcflow.model.state import AttemptState, RunState
from hpcflow.pending.why import Wait, explain_wait
from hpcflow.storage.runs import is_purged
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Sequence
    from datetime import datetime

    from hpcflow.model.views import AttemptView, RunDetail
    from hpcflow.pending.account import Account
    from hpcflow.pending.ahead import Obstacle
    from hpcflow.pending.unsent import Unsent
    from hpcflow.placement.alternatives import Alternative
    from hpcflow.placement.choosing import Chooser
    from hpcflow.sites.schema import Site
    from hpcflow.sites.standing import Limit
    from hpcflow.storage.failure import Failure
    from hpcflow.storage.layout import Home, RunDir


class _OfRun(TypedDict):
    run_id: str
    state: RunState
    attempt: int | None
    job_id: str | None
    waits_in: Literal["slurm", "hpcflow"] | None
    failure: Failure | None
    words: str
    next: Sequence[str]


class NotPending(_OfRun):
    """A run that is not pending in Slurm."""

    until: datetime | None


class Pending(_OfRun):
    """A run that is pending in Slurm; unknown values are null."""

    reason: str | None
    kind: str
    starts_by_itself: bool
    partitions: Sequence[str]
    account: str | None
    qos: str | None
    time_limit_min: int | None
    position: int | None
    of: int | None
    sees_others: bool
    priority: int | None
    priority_ahead: int | None
    priority_first: int | None
    factors: dict[str, int]
    expected_start: datetime | None
    expected_nodes: Sequence[str]
    accounts: Sequence[Account]
    limits: Sequence[Limit]
    reservations: Sequence[Obstacle]
    dependency: str | None


@click.command("why", short_help="Show why a run is pending or stopped, and what to type.")
@run_argument
@json_option(Pending, NotPending)
def command(run: str, as_json: bool) -> int:
    """Show why RUN is pending, and what to try next.

    It shows Slurm's reason, the run's place in the queue, the parts of its priority, the fair
    shares of your accounts, limits, reservations ahead, and the start that Slurm predicts. If the
    run is not pending in Slurm, it says so and why. If several runs have the name, it shows the
    newest. All times are UTC.
    """
    session = Session()
    run_id = session.run_dir(run, newest=True).path.name
    session.refresh()
    detail = session.detail(run_id)
    queued = _queued(detail.attempts)
    if detail.run.next_action == CANCEL_JOBS:
        queued = None  # the run is cancelled
    wait, tried = _wait(session, detail, queued) if queued is not None else (None, [])
    unsent = None if wait is not None else _unsent(session, detail, queued)
    if as_json:
        print_json(_json(detail, session.settings.home, queued, wait, unsent, tried))
        return 0
    _print(session, detail, wait, unsent, tried)
    return 0


def _queued(attempts: Sequence[AttemptView]) -> AttemptView | None:
    """Return the attempt whose job is pending; None if another runs, because it is a standby."""
    waiting = [each for each in attempts if each.state is AttemptState.QUEUED and each.job_id]
    running = [each for each in attempts if each.state is AttemptState.RUNNING]
    return waiting[0] if waiting and not running else None


def _wait(
    session: Session, detail: RunDetail, queued: AttemptView
) -> tuple[Wait | None, list[Alternative]]:
    """Return why the job is pending, and what may start it sooner; None if it is not pending."""
    assert queued.job_id is not None
    scheduler = session.scheduler(detail.run.site)
    jobs = scheduler.waiting([queued.job_id])
    if not jobs:
        return None, []
    site, now = session.site(detail.run.site), session.clock.now()
    chooser = session.chooser(site, detail.run.site, ignored_jobs=[queued.job_id])
    wait = explain_wait(
        jobs[0],
        detail.run.run_id,
        standing=chooser.forecast.standing,
        cluster=chooser.forecast.cluster,
        reservations=chooser.forecast.reservations,
        now=now,
    )
    tried = _tried(detail, session.settings.home, wait, site, chooser, now)
    for message in dict.fromkeys(chooser.forecast.unknown):
        warn(f"unknown: {message}")
    return wait, tried


def _tried(
    detail: RunDetail, home: Home, wait: Wait, site: Site, chooser: Chooser, now: datetime
) -> list[Alternative]:
    from hpcflow.placement.alternatives import pending_alternatives
    from hpcflow.storage.rundir import read_run

    try:
        run = read_run(home.run_dir(detail.run.run_dir))
    except StorageError as error:
        warn(f"no changes tried: {error.message}")
        return []
    return pending_alternatives(run, wait, site, chooser, now)


def _unsent(session: Session, detail: RunDetail, queued: AttemptView | None) -> Unsent:
    from hpcflow.history import RunHistory
    from hpcflow.pending.unsent import Unsent, explain_unsent, waits_for_budget
    from hpcflow.storage.journal import Journal, is_lost

    run_id = detail.run.run_id
    if queued is not None:
        words = f"job {queued.job_id} is no longer pending, and hpcflow has not seen it run yet"
        return Unsent(words, None, (f"look again in a moment: hpcflow why {run_id}",))
    run_dir = session.settings.home.run_dir(detail.run.run_dir)
    try:
        history, has_lost = Journal(run_dir).history, is_lost(run_dir)
    except StorageError:  # the ledger still has the state
        history, has_lost = RunHistory(), False
    jobs = [each for each in detail.attempts if each.job_id is not None]
    running = [each for each in jobs if each.started_at and not each.ended_at]
    last = running[-1] if running else jobs[-1] if jobs else None
    no_room = None
    if waits_for_budget(detail.run):
        no_room = _no_room(session, run_dir, detail.run.next_why or "")
    frozen = frozen_run(detail, session.settings.home)
    return explain_unsent(
        detail.run,
        last,
        history,
        session.clock.now(),
        is_journal_lost=has_lost,
        is_purged=is_purged(run_dir),
        no_room=no_room,
        has_snapshot=frozen is not None and frozen.code is not None,
    )


def _no_room(session: Session, run_dir: RunDir, known: str) -> tuple[str, str] | None:
    """Return why the budgets have no room for a run now, and what to do; None if they have.

    Args:
        known: the reason of the last decision, if the budgets cannot be read now.
    """
    from hpcflow.requeue.budget_facts import BudgetFacts
    from hpcflow.storage.journal import Journal
    from hpcflow.storage.rundir import read_run

    try:
        run = read_run(run_dir)
        budgets = BudgetFacts(session.settings.home, session.clock)
        refusal = budgets.no_room(run, Journal(run_dir), session.site(run.site))
    except HpcflowError as error:
        warn(f"the budgets cannot be read now: {error.message}")
        return known, "see them: hpcflow budget ls"
    return None if refusal is None else (refusal.message, refusal.next_action)


def _json(
    detail: RunDetail,
    home: Home,
    queued: AttemptView | None,
    wait: Wait | None,
    unsent: Unsent | None,
    tried: Sequence[Alternative],
) -> Pending | NotPending:
    run = detail.run
    attempt, job_id = (queued.attempt, queued.job_id) if queued else (None, None)
    failure = failure_of(detail, home)
    if unsent is not None:
        is_over = run.state.is_final or run.state.value == "running"
        return {
            "run_id": run.run_id,
            "state": run.state,
            "attempt": attempt,
            "job_id": job_id,
            "waits_in": None if is_over or queued is not None else "hpcflow",
            "failure": failure,
            "words": unsent.words,
            "until": unsent.until,
            "next": unsent.to_try,
        }
    assert wait is not None
    job = wait.job
    return {
        "run_id": run.run_id,
        "state": run.state,
        "attempt": attempt,
        "job_id": job_id,
        "waits_in": "slurm",
        "failure": failure,
        "words": wait.reason.words,
        "reason": job.reason,
        "kind": wait.reason.kind.name.lower(),
        "starts_by_itself": wait.reason.can_start,
        "partitions": job.partitions,
        "account": job.account,
        "qos": job.qos,
        "time_limit_min": job.time_limit_min,
        "position": job.position,
        "of": job.rivals,
        "sees_others": wait.sees_others,
        "priority": job.priority,
        "priority_ahead": job.priority_ahead,
        "priority_first": job.priority_first,
        "factors": {each.name: each.points for each in job.factors},
        "expected_start": job.expected_start,
        "expected_nodes": job.expected_nodes,
        "accounts": wait.accounts,
        "limits": wait.limits,
        "reservations": wait.obstacles,
        "dependency": job.dependency,
        "next": [*(better_words(each, run.run_id) for each in tried), *wait.to_try],
    }


def _print(
    session: Session,
    detail: RunDetail,
    wait: Wait | None,
    unsent: Unsent | None,
    tried: Sequence[Alternative],
) -> None:
    run = detail.run
    echo(run.run_id, bold=True, nl=False)
    echo(f"  {run.state.value}", fg=STATE_COLOURS.get(run.state.value))
    if wait is not None:
        now = session.clock.now()
        for name, text in wait_lines(wait, held=run.next_action == HELD, now=now):
            echo(f"  {name:<12} {text}".rstrip())
        to_try = (*(better_words(each, run.run_id) for each in tried), *wait.to_try)
    else:
        assert unsent is not None
        until = f", not before {unsent.until:%Y-%m-%d %H:%M:%S} UTC" if unsent.until else ""
        echo(f"  {unsent.words}{until}")
        print_failure(detail, session.settings.home)
        to_try = unsent.to_try
    for number, text in enumerate(to_try):
        echo(f"  {'next' if not number else 'or':<12} {text}")
