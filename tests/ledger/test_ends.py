"""How attempts ended of late is found by time and cause, with what it takes to judge nodes."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path

import pytest

from hpcflow.ledger import ends
from hpcflow.ledger.ends import MOST_NODES, End
from hpcflow.ledger.store import Ledger
from hpcflow.model.journal import Released
from hpcflow.model.state import AttemptState, Cause
from tests.ledger.lines import (
    at,
    checkpoint,
    ended,
    intended,
    observed,
    progress,
    started,
    submitted,
    text,
)
from tests.ledger.test_store import change_of
from tests.storage.runs import make_run

HARD = [Cause.NODE_FAIL, Cause.FAILED]


def attempt(number: int, cause: Cause, minutes: float) -> list[bytes]:
    """The journal of one attempt that ended after so many minutes."""
    return [
        intended(number, minutes - 2),
        submitted(number, minutes - 2),
        observed(number, AttemptState.RUNNING, minutes - 1, nodes=[f"n{number}", "n9"]),
        ended(number, cause, minutes, ended_at=at(minutes)),
    ]


def test_ends_are_found_by_cause_and_time(ledger: Ledger, tmp_path: Path) -> None:
    run, other = make_run(tmp_path), make_run(tmp_path)
    lines = [*attempt(1, Cause.NODE_FAIL, 10), *attempt(2, Cause.PREEMPTED, 20)]
    ledger.apply(
        [
            change_of(run, [*lines, *attempt(3, Cause.FAILED, 30)], []),
            change_of(other, [*attempt(1, Cause.FAILED, 25), intended(2, 40)], []),
        ]
    )

    def found(since: float, until: float) -> list[tuple[str, int]]:
        ends = ledger.ends(HARD, since=at(since), until=at(until))
        return [(end.run_id, end.attempt) for end in ends]

    assert found(0, 60) == [(run.run_id, 3), (other.run_id, 1), (run.run_id, 1)], "newest first"
    assert found(10, 25) == [(other.run_id, 1), (run.run_id, 1)]
    assert found(11, 24) == []


def test_an_end_says_where_it_was_and_how_far_it_came(ledger: Ledger, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    released = text(Released(at=at(12), by="ada"))
    lines = [*attempt(1, Cause.FAILED, 10), released, *attempt(2, Cause.NODE_FAIL, 20)]
    events = [started(1, 9), progress(10, 9.1, loss=0.1), checkpoint(10, 9.2), progress(17, 9.3)]
    ledger.apply([change_of(run, lines, events)])
    second, first = ledger.ends(HARD, since=at(0), until=at(60))
    assert first == End(
        site="devcluster",
        run_id=run.run_id,
        attempt=1,
        partition="gpu",
        nodes=("n1", "n9"),
        cause=Cause.FAILED,
        ended_at=at(10),
        reached=17,
        has_saved=True,
        counted_from=2,
        user="ada",
    )
    assert (second.reached, second.has_saved, second.nodes) == (None, False, ("n2", "n9"))


def test_a_run_that_said_something_long_after_its_end_is_found(
    ledger: Ledger, tmp_path: Path
) -> None:
    """The index that finds it knows the last record only."""
    lines = [*attempt(1, Cause.NODE_FAIL, 10), text(Released(at=at(60 * 24 * 30), by="ada"))]
    ledger.apply([change_of(make_run(tmp_path), lines, [])])
    (end,) = ledger.ends(HARD, since=at(5), until=at(15))
    assert end.ended_at == at(10)


def test_what_others_wrote_into_a_common_ledger_is_no_trouble(
    ledger: Ledger, tmp_path: Path
) -> None:
    change = change_of(make_run(tmp_path), attempt(1, Cause.FAILED, 10), [])
    change.attempts[0].report = {"train_step": "far", "saved": None}
    change.run.journal["counted_from"] = [1]
    ledger.apply([change])
    (end,) = ledger.ends(HARD, since=at(0), until=at(0) + timedelta(hours=1))
    assert (end.reached, end.counted_from) == (None, 1)


def test_an_end_that_cannot_be_read_hides_no_other(ledger: Ledger, tmp_path: Path) -> None:
    damaged, whole = make_run(tmp_path), make_run(tmp_path)
    lines = attempt(1, Cause.FAILED, 10)
    ledger.apply([change_of(each, lines, []) for each in (damaged, whole)])
    sql = "UPDATE attempt SET report = '[]' WHERE run_id = ?"
    ledger.connection().execute(sql, [damaged.run_id])
    (end,) = ledger.ends(HARD, since=at(5), until=at(15))
    assert end.run_id == whole.run_id


def test_of_an_end_on_more_nodes_than_tell_anything_none_are_read(
    ledger: Ledger, tmp_path: Path
) -> None:
    for number, count in enumerate((MOST_NODES, MOST_NODES + 1), 1):
        nodes = [f"n{each}" for each in range(count)]
        lines = [
            intended(1, 1),
            submitted(1, 1),
            observed(1, AttemptState.RUNNING, 2, nodes=nodes),
            ended(1, Cause.NODE_FAIL, 3, ended_at=at(3)),
        ]
        ledger.apply([change_of(make_run(tmp_path, name=f"on-{number}"), lines, [])])
    found = ledger.ends(HARD, since=at(0), until=at(9))
    assert sorted(len(end.nodes) for end in found) == [0, MOST_NODES]


def test_only_the_newest_ends_keep_their_nodes(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ends, "MOST_NODES_IN_ALL", 3)
    for minute in (3, 4, 5):
        lines = [
            intended(1, 1),
            submitted(1, 1),
            observed(1, AttemptState.RUNNING, 2, nodes=["n1", "n2"]),
            ended(1, Cause.NODE_FAIL, minute, ended_at=at(minute)),
        ]
        ledger.apply([change_of(make_run(tmp_path, name=f"until-{minute}"), lines, [])])
    found = ledger.ends(HARD, since=at(0), until=at(9))
    assert [len(end.nodes) for end in found] == [2, 0, 0]
