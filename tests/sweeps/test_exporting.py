"""A sweep as a file that Optuna's tools open."""

from __future__ import annotations

import math
import stat
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

import optuna
import pytest
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from hpcflow.errors import InputError, StorageError
from hpcflow.model.sweep import SweepSpec
from hpcflow.model.sweep_records import Asked, Judged, Read, SweepRecord, Told
from hpcflow.sweeps.state import SweepProgress, Trial, fold
from hpcflow.sweeps.study import export_study

START = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
SWEEP = "search-20260301-abcdefgh"
SPEC: dict[str, Any] = {
    "name": "search",
    "base": "config.yaml",
    "space": {
        "lr": {"low": 1e-4, "high": 1.0, "log": True},
        "layers": {"low": 1, "high": 9, "step": 2},
        "optimizer": {"choices": ["adam", "sgd", None]},
        "momentum": {"low": 0.0, "high": 0.9, "step": 0.1, "when": {"optimizer": "sgd"}},
        "batch_size": 64,
    },
    "objective": {"metric": "accuracy", "direction": "maximize"},
    "pruner": "asha",
    "budget": {"trials": 1000},
}


class Searched:
    """A sweep by its records alone."""

    def __init__(self, **more: Any) -> None:
        self.spec = SweepSpec.model_validate({**SPEC, **more}, by_alias=True, by_name=False)
        self.records: list[SweepRecord] = []

    @property
    def progress(self) -> SweepProgress:
        return fold(self.spec, START, self.records)

    def asks(self, **more: Any) -> int:
        """Ask for one more trial, a minute after the one before; return its number."""
        number = sum(isinstance(record, Asked) for record in self.records)
        params: dict[str, Any] = {"lr": 0.5 / (number + 1), "layers": 1 + 2 * (number % 5)}
        params |= {"optimizer": "sgd", "momentum": 0.3} if number % 3 == 1 else {"optimizer": None}
        run = f"search-t{number}-20260301-aaaaaaaa"
        asked = {"trial": number, "params": params, "runs": [run], **more}
        self.records.append(Asked(at=START + timedelta(minutes=number), **asked))
        return number

    def reports(self, trial: int, *points: tuple[int, float | None]) -> None:
        run = self.progress.trials[trial].current_runs[0]
        said = {"run": run, "attempt": 1, "offset_bytes": 1, "points": list(points)}
        self.records.append(Read(at=START, trial=trial, **said))

    def tells(
        self, trial: int, outcome: Literal["complete", "pruned", "failed"], *values: float
    ) -> None:
        at = START + timedelta(hours=5, minutes=trial)
        self.records.append(Told(at=at, trial=trial, outcome=outcome, values=list(values)))

    def export(self, target: Path) -> optuna.Study:
        """Export it, and open the file as a user does, by the name and the path alone."""
        export_study(SWEEP, self.progress, target)
        return optuna.load_study(
            study_name=SWEEP, storage=JournalStorage(JournalFileBackend(str(target)))
        )


def test_optuna_shows_what_the_journal_says(tmp_path: Path) -> None:
    searched = Searched()
    for number in range(12):
        searched.asks()
        searched.reports(number, *[(point, 0.5 + point / (100 + number)) for point in (1, 2, 3)])
        if number % 4 == 1:
            searched.tells(number, "pruned", 0.5)
        elif number % 4 == 2:
            searched.tells(number, "failed")
        elif number % 4 == 3:
            searched.tells(number, "complete", 0.5 + number / 100)
    study = searched.export(tmp_path / "study.log")
    recorded = [_recorded(trial) for trial in searched.progress.trials]
    assert [_shown(trial) for trial in study.trials] == recorded
    assert study.direction is optuna.study.StudyDirection.MAXIMIZE
    assert study.best_trial.number == 11
    assert study.metric_names == ["accuracy"]


def test_a_running_trial_has_all_points_also_those_that_no_pruner_has_seen(tmp_path: Path) -> None:
    searched = Searched()
    searched.asks()
    searched.reports(0, (1, 0.1), (2, None), (3, 0.3))
    searched.records.append(Judged(at=START, trial=0, to=1))
    (trial,) = searched.export(tmp_path / "study.log").trials
    assert list(trial.intermediate_values) == [1, 2, 3]
    assert math.isnan(trial.intermediate_values[2])


def test_several_objectives_have_their_names_and_directions(tmp_path: Path) -> None:
    goals = [{"metric": "loss", "direction": "minimize"}, SPEC["objective"]]
    searched = Searched(objective=None, objectives=goals, pruner="none")
    searched.tells(searched.asks(), "complete", 0.2, 0.9)
    study = searched.export(tmp_path / "study.log")
    assert [each.name for each in study.directions] == ["MINIMIZE", "MAXIMIZE"]
    assert study.metric_names == ["loss", "accuracy"]
    assert study.best_trials[0].values == [0.2, 0.9]


def test_it_has_no_pickle_of_a_sampler_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    searched = Searched()
    searched.asks(attrs={"cma:optimizer:0": "80049525", "constraints": [0.5]})
    target = tmp_path / "study.log"
    (trial,) = searched.export(target).trials
    assert trial.system_attrs["constraints"] == [0.5]
    assert b"80049525" not in target.read_bytes()
    assert stat.S_IMODE(target.stat().st_mode) == 0o600
    assert list(tmp_path.iterdir()) == [target]


def test_an_existing_file_is_not_overwritten(tmp_path: Path) -> None:
    target = tmp_path / "my file"
    target.write_text("mine")
    with pytest.raises(InputError, match="my file exists") as refused:
        export_study(SWEEP, Searched().progress, target)
    assert refused.value.next_action is not None
    assert f"rm '{target}'" in refused.value.next_action
    assert target.read_text() == "mine"


def test_a_folder_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StorageError, match="nowhere"):
        export_study(SWEEP, Searched().progress, tmp_path / "nowhere" / "study.log")


def _shown(trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    return {
        "number": trial.number,
        "state": trial.state.name,
        "params": trial.params,
        "values": trial.values,
        "points": trial.intermediate_values,
        "attrs": trial.user_attrs,
        "times": _utc([trial.datetime_start, trial.datetime_complete]),
    }


def _recorded(trial: Trial) -> dict[str, Any]:
    names = {"running": "RUNNING", "complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}
    return {
        "number": trial.number,
        "state": names[trial.state.value],
        "params": trial.params,
        "values": trial.values,
        "points": trial.points(),
        "attrs": {"batch_size": 64, "runs": trial.all_runs},
        "times": _utc([trial.asked_at, trial.told.at if trial.told else None]),
    }


def _utc(times: Sequence[datetime | None]) -> list[datetime | None]:
    return [None if time is None else time.astimezone(timezone.utc) for time in times]
