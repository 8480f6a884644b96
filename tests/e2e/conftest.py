"""hpcflow as its users have it: installed, called as a program, by somebody who is not root."""

from __future__ import annotations

import json
import subprocess
import uuid
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import Software, User

TWO_NODES = ("--site", "devcluster", "--set", "resources.nodes=2")


@dataclass
class Hpcflow:
    """The ``hpcflow`` of one user, with a home of its own."""

    user: User
    software: Software
    env: dict[str, str] = field(default_factory=dict)

    @property
    def home(self) -> Path:
        return Path(self.env["HPCFLOW_HOME"])

    @property
    def digits(self) -> Path:
        """The config of the digits example, where this user can read it."""
        return self.software.examples / "digits" / "config.yaml"

    def __call__(
        self, *args: str | Path, check: bool = True, timeout: float = 240
    ) -> subprocess.CompletedProcess[str]:
        return self.user.run(
            ["hpcflow", *map(str, args)], env=self.env, check=check, timeout=timeout
        )

    def json(self, *args: str | Path, check: bool = True, timeout: float = 240) -> Any:
        """What a command prints with ``--json``."""
        return json.loads(self(*args, "--json", check=check, timeout=timeout).stdout)

    def write_config(self, name: str, text: str) -> Path:
        """A config file of this user's."""
        path = self.home.parent / name
        path.write_text(text)
        path.chmod(0o644)
        return path


def newcomer(user: User, software: Software) -> Hpcflow:
    """hpcflow for a user who has never used it before."""
    folder = user.scratch / f"test-{uuid.uuid4().hex[:8]}"
    user.run(["mkdir", "-m", "700", str(folder)])
    return Hpcflow(user, software, {"HPCFLOW_HOME": str(folder / "home")})


@pytest.fixture
def hpcflow(ada: User, software: Software) -> Hpcflow:
    """hpcflow for ada, who has never used it before."""
    return newcomer(ada, software)


@pytest.fixture(scope="session")
def undisturbed(ada: User, software: Software) -> dict[str, Any]:
    """A run on two nodes that nobody killed; the others must end with the same weights."""
    hpcflow = newcomer(ada, software)
    done = hpcflow.json("run", hpcflow.digits, *TWO_NODES, "--wait")
    assert {"run_id", "attempt", "job_id", "run_dir"} <= done.keys()
    shown = hpcflow.json("show", done["run_id"])
    assert isinstance(shown, dict)
    return shown
