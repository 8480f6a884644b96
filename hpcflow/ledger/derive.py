"""Derive the rows of a run from its fold. Pure; all rules of precedence are here.

The journal holds the scheduler's data. If it and the job's own events differ, the scheduler wins;
the events fill in what the scheduler has not reported yet. See docs/ledger.md.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from datetime import datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import TYPE_CHECKING, Any, Final

from hpcflow.clock import from_text, later
from hpcflow.ledger.fold import AttemptFold, RunFold, clean
from hpcflow.ledger.rows import AttemptRow, PartRow, RunRow
from hpcflow.ledger.waste import waste_of
from hpcflow.model import lost_journal, next_action
from hpcflow.model.next_action import NextAction
from hpcflow.model.state import (
    BILL_TRIES,
    AttemptState,
    Cause,
    RunState,
    run_state_after,
)

if TYPE_CHECKING:
    from hpcflow.model.run import Run

#: State of the last attempt -> state of the run, while the attempt is neither ended nor withdrawn.
_LIVE: Final = {
    AttemptState.INTENDED: RunState.SUBMITTING,
    AttemptState.QUEUED: RunState.QUEUED,
    AttemptState.UNKNOWN: RunState.QUEUED,
    AttemptState.RUNNING: RunState.RUNNING,
    AttemptState.SUSPENDED: RunState.RUNNING,
    AttemptState.COMPLETING: RunState.RUNNING,
}


#: A record reaches slurmdbd seconds after the end. If not, hpcflow queries again after half a
#: minute, then after four times as long each time: for a week in all.
LAGS = timedelta(seconds=5)
_FIRST_WAIT: Final = timedelta(seconds=30)

#: Digits of an amount before and after its point: a larger exponent may not fit in memory, and sums
#: are shown to eight places of 28 digits.
_MOST_DIGITS: Final = 18
#: Ten thousand GPUs for ten thousand years have fewer hours.
_MOST_TIME: Final = 1e12

#: The columns of a run that progress events change. Of its attempt they change only the report.
OF_PROGRESS: Final = ("train_step", "total_train_steps", "epoch", "metrics")


def run_row(run: Run) -> RunRow:
    """Return the row of a run with the columns from ``run.json``."""
    spec = run.spec
    container = spec.environment.container
    resources = spec.resources.model_dump(mode="json")
    return RunRow(
        run_id=run.run_id,
        name=spec.name,
        user_name=clean(run.user),
        project=spec.project,
        site=clean(run.site),
        framework=spec.launch.framework.value,
        run_dir=clean(run.run_dir),
        partition=clean(run.partition),
        nodes=spec.resources.nodes,
        gpus=spec.resources.nodes * spec.resources.gpus_per_node,
        gpu_type=run.gpu_type and clean(run.gpu_type),
        image=clean(container.image) if container else None,
        parent_sweep=run.parent_sweep and clean(run.parent_sweep),
        mirror_url=clean(run.mirror.url).rstrip("/") if run.mirror is not None else None,
        estimated_cost_usd=money(run.estimated_cost_usd),
        created_at=run.created_at.astimezone(timezone.utc),
        resources=resources,
        command=[*spec.program, *spec.args],
        params=dict(spec.params),
        data=dict(run.provenance.data),
        tags=list(spec.tags),
    )


def derive_attempt(run_id: str, number: int, attempt: AttemptFold) -> AttemptRow:
    journal, report = attempt.journal, attempt.report
    intended, submitted = journal.get("intended", {}), journal.get("submitted", {})
    observed, ended = journal.get("observed", {}), journal.get("ended", {})
    void = journal.get("withdrawn") or journal.get("refused") or {}
    resume_from = report.get("resumed_from", intended.get("resume_from"))
    bill = journal.get("accounted", {})
    return AttemptRow(
        run_id=run_id,
        attempt=number,
        job_name=clean(intended.get("job_name", "")),
        job_id=_text(_first("job_id", submitted, observed, report)),
        state=_attempt_state(journal, report).value,
        raw_state=_text(_first("raw_state", ended, observed)),
        cause=ended.get("cause"),
        reason=_text(_first("reason", void, _stall(journal), observed)),
        rule=_text(ended.get("rule")),
        partition=_text(_first("partition", bill, intended)),
        nodes=[clean(node) for node in _first("nodes", observed, report) or []],
        submitted_at=_moment(observed.get("submitted_at") or submitted.get("at")),
        started_at=_moment(_first("started_at", observed, report)),
        ended_at=_moment(
            _first("ended_at", ended, observed) or report.get("exited_at") or ended.get("at")
        ),
        exit_code=_int32(_first("exit_code", ended, observed, report)),
        resume_from=_text(resume_from),
        journal=journal,
        report=report,
        billed_by=_text(bill.get("source")),
        elapsed_s=_number(bill.get("elapsed_s")),
        gpu_type=_gpu_type(bill),
        gpu_hours=_number(bill.get("gpu_hours")),
        cost_usd=money(bill.get("cost_usd")),
        cost_su=money(bill.get("cost_su")),
        on_demand_usd=money(bill.get("on_demand_usd")),
        wasted_s=_wasted_s(bill, ended.get("cause"), report),
        bill_due_at=bill_due_at(journal),
        account=_text(_first("account", bill, intended)),
        parts=bill_parts(bill) or None,
    )


def bill_parts(bill: dict[str, Any]) -> list[PartRow]:
    """Return the usage by partition and account in a record ``accounted``, if it has several."""
    return [
        PartRow(
            partition=_text(part.get("partition")),
            account=_text(part.get("account")),
            gpu_type=_text(part.get("gpu_type")),
            gpu_hours=_number(part.get("gpu_hours")),
            cost_usd=money(part.get("cost_usd")),
            cost_su=money(part.get("cost_su")),
            on_demand_usd=money(part.get("on_demand_usd")),
        )
        for part in bill.get("parts", [])
    ]


def bill_due_at(journal: dict[str, Any]) -> datetime | None:
    """Return when to query accounting for an attempt's bill; None if no query is needed.

    None is needed before the end, after a final bill, or if the attempt was never a job. Accounting
    lags behind, and can be down for hours.
    """
    bill, ended = journal.get("accounted"), journal.get("ended", {})
    if bill is None:
        has_job = "submitted" in journal or "observed" in journal
        return later(from_text(ended["at"]), LAGS) if has_job and "at" in ended else None
    if bill["source"] == "accounting" or bill["tries"] >= BILL_TRIES:
        return None
    wait: timedelta = _FIRST_WAIT * 4 ** (bill["tries"] - 1)
    return later(from_text(bill["at"]), wait)


def _gpu_type(bill: dict[str, Any]) -> str | None:
    if not bill:
        return None
    return clean(gpu_type_of(line["kind"] for line in bill.get("charges", [])))


def gpu_type_of(kinds: Iterable[str]) -> str:
    """Return the GPU types in lines of a bill, with commas; ``?`` for an unknown one."""
    said = (kind.partition(":") for kind in kinds)
    return ",".join(sorted({name or "?" for kind, _, name in said if kind == "gpu"}))


def _wasted_s(bill: dict[str, Any], cause: str | None, report: dict[str, Any]) -> float | None:
    waste = waste_of(bill, cause, report)
    return None if waste is None else waste.total_s


def _stall(journal: dict[str, Any]) -> dict[str, Any]:
    """Return the stall record of a running attempt, or of one that ended for it."""
    stall: dict[str, Any] = journal.get("stall", {})
    if "ended" in journal:
        is_so = journal["ended"]["cause"] == Cause.STALLED.value
    else:
        is_so = journal.get("observed", {}).get("state") == AttemptState.RUNNING.value
    if not is_so or stall.get("action") in (None, "withdraw"):
        return {}
    return {**stall, "reason": stall["why"]}


def derive_run(row: RunRow, fold: RunFold, attempts: list[AttemptRow]) -> None:
    """Fill in the columns from journal and events.

    Args:
        row: from :func:`run_row`, or an older state of the same row.
        attempts: all attempts, by number.
    """
    journal = fold.journal
    executed = [attempt for attempt in attempts if attempt.state != AttemptState.WITHDRAWN.value]
    state = _run_state(attempts, executed, journal)
    row.state = state.value
    row.cause = executed[-1].cause if executed else None
    row.started_at = next((a.started_at for a in attempts if a.started_at), None)
    row.completed_at = _completed_at(state, executed, journal)
    row.attempts = len(attempts)
    row.job_id = next((a.job_id for a in reversed(attempts) if a.job_id), None)
    derive_progress(row, attempts)
    row.final_model = next(
        (a.report["model"] for a in attempts[::-1] if a.report.get("model")), None
    )
    row.save_error = _save_error(attempts)
    _derive_cost(row, attempts)
    row.next_action, row.next_rule, row.next_why, row.next_at = _next(journal, state, executed)
    row.journal = journal
    row.journal_at = _moment(journal.get("at"))


def derive_progress(row: RunRow, attempts: list[AttemptRow]) -> None:
    """Fill in the columns that depend on progress: :data:`OF_PROGRESS`."""
    reports = [attempt.report for attempt in reversed(attempts)]
    latest = next((each for each in reports if "train_step" in each or "metrics" in each), {})
    # A program whose checkpoints are adopted reports its train steps only with these.
    saved = next((each["saved"] for each in reports if "saved" in each), None)
    row.train_step = latest.get("train_step", saved)
    row.total_train_steps = latest.get("total_train_steps")
    row.epoch = latest.get("epoch")
    metrics = latest.get("metrics", {})
    row.metrics = {clean(name): value for name, value in metrics.items() if value is not None}


def _attempt_state(journal: dict[str, Any], report: dict[str, Any]) -> AttemptState:
    if "ended" in journal:
        return AttemptState.ENDED
    if "exited_at" in report:  # the job exited; the scheduler has not reported it yet
        return AttemptState.COMPLETING
    said = AttemptState(journal["observed"]["state"]) if "observed" in journal else None
    if said is AttemptState.ENDED:  # reported, but not classified yet
        return AttemptState.COMPLETING
    if "started_at" in report:
        waits = said in (None, AttemptState.QUEUED, AttemptState.UNKNOWN, AttemptState.INTENDED)
        return AttemptState.RUNNING if said is None or waits else said
    if "withdrawn" in journal or "refused" in journal:
        return AttemptState.WITHDRAWN
    if said is not None:
        return said
    return AttemptState.QUEUED if "submitted" in journal else AttemptState.INTENDED


def _run_state(
    attempts: list[AttemptRow], executed: list[AttemptRow], journal: dict[str, Any]
) -> RunState:
    last = attempts[-1] if attempts else None
    if last is not None and (live := _LIVE.get(AttemptState(last.state))):
        return live
    # No attempt is active: the last end decides, unless a request overrides it.
    after = RunState.WAITING if executed else RunState.CREATED
    if last is not None and last.cause is not None:
        is_extended = journal.get("extends") == last.attempt
        after = RunState.WAITING if is_extended else run_state_after(Cause(last.cause))
    after = _decided_state(journal, executed, after)
    if "cancel_requested_at" in journal and after is not RunState.COMPLETED:
        return RunState.CANCELLED
    if "resumed_at" in journal and after.is_final and after is not RunState.COMPLETED:
        return RunState.WAITING
    return after


def _decided_state(
    journal: dict[str, Any], executed: list[AttemptRow], after: RunState
) -> RunState:
    """Return the state by the daemon's decision, if it applies."""
    decided = _decision(journal, executed)
    if decided is None or after in (RunState.COMPLETED, RunState.CANCELLED):
        return after
    return RunState.FAILED if decided["action"] == "stop" else RunState.WAITING


