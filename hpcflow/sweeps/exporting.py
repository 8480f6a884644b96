"""Export a sweep as an Optuna study, for optuna-dashboard and Optuna's Python API.

Import this only when it is needed: Optuna is slow to import.
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from typing import Final

import optuna
from optuna.storages import JournalStorage
from optuna.storages.journal import JournalFileBackend

from hpcflow.errors import InputError, shell_word
from hpcflow.storage.files import write_durably
from hpcflow.sweeps.state import SweepProgress
from hpcflow.sweeps.study import frozen_trial, quiet

#: CMA-ES keeps pickles in these attributes. A file that may be handed on has none.
_PICKLED: Final = ("cma:", "sepcma:", "cmawm:")


def export_study(sweep_id: str, progress: SweepProgress, target: Path) -> None:
    """Write the study ``sweep_id`` to ``target``, a new file in Optuna's journal format.

    The study has each trial under its number, with all points that its runs have reported. The user
    attributes of a trial are the ids of its runs and the constants of the space.

    Raises:
        InputError: ``target`` exists.
    """
    constants = progress.spec.space.constants
    with tempfile.TemporaryDirectory() as folder, quiet():
        path = Path(folder) / "study"
        study = optuna.create_study(
            storage=JournalStorage(JournalFileBackend(str(path))),
            study_name=sweep_id,
            directions=[goal.direction.value for goal in progress.spec.goals],
        )
        study.set_metric_names([goal.metric for goal in progress.spec.goals])
        for trial in progress.trials:
            frozen = frozen_trial(progress, trial, points=trial.points())
            frozen.user_attrs = {**constants, "runs": trial.all_runs}
            frozen.system_attrs = {
                name: value for name, value in trial.attrs.items() if not name.startswith(_PICKLED)
            }
            study.add_trial(frozen)
        data = path.read_bytes()
    if os.path.lexists(target):
        raise InputError(
            f"{target} exists",
            next_action=f"name another file, or remove this one: rm {shell_word(target)}",
        )
    write_durably(target, data)
