"""A job, its checkpoints, and what somebody has done to them."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

from hpcflow.runtime.events import EventLog
from hpcflow.runtime.job import Job
from hpcflow.runtime.manifest import manifest_bytes
from hpcflow.runtime.retention import Keeper
from hpcflow.runtime.rule import Rule
from tests.runtime.published import publish

RUN_ID = "digits-20260101-aaaaaaaa"


ONE = Rule(1)


def job_in(folder: Path, rule: Rule = ONE, **facts: Any) -> Job:
    """A job whose run directory is ``folder``."""
    (folder / "checkpoints").mkdir(exist_ok=True)
    return Job(
        run_id=RUN_ID,
        attempt=2,
        run_dir=folder,
        events=folder / "events.jsonl",
        checkpoint_dir=folder / "checkpoints",
        keep=rule,
        **facts,
    )


def save(folder: Path, train_step: int, **metrics: float) -> Path:
    """Publish a checkpoint, as rank 0 does."""
    files = dict.fromkeys(("model.pt", "sub/optimizer.pt"), b"weights " * 100)
    facts = {"run_id": RUN_ID, "attempt": 1, "world_size": 4, "epoch": 1.5, "metrics": metrics}
    return publish(folder / "checkpoints", train_step, files, **facts).path


def save_and_tidy(job: Job, train_step: int, keeper: Keeper | None = None) -> None:
    assert job.run_dir is not None
    save(job.run_dir, train_step)
    keeper = keeper or Keeper(job, EventLog(job.events))
    keeper.tidy(train_step)
    keeper.print_warnings()


def there(folder: Path) -> list[int]:
    return sorted(int(path.name) for path in (folder / "checkpoints").glob("[0-9]*"))


def removed(folder: Path) -> list[int]:
    """Train steps of the events that say so."""
    events = folder / "events.jsonl"
    lines = events.read_text().splitlines() if events.exists() else []
    return [json.loads(line)["train_step"] for line in lines if "checkpoint_removed" in line]


def changed_manifest(**facts: Any) -> Callable[[Path], None]:
    def change(path: Path) -> None:
        manifest = json.loads((path / "manifest.json").read_text())
        (path / "manifest.json").write_bytes(manifest_bytes({**manifest, **facts}))

    return change


def a_link(path: Path) -> None:
    elsewhere = path.parent.parent / "elsewhere"
    path.rename(elsewhere)
    path.symlink_to(elsewhere)


def a_note(path: Path) -> None:
    (path / "KEEP").touch()


def claimed(folder: Path, attempt: int) -> None:
    path = folder / "attempts" / f"{attempt:04d}"
    path.mkdir(parents=True)
    (path / "claim").write_text("7\n")
