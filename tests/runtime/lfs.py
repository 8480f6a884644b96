"""A program ``lfs``, for there is no Lustre where the tests run."""

from __future__ import annotations

import os
from pathlib import Path

import pytest


class Lfs:
    """A program ``lfs`` that says what it is given, and writes down what it was asked."""

    def __init__(self, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        folder.mkdir()
        program = folder / "lfs"
        program.write_text(
            '#!/bin/sh\nprintf "%s\\n" "$*" >> "$0.asked"\n[ -f "$0.$1$2" ] && exec cat "$0.$1$2"\n'
            '[ -f "$0.$1" ] && exec cat "$0.$1"\nexit 1\n'
        )
        program.chmod(0o700)
        monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")

    def says(self, command: str, text: str) -> None:
        """Answer ``command``, such as ``quota-u``, with ``text``."""
        (self.folder / f"lfs.{command}").write_text(text)

    @property
    def asked(self) -> list[str]:
        asked = self.folder / "lfs.asked"
        return asked.read_text().splitlines() if asked.exists() else []