def _decision(journal: dict[str, Any], executed: list[AttemptRow]) -> dict[str, Any] | None:
    """Return the daemon's decision since the last attempt ended; None if there is none.

    A lost journal implies the decision to stop.
    """
    if journal.get("is_lost"):
        return {"action": "stop", "rule": lost_journal.RULE}
    decided: dict[str, Any] | None = journal.get("decided")
    is_news = decided and decided["after"] == (executed[-1].attempt if executed else 0)
    return decided if is_news else None


def _next(journal: dict[str, Any], state: RunState, executed: list[AttemptRow]) -> NextAction:
    if _is_standby_due(journal, state, executed):
        return NextAction(next_action.SETTLE_STANDBY)
    if "cancel_requested_at" in journal and state in _LIVE.values():
        return NextAction(next_action.CANCEL_JOBS)
    if "held_at" in journal and not state.is_final:
        return NextAction(next_action.HELD)
    if state is RunState.RUNNING and executed and (stall := _stall(executed[-1].journal)):
        return NextAction(stall["action"], next_action.STALLED, _text(stall["why"]))
    if state is RunState.RUNNING and executed and "overspent" in executed[-1].journal:
        why = _text(executed[-1].journal["overspent"]["why"])
        return NextAction("notice", next_action.OVER_BUDGET, why)
    if state in _LIVE.values() and executed:
        return _next_of_live(journal, executed[-1])
    decided = _decision(journal, executed)
    if decided is None or state not in (RunState.WAITING, RunState.CREATED, RunState.FAILED):
        return NextAction()
    rule, why, not_before = map(decided.get, ("rule", "why", "not_before"))
    return NextAction(decided["action"], _text(rule), _text(why), _moment(not_before))


