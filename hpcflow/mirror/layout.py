"""The names of a run's objects in the store, as in its run directory: docs/mirror.md lists them.

Other users may write names into a store, so names are checked here.
"""

from __future__ import annotations

import re
from typing import Final

from hpcflow.errors import DamagedError
from hpcflow.mirror.remote import Entry, Remote
from hpcflow.model.ids import is_run_id

MANIFEST: Final = "manifest.json"
RUN_JSON: Final = "run.json"
_CHECKPOINT: Final = re.compile(r"checkpoints/([0-9]{9,18})/(.+)", re.ASCII | re.DOTALL)


def run_ids(remote: Remote) -> list[str]:
    """Return the ids of runs with a folder in ``remote``, sorted."""
    return [name for name in remote.folders() if is_run_id(name)]


def has_run(remote: Remote, run_id: str) -> bool:
    """Return whether the store has ``run.json`` of a run: without it the rest is useless."""
    return remote.exists(f"{run_id}/{RUN_JSON}")


def checkpoint_folder(run_id: str, train_step: int) -> str:
    """Return the prefix of the files of a checkpoint, ending in ``/``."""
    return f"{run_id}/checkpoints/{train_step:09d}/"


def run_files(remote: Remote, run_id: str) -> dict[str, Entry]:
    """Return all objects of a run, by their names below its folder, which are safe file names.

    Raises:
        DamagedError: a name leads out of the folder.
    """
    begin = len(run_id) + 1
    return {safe_name(name[begin:]): entry for name, entry in remote.names(f"{run_id}/").items()}


def small_files(files: dict[str, Entry]) -> dict[str, Entry]:
    """Return the objects of :func:`run_files` that belong to no checkpoint."""
    return {name: entry for name, entry in files.items() if not name.startswith("checkpoints/")}


def checkpoints(files: dict[str, Entry]) -> dict[int, dict[str, Entry]]:
    """Return train step -> the objects of each complete checkpoint of a run, the newest first.

    A checkpoint is complete if its manifest exists; other files are checked when they are fetched.
    Names are relative to the checkpoint's folder.

    Args:
        files: from :func:`run_files`.
    """
    found: dict[int, dict[str, Entry]] = {}
    for name, entry in files.items():
        if match := _CHECKPOINT.fullmatch(name):
            found.setdefault(int(match[1]), {})[match[2]] = entry
    return {step: found[step] for step in sorted(found, reverse=True) if MANIFEST in found[step]}


def safe_name(name: str) -> str:
    """Return ``name``; raise DamagedError unless it is a relative path that stays in its folder."""
    parts = name.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in name:
        raise DamagedError(
            f"the store has an object whose name leads out of its run: {name[:200]!r}",
            next_action="find out who wrote it, and delete it",
        )
    return name
