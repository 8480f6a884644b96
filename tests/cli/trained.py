"""A run that has made checkpoints, without the time that training them takes."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpcflow.settings import load_settings
from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.runtime.published import publish

KEEP = "checkpoint: {keep_last: 2, keep_best: {metric: loss, mode: min}}\n"


class Trained:
    """A run on this machine, with checkpoints that a job of it could have made."""

    def __init__(self, desk: Desk, shell: str = "true", keep: str = KEEP) -> None:
        config = Path(desk.config("digits", shell))
        config.write_text(config.read_text() + keep)
        is_endless = "sleep" in shell
        said = desk.json("run", str(config), *([] if is_endless else ["--wait"]))
        self.run_id: str = said["run_id"]
        self.dir = load_settings().home.run_dir(said["run_dir"])
        self.desk = desk
        if is_endless:
            poll((self.dir.attempt(1).path / "program").exists, 120, "it never ran")

    def save(self, train_step: int, **metrics: float) -> Path:
        facts = {"run_id": self.run_id, "attempt": 1, "world_size": 4, "epoch": 1.5}
        files = {"model.pt": b"weights " * 100}
        made = publish(self.dir.checkpoints, train_step, files, metrics=metrics, **facts)
        self.event("checkpoint", train_step=train_step, size_bytes=800, metrics=metrics)
        return made.path

    def event(self, kind: str, **facts: Any) -> None:
        """What the job says."""
        path = f"checkpoints/{facts['train_step']:09d}"
        line = {"at": "2026-01-01T00:00:00.000Z", "event": kind, "path": path, **facts}
        with self.dir.attempt(1).events.open("a") as file:
            file.write(json.dumps(line) + "\n")

    def there(self) -> list[int]:
        return sorted(int(path.name) for path in self.dir.checkpoints.glob("[0-9]*"))

    def in_ledger(self) -> list[int]:
        shown = self.desk.json("show", self.run_id)["checkpoints"]
        return [saved["train_step"] for saved in shown]
