"""What reports of costs ask the ledger, on SQLite and on Postgres."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import to_text
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.rows import MirroredRow, PartRow
from hpcflow.ledger.store import Ledger
from hpcflow.model.journal import BillPart
from hpcflow.model.run import Mirror
from hpcflow.model.state import AttemptState, Cause
from tests.ledger.lines import (
    accounted,
    at,
    checkpoint,
    ended,
    intended,
    observed,
    removed,
    submitted,
)
from tests.ledger.test_store import change_of
from tests.storage.runs import make_run


def lived(attempt: int, end: float) -> list[bytes]:
    begin = end - 60
    return [
        intended(attempt, begin),
        submitted(attempt, begin),
        observed(attempt, AttemptState.RUNNING, begin, started_at=at(begin)),
        ended(attempt, Cause.PREEMPTED, end, ended_at=at(end)),
    ]


def fill(ledger: Ledger, tmp_path: Path) -> tuple[str, str]:
    """One run with two attempts that are over, and one that runs; and one of another project."""
    mirror = Mirror(url="s3://lab/ada/")
    one = make_run(tmp_path).model_copy(update={"mirror": mirror})
    other = make_run(tmp_path, project="speech").model_copy(update={"site": "elsewhere"})
    runs = intended(3, 200), submitted(3, 200), observed(3, AttemptState.RUNNING, 201)
    lines = [*lived(2, 120), accounted(2, "1.50000001"), *lived(1, 60), *runs]
    ledger.apply([change_of(one, lines, []), change_of(other, lived(1, 60), [])])
    return one.run_id, other.run_id


def test_bills_are_of_what_has_ended_in_this_time(ledger: Ledger, tmp_path: Path) -> None:
    one, other = fill(ledger, tmp_path)
    found = ledger.bills(since=at(0), until=at(1000), filters={})
    assert [(row.run_id, row.attempt) for row in found] == sorted([(one, 1), (one, 2), (other, 1)])
    (row,) = ledger.bills(since=at(61), until=at(1000), filters={"project": "vision"})
    assert (row.attempt, row.project, row.user, row.site) == (2, "vision", "ada", "devcluster")
    assert (row.cause, row.ended_at, row.billed_by) == ("preempted", at(120), "accounting")
    assert (Decimal(row.cost_usd or 0), row.cost_su) == (Decimal("1.50000001"), None)
    assert (row.elapsed_s, row.gpu_hours, row.gpu_type) == (3600, 8, "")
    assert ledger.bills(since=at(0), until=at(60), filters={}) == []
    assert ledger.bills(since=at(0), until=at(99), filters={"user_name": "grace"}) == []


def test_an_attempt_that_went_elsewhere_had_the_gpus_that_its_bill_says(
    ledger: Ledger, tmp_path: Path
) -> None:
    run = make_run(tmp_path)
    bills = [accounted(1, "1", "gpu:h100", "cpu"), accounted(2, "1", "gpu", "node")]
    bills += [accounted(3, "1", "gpu:l4", "cpu", "gpu:h100"), accounted(4, "1", "cpu")]
    lives = [line for number in range(1, 6) for line in lived(number, 60 * number)]
    ledger.apply([change_of(run, [*lives, *bills], [])])
    found = ledger.bills(since=at(0), until=at(999), filters={})
    # Where Slurm does not tell the type, nobody knows it; without a bill it is what was meant.
    assert [row.gpu_type for row in found] == ["h100", "?", "h100,l4", "", "a100"]


def test_an_attempt_has_the_account_and_the_parts_that_its_bill_says(
    ledger: Ledger, tmp_path: Path
) -> None:
    run = make_run(tmp_path)
    gpu = BillPart(
        partition="gpu", account="physics", gpu_hours=Decimal(2), cost_usd=Decimal("6.50")
    )
    spot = BillPart(partition="spot", account="b\0", gpu_type="a100", gpu_hours=Decimal(1))
    lives = [line for number in range(1, 4) for line in lived(number, 60 * number)]
    bills = [
        accounted(1, "6", parts=[gpu, spot], account="physics"),
        accounted(2, "1", account="biology"),
    ]
    asked = intended(4, 200, account="physics"), submitted(4, 200)
    ledger.apply([change_of(run, [*lives, *bills, *asked, ended(4, Cause.FAILED, 210)], [])])
    found = ledger.bills(since=at(0), until=at(999), filters={})
    assert [row.account for row in found] == ["physics", "biology", None, "physics"]
    assert [row.parts for row in found] == [
        [
            PartRow("gpu", "physics", None, 2.0, "6.50", None, None),
            PartRow("spot", "b\ufffd", "a100", 1.0, None, None, None),
        ],
        *(None, None, None),
    ]
    assert ledger.known([run.run_id])[run.run_id].attempts[0].parts == found[0].parts


def test_what_is_next_to_nothing_is_plain_digits_in_every_database(
    ledger: Ledger, tmp_path: Path
) -> None:
    run = make_run(tmp_path)
    ledger.apply([change_of(run, [*lived(1, 60), accounted(1, "0.00000050")], [])])
    (row,) = ledger.bills(since=at(0), until=at(99), filters={})
    assert row.cost_usd == "0.00000050"
    assert ledger.run(run.run_id).run.cost_usd == "0.00000050"


def test_jobs_are_those_that_run_too(ledger: Ledger, tmp_path: Path) -> None:
    one, other = fill(ledger, tmp_path)
    found = ledger.jobs(user="ada")
    assert {(row.run_id, row.attempt, row.job_id, row.site) for row in found} == {
        *((one, number, f"10{number}", "devcluster") for number in (1, 2, 3)),
        (other, 1, "101", "elsewhere"),
    }
    assert ledger.jobs(user="grace") == []


def test_who_keeps_checkpoints_where(ledger: Ledger, tmp_path: Path) -> None:
    one, _ = fill(ledger, tmp_path)
    assert ledger.sites(filters={}) == ["devcluster", "elsewhere"]
    assert ledger.sites(filters={"project": "speech"}) == ["elsewhere"]
    (row,) = ledger.storing(["devcluster"], filters={"user_name": "ada"})
    assert (row.run_id, row.mirror_url, row.sweep) == (one, "s3://lab/ada", None)
    assert ledger.storing([], filters={}) == []


def test_who_is_at_work_is_found_without_what_only_may_go_on(
    ledger: Ledger, tmp_path: Path
) -> None:
    waiting, over = fill(ledger, tmp_path)
    run = make_run(tmp_path)
    begun = (
        intended(2, 70),
        submitted(2, 70),
        observed(2, AttemptState.RUNNING, 71, started_at=at(71)),
    )
    ledger.apply([change_of(run, [*lived(1, 60), *begun], [])])
    rows = ledger.spending_under_way(user="ada")
    assert [(row.run_id, row.attempt, row.is_over) for row in rows] == [
        (run.run_id, 1, True),
        (run.run_id, 2, False),
    ]
    assert ledger.spending_under_way(user="grace") == []
    unsettled = {row.run_id for row in ledger.spending_unsettled(user="ada")}
    assert unsettled == {waiting, over, run.run_id}


def saved(
    ledger: Ledger, tmp_path: Path, events: list[bytes], *mirrored: MirroredRow, ends: bool = True
) -> str:
    """A run that was over, or goes on, after 60 minutes, with these words of its job."""
    run = make_run(tmp_path)
    cause = Cause.COMPLETED if ends else Cause.PREEMPTED
    begin = [intended(1), submitted(1), observed(1, AttemptState.RUNNING, 0, started_at=at(0))]
    lines = [*begin, ended(1, cause, 60, ended_at=at(60))]
    of_run = [replace(row, run_id=run.run_id) for row in mirrored]
    ledger.apply([change_of(run, lines, events, mirrored=of_run)])
    return run.run_id


def in_store(what: str, minutes: float, step: int = 10) -> MirroredRow:
    return MirroredRow("", f"checkpoints/{step}", step, what, "s3://lab/ada", 9000, at(minutes))


def test_what_was_over_and_left_scratch_before_is_known(ledger: Ledger, tmp_path: Path) -> None:
    made, gone = checkpoint(10, 1), removed(10, 30)
    empty = saved(ledger, tmp_path, [])
    pruned = saved(ledger, tmp_path, [made, gone])
    saved(ledger, tmp_path, [made])  # it is there still
    saved(ledger, tmp_path, [made, gone, checkpoint(20, 31)])
    saved(ledger, tmp_path, [made, gone], ends=False)
    saved(ledger, tmp_path, [made, gone], in_store("mirrored", 2))  # it may have come back
    assert ledger.left(["devcluster"], at(61))[1] == {empty, pruned}
    assert ledger.left(["devcluster"], at(60)) == (set(), set()), "it was not over yet"
    assert ledger.left(["elsewhere"], at(61)) == (set(), set())
    assert ledger.left([], at(61)) == (set(), set())


def test_what_a_store_has_had_and_has_no_more_is_known(ledger: Ledger, tmp_path: Path) -> None:
    gone = saved(ledger, tmp_path, [], in_store("removed", 70), in_store("removed", 71, 20))
    saved(ledger, tmp_path, [])  # nobody knows whether the mirror has been there
    saved(ledger, tmp_path, [], in_store("removed", 70), in_store("mirrored", 71, 20))
    saved(ledger, tmp_path, [], in_store("failed", 70))
    saved(ledger, tmp_path, [], in_store("removed", 70), ends=False)
    assert ledger.left(["devcluster"], at(72))[0] == {gone}
    assert ledger.left(["devcluster"], at(71))[0] == set()


def test_bills_due_in_the_far_future_come_last(ledger: Ledger, tmp_path: Path) -> None:
    """Another user could put any number of them into a shared ledger."""
    mine, other = make_run(tmp_path), make_run(tmp_path)
    ledger.apply([change_of(run, lived(1, 60), []) for run in (mine, other)])
    sql = "UPDATE attempt SET bill_due_at = ? WHERE run_id = ?"
    for run_id, due in ((mine.run_id, at(0)), (other.run_id, at(0).replace(year=9999))):
        ledger.connection().execute(sql, [to_text(due), run_id])
    found = ledger.due_bills(at(200), user="ada", limit=1)
    assert [each.attempt.run_id for each in found] == [mine.run_id]


@pytest.mark.parametrize("databases", ["sqlite"], indirect=True)  # Postgres reads a small table
def test_bills_are_found_without_reading_all_attempts(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    plans: list[str] = []
    rows = Connection.rows

    def explained(connection: Connection, sql: str, values: Sequence[object] = ()) -> list[Any]:
        if "FROM attempt" in sql:
            plans.extend(row[3] for row in rows(connection, f"EXPLAIN QUERY PLAN {sql}", values))
        return rows(connection, sql, values)

    monkeypatch.setattr(Connection, "rows", explained)
    ledger.due_bills(at(200), user="ada", limit=1)
    assert plans
    assert [each for each in plans if each.startswith("SCAN attempt")] == []
