"""What is kept of an event ``usage``: what can be right, in a bounded size."""

from __future__ import annotations

import json
from dataclasses import fields

import pytest

from hpcflow.model.measured import Measured, kept_of, measured

SAID = {
    "at": "2026-03-01T12:00:00Z",
    "event": "usage",
    "seconds": 1800.0,
    "samples": 60,
    "nodes": 2,
    "asked": {"cpus": 8, "gpus": 4, "mem_mb": 200_000, "time_limit_min": 1440},
    "cores_mean": 2.5,
    "mem_peak_mb": 32_000,
    "mem_peak_node": "n2",
    "gpus": 8,
    "gpus_unused": 1,
    "gpus_unused_names": ["n2:3"],
}


def test_an_event_becomes_values_and_what_was_not_seen_is_none() -> None:
    found = measured(SAID)
    assert found is not None
    assert (found.cpus, found.gpus_per_node, found.mem_mb) == (8, 4, 200_000)
    assert (found.mem_peak_node, found.gpus_unused_names) == ("n2", ("n2:3",))
    assert (found.gpu_busy_mean, found.mem_by) == (None, None)


def test_what_was_kept_says_the_same_once_more() -> None:
    kept = kept_of(SAID)
    assert measured(json.loads(json.dumps(kept))) == measured(SAID)
    assert kept_of(kept) == kept


@pytest.mark.parametrize(
    "said",
    [
        None,
        [],
        "x",
        {},
        {"seconds": 0},
        {"seconds": -1},
        {"seconds": "1"},
        {"seconds": True},
        {"seconds": 1e300},
        {"seconds": 2**53},
        {"seconds": 10**400},
        {"seconds": float("nan")},
    ],
)
def test_what_says_nothing_is_nothing(said: object) -> None:
    assert measured(said) is None


def test_nonsense_beside_something_that_can_be_right_is_left_out() -> None:
    said = {
        **SAID,
        "cores_mean": "two",
        "mem_peak_mb": -5,
        "cpu_s": 1e300,
        "mem_peak_node": "n\0" * 500,
        "gpus_unused_names": ["a" * 500, 7] * 50,
        "asked": [1],
        "other": "x" * 10_000,
    }
    kept = kept_of(said)
    assert kept is not None
    assert not {"cores_mean", "mem_peak_mb", "cpu_s", "cpus", "other"} & set(kept)
    assert len(json.dumps(kept)) < 4096
    assert "\0" not in kept["mem_peak_node"]


@pytest.mark.parametrize("number", [1e308, -1e308, 10**400, -1, 2**53 - 1, 4e15, float("inf")])
@pytest.mark.parametrize("name", [each.name for each in fields(Measured) if each.name != "seconds"])
def test_a_number_that_cannot_be_right_is_left_out(name: str, number: float) -> None:
    kept = kept_of({"seconds": 1800.0, name: number})
    assert kept is not None
    assert name not in kept or (name in ("cpu_s", "samples") and 0 <= number < 2**53)


def test_percentages_and_parts_are_not_more_than_the_whole() -> None:
    kept = kept_of({**SAID, "gpu_busy_mean": 100.0, "gpu_busy_p95": 101, "gpus_idle": 9})
    assert kept is not None
    assert kept["gpu_busy_mean"] == 100
    assert not {"gpu_busy_p95", "gpus_idle"} & set(kept)
    assert kept["gpus_unused"] == 1


def test_all_that_was_measured_may_be_a_time() -> None:
    assert measured({"seconds": 5}) == Measured(5.0)
