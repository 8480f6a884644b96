"""Runs with checkpoints, and a home that knows them."""

from __future__ import annotations

import json
import secrets
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from hpcflow.clock import Clock, SystemClock
from hpcflow.mirror.passes import Pass, Report
from hpcflow.mirror.remote import Entry, Remote
from hpcflow.mirror.stores import Stores, open_remote
from hpcflow.model.run import Mirror
from hpcflow.restore.remote_run import RemoteRun
from hpcflow.runtime.files import NewFile
from hpcflow.runtime.store import CheckpointStore
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import create_run
from hpcflow.storage.runs import list_runs
from tests.storage.runs import make_run

FILES = {"model.pt": 70_000, "sub folder/optimizer ü.pt": 30_000, "empty": 0}


@dataclass
class Desk:
    """A home, a scratch, and a store for its runs."""

    folder: Path
    url: str
    clock: Clock

    @property
    def home(self) -> Home:
        return Home(self.folder / "home")

    def stored(self, run_dir: RunDir) -> Mapping[int, Mapping[str, Entry]]:
        """The complete checkpoints of a run in the store, by train step and name."""
        return RemoteRun(self.remote, run_dir.path.name).objects.checkpoints

    @property
    def remote(self) -> Remote:
        return open_remote(self.url, patience_s=5)

    def make(self, name: str = "digits", url: str | None = None, **mirror: Any) -> RunDir:
        """A run that is mirrored."""
        run = make_run(self.folder / "scratch", name=name)
        how = Mirror(url=url or self.url, **mirror)
        return create_run(run.model_copy(update={"mirror": how}), self.home)

    def mirror(self, *, patience_s: float = 5) -> Report:
        """One pass over all of them."""
        with Stores(self.clock, patience_s=patience_s) as stores:
            return Pass(self.home, self.clock, stores).run(lambda: list_runs(self.home))

    def there(self, run_dir: RunDir) -> list[str]:
        """What the store has of a run."""
        begin = len(run_dir.path.name) + 1
        if self.remote.lacks_root():  # nothing was ever sent there
            return []
        return [name[begin:] for name in self.remote.names(f"{run_dir.path.name}/")]


_MIB = 1 << 20
_RANDOM = secrets.token_bytes(_MIB)


def _some_bytes(count: int) -> bytes:
    """Bytes that no other call returns; many random ones take longer than to send them."""
    begin = secrets.randbelow(_MIB)
    return (
        secrets.token_bytes(min(count, 16))
        + (_RANDOM[begin:] + _RANDOM[:begin])[: max(0, count - 16)]
    )


def save(run_dir: RunDir, train_step: int, files: dict[str, int] = FILES) -> Path:
    """Publish a checkpoint of random bytes, as rank 0 does."""
    store = CheckpointStore(run_dir.checkpoints)
    staged = store.stage(train_step, secrets.randbits(60))
    written = {}
    for name, size_bytes in files.items():
        path = staged / name
        path.parent.mkdir(parents=True, exist_ok=True)
        file = NewFile(path)
        for begin in range(0, size_bytes, _MIB):
            file.write(_some_bytes(min(_MIB, size_bytes - begin)))
        written[name] = file.close()
    facts: dict[str, Any] = {"run_id": run_dir.path.name, "attempt": 1, "world_size": 1}
    return store.publish(staged, train_step, written, **facts).path


def checkpoint_names(train_step: int, files: dict[str, int] = FILES) -> list[str]:
    folder = f"checkpoints/{train_step:09d}"
    return sorted(f"{folder}/{name}" for name in [*files, "manifest.json"])


def said(run_dir: RunDir) -> list[tuple[str, int]]:
    """What ``mirror.jsonl`` says happened, and to which train step."""
    lines = [json.loads(line) for line in run_dir.mirror.read_text().splitlines()]
    return [(line["what"], line["train_step"]) for line in lines]


def desk_in(folder: Path, url: str, clock: Clock | None = None) -> Desk:
    return Desk(folder, url, clock or SystemClock())
