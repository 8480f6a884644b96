"""The names of a run's objects in the store, as in its run directory: docs/mirror.md lists them.

Other users may write names into a store; :mod:`hpcflow.restore.objects` checks them.
"""

from __future__ import annotations

from typing import Final

from hpcflow.mirror.remote import Remote
from hpcflow.model.ids import is_run_id

MANIFEST: Final = "manifest.json"
RUN_JSON: Final = "run.json"


def run_ids(remote: Remote) -> list[str]:
    """Return the ids of runs with a folder in ``remote``, sorted."""
    return [name for name in remote.folders() if is_run_id(name)]


def checkpoint_folder(run_id: str, train_step: int) -> str:
    """Return the prefix of the files of a checkpoint, ending in ``/``."""
    return f"{run_id}/checkpoints/{train_step:09d}/"
