"""Publish the study of a sweep in a database, for Optuna's own tools.

The journal is authoritative. Each round that changed something writes the study from it; the study
is never read back. So a database that is locked, lost or of another Optuna causes only a warning.
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
    """Bring the study up to date; cheap if it is already.

    Args:
        wholly: without a time limit; else the next call writes the rest.

    Returns:
        A warning if the study is not up to date, with what to do about it; else None.
    """
    database, shown = database_of(settings), shown_study_url(settings)
    file = database.path if database.kind == "sqlite" else None
    if is_published(sweep_dir.published, progress, shown, file):
        return None
    try:
        # Importing Optuna and SQLAlchemy takes longer than a round without news may take.
        from hpcflow.sweeps.published.database import bring_up_to_date

        url, schema = study_url(settings), schema_of(settings)
        left = bring_up_to_date(database, url, schema, sweep_id, progress, wholly=wholly)
        if left:
            done, most = len(progress.trials) - left, len(progress.trials)
            known = f"{done} of {counted(most, 'trial')}"
            return f"the study in {database} has {known}; the next round writes more"
        remember(sweep_dir.published, progress, shown, file)
    except Exception as error:  # a failed publication must never stop a sweep
        return warning_for(settings, error)
    return None
