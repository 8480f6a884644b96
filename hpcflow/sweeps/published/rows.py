"""Write trials as rows of Optuna's own tables, within the caller's transaction.

Optuna's storage has methods for this, too. But they read two rows before they write one, so a
thousand trials with a hundred values each take minutes; they commit each value; and they set the
end of a trial to the time of the write. This module writes the same rows through the same models.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any, Final

from optuna.distributions import distribution_to_json
from optuna.storages._rdb import models
from optuna.trial import TrialState as State
from sqlalchemy import delete, func, insert, select, text
from sqlalchemy.orm import Session

from hpcflow.runtime.reading import parse_json
from hpcflow.sweeps.distributions import distribution_of
from hpcflow.sweeps.published.marks import has_same_runs, mark_of
from hpcflow.sweeps.state import SweepProgress, Trial
from hpcflow.sweeps.study import STATES

#: The attribute of a trial that holds its mark.
_MARK: Final = "hpcflow:written"
#: No mark is longer. Other users can write into a shared database; no more than this is read.
_MAX_MARK: Final = 1000
#: CMA-ES stores pickles. They are not published, because other users may write to the database.
_PICKLED: Final = ("cma:", "sepcma:", "cmawm:")
#: The largest integer of Postgres.
_MAX_POINT: Final = 2**31 - 1
_CHILDREN: Final = (
    models.TrialParamModel,
    models.TrialValueModel,
    models.TrialIntermediateValueModel,
    models.TrialUserAttributeModel,
    models.TrialSystemAttributeModel,
    models.TrialHeartbeatModel,
)

#: Id and mark of a trial in the database.
Written = tuple[int, str | None]


def lock(session: Session, study_id: int) -> None:
    """Lock the trials of this study against other writers, until the transaction ends."""
    if session.get_bind().dialect.name == "sqlite":
        session.execute(text("BEGIN IMMEDIATE"))
    else:
        study = models.StudyModel
        session.execute(select(study.study_id).filter_by(study_id=study_id).with_for_update())


def written(session: Session, study_id: int, most: int) -> list[Written]:
    """Return the trials in the database, by number.

    If there are more than ``most``, or their numbers are not in order, another program has written:
    then all of them are deleted, to be written again.
    """
    trial, mark = models.TrialModel, models.TrialSystemAttributeModel
    found = session.execute(
        select(trial.trial_id, trial.number, func.substr(mark.value_json, 1, _MAX_MARK))
        .outerjoin(mark, (mark.trial_id == trial.trial_id) & (mark.key == _MARK))
        .where(trial.study_id == study_id)
        .order_by(trial.trial_id)
        .limit(most + 1)
    ).all()
    if [row[1] for row in found] != list(range(len(found))) or len(found) > most:
        _delete_all(session, study_id)
        return []
    return [(trial_id, _mark(said)) for trial_id, _, said in found]


def _mark(said: str | None) -> str | None:
    try:
        found = parse_json(said or "null")
    except ValueError:
        return None
    return found if isinstance(found, str) else None


def _delete_all(session: Session, study_id: int) -> None:
    ids = select(models.TrialModel.trial_id).filter_by(study_id=study_id)
    for child in _CHILDREN:
        _delete(session, child, child.trial_id.in_(ids))
    _delete(session, models.TrialModel, models.TrialModel.study_id == study_id)


def _delete(session: Session, model: Any, *which: Any) -> None:
    session.execute(delete(model).where(*which).execution_options(synchronize_session=False))


def write_study(session: Session, study_id: int, progress: SweepProgress) -> None:
    """Write the names of the objectives, and the study attributes of sampler and pruner."""
    model = models.StudySystemAttributeModel
    wanted = {
        **_attributes(progress.study_attrs),
        "study:metric_names": json.dumps([goal.metric for goal in progress.spec.goals]),
    }
    most = max(map(len, wanted.values())) + 1  # as for the marks
    said = func.substr(model.value_json, 1, most)
    query = select(model.key, said).where(model.study_id == study_id, model.key.in_(wanted))
    found = {row[0]: row[1] for row in session.execute(query)}
    changed = {key: value for key, value in wanted.items() if found.get(key) != value}
    _delete(session, model, model.study_id == study_id, model.key.in_(changed))
    _insert(
        session,
        model,
        [{"study_id": study_id, "key": k, "value_json": v} for k, v in changed.items()],
    )


def write_trials(
    session: Session,
    study_id: int,
    progress: SweepProgress,
    trials: Sequence[Trial],
    there: Sequence[Written],
) -> None:
    """Insert or update ``trials``.

    Args:
        trials: by number. New ones must follow those in ``there`` without a gap.
        there: the trials in the database.
    """
    old = {there[t.number][0]: (t, there[t.number][1]) for t in trials if t.number < len(there)}
    is_old = models.TrialModel.trial_id.in_(old)
    rows: list[Any] = list(session.scalars(select(models.TrialModel).where(is_old)))
    for row in rows:
        trial, _ = old[row.trial_id]
        row.state = STATES[trial.state]
        row.datetime_start, row.datetime_complete = _times(trial)
    found = {trial_id: trial for trial_id, (trial, _) in old.items()}
    found |= _new_rows(session, study_id, [t for t in trials if t.number >= len(there)])
    _write_attributes(session, progress, found)
    _write_params(session, progress, found)
    replaced = [i for i, (t, mark) in old.items() if not has_same_runs(mark, mark_of(t))]
    _write_points(session, found, replaced)


def _new_rows(session: Session, study_id: int, trials: Sequence[Trial]) -> dict[int, Trial]:
    rows: list[Any] = []
    for trial in trials:
        row = models.TrialModel(study_id=study_id, number=trial.number, state=STATES[trial.state])
        row.datetime_start, row.datetime_complete = _times(trial)
        rows.append(row)
    session.add_all(rows)
    session.flush()
    return {row.trial_id: trial for row, trial in zip(rows, trials, strict=True)}


def _times(trial: Trial) -> tuple[datetime | None, datetime | None]:
    """Return begin and end as Optuna stores them: naive local times."""
    times = [trial.asked_at, trial.told.at if trial.told is not None else None]
    begun, ended = (None if t is None else datetime.fromtimestamp(t.timestamp()) for t in times)
    return begun, ended


def _write_attributes(session: Session, progress: SweepProgress, found: dict[int, Trial]) -> None:
    """Write hpcflow's attributes; attributes that users added stay."""
    constants = progress.spec.space.constants
    for model, attributes in (
        (models.TrialUserAttributeModel, lambda t: {**constants, "runs": t.all_runs}),
        (models.TrialSystemAttributeModel, lambda t: {**t.attrs, _MARK: mark_of(t)}),
    ):
        rows = [
            {"trial_id": trial_id, "key": key, "value_json": said}
            for trial_id, trial in found.items()
            for key, said in _attributes(attributes(trial)).items()
        ]
        keys = {row["key"] for row in rows}
        _delete(session, model, model.trial_id.in_(found), model.key.in_(keys))
        _insert(session, model, rows)


