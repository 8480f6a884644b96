"""What of a run is in the store, and what is still to be sent: by its files, not by the store."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.errors import DamagedError
from hpcflow.mirror.checkpoint import GoneError, Local, read_local
from hpcflow.mirror.layout import MANIFEST
from hpcflow.mirror.records import Records, read_records
from hpcflow.model.run import Mirror
from hpcflow.storage.files import read_file
from hpcflow.storage.layout import RunDir

_LONGEST_NAME: Final = 18


@dataclass(frozen=True)
class Survey:
    """One run.

    Attributes:
        records: what its ``mirror.jsonl`` says of the store that it uses now.
        local: its complete checkpoints by train step, the newest first.
        broken: train step -> what is wrong with the manifest.
    """

    run_dir: RunDir
    mirror: Mirror
    records: Records
    local: dict[int, Local]
    broken: dict[int, str]

    @property
    def run_id(self) -> str:
        return self.run_dir.path.name

    @property
    def due(self) -> list[Local]:
        """The checkpoints that are to be sent, the newest first."""
        return [each for each in self.local.values() if self._is_due(each)]

    def is_mirrored(self, local: Local) -> bool:
        """Whether the store has this very checkpoint, not another of the same train step."""
        known = self.records.mirrored.get(local.train_step)
        return known is not None and known.manifest_sha256 == local.manifest_sha256

    def why_damaged(self, local: Local) -> str | None:
        """Why this very checkpoint is not sent; None where it was not found to be damaged."""
        sha256, why = self.records.damaged.get(local.train_step, ("", ""))
        return why if sha256 == local.manifest_sha256 else None

    def _is_due(self, local: Local) -> bool:
        return not self.is_mirrored(local) and self.why_damaged(local) is None


def mirror_of_run(run_dir: RunDir) -> Mirror | None:
    """Where a run is mirrored; None where it is not, or where ``run.json`` does not say.

    Read without the model of a whole run, which takes longer than all the rest.
    """
    try:
        said = json.loads(read_file(run_dir.run_json))["mirror"]
        return None if said is None else Mirror.model_validate(said)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return None


def survey(run_dir: RunDir) -> Survey | None:
    """What there is of a run; None where it has no mirror.

    Raises:
        StorageError: the run directory cannot be read.
    """
    mirror = mirror_of_run(run_dir)
    if mirror is None:
        return None
    records = read_records(run_dir, mirror.url.rstrip("/"))
    local: dict[int, Local] = {}
    broken: dict[int, str] = {}
    for path in _complete(run_dir):
        try:
            local[int(path.name)] = read_local(path)
        except GoneError:  # noqa: PERF203 - removed while we look
            continue
        except DamagedError as error:
            broken[int(path.name)] = error.message
    return Survey(run_dir, mirror, records, local, broken)


def _complete(run_dir: RunDir) -> list[Path]:
    """The folders with a manifest, the newest first."""
    try:
        found = [
            path
            for path in run_dir.checkpoints.iterdir()
            if path.name.isdecimal()
            and path.name.isascii()
            and len(path.name) <= _LONGEST_NAME
            and not path.is_symlink()
            and (path / MANIFEST).is_file()
        ]
    except OSError:
        return []
    return sorted(found, key=lambda path: -int(path.name))