def _is_standby_due(journal: dict[str, Any], state: RunState, executed: list[AttemptRow]) -> bool:
    """Return whether a standby needs action: the attempt before it is over, or it is unwanted."""
    standby = journal.get("standby", {})
    if not standby or "void_at" in standby:
        return False
    if standby.get("is_given_up"):
        return True
    waits = state in _LIVE.values() and executed and executed[-1].attempt < standby["attempt"]
    return "held_at" in journal or "cancel_requested_at" in journal or not waits


def _next_of_live(journal: dict[str, Any], last: AttemptRow) -> NextAction:
    """Return the next action of an active run, which can only concern a standby."""
    standby = journal.get("standby", {})
    if "job_id" in standby and "void_at" not in standby:
        return NextAction(next_action.AWAIT_STANDBY, why=_text(f"job {standby['job_id']}"))
    is_wanted = last.journal.get("intended", {}).get("standby")
    if not is_wanted or last.state != AttemptState.RUNNING.value:
        return NextAction()
    if "void_at" not in standby or standby.get("after") != last.attempt:
        return NextAction(next_action.SUBMIT_STANDBY)
    if standby["void_for_good"]:
        return NextAction()
    wait_s = min(30.0 * 2.0 ** min(standby["delays"] - 1, 10), 600.0)
    at = later(from_text(standby["void_at"]), timedelta(seconds=wait_s))
    return NextAction(next_action.SUBMIT_STANDBY, not_before=at)


