"""From many samples to a few numbers, and from many nodes to one event of bounded size."""

from __future__ import annotations

import json
from itertools import pairwise

import pytest

from hpcflow.model.events import parse_event
from hpcflow.runtime.sampling import command
from hpcflow.runtime.sampling.gpus import GpuUse
from hpcflow.runtime.sampling.tally import Series, Tally, usage_event

TEN_DAYS_S = 10 * 24 * 3600.0
HALF_HOUR = [GpuUse(busy, 30_000, 80_000) for busy in (0, 40, 80) * 20]


def a_node(
    name: str, *gpus: list[GpuUse], mem_mb: float = 1000, cores: float = 2
) -> dict[str, object]:
    """A node that was looked at every half minute for half an hour."""
    tally = Tally()
    for number in range(1, 61):
        seen = {str(index): each[number - 1] for index, each in enumerate(gpus)}
        tally.add(30.0 * number, cpu_s=30.0 * number * cores, mem_mb=mem_mb, gpus=seen)
    return {"node": name, "mem_by": "cgroup", **tally.facts()}


def test_a_series_keeps_mean_highest_and_quantiles_in_constant_space() -> None:
    series = Series()
    for number in range(100_000):
        series.add(number % 1000)
    assert series.mean == pytest.approx(499.5)
    assert series.highest == 999
    assert series.quantile(0.5) == pytest.approx(500, rel=0.05)
    assert series.quantile(0.95) == pytest.approx(950, rel=0.05)
    assert len(series._kept) <= 256


def test_what_held_long_counts_more_than_what_was_seen_often() -> None:
    tally = Tally()
    for second in range(1, 11):
        tally.add(second, cpu_s=0.0, mem_mb=0)
    tally.add(110, cpu_s=100.0, mem_mb=0)
    assert tally.facts()["cores_mean"] == pytest.approx(100 / 110, abs=0.01)


def test_processes_that_are_forgotten_take_nothing_back() -> None:
    tally = Tally()
    for elapsed_s, cpu_s in ((10, 20.0), (20, 5.0), (30, 15.0)):
        tally.add(elapsed_s, cpu_s=cpu_s, mem_mb=100)
    assert tally.facts()["cpu_s"] == 30.0


def test_the_peak_between_two_looks_counts_and_the_mean_is_of_what_was_seen() -> None:
    tally = Tally()
    tally.add(10, cpu_s=None, mem_mb=100, mem_peak_mb=900)
    tally.add(20, cpu_s=None, mem_mb=200, mem_peak_mb=200)
    facts = tally.facts()
    assert (facts["mem_peak_mb"], facts["mem_mean_mb"]) == (900, 150)
    assert "cores_mean" not in facts, "nothing was known of it"


def test_one_event_says_it_of_all_nodes() -> None:
    half = [GpuUse(50, 60_000, 80_000)] * 60
    never = [GpuUse(0, 4, 80_000)] * 60
    stopped = [GpuUse(90, 60_000, 80_000)] * 30 + [GpuUse(0, 60_000, 80_000)] * 30
    nodes = [a_node("n1", half, HALF_HOUR), a_node("n2", never, stopped, mem_mb=4000, cores=6)]
    event = usage_event(nodes, {"cpus": 8, "gpus": 2})
    assert event["asked"] == {"cpus": 8, "gpus": 2}
    assert (event["seconds"], event["nodes"], event["gpus"]) == (1800, 2, 4)
    assert (event["cores_mean"], event["cores_p50"]) == (4, 6)
    assert (event["mem_peak_mb"], event["mem_peak_node"]) == (4000, "n2")
    assert event["gpu_busy_mean"] == pytest.approx((50 + 40 + 0 + 45) / 4)
    assert event["gpu_busy_least"] == 0
    assert (event["gpu_mem_peak_mb"], event["gpu_mem_total_mb"]) == (60_000, 80_000)
    assert event["gpus_unused_names"] == ["n2:0"]
    assert event["gpus_idle_names"] == ["n2:0", "n2:1"]


def test_a_gpu_that_does_not_answer_any_more_is_not_idle_for_that() -> None:
    """Its driver is lost in the middle of the job, and nobody knows what it does since."""
    tally = Tally()
    for number in range(1, 201):
        answers = {"0": GpuUse(90 if number < 20 else 0, 30_000, 80_000)} if number < 30 else {}
        tally.add(30.0 * number, cpu_s=None, mem_mb=1, gpus=answers)
    (gpu,) = tally.facts()["gpus"]
    assert gpu["idle_s"] == 300.0, "from the last look that saw it at work to the last one at all"
    assert "gpus_idle" not in usage_event([tally.facts()], {})


def test_too_few_looks_prove_no_gpu_unused() -> None:
    tally = Tally()
    for number in range(1, 5):
        tally.add(number, cpu_s=None, mem_mb=1, gpus={"0": GpuUse(0, 4, 80_000)})
    assert "gpus_unused" not in usage_event([tally.facts()], {})


def test_an_event_has_a_bounded_size_however_many_gpus_there_are() -> None:
    never = [GpuUse(0, 4, 80_000)] * 60
    nodes = [a_node("node" * 20 + str(number), *[never] * 8) for number in range(200)]
    event = usage_event(nodes, {"cpus": 8, "gpus": 8})
    assert event["gpus_unused"] == 1600
    assert len(json.dumps(event)) < 4096


@pytest.mark.parametrize(
    "damaged",
    [
        {},
        {"seconds": "x"},
        {"seconds": 5, "gpus": [{}]},
        {"seconds": 5, "gpus": [5]},
        {"seconds": 5, "gpus": "x"},
        {"seconds": 5, "gpus": [{"mem_total_mb": 5}]},
    ],
)
def test_a_node_that_wrote_nonsense_spoils_nothing(damaged: dict[str, object]) -> None:
    event = usage_event([a_node("n1"), damaged], {})
    assert event["mem_peak_mb"] == 1000


def test_ten_days_are_some_hundred_events() -> None:
    elapsed_s, written_s, events, samples = 0.0, None, 0, 0
    while elapsed_s < TEN_DAYS_S:
        elapsed_s += command.next_sample_s(elapsed_s)
        samples += 1
        if command.is_event_due(elapsed_s, written_s):
            written_s, events = elapsed_s, events + 1
    assert 28_000 < samples < 30_000
    assert 400 < events < 512
    assert events * 4096 < 2 << 20


def test_a_file_of_ten_seconds_is_there_and_then_one_each_minute() -> None:
    elapsed_s = 0.0
    written: list[float] = []
    while elapsed_s < 600:
        elapsed_s += command.next_sample_s(elapsed_s)
        if command.is_file_due(elapsed_s, written[-1] if written else None):
            written.append(elapsed_s)
    assert 10 <= written[0] < 20
    gaps = [later - earlier for earlier, later in pairwise(written)]
    assert max(gaps) <= 90


@pytest.mark.parametrize(
    ("now", "written", "is_more"),
    [
        ((710,), (100,), True),
        ((104,), (100,), False),
        ((100, 106), (100, 100), True),
        ((100, 5), (100,), True),
        ((100,), (100,), False),
        ((90,), (100, 100), False),
    ],
)
def test_a_peak_that_grew_is_worth_a_file(
    now: tuple[int, ...], written: tuple[int, ...], is_more: bool
) -> None:
    assert command.has_grown(now, written) is is_more


def test_the_login_side_takes_it_for_an_event() -> None:
    event = {"at": "2026-01-01T00:00:00Z", "event": "usage", **usage_event([a_node("n1")], {})}
    assert parse_event(json.dumps(event).encode()) == event
