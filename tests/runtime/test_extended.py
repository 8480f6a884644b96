"""A training that was complete trains on as if it had been asked for more at its beginning."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tests.runtime.harness import RunFolder, differing, run, weights

MORE = '{"epochs": 6}'


def params(folder: RunFolder) -> Path:
    path = folder.path / "params.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(MORE)
    return path


def test_it_ends_with_the_weights_of_one_that_was_asked_for_more_at_once(
    folder: RunFolder,
) -> None:
    assert run(folder) == [0]
    assert folder.complete()[-1] == 40
    before = weights(folder, 40)
    folder.attempt = 2
    keep: dict[str, Any] = {
        "HPCFLOW_CHECKPOINT_KEEP": '{"last": 1}',
        "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": 5,
    }
    assert run(folder, HPCFLOW_PARAMS=params(folder), HPCFLOW_CHECKPOINT_RESULTS=40, **keep) == [0]
    assert folder.events("train_started")[0]["train_step"] == 40
    assert folder.complete() == [40, 60], "the result is there, whatever the rule says"
    assert differing(weights(folder, 40), before) == []

    at_once = RunFolder(folder.path.parent / "at once")
    assert run(at_once, HPCFLOW_PARAMS=params(at_once)) == [0]
    assert differing(weights(folder, 60), weights(at_once, 60)) == []


def test_what_is_no_result_goes_as_ever(folder: RunFolder) -> None:
    assert run(folder) == [0]
    folder.attempt = 2
    keep: dict[str, Any] = {
        "HPCFLOW_CHECKPOINT_KEEP": '{"last": 1}',
        "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": 5,
    }
    assert run(folder, HPCFLOW_PARAMS=params(folder), **keep) == [0]
    assert folder.complete() == [60]
