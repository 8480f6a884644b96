"""hpcflow as its users have it: installed, called as a program, by somebody who is not root."""

from __future__ import annotations

import json
import os
import subprocess
import uuid
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from hpcflow.runtime.reading import require_safe_status
from hpcflow.testing.cluster import Postgres, Software, User
from tests.json_output import checked

_SITES = Path(__file__).resolve().parents[2] / "site_configs"
#: The launcher of a training that is not about torchrun: it starts no process of its own.
TWO_NODES = (
    *("--site", "devcluster", "--set", "resources.nodes=2"),
    *("--set", "launch.launcher=srun"),
)
#: A training of 368 train steps, all of which end with the same weights.
TRAINING = (
    *("--set", "params.epochs=16"),
    *("--set", "checkpoint.every_train_steps=30"),
)


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
        done = self(*args, "--json", check=check, timeout=timeout)
        return checked(args, done.stdout)

    def write_config(self, name: str, text: str) -> Path:
        """A config file of this user's."""
        path = self.home.parent / name
        path.write_text(text)
        path.chmod(0o644)
        return path


def events(run_dir: str | Path, attempt: int) -> list[dict[str, Any]]:
    """What an attempt has reported so far; the line that is being written is left out."""
    path = Path(run_dir, "attempts", f"{attempt:04d}", "events.jsonl")
    text = path.read_text() if path.exists() else ""
    return [json.loads(line) for line in text.splitlines(keepends=True) if line.endswith("\n")]


def saves(run: dict[str, Any], attempt: int = 1) -> list[int]:
    """The train steps of the checkpoints that an attempt has reported. Unlike a look with a
    command of hpcflow, this costs nothing, so a test may look often."""
    found = events(run["run_dir"], attempt)
    return [each["train_step"] for each in found if each["event"] == "checkpoint"]


@pytest.fixture(autouse=True)
def use_runs_of_users(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the tests, which are root, use the runs of ada and grace."""

    def require_safe_of_any_owner(
        status: os.stat_result, path: Path | str, *, max_bytes: int | None = None, **_: bool
    ) -> None:
        require_safe_status(status, path, max_bytes=max_bytes, any_owner=True)

    name = "hpcflow.runtime.reading.require_safe_status"
    monkeypatch.setattr(name, require_safe_of_any_owner)
    monkeypatch.setattr("hpcflow.storage.runs.foreign_part", lambda *_: None)


def newcomer(user: User, software: Software) -> Hpcflow:
    """hpcflow for a user who has never used it before."""
    folder = user.scratch / f"test-{uuid.uuid4().hex[:8]}"
    user.run(["mkdir", "-m", "700", str(folder)])
    return Hpcflow(user, software, {"HPCFLOW_HOME": str(folder / "home")})


@pytest.fixture
def hpcflow(request: pytest.FixtureRequest, ada: User, software: Software) -> Iterator[Hpcflow]:
    """hpcflow for ada, who has never used it before.

    Its parameter is the kind of the ledger: SQLite in the home, as it comes, or Postgres.
    """
    hpcflow = newcomer(ada, software)
    if getattr(request, "param", "sqlite") == "sqlite":
        yield hpcflow
        return
    server: Postgres = request.getfixturevalue("postgres_server")
    name = f"e2e_{uuid.uuid4().hex}"
    hpcflow.env["HPCFLOW_LEDGER"] = server.create_database(name)
    yield hpcflow
    server.drop_database(name)


@pytest.fixture(scope="session")
def undisturbed(ada: User, software: Software) -> dict[str, Any]:
    """A run on two nodes that nobody killed; the others must end with the same weights."""
    hpcflow = newcomer(ada, software)
    done = hpcflow.json("run", hpcflow.digits, *TWO_NODES, *TRAINING, "--wait")
    assert {"run_id", "attempt", "job_id", "run_dir"} <= done.keys()
    shown = hpcflow.json("show", done["run_id"])
    assert isinstance(shown, dict)
    return shown


@pytest.fixture
def market(hpcflow: Hpcflow) -> Path:
    """The development cluster, where `auto` may choose the partition that is preempted, too."""
    text = (_SITES / "devcluster.yaml").read_text()
    lines = [line for line in text.splitlines() if not line.strip().startswith("auto: false")]
    return hpcflow.write_config("devcluster.yaml", "\n".join(lines))
