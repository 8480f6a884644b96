"""What the program reports: lines that the login side reads, however the training went."""

from __future__ import annotations

import json
import math
import resource
import signal
import time
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcflow.model.events import parse_event
from hpcflow.runtime.events import EventLog
from hpcflow.runtime.manifest import finite
from hpcflow.runtime.metrics import Metrics
from hpcflow.runtime.reading import read_lines
from hpcflow.testing.clock import FakeClock
from tests.runtime.harness import RunFolder, run, start
from tests.runtime.program import BATCHES, EPOCHS


def read(path: Path) -> list[dict[str, Any]]:
    return [event for event in map(parse_event, read_lines(path)) if event is not None]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "events.jsonl"


def test_a_million_train_steps_do_not_make_a_million_lines(path: Path) -> None:
    clock = FakeClock()
    metrics = Metrics(EventLog(path), None, clock.monotonic)

    for train_step in range(1, 5001):
        metrics.log(train_step, {"loss": 1 / train_step}, total_train_steps=5000)
        clock.sleep(0.01)
    metrics.close()

    events = read(path)
    assert len(events) == 51
    assert [event["train_step"] for event in events[:3]] == [1, 101, 201]
    assert events[-1]["train_step"] == 5000
    assert events[-1]["metrics"] == {"loss": 1 / 5000}
    assert events[-1]["total_train_steps"] == 5000


def test_an_event_has_the_latest_of_every_metric_since_the_one_before(path: Path) -> None:
    clock = FakeClock()
    metrics = Metrics(EventLog(path), None, clock.monotonic)

    metrics.log(1, {"loss": 3.0})
    metrics.log(2, {"loss": 2.0, "accuracy": 0.5})
    metrics.log(3, {"loss": 1.0})
    metrics.flush()
    clock.sleep(2)
    metrics.log(4, {"loss": 0.5})

    assert [event["metrics"] for event in read(path)] == [
        {"loss": 3.0},
        {"loss": 1.0, "accuracy": 0.5},
        {"loss": 0.5},
    ]
    assert metrics.latest() == {"loss": 0.5, "accuracy": 0.5}


def test_a_tensor_is_taken_as_it_is_now_and_keeps_no_graph(path: Path) -> None:
    metrics = Metrics(EventLog(path), None, FakeClock().monotonic)
    metrics.log(1, {"loss": 9})
    total = torch.zeros((), requires_grad=True)
    running = total + 1

    metrics.log(2, {"loss": running})
    with torch.no_grad():
        running += 5
    metrics.close()

    assert read(path)[-1]["metrics"] == {"loss": 1.0}


def test_no_number_is_null_and_never_the_best(path: Path) -> None:
    metrics = Metrics(EventLog(path), None, FakeClock().monotonic)

    metrics.log(1, {"loss": math.nan, "lr": -math.inf, "accuracy": 0.5})

    assert read(path)[0]["metrics"] == {"loss": None, "lr": None, "accuracy": 0.5}
    assert finite(metrics.latest()) == {"accuracy": 0.5}


@pytest.mark.parametrize(
    ("value", "written"),
    [
        (np.int64(3), 3.0),
        (np.float32(0.5), 0.5),
        (np.float64("nan"), None),
        (Fraction(1, 2), 0.5),
        (10**400, None),
        (-(10**400), None),
        (Fraction(10**400), None),
        (Decimal("sNaN"), None),
        (Decimal("1e400"), None),
    ],
    ids=lambda each: type(each).__name__,
)
def test_a_number_of_any_kind_ends_no_training(
    path: Path, value: Any, written: float | None
) -> None:
    metrics = Metrics(EventLog(path), None, FakeClock().monotonic)
    metrics.log(1, {"loss": value})
    metrics.close()
    assert read(path)[0]["metrics"] == {"loss": written}
    assert finite(metrics.latest()) == ({} if written is None else {"loss": written})


@pytest.mark.parametrize(
    ("fact", "written"),
    [(np.int64(7), 7), (np.uint8(7), 7), (np.float32(7), None), (object(), None), (3 + 4j, None)],
    ids=lambda each: type(each).__name__,
)
def test_of_a_fact_that_json_lacks_the_rest_is_written(
    path: Path, fact: object, written: int | None
) -> None:
    EventLog(path).append("progress", train_step=1, metrics={}, total_train_steps=fact)
    (event,) = read(path)
    assert (event["train_step"], event["total_train_steps"]) == (1, written)


def test_an_event_that_cannot_be_put_into_words_is_lost_and_ends_nothing(path: Path) -> None:
    log = EventLog(path)
    log.append("progress", train_step=10**5000, metrics={})
    log.append("progress", train_step=2, metrics={})
    assert log.lost == 1
    assert [event["train_step"] for event in read(path)] == [2]


@pytest.mark.parametrize("value", ["0.3", None, [1.0], torch.zeros(3)])
def test_what_is_not_one_number_is_refused_where_it_is_logged(path: Path, value: object) -> None:
    with pytest.raises(TypeError, match="metric 'loss'"):
        Metrics(EventLog(path), None).log(1, {"loss": value})


