"""How long attempts ran in a partition, and how many had an unplanned end."""

from __future__ import annotations

from pathlib import Path

from hpcflow.ledger.ends import Observed
from hpcflow.ledger.store import Ledger
from hpcflow.model.state import AttemptState, Cause
from tests.ledger.lines import at, ended, intended, observed, submitted
from tests.ledger.test_store import change_of
from tests.storage.runs import make_run

UNFORESEEN = frozenset({Cause.PREEMPTED, Cause.NODE_FAIL})


def attempt(number: int, begin: float, end: float, cause: Cause) -> list[bytes]:
    """The journal of one attempt, from minute to minute."""
    return [
        intended(number, begin),
        submitted(number, begin),
        observed(number, AttemptState.RUNNING, begin, started_at=at(begin)),
        ended(number, cause, end, ended_at=at(end)),
    ]


def seen(ledger: Ledger, *, since: float = 0, now: float = 1000, **place: str) -> Observed:
    where = {"site": "devcluster", "partition": "gpu", **place}
    return ledger.observed(UNFORESEEN, since=at(since), now=at(now), **where)


def test_a_ledger_without_attempts_has_seen_nothing(ledger: Ledger, tmp_path: Path) -> None:
    assert seen(ledger) == Observed(0.0, 0)
    ledger.apply([change_of(make_run(tmp_path), [intended(1), submitted(1)], [])])
    assert seen(ledger) == Observed(0.0, 0)


def test_all_attempts_count_and_some_ends(ledger: Ledger, tmp_path: Path) -> None:
    first = [
        *attempt(1, 0, 60, Cause.PREEMPTED),
        *attempt(2, 100, 220, Cause.NODE_FAIL),
        *attempt(3, 300, 310, Cause.FAILED),
    ]
    second = [
        *attempt(1, 50, 80, Cause.TIMEOUT),
        intended(2, 900),
        submitted(2, 900),
        observed(2, AttemptState.RUNNING, 900, started_at=at(900)),
    ]
    ledger.apply(
        [change_of(make_run(tmp_path), first, []), change_of(make_run(tmp_path), second, [])]
    )
    assert seen(ledger) == Observed((60 + 120 + 10 + 30 + 100) * 60.0, 2)
    assert seen(ledger, partition="spot") == Observed(0.0, 0)
    assert seen(ledger, site="perlmutter") == Observed(0.0, 0)


def test_what_was_before_does_not_count(ledger: Ledger, tmp_path: Path) -> None:
    lines = [*attempt(1, 0, 60, Cause.PREEMPTED), *attempt(2, 100, 160, Cause.PREEMPTED)]
    ledger.apply([change_of(make_run(tmp_path), lines, [])])
    assert seen(ledger, since=130) == Observed(30 * 60.0, 1)
    assert seen(ledger, since=170) == Observed(0.0, 0)
    assert seen(ledger, now=130) == Observed(90 * 60.0, 2), "a clock that is behind"
