"""Sweeps by their records alone, and what Optuna shows of them once they are published."""

from __future__ import annotations

import math
from collections.abc import Sequence
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any, Literal

import optuna
from sqlalchemy.pool import NullPool

from hpcflow.ledger.connection import POSTGRES_OPTIONS
from hpcflow.model.sweep import SweepSpec
from hpcflow.model.sweep_records import Asked, Judged, Read, SweepRecord, Told
from hpcflow.settings import Settings, load_settings
from hpcflow.storage.sweeps import SweepDir
from hpcflow.sweeps.published.publish import publish, study_url
from hpcflow.sweeps.state import SweepProgress, Trial, fold

START = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
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
    """A sweep, its records, and where it is published."""

    def __init__(self, folder: Path, ledger: str, *, name: str = "search", **more: Any) -> None:
        home = folder / "home"
        environ = {"HPCFLOW_HOME": str(home), "HOME": str(folder), "HPCFLOW_LEDGER": ledger}
        self.settings: Settings = load_settings(environ)
        self.sweep_dir = SweepDir(home / "sweeps" / f"{name}-20260301-abcdefgh")
        self.sweep_dir.path.mkdir(parents=True, exist_ok=True, mode=0o700)
        self.spec = SweepSpec.model_validate({**SPEC, **more}, by_alias=True, by_name=False)
        self.records: list[SweepRecord] = []

    @property
    def sweep_id(self) -> str:
        return self.sweep_dir.sweep_id

    @property
    def progress(self) -> SweepProgress:
        return fold(self.spec, START, self.records)

    @property
    def database(self) -> Path:
        return Path(self.settings.ledger_url.removeprefix("sqlite:///")).with_name("studies.sqlite")

    def publish(self) -> str | None:
        return publish(self.sweep_dir, self.sweep_id, self.progress, self.settings)

    def asks(self, **more: Any) -> int:
        """One trial more, a minute after the one before."""
        number = sum(isinstance(record, Asked) for record in self.records)
        params = {"lr": 0.5 / (number + 1), "layers": 1 + 2 * (number % 5), "optimizer": "adam"}
        if number % 3 == 1:
            params |= {"optimizer": "sgd", "momentum": 0.3}
        said = {"trial": number, "params": params, "runs": [_run(number)], **more}
        self.records.append(Asked(at=START + timedelta(minutes=number), **said))
        return number

    def reports(self, trial: int, *points: tuple[int, float | None]) -> None:
        """Its newest run has come so far."""
        run = self.progress.trials[trial].current_runs[0]
        self.records.append(_read(trial, run, points))

    def judges(self, trial: int, to: int, **attrs: Any) -> None:
        self.records.append(Judged(at=START, trial=trial, to=to, attrs=attrs))

    def tells(
        self,
        trial: int,
        outcome: Literal["complete", "pruned", "failed"],
        *values: float,
        hours: float = 5,
    ) -> None:
        at = START + timedelta(hours=hours, minutes=trial)
        self.records.append(Told(at=at, trial=trial, outcome=outcome, values=list(values)))

    def grows(self, trials: int, points: int = 10) -> None:
        """So many trials more; of four one runs, one is pruned, one failed, one complete."""
        for _ in range(trials):
            number = self.asks()
            found = [(p, 0.5 + p / (1000.0 + number)) for p in range(1, points + 1)]
            self.records.append(_read(number, _run(number), found))
            if number % 4 == 1:
                self.tells(number, "pruned", 0.5)
            elif number % 4 == 2:
                self.tells(number, "failed")
            elif number % 4 == 3:
                self.tells(number, "complete", 0.5 + number / 1000)

    # What people see.

    def study(self) -> optuna.Study:
        """As anybody opens it, by the name and the URL alone."""
        options: dict[str, Any] = {"poolclass": NullPool}
        if self.settings.ledger_url.startswith("postgresql"):
            options["connect_args"] = POSTGRES_OPTIONS
        storage = optuna.storages.RDBStorage(study_url(self.settings), engine_kwargs=options)
        return optuna.load_study(study_name=self.sweep_id, storage=storage)

    def study_attrs(self) -> dict[str, Any]:
        """What sampler, dashboard and hpcflow have left beside the study."""
        study = self.study()
        return study._storage.get_study_system_attrs(study._study_id)

    def require_same(self) -> None:
        """Whether Optuna shows what the journal says."""
        progress = self.progress
        shown = [seen(trial) for trial in self.study().get_trials()]
        assert shown == [said(progress, trial) for trial in progress.trials]


def _run(trial: int) -> str:
    return f"search-t{trial}-20260301-aaaaaaaa"


def _read(trial: int, run: str, points: Sequence[tuple[int, float | None]]) -> Read:
    return Read(at=START, trial=trial, run=run, attempt=1, offset_bytes=1, points=list(points))


def seen(trial: optuna.trial.FrozenTrial) -> dict[str, Any]:
    """A trial as Optuna shows it."""
    return {
        "number": trial.number,
        "state": trial.state.name,
        "params": trial.params,
        "values": trial.values,
        "points": _plain(trial.intermediate_values),
        "runs": trial.user_attrs["runs"],
        "batch_size": trial.user_attrs["batch_size"],
        "times": _utc([trial.datetime_start, trial.datetime_complete]),
    }


def said(progress: SweepProgress, trial: Trial) -> dict[str, Any]:
    """The same as the journal says."""
    names = {"running": "RUNNING", "complete": "COMPLETE", "pruned": "PRUNED", "failed": "FAIL"}
    return {
        "number": trial.number,
        "state": names[trial.state.value],
        "params": trial.params,
        "values": trial.values,
        "points": _plain(trial.points()),
        "runs": trial.all_runs,
        "batch_size": progress.spec.space.constants["batch_size"],
        "times": _utc([trial.asked_at, trial.told.at if trial.told else None]),
    }


def _plain(points: dict[int, Any]) -> dict[int, float | None]:
    """No number is not equal to itself."""
    return {p: None if v is None or math.isnan(v) else v for p, v in sorted(points.items())}


def _utc(times: Sequence[datetime | None]) -> list[datetime | None]:
    return [None if time is None else time.astimezone(timezone.utc) for time in times]
