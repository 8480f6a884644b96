"""Numbers that a job reports, and that may be damaged: nothing raises, and no table gets wide."""

from __future__ import annotations

import json
from dataclasses import fields
from pathlib import Path
from typing import Final

import pytest

from hpcflow.cli.main import main
from hpcflow.model.measured import Measured
from hpcflow.storage.layout import Home, RunDir
from tests.hostile import held_run

_AT: Final = "2026-03-01T12:00:00.000Z"
NUMBERS: Final = [
    "1e308",
    "-1e308",
    str(10**400),
    "-1",
    "1e-320",
    "9007199254740991",
    "4e9",
    "5000",
]
#: Of no terminal, but of what people can read: the widest table of honest numbers.
WIDEST: Final = 160


@pytest.fixture
def run_dir(home: Path, monkeypatch: pytest.MonkeyPatch) -> RunDir:
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    home.mkdir(mode=0o700)
    return held_run(Home(home), name="numbers", is_over=False, gpus=4)


def report(run_dir: RunDir, *events: dict[str, object], number: str) -> None:
    """Append events in which each ``None`` is ``number``."""
    with run_dir.attempt(1).events.open("a") as file:
        for event in events:
            file.write(json.dumps({"at": _AT, **event}).replace("null", number) + "\n")


COMMANDS: Final = (
    "efficiency RUN",
    "efficiency --by project",
    "show RUN",
    "ls",
    "cost report",
    "cost report --by project",
    "cost wasted",
    "cost audit",
    "history RUN",
    "why RUN",
)


def require_readable(run_dir: RunDir, capfd: pytest.CaptureFixture[str]) -> None:
    for command in COMMANDS:
        for more in ([], ["--json"]):
            words = [run_dir.path.name if each == "RUN" else each for each in command.split()]
            capfd.readouterr()
            code = main([*words, *more])
            said = capfd.readouterr()
            assert code in (0, 1), (command, said.err)
            assert "Traceback" not in said.err
            if more:
                json.loads(said.out, parse_constant=pytest.fail)
            else:
                for line in said.out.splitlines():
                    line = line.replace(str(run_dir.path), "")
                    assert len(line) <= WIDEST, (command, line)


FIELDS: Final[dict[str, object]] = dict.fromkeys(each.name for each in fields(Measured))


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
def test_all_numbers_of_what_was_used(
    run_dir: RunDir, capfd: pytest.CaptureFixture[str], number: str
) -> None:
    usage: dict[str, object] = {"event": "usage", **FIELDS, "seconds": 1800}
    usage |= {"gpus_unused_names": ["n1:0"], "gpus_idle_names": ["n1:0"]}
    report(run_dir, usage, number=number)
    require_readable(run_dir, capfd)
    report(run_dir, {**usage, "seconds": None, "asked": dict.fromkeys(
        ("cpus", "gpus", "mem_mb", "time_limit_min"))}, number=number)  # fmt: skip
    require_readable(run_dir, capfd)


@pytest.mark.parametrize("number", NUMBERS, ids=lambda number: number[:12])
def test_all_numbers_of_the_training(
    run_dir: RunDir, capfd: pytest.CaptureFixture[str], number: str
) -> None:
    facts = {"train_step": None, "epoch": None, "metrics": {"loss": None, "a": None}}
    facts |= {"total_train_steps": None, "data_wait_s": None, "loader_workers": None}
    more = {"size_bytes": None, "path": "checkpoints/000000020", "seconds": None, "took_s": None}
    for kind in ("progress", "checkpoint", "finished"):
        event: dict[str, object] = {"event": kind, **facts, **more}
        report(run_dir, event, {**event, "train_step": 30}, number=number)
        require_readable(run_dir, capfd)
    report(run_dir, {"event": "exited", "exit_code": None}, number=number)
    require_readable(run_dir, capfd)


@pytest.mark.parametrize("number", [*NUMBERS, '"1E+999"', '"NaN"'], ids=lambda number: number[:12])
@pytest.mark.parametrize("which", ["times", "amounts", "counts"])
def test_all_numbers_of_a_bill(
    run_dir: RunDir, capfd: pytest.CaptureFixture[str], number: str, which: str
) -> None:
    ended = {"record": "ended", "attempt": 1, "cause": "failed", "raw_state": "FAILED"}
    ended |= {"rule": "test", "exit_code": 1, "ended_at": _AT}
    bill: dict[str, object] = {"record": "accounted", "attempt": 1, "job_id": "7", "nodes": 1}
    bill |= {"source": "accounting", "elapsed_s": 3600, "gpu_hours": "4", "cost_usd": "3"}
    amounts = dict.fromkeys(("cost_usd", "cost_su", "on_demand_usd"))
    kinds: dict[str, dict[str, object]] = {
        "times": {"elapsed_s": None, "gpu_hours": None},
        "amounts": {**amounts, "parts": [{**amounts, "gpu_hours": "1"}, {"gpu_hours": None}]},
        "counts": {"nodes": None, "cpus": None, "mem_mb": None, "gpus": {"a100": None}},
    }
    bill |= kinds[which]
    with run_dir.journal.open("a") as file:
        for record in (ended, bill):
            file.write(json.dumps({"at": _AT, **record}).replace("null", number) + "\n")
    require_readable(run_dir, capfd)
