"""The names of a run's objects in the store: as in its run directory.

::

    <url>/<run_id>/
      run.json  params.json  journal.jsonl  mirror.jsonl
      attempts/0001/job.sbatch  events.jsonl  out.log
      checkpoints/000000400/…
      checkpoints/000000400/manifest.json      sent last: complete when it exists
      code/…  artifacts/…  tensorboard/…

Names in a store are anybody's to write: what is made of one here was checked.
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
    """The runs that have anything in ``remote``, sorted."""
    return [name for name in remote.folders() if is_run_id(name)]


def has_run(remote: Remote, run_id: str) -> bool:
    """Whether ``run.json`` of a run is there: without it nothing can be made of the rest."""
    return remote.exists(f"{run_id}/{RUN_JSON}")


def checkpoint_folder(run_id: str, train_step: int) -> str:
    """Where the files of a checkpoint lie, ending in ``/``."""
    return f"{run_id}/checkpoints/{train_step:09d}/"


def run_files(remote: Remote, run_id: str) -> dict[str, Entry]:
    """All objects of a run, by their names below its folder, which are safe to be files' names.

    Raises:
        DamagedError: a name leads out of the folder.
    """
    begin = len(run_id) + 1
    return {safe_name(name[begin:]): entry for name, entry in remote.names(f"{run_id}/").items()}


def small_files(files: dict[str, Entry]) -> dict[str, Entry]:
    """Those of :func:`run_files` that belong to no checkpoint."""
    return {name: entry for name, entry in files.items() if not name.startswith("checkpoints/")}


def checkpoints(files: dict[str, Entry]) -> dict[int, dict[str, Entry]]:
    """Train step -> the objects of each complete checkpoint of a run, the newest first.

    Complete means that its manifest is there; names are below the checkpoint's folder. Whether the
    rest is as the manifest says, shows when it is fetched.

    Args:
        files: what :func:`run_files` gave.
    """
    found: dict[int, dict[str, Entry]] = {}
    for name, entry in files.items():
        if match := _CHECKPOINT.fullmatch(name):
            found.setdefault(int(match[1]), {})[match[2]] = entry
    return {step: found[step] for step in sorted(found, reverse=True) if MANIFEST in found[step]}


def safe_name(name: str) -> str:
    """``name``, if it stays below the folder that it is put into.

    Raises:
        DamagedError: it does not, or cannot be the name of a file.
    """
    parts = name.split("/")
    if "" in parts or "." in parts or ".." in parts or "\0" in name:
        raise DamagedError(
            f"the store has an object whose name leads out of its run: {name[:200]!r}",
            next_action="see who wrote it; delete it there",
        )
    return name
