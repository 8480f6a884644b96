"""Publish the study of a sweep in a database, for Optuna's own tools.

The journal is the truth: the study is written from it after each round that changed something, and
never read. So a database that is locked, lost or of another Optuna is worth a warning, and holds up
nothing.
"""

from __future__ import annotations

from hpcflow.model.units import counted
from hpcflow.settings import Settings
from hpcflow.storage.sweeps import SweepDir
from hpcflow.sweeps.published.faults import warning_for
from hpcflow.sweeps.published.marks import is_published, remember
from hpcflow.sweeps.published.place import database_of, schema_of, shown_study_url, study_url
from hpcflow.sweeps.state import SweepProgress

__all__ = ["publish", "shown_study_url", "study_url"]


def publish(
    sweep_dir: SweepDir,
    sweep_id: str,
    progress: SweepProgress,
    settings: Settings,
    *,
    wholly: bool = False,
) -> str | None:
    """Bring the study up to date; costs next to nothing where it is.

    Args:
        wholly: however long it takes; else what takes too long is left for the next call.

    Returns:
        What kept it from being so, and what to do about it, for people; None if nothing did. The
        next call tries again.
    """
    database, shown = database_of(settings), shown_study_url(settings)
    file = database.path if database.kind == "sqlite" else None
    if is_published(sweep_dir.published, progress, shown, file):
        return None
    try:
        # They import Optuna and SQLAlchemy, which takes longer than a round without news may.
        from hpcflow.sweeps.published.database import bring_up_to_date

        url, schema = study_url(settings), schema_of(settings)
        left = bring_up_to_date(database, url, schema, sweep_id, progress, wholly=wholly)
        if left:
            done, most = len(progress.trials) - left, len(progress.trials)
            known = f"{done} of {counted(most, 'trial')}"
            return f"the study in {database} has {known}; more with the next round"
        remember(sweep_dir.published, progress, shown, file)
    except Exception as error:  # a study that nobody can look at must never stop a sweep
        return warning_for(settings, error)
    return None
