"""Find out what of a run is to be uploaded, from its files alone; the store is not asked."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.errors import DamagedError, StorageError, shell_word
from hpcflow.mirror.checkpoint import GoneError, Local, NoManifestError, read_local
from hpcflow.mirror.layout import MANIFEST
from hpcflow.mirror.records import Records, read_records
from hpcflow.model.run import Mirror
from hpcflow.runtime.reading import read_object
from hpcflow.storage.disk_errors import storage_error
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone, require_no_link

_LONGEST_NAME: Final = 18


@dataclass(frozen=True)
class Broken:
    """A manifest that is not valid; ``sha256`` of its bytes, None if it cannot be read."""

    why: str
    sha256: str | None


@dataclass(frozen=True)
class Survey:
    """The state of one run.

    Attributes:
        records: from its ``mirror.jsonl``, about its current store.
        local: train step -> complete checkpoint, the newest first.
        broken: train step -> invalid manifest, the newest first.
    """

    run_dir: RunDir
    mirror: Mirror
    records: Records
    local: dict[int, Local]
    broken: dict[int, Broken]

    @property
    def run_id(self) -> str:
        return self.run_dir.path.name

    @property
    def due(self) -> list[Local]:
        """The checkpoints to send, the newest first."""
        unsent = [each for each in self.local.values() if not self.is_mirrored(each)]
        return [each for each in unsent if self.why_damaged(each) is None]

    def is_mirrored(self, local: Local) -> bool:
        """Return whether the store has this checkpoint, not another of the same train step."""
        known = self.records.mirrored.get(local.train_step)
        return known is not None and known.manifest_sha256 == local.manifest_sha256

    def why_damaged(self, local: Local) -> str | None:
        """Return why this checkpoint is recorded as damaged; None if it is not."""
        sha256, why = self.records.damaged.get(local.train_step, ("", ""))
        return why if sha256 == local.manifest_sha256 else None

    def needs_no_record(self, train_step: int) -> bool:
        """Return whether a broken manifest needs no record: it is recorded, or the store has the
        complete checkpoint."""
        sha256, _ = self.records.damaged.get(train_step, (None, ""))
        is_recorded = sha256 is not None and sha256 == self.broken[train_step].sha256
        return is_recorded or train_step in self.records.mirrored


def mirror_of_run(run_dir: RunDir) -> Mirror | None:
    """Return the mirror of a run; None if it has none or ``run.json`` is not valid."""
    try:
        return read_mirror(run_dir)
    except StorageError:
        return None


def read_mirror(run_dir: RunDir) -> Mirror | None:
    """Return the mirror of a run; None if it has none or its record is missing.

    Only this section is validated, because the model of a whole run is slow.

    Raises:
        StorageError: the run directory is a link, or ``run.json`` cannot be read or is damaged.
    """
    require_no_link(run_dir)
    try:
        said = read_object(run_dir.run_json).get("mirror")
        return None if said is None else Mirror.model_validate(said)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as error:
        raise storage_error("read", run_dir.run_json, error) from error
    except ValueError as error:
        folder = shell_word(run_dir.run_json.parent)
        raise StorageError(
            f"{run_dir.run_json} is damaged, so nothing of the run is mirrored: "
            f"{str(error).splitlines()[0]}",
            next_action=f"look at it: ls -la {folder}; the store may have an intact copy: "
            f"hpcflow restore {run_dir.path.name}",
        ) from error


def survey(run_dir: RunDir) -> Survey | None:
    """Read the state of a run; None if it has no mirror, or its run directory is gone.

    Raises:
        StorageError: the run directory cannot be read or is a link, or ``run.json`` is damaged.
    """
    mirror = read_mirror(run_dir)
    if mirror is None or is_gone(run_dir):
        return None
    records = read_records(run_dir, mirror.url.rstrip("/"))
    local: dict[int, Local] = {}
    broken: dict[int, Broken] = {}
    for path in _complete(run_dir):
        try:
            local[int(path.name)] = read_local(path)
        except GoneError:  # noqa: PERF203 - removed meanwhile
            continue
        except DamagedError as error:
            sha256 = error.sha256 if isinstance(error, NoManifestError) else None
            broken[int(path.name)] = Broken(error.message, sha256)
    return Survey(run_dir, mirror, records, local, broken)


def _complete(run_dir: RunDir) -> list[Path]:
    """Return the checkpoint folders with a manifest, the newest first."""
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