def _attributes(attrs: dict[str, Any]) -> dict[str, str]:
    return {k: json.dumps(v) for k, v in attrs.items() if not k.startswith(_PICKLED)}


def _write_params(session: Session, progress: SweepProgress, found: dict[int, Trial]) -> None:
    """Write the parameters, and the objectives of complete and pruned trials."""
    spaces = {each.name: distribution_of(each.values) for each in progress.spec.space.parameters}
    said = {name: distribution_to_json(each) for name, each in spaces.items()}
    params = [
        {
            "trial_id": trial_id,
            "param_name": name,
            "param_value": spaces[name].to_internal_repr(value),
            "distribution_json": said[name],
        }
        for trial_id, trial in found.items()
        for name, value in trial.params.items()
        if name in spaces
    ]
    model = models.TrialValueModel
    values = [
        dict(zip(("value", "value_type"), model.value_to_stored_repr(value), strict=True))
        | {"trial_id": trial_id, "objective": objective}
        for trial_id, trial in found.items()
        if STATES[trial.state] in (State.COMPLETE, State.PRUNED)
        for objective, value in enumerate(trial.values or [])
    ]
    for each, rows in ((models.TrialParamModel, params), (model, values)):
        _delete(session, each, each.trial_id.in_(found))
        _insert(session, each, rows)


def _write_points(session: Session, found: dict[int, Trial], replaced: Iterable[int]) -> None:
    """Write intermediate values that are missing; all of the trials in ``replaced``."""
    model = models.TrialIntermediateValueModel
    _delete(session, model, model.trial_id.in_(replaced))
    query = select(model.trial_id, func.max(model.step)).where(model.trial_id.in_(found))
    last = {row[0]: row[1] for row in session.execute(query.group_by(model.trial_id))}
    rows = []
    for trial_id, trial in found.items():
        for point, value in trial.points().items():
            if last.get(trial_id, -1) < point <= _MAX_POINT:
                number = math.nan if value is None else value
                stored, kind = model.intermediate_value_to_stored_repr(number)
                rows.append(
                    {
                        "trial_id": trial_id,
                        "step": point,
                        "intermediate_value": stored,
                        "intermediate_value_type": kind,
                    }
                )
    _insert(session, model, rows)


def _insert(session: Session, model: Any, rows: list[dict[str, Any]]) -> None:
    if rows:
        session.execute(insert(model), rows)
