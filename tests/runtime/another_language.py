"""The job of a program in another language, which reports by ``python -m hpcflow.runtime``."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.runtime.kept import RUN_ID


def in_another_language(folder: Path, monkeypatch: pytest.MonkeyPatch, *, metric: str) -> None:
    """Set its environment; its state is in ``folder/state``, and it keeps the last and the best."""
    (folder / "state").mkdir()
    (folder / "state" / "root").write_text("1.4")
    for name, value in (
        ("RUN_ID", RUN_ID),
        ("RUN_DIR", folder),
        ("CHECKPOINT_DIR", folder / "checkpoints"),
        ("EVENTS", folder / "events.jsonl"),
        ("CHECKPOINT_KEEP", f'{{"last": 1, "best": 1, "metric": "{metric}"}}'),
    ):
        monkeypatch.setenv(f"HPCFLOW_{name}", str(value))