def _completed_at(
    state: RunState, executed: list[AttemptRow], journal: dict[str, Any]
) -> datetime | None:
    if not state.is_final:
        return None
    end = executed[-1].ended_at if executed else None
    cancel = _moment(journal.get("cancel_requested_at")) if state is RunState.CANCELLED else None
    return max((moment for moment in (end, cancel) if moment), default=None)


def _save_error(attempts: list[AttemptRow]) -> str | None:
    """Return the error of the last reported save; None if it succeeded."""
    for attempt in reversed(attempts):
        if "save_error" in attempt.report:
            return str(attempt.report["save_error"])
        if "saved" in attempt.report:
            return None
    return None


def _derive_cost(row: RunRow, attempts: list[AttemptRow]) -> None:
    """Sum up the attempts so far.

    Without a bill, the hours are an estimate, run time times the requested GPUs, and the cost is
    unknown. An attempt that never ran needs no price.
    """
    hours = [each for attempt in attempts if (each := _gpu_hours(row.gpus, attempt)) is not None]
    row.gpu_hours = round(math.fsum(hours), 6) if hours else None
    billed = [attempt for attempt in attempts if attempt.billed_by is not None]
    row.cost_usd = _total([each.cost_usd for each in billed if each.elapsed_s or each.cost_usd])
    row.cost_su = _total([each.cost_su for each in billed if each.elapsed_s or each.cost_su])
    row.is_estimate = any(
        attempt.billed_by == "events" or (attempt.billed_by is None and attempt.started_at)
        for attempt in attempts
    )


def _gpu_hours(gpus: int, attempt: AttemptRow) -> float | None:
    if attempt.billed_by is not None:
        return attempt.gpu_hours
    if not (attempt.started_at and attempt.ended_at):
        return None
    return max(0.0, (attempt.ended_at - attempt.started_at).total_seconds()) * gpus / 3600


def _total(amounts: list[str | None]) -> str | None:
    """Return the sum; None if there is no amount, or one is unknown, which is not 0."""
    known = [Decimal(amount) for amount in amounts if amount is not None]
    return f"{sum(known, Decimal(0)):f}" if known and len(known) == len(amounts) else None


def _number(text: str | None) -> float | None:
    """Return seconds or hours; None for an impossible number."""
    number = float(text) if text is not None else None
    return number if number is not None and 0 <= number <= _MOST_TIME else None


def money(text: str | None) -> str | None:
    """Return a decimal number in plain digits; None if it is not one, or has too many digits."""
    try:
        amount = Decimal(text) if text else None
    except InvalidOperation:
        return None
    if amount is None or not amount.is_finite():
        return None
    is_endless = amount.adjusted() > _MOST_DIGITS or int(amount.as_tuple().exponent) < -_MOST_DIGITS
    return None if is_endless else f"{amount:f}"


def _first(name: str, *said: dict[str, Any]) -> Any:
    """Return the first value of ``name`` that is not None, in order of precedence."""
    return next((words[name] for words in said if words.get(name) is not None), None)


def _text(value: object) -> str | None:
    return clean(str(value)) if value is not None else None


def _moment(text: str | None) -> datetime | None:
    return from_text(text) if text else None


def _int32(value: object) -> int | None:
    return value if isinstance(value, int) and abs(value) < 2**31 else None
