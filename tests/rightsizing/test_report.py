"""Sums across runs: hours had and used, and who wastes most."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from hpcflow.ledger.used import UsedRow
from hpcflow.rightsizing.report import BY, report
from hpcflow.rightsizing.use import use_of, uses_of

NOON = datetime(2026, 7, 1, 12, tzinfo=timezone.utc)
USAGE = {
    "seconds": 3600.0,
    "nodes": 2,
    "samples": 120,
    "cpus": 16,
    "mem_mb": 102_400,
    "time_limit_min": 240,
    "cores_mean": 4.0,
    "mem_peak_mb": 25_600,
    "gpus": 8,
    "gpu_busy_mean": 25.0,
}
#: An hour on two nodes of four GPUs.
ROW = UsedRow(
    run_id="a-1",
    project="vision",
    user="ada",
    site="devcluster",
    partition="gpu",
    nodes=2,
    gpus=8,
    gpu_type="a100",
    resources={"tasks_per_node": None, "cpus_per_task": None, "mem_mb": None},
    attempt=1,
    account="physics",
    state="ended",
    cause="completed",
    started_at=NOON,
    ended_at=NOON + timedelta(hours=1),
    elapsed_s=None,
    journal={},
    report={"usage": USAGE, "usage_at": "2026-07-01T13:00:00Z"},
)


#: What another user may write into a row of a shared ledger, which stands there as JSON.
DAMAGED: dict[str, dict[str, Any]] = {
    "no nodes": {"nodes": 0},
    "cpus that are text": {"resources": {"tasks_per_node": "x", "cpus_per_task": "x"}},
    "cpus that are none": {"resources": {"cpus_per_task": {"a": 1}}},
    "ranks that are text": {"resources": {"tasks_per_node": "x" * 9, "cpus_per_task": 10**7}},
    "cpus that are true": {"resources": {"cpus_per_task": True}},
    "cpus of a planet": {"resources": {"cpus_per_task": 10**7}},
    "less than no ranks": {"resources": {"tasks_per_node": -1}},
    "a time limit without end": {"resources": {"time_limit_min": 10**400}},
    "memory of a planet": {"resources": {"mem_mb": 10**400}},
    "a share of a node": {"journal": {"accounted": {"source": "accounting", "nodes": 0.5}}},
    "GPUs of a planet": {
        "journal": {"accounted": {"source": "accounting", "gpus": {"a": 10**400}}}
    },
    "steps without end": {
        "report": {
            "trained_at": "2026-07-01T12:00:00Z",
            "progress_at": "2026-07-01T13:00:00Z",
            "train_step": 10**400,
        }
    },
    "memory without end": {"resources": {"mem_mb": float("inf")}, "report": {}},
    "a time limit that is none": {"resources": {"time_limit_min": "a"}, "report": {}},
    "a bill that is none": {"journal": {"accounted": 7}},
    "GPUs that are none": {"journal": {"accounted": {"source": "accounting", "gpus": {"a": "x"}}}},
    "a list of GPUs": {"journal": {"accounted": {"source": "accounting", "gpus": [1]}}},
    "a time that is none": {"report": {"trained_at": 5}},
    "steps that are none": {
        "report": {
            "trained_at": "2026-07-01T12:00:00Z",
            "progress_at": "2026-07-01T13:00:00Z",
            "train_step": "x",
        }
    },
}


@pytest.mark.parametrize("what", DAMAGED)
def test_a_row_of_another_user_that_says_nothing_hides_no_other(what: str) -> None:
    evil = replace(ROW, user="eve", **DAMAGED[what])
    found, damaged = uses_of([evil, ROW], NOON)
    assert [row.user for row, _ in found] == ["ada"]
    assert damaged == [evil]


def summed(*rows: UsedRow, key: str = "user") -> Any:
    return report([(row, use_of(row, NOON)) for row in rows], key)


def test_hours_had_and_used_are_of_all_nodes() -> None:
    (line,), total = summed(ROW)
    assert (line.by, line.attempts, line.measured) == ("ada", 1, 1)
    assert (line.gpu_hours, line.gpu_hours_had, line.gpu_hours_used) == (8, 8, 2)
    assert (line.cpu_hours_had, line.cpu_hours_used) == (32, 8)
    assert (line.mem_gib_hours_had, line.mem_gib_hours_used) == (200, 50)
    assert (line.limit_hours, line.limit_hours_used) == (4, 1)
    assert replace(total, by="ada") == line


def test_who_wastes_most_comes_first_and_what_was_not_measured_is_not_waste() -> None:
    unseen = replace(ROW, run_id="c-1", user="carl", gpus=800, report={})
    busy = {**ROW.report, "usage": {**USAGE, "gpu_busy_mean": 100.0}}
    lines, total = summed(replace(ROW, run_id="b-1", user="bob", report=busy), unseen, ROW)
    assert [line.by for line in lines] == ["ada", "bob", "carl"]
    assert [line.gpu_hours_wasted for line in lines] == [6, 0, 0]
    assert (total.attempts, total.measured, total.gpu_hours) == (3, 2, 816)
    assert total.gpu_hours_had == 16


def test_what_was_not_seen_of_an_attempt_is_not_waste_either() -> None:
    """Only its first node told anything."""
    head = {**ROW.report, "usage": {**USAGE, "nodes": 1, "gpus": 4, "gpu_busy_mean": 0.0}}
    (line,), _ = summed(replace(ROW, report=head))
    assert (line.gpu_hours, line.gpu_hours_had, line.gpu_hours_used) == (8, 4, 0)
    assert (line.cpu_hours_had, line.cpu_hours_used) == (16, 4)
    assert (line.mem_gib_hours_had, line.mem_gib_hours_used) == (100, 25)


@pytest.mark.parametrize(
    ("key", "value"), [("project", "vision"), ("partition", "gpu"), ("account", "physics")]
)
def test_every_key_has_its_value(key: str, value: str) -> None:
    assert key in BY
    assert [line.by for line in summed(ROW, key=key)[0]] == [value]


def test_what_accounting_says_goes_before_what_was_asked_for() -> None:
    bill = {"source": "accounting", "nodes": 1, "cpus": 32, "mem_mb": 8000, "gpus": {"a100": 4}}
    unseen = replace(ROW, report={}, journal={"accounted": bill}, elapsed_s=7200.0)
    use = use_of(unseen, NOON)
    assert (use.nodes, use.gpus, use.cpus, use.mem_mb) == (1, 4, 32, 8000)
    assert (use.elapsed_s, use.measured) == (7200, None)


def test_an_attempt_that_runs_has_run_until_now() -> None:
    use = use_of(replace(ROW, state="running", ended_at=None), NOON + timedelta(minutes=30))
    assert (use.is_running, use.elapsed_s) == (True, 1800)


def test_train_steps_and_waiting_are_shares_of_the_time_until_the_last_one_that_was_told() -> None:
    told = {
        "trained_at": "2026-07-01T12:00:00Z",
        "progress_at": "2026-07-01T12:10:00Z",
        "usage_at": "2026-07-01T12:09:00Z",
        "exited_at": "2026-07-01T12:40:00Z",
        "began_at": 100,
        "train_step": 400,
        "data_wait_s": 150.0,
        "loader_workers": 2,
    }
    use = use_of(replace(ROW, report=told), NOON)
    assert (use.steps_per_s, use.data_wait, use.loader_workers) == (0.5, 0.25, 2)
    assert use.trained_s == 600
    for facts, trained_s in (
        ({"trained_at": "nonsense"}, None),
        ({"usage_at": "2026-07-01T12:09:00Z"}, None),
        ({**told, "progress_at": told["trained_at"]}, 0),
        ({"trained_at": told["trained_at"], "exited_at": told["exited_at"]}, 0),
    ):
        use = use_of(replace(ROW, report=facts), NOON)
        assert (use.trained_s, use.steps_per_s, use.data_wait) == (trained_s, None, None)
