"""What is advised, on which evidence, and what is said where there is none: a table."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hpcflow.model.measured import Measured
from hpcflow.model.units import parse_duration_min
from hpcflow.rendering.directives import notice_before_s
from hpcflow.rightsizing.advice import advise
from hpcflow.rightsizing.use import Use

GIB = 1024
SEEN = Measured(
    seconds=7200.0,
    samples=250,
    nodes=1,
    cores_mean=2.0,
    cores_p50=2.0,
    cores_p95=3.0,
    mem_peak_mb=32 * GIB,
    mem_by="cgroup",
    gpus=4,
    gpu_busy_mean=90.0,
    gpu_busy_least=88.0,
    gpu_mem_peak_mb=60 * GIB,
    gpu_mem_total_mb=80 * GIB,
)
#: A run of two hours that asked for a node of 4 GPUs, 200 GiB and a day.
USE = Use(
    attempt=1,
    cause="completed",
    is_running=False,
    elapsed_s=7200.0,
    nodes=1,
    gpus=4,
    tasks=4,
    cpus=16,
    mem_mb=200 * GIB,
    time_limit_min=1440,
    measured=SEEN,
)
CPU_ONLY = replace(USE, gpus=0, tasks=1)


def seen(use: Use = USE, **changes: Any) -> Use:
    return replace(use, measured=replace(SEEN, **changes))


def told(*uses: Use, **site: Any) -> tuple[dict[str, str], dict[str, str]]:
    """What is advised and what is not: its subject -> the words."""
    found = advise(uses, **{"notice_s": 120, **site})
    return {each.what: each.text for each in found.advice}, {
        each.what: each.why for each in found.nothing
    }


def value(what: str, *uses: Use, **site: Any) -> tuple[str | None, str | None]:
    """Key and value that are advised."""
    advised = advise(uses, **{"notice_s": 120, **site}).advice
    (found,) = [each for each in advised if each.what == what]
    return found.key, found.value


def test_a_run_that_asked_for_too_much_is_told_so_in_numbers() -> None:
    advice, _ = told(USE)
    assert advice == {
        "memory": "ask for 40G, not 200G: the most on a node was 32.0 GiB (and a quarter more)",
        "time limit": "ask for 165m, not 1d: it took 2h 00m (and a quarter more, and time for the "
        "notice); shorter jobs start sooner",
        "CPU cores": "ask for 1 for each rank, not 4: 95 % of the time no more than 3.0 of 16 "
        "cores of a node were at work (and a quarter more)",
    }
    assert value("memory", USE) == ("resources.mem", "40G")
    assert value("time limit", USE) == ("resources.time_limit", "165m")
    assert value("CPU cores", USE) == ("resources.cpus_per_task", "1")


def test_a_run_that_fits_is_left_alone_and_told_why() -> None:
    fits = replace(USE, mem_mb=40 * GIB, time_limit_min=150, cpus=4)
    advice, why = told(fits)
    assert advice == {}
    assert why == {
        "memory": "40G fits: the most on a node was 32.0 GiB",
        "time limit": "150m fits: it took 2h 00m",
        "CPU cores": "1 for a rank fit: 95 % of the time no more than 3.0 of 4 cores of a node "
        "were at work",
        "GPUs": "each of 4 was used",
        "GPU time": "busy 90 % of the time",
        "GPU memory": "60.0 of 80 GiB",
    }


@pytest.mark.parametrize(
    ("uses", "what", "why"),
    [
        ([replace(USE, measured=None)], "memory", "it was not measured"),
        ([replace(USE, measured=None)], "CPU cores", "it was not measured"),
        ([replace(USE, measured=None)], "GPUs", "it was not measured"),
        ([replace(USE, mem_mb=None)], "memory", "no amount was asked for"),
        ([replace(USE, time_limit_min=None)], "time limit", "none was asked for"),
        (
            [replace(USE, elapsed_s=None, cause="preempted"), USE],
            "time limit",
            "its duration is not known",
        ),
        (
            [replace(seen(seconds=600.0), cause="failed")],
            "memory",
            "no attempt has completed, or run for half an hour",
        ),
        (
            [replace(seen(seconds=9.0, samples=3), elapsed_s=9.0)],
            "CPU cores",
            "no attempt has completed, or run for half an hour",
        ),
        ([replace(USE, cause="failed")], "time limit", "the run has not completed"),
        (
            [replace(USE, cause="timeout")],
            "time limit",
            "it was reached, and the run continued from its checkpoint",
        ),
        ([seen(seconds=200.0)], "GPUs", "no attempt has run for five minutes"),
        (
            [seen(gpus=None)],
            "GPUs",
            "they were not measured: the nodes' NVIDIA driver did not answer",
        ),
        ([seen(gpu_busy_mean=None)], "GPU time", "the driver does not report their utilization"),
        ([seen(cores_p95=None)], "CPU cores", "it was not measured"),
        ([], "memory", "no amount was asked for"),
    ],
)
def test_without_evidence_there_is_no_advice_and_it_is_said_why(
    uses: list[Use], what: str, why: str
) -> None:
    advice, nothing = told(*uses)
    assert what not in advice
    assert nothing[what] == why


def test_an_attempt_that_ran_long_is_evidence_though_it_failed() -> None:
    assert value("memory", replace(USE, cause="failed")) == ("resources.mem", "40G")


def test_the_most_of_all_attempts_counts() -> None:
    assert value("memory", seen(mem_peak_mb=100 * GIB), USE) == ("resources.mem", "128G")


@pytest.mark.parametrize("cause", ["failed", "preempted", "node_failed"])
def test_what_a_short_attempt_was_seen_to_need_is_needed_all_the_same(cause: str) -> None:
    """The one that completed was restarted near its end."""
    short = replace(
        seen(seconds=600.0, mem_peak_mb=100 * GIB, cores_p95=7.0), cause=cause, elapsed_s=600.0
    )
    assert value("memory", short, USE) == ("resources.mem", "128G")
    assert value("CPU cores", short, replace(USE, cpus=64)) == ("resources.cpus_per_task", "3")


def test_cores_are_not_doubled_for_a_short_attempt() -> None:
    short = replace(
        seen(seconds=60.0, cores_p50=16.0, cores_p95=16.0, gpu_busy_mean=20.0), cause="failed"
    )
    advice, why = told(short, USE)
    assert "CPU cores" not in advice
    assert why["CPU cores"] == "all 16 cores of a node were at work, in a short attempt"


@pytest.mark.parametrize(
    ("seconds", "elapsed_s", "is_running", "is_enough"),
    [
        (6500.0, 7200.0, False, True),
        (6400.0, 7200.0, False, False),  # of the last 13 minutes, nobody knows anything
        (20.0, 130.0, False, True),
        (5500.0, 7200.0, True, True),  # the next time it tells is still to come
        (3600.0, 7200.0, True, False),
        (6500.0, None, False, False),
    ],
)
def test_memory_is_advised_only_where_the_end_was_watched(
    seconds: float, elapsed_s: float | None, is_running: bool, is_enough: bool
) -> None:
    use = replace(seen(seconds=seconds), elapsed_s=elapsed_s, is_running=is_running)
    advice, why = told(use)
    assert ("memory" in advice) is is_enough
    if not is_enough:
        assert why["memory"] == ("no attempt was measured to its end, where the peak often is")


def test_attempts_of_different_sizes_do_not_add_up_to_a_time_limit() -> None:
    """What many nodes did in an hour, one does not."""
    large = replace(USE, nodes=8, gpus=32, cause="cancelled")
    advice, why = told(large, USE)
    assert "time limit" not in advice
    assert why["time limit"] == "its attempts had different numbers of nodes or GPUs"


def test_a_run_in_several_attempts_needs_the_time_of_all() -> None:
    first = replace(USE, cause="preempted")
    assert value("time limit", first, USE) == ("resources.time_limit", "315m")
    advice, _ = told(first, USE)
    assert "4h 00m in 2 attempts" in advice["time limit"]


@pytest.mark.parametrize("notice_s", [1, 120, 600, 7200, None])
@pytest.mark.parametrize("took_s", [30.0, 200.0, 500.0, 3000.0, 7200.0, 60_000.0])
def test_the_time_limit_that_is_advised_is_long_enough_until_its_notice(
    took_s: float, notice_s: int | None
) -> None:
    use = replace(USE, elapsed_s=took_s, time_limit_min=14_400)
    _, better = value("time limit", use, notice_s=notice_s)
    limit_min = parse_duration_min(better or "")
    early_s = 60
    notice_at_s = limit_min * 60 - notice_before_s(notice_s or 14_400, limit_min) - early_s
    assert notice_at_s >= took_s * 1.25


@pytest.mark.parametrize(
    ("use", "better"),
    [
        (replace(USE, cause="out_of_memory"), "304G"),
        (seen(replace(USE, mem_mb=33 * GIB)), "40G"),  # nearly all of it
        (seen(mem_peak_mb=300), "512M"),
        (seen(mem_peak_mb=100), "256M"),
    ],
)
def test_memory_is_rounded_up_and_too_little_is_told_too(use: Use, better: str) -> None:
    assert value("memory", use) == ("resources.mem", better)


def test_an_attempt_that_had_more_since_it_ran_out_of_memory_counts() -> None:
    died = replace(USE, cause="out_of_memory", mem_mb=20 * GIB, measured=None)
    assert value("memory", died, USE) == ("resources.mem", "40G")
    died = replace(died, mem_mb=64 * GIB)
    assert value("memory", died, USE) == ("resources.mem", "96G")
    assert "32.0 GiB (but an attempt ran out of 64G)" in told(died, USE)[0]["memory"]
    assert told(died, replace(USE, mem_mb=100 * GIB))[1]["memory"].startswith("100G fits")
    less = replace(USE, mem_mb=40 * GIB)
    assert value("memory", died, less) == ("resources.mem", "96G")
    assert "ran out of 64G (half as much again)" in told(died, less)[0]["memory"]


def test_where_nodes_come_whole_nothing_of_a_node_is_advised() -> None:
    advice, why = told(USE, whole_nodes=True)
    assert set(advice) == {"time limit"}
    assert why["memory"] == why["CPU cores"] == "this partition gives whole nodes only"


@pytest.mark.parametrize(
    ("use", "key", "better", "text"),
    [
        (
            seen(gpus_unused=1, gpus_unused_names=("n1:3",)),
            "resources.gpus_per_node",
            "3",
            "GPU n1:3 was never used; ask for 3 on a node, not 4",
        ),
        (
            seen(
                replace(USE, nodes=2, gpus=8),
                gpus=8,
                gpus_unused=4,
                gpus_unused_names=("n2:0", "n2:1", "n2:2", "n2:3"),
            ),
            "resources.nodes",
            "1",
            "4 GPUs were never used: n2:0, n2:1, n2:2, n2:3; ask for 1 node, not 2",
        ),
        (
            seen(
                replace(USE, nodes=2, gpus=8),
                gpus=8,
                gpus_unused=3,
                gpus_unused_names=("n1:2", "n1:3", "n2:3"),
            ),
            "resources.gpus_per_node",
            "3",
            "3 GPUs were never used: n1:2, n1:3, n2:3; ask for 3 on a node, not 4",
        ),
        (
            seen(replace(USE, nodes=2, gpus=8), gpus=8, gpus_unused=1, gpus_unused_names=("n2:3",)),
            None,
            None,
            "GPU n2:3 was never used; check what the ranks of that node do",
        ),
        (
            seen(
                gpus_unused=4,
                gpus_unused_names=("n1:0", "n1:1", "n1:2", "n1:3"),
                gpu_mem_peak_mb=600,  # what the driver keeps
            ),
            "resources.gpus_per_node",
            "0",
            "no GPU was ever used (n1:0, n1:1, n1:2, n1:3): ask for none",
        ),
    ],
)
def test_gpus_that_were_never_used_are_named(
    use: Use, key: str | None, better: str | None, text: str
) -> None:
    assert value("GPUs", use) == (key, better)
    assert told(use)[0]["GPUs"] == text


def test_a_loop_that_waits_for_data_is_told_how_long_and_by_how_many_workers() -> None:
    use = replace(seen(gpu_busy_mean=40.0), data_wait=0.43, loader_workers=2, trained_s=7000.0)
    advice, why = told(use)
    assert advice["loader"] == (
        "2 loader workers starve the GPU: training waited 43 % of its time for data; "
        "try num_workers=4 (the job has 16 cores on a node)"
    )
    assert "CPU cores" not in advice, "more workers need them"
    assert "but training waits for data" in why["CPU cores"]
    many = replace(use, loader_workers=4)
    assert value("loader", many) == ("resources.cpus_per_task", "8")
    assert "the job has 16 cores on a node; ask for 8 for each rank" in told(many)[0]["loader"]
    untold = replace(use, loader_workers=None)
    assert told(untold)[0]["loader"] == "training waited 43 % of its time for data"
    assert "loader" not in told(replace(use, data_wait=0.05))[0]
    assert "loader" not in told(replace(use, measured=SEEN))[0], "the GPUs are busy all the same"


def test_the_first_minutes_of_a_training_starve_nobody() -> None:
    """Until the data set is in the memory of the node, every loop waits."""
    begun = replace(seen(gpu_busy_mean=40.0), data_wait=0.8, loader_workers=2, trained_s=500.0)
    advice, why = told(begun)
    assert "loader" not in advice
    assert why["loader"] == "no attempt has trained for ten minutes"
    advice, _ = told(replace(begun, data_wait=0.3, trained_s=7000.0), begun)
    assert "training waited 30 % of its time" in advice["loader"]


NEVER: dict[str, Any] = {
    "gpus_unused": 4,
    "gpus_unused_names": ("n1:0", "n1:1", "n1:2", "n1:3"),
    "gpu_mem_peak_mb": 4,
}


@pytest.mark.parametrize(
    ("use", "why"),
    [
        (
            replace(seen(seconds=301.0, **NEVER), is_running=True, cause=None, elapsed_s=310.0),
            "no attempt has completed, or run for half an hour",
        ),
        (
            replace(seen(**NEVER), is_running=True, cause=None),
            "none was used so far: the program may still be preparing",
        ),
    ],
)
def test_gpus_of_a_job_that_still_prepares_are_not_taken_from_it(use: Use, why: str) -> None:
    advice, nothing = told(use)
    assert "GPUs" not in advice
    assert nothing["GPUs"] == why


@pytest.mark.parametrize("cause", ["failed", "cancelled", "preempted", "timeout"])
def test_gpus_of_an_attempt_that_ended_before_its_training_began_are_not_taken_from_the_next(
    cause: str,
) -> None:
    prepared = replace(seen(**NEVER), cause=cause)
    advice, nothing = told(prepared)
    assert "GPUs" not in advice
    assert nothing["GPUs"] == "none was used before it ended: it may have ended before its training"
    trained = replace(prepared, trained_s=7000.0)
    assert value("GPUs", trained) == ("resources.gpus_per_node", "0")


def test_a_gpu_that_holds_a_model_is_used_however_rarely() -> None:
    """A look sees a second of thirty: what executes for a moment each minute may never be seen."""
    advice, nothing = told(seen(**{**NEVER, "gpu_mem_peak_mb": 6 * GIB}))
    assert "GPUs" not in advice
    assert nothing["GPUs"] == "no activity was measured, but 6.0 GiB of a GPU were in use"


def test_where_only_some_nodes_were_seen_nothing_is_taken_from_the_others() -> None:
    """As where a program on the first node starts its workers on the others itself."""
    head = replace(seen(mem_peak_mb=100, cores_p50=0.1, cores_p95=0.1, **NEVER), nodes=4, gpus=16)
    advice, nothing = told(head)
    assert set(advice) == {"time limit"}
    assert nothing["memory"] == nothing["CPU cores"] == "only 1 of 4 nodes was measured"
    assert (
        nothing["GPUs"] == "only 4 of 16 were measured; of those never used: n1:0, n1:1, n1:2, n1:3"
    )
    used = replace(head, measured=replace(SEEN, gpu_mem_peak_mb=10 * GIB))
    assert told(used)[1]["GPUs"] == "only 4 of 16 were measured"
    assert told(used)[1]["GPU memory"] == "only 4 of 16 GPUs were measured"
    full = replace(used, mem_mb=33 * GIB)
    assert value("memory", full) == ("resources.mem", "40G"), "too little is too little"


def test_gpus_that_a_training_does_not_use_are_told_while_it_runs() -> None:
    use = replace(seen(**NEVER), is_running=True, cause=None, trained_s=7000.0)
    assert value("GPUs", use) == ("resources.gpus_per_node", "0")


def test_a_smaller_gpu_is_advised_only_where_the_end_was_watched() -> None:
    use = replace(seen(gpu_mem_peak_mb=10 * GIB), elapsed_s=10_000.0)
    advice, why = told(use)
    assert "GPU memory" not in advice
    assert "no attempt was measured to its end" in why["GPU memory"]


def test_a_program_that_says_nothing_is_judged_by_its_cores_and_gpus() -> None:
    use = seen(gpu_busy_mean=30.0, cores_p50=15.8, cores_p95=16.0)
    advice, _ = told(use)
    assert advice["CPU cores"] == (
        "ask for 8 for each rank, not 4: all cores are at work, and the GPUs 30 % of the time"
    )
    starved = replace(use, loader_workers=2, trained_s=7000.0)
    assert told(starved)[0]["CPU cores"].endswith("; 2 loader workers starve the GPU")
    assert "CPU cores" in told(replace(use, measured=replace(SEEN, cores_p50=15.8)))[1]


def test_gpus_that_are_rarely_busy_are_told() -> None:
    assert told(seen(gpu_busy_mean=12.0))[0]["GPU time"].startswith(
        "the GPUs are busy 12 % of the time"
    )


def test_memory_of_gpus_nearly_full_or_mostly_empty_is_told() -> None:
    assert "nearly full" in told(seen(gpu_mem_peak_mb=79 * GIB))[1]["GPU memory"]
    empty = seen(gpu_mem_peak_mb=10 * GIB)
    assert "a batch twice as large would fit" in told(empty)[0]["GPU memory"]
    site = {"a100": 80 * GIB, "l4": 24 * GIB, "t4": 16 * GIB, "old": 8 * GIB}
    assert value("GPU memory", empty, gpu_mem_mb=site) == ("resources.gpu_type", "t4")
    there = {"gpu_mem_mb": site, "gpu_partitions": {"t4": "small"}}
    assert value("GPU memory", empty, **there) == ("resources.partition", "small")
    assert told(empty, **there)[0]["GPU memory"].endswith("16 GiB is enough, in partition small")


def test_a_run_without_gpus_hears_nothing_of_them() -> None:
    advice, why = told(CPU_ONLY)
    assert not {"GPUs", "GPU time", "GPU memory", "loader"} & {*advice, *why}
