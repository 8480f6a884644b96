"""A person who types commands, over real runs on this machine: no Slurm, one small program."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcflow.cli.main import main
from tests.json_output import checked

SMALL = """
name: {name}
project: tests
command: [sh, -c, "{shell}"]
launch: {{framework: none, launcher: none}}
tags: [quick]
"""


class Desk:
    """A person with a folder for configs, and ``hpcflow`` at hand."""

    def __init__(self, folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
        self.folder = folder
        self._capfd = capfd

    def config(self, name: str, shell: str) -> str:
        path = self.folder / f"{name}.yaml"
        path.write_text(SMALL.format(name=name, shell=shell))
        return str(path)

    def say(self, *args: str, code: int = 0) -> str:
        self._capfd.readouterr()
        assert main(list(args)) == code, self._capfd.readouterr().err
        return self._capfd.readouterr().out

    def error(self, *args: str, code: int = 2) -> str:
        """What people are told when it goes wrong."""
        self._capfd.readouterr()
        assert main(list(args)) == code
        return self._capfd.readouterr().err

    def code(self, *args: str) -> int:
        return main(list(args))

    def json(self, *args: str, code: int = 0) -> Any:
        return checked(args, self.say(*args, "--json", code=code))