@settings(max_examples=200, deadline=None)
@given(
    st.dictionaries(st.text(), st.floats(), max_size=5),
    st.text(),
)
def test_every_event_is_one_line_that_the_login_side_reads(
    tmp_path_factory: pytest.TempPathFactory, metrics: dict[str, float], text: str
) -> None:
    path = tmp_path_factory.mktemp("events") / "events.jsonl"

    EventLog(path).append("progress", train_step=1, metrics=metrics, note=text)

    (event,) = read(path)
    assert path.read_bytes().count(b"\n") == 1
    finite = {k: v if math.isfinite(v) else None for k, v in metrics.items()}
    assert event["metrics"] == finite
    assert event["note"] == text


def test_an_event_file_that_cannot_be_written_ends_nothing(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    log = EventLog(tmp_path / "no such folder" / "events.jsonl")

    for train_step in range(3):
        log.append("progress", train_step=train_step, metrics={})

    assert log.lost == 3
    assert capfd.readouterr().err.count("events are lost, the training continues") == 1


def test_a_line_that_the_disk_tore_spoils_no_other(path: Path) -> None:
    log = EventLog(path)
    log.append("progress", train_step=1, metrics={})
    before = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    limit = path.stat().st_size + 10
    resource.setrlimit(resource.RLIMIT_FSIZE, (limit, resource.RLIM_INFINITY))
    try:
        log.append("progress", train_step=2, metrics={})
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (resource.RLIM_INFINITY, resource.RLIM_INFINITY))
        signal.signal(signal.SIGXFSZ, before)
    log.append("progress", train_step=3, metrics={})

    assert log.lost == 1
    assert [event["train_step"] for event in read(path)] == [1, 3]


def test_a_line_too_long_for_readers_is_not_written(path: Path) -> None:
    log = EventLog(path)

    log.append("progress", train_step=1, metrics={f"metric {i}": 0.0 for i in range(100_000)})

    assert log.lost == 1
    assert not path.exists()


def test_a_training_tells_its_story_from_one_rank(folder: RunFolder) -> None:
    board = folder.path / "tensorboard"

    run(folder, 2, HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=15, HPCFLOW_TENSORBOARD_DIR=board)

    last = EPOCHS * BATCHES
    assert [event["event"] for event in folder.events() if event["event"] != "progress"] == [
        "train_started",
        "checkpoint",
        "checkpoint",
        "checkpoint",
        "checkpoint_metrics",
        "finished",
    ]
    (began,) = folder.events("train_started")
    assert (began["world_size"], began["framework"]) == (2, "pytorch")
    assert (began["train_step"], began["total_train_steps"]) == (0, last)
    assert [event["train_step"] for event in folder.events("checkpoint")] == [15, 30, last]
    checkpoint = folder.events("checkpoint")[0]
    assert checkpoint["path"] == "checkpoints/000000015"
    assert checkpoint["epoch"] == 1.5
    assert 0 <= checkpoint["held_s"] < 60
    assert 0 < checkpoint["write_s"] < 60
    manifest = json.loads((folder.checkpoint(15) / "manifest.json").read_text())
    assert checkpoint["size_bytes"] == sum(f["size_bytes"] for f in manifest["files"].values())
    assert checkpoint["metrics"] == manifest["metrics"]
    (finished,) = folder.events("finished")
    assert finished["model"] == f"checkpoints/{last:09d}/model.pt"
    assert finished["metrics"]["loss"] < 10
    assert folder.events("progress")[-1]["metrics"] == finished["metrics"]


def test_tensorboard_has_every_train_step_once(folder: RunFolder) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    folder.variables = {"HPCFLOW_TENSORBOARD_DIR": str(folder.path / "tensorboard")}
    run(folder, HURT="0:25:USR2", HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS=10)
    run(folder)

    board = EventAccumulator(folder.variables["HPCFLOW_TENSORBOARD_DIR"])
    board.Reload()

    steps = [scalar.step for scalar in board.Scalars("loss")]
    assert sorted(set(steps)) == list(range(1, EPOCHS * BATCHES + 1))


def test_tensorboard_reads_two_attempts_of_one_second_in_their_order(
    path: Path, tmp_path: Path
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    board = tmp_path / "tensorboard"
    for first in (1, 4):
        metrics = Metrics(EventLog(path), board)
        for train_step in range(first, first + 3):
            metrics.log(train_step, {"loss": 0.0})
        metrics.close()
        if first == 1:
            # As from a host whose name comes last, and which wrote until just now.
            (written,) = board.iterdir()
            written.rename(board / f"events.out.tfevents.{int(time.time()):010d}.zz.9.9")

    told = EventAccumulator(str(board))
    told.Reload()
    assert [scalar.step for scalar in told.Scalars("loss")] == [1, 2, 3, 4, 5, 6]


def test_without_tensorboard_it_is_said_once(tmp_path: Path, folder: RunFolder) -> None:
    blocked = tmp_path / "blocked" / "tensorboard"
    blocked.mkdir(parents=True)
    (blocked / "__init__.py").write_text("raise ImportError('no tensorboard here')")

    training = start(
        folder, HPCFLOW_TENSORBOARD_DIR=folder.path / "board", FIRST_ON_PATH=blocked.parent
    )

    assert training.exit_codes() == [0]
    assert training.log().count("no TensorBoard files: no tensorboard here") == 1
