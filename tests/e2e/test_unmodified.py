"""Scripts that never heard of hpcflow, preempted on a real cluster, go on from what they wrote."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import Counted, take_all_nodes, watch
from tests.runtime.adoption import writer

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

#: As one would write it for nanoGPT, and for the Trainer of transformers.
CONFIGS = {
    "overwritten": {
        "resume_args": ["--init_from=resume"],
        "checkpoint": {"adopt": {"like": "nanogpt", "folder": "{{ run.dir }}/artifacts"}},
    },
    "marked": {
        "resume_args": ["--resume", "{{ resume.path }}"],
        "checkpoint": {
            "adopt": {"like": "huggingface", "folder": "{{ run.dir }}/artifacts", "stable": "1s"}
        },
    },
}
COUNT = 40
FIRST = 3
RESOURCES = {"partition": "spot", "cpus_per_task": 1, "mem": "200M", "time_limit": "10m"}


def start(hpcflow: Hpcflow, style: str) -> Counted:
    program = hpcflow.write_config("writer.py", Path(writer.__file__).read_text())
    config: dict[str, Any] = {
        "name": style,
        "command": ["python3", str(program), style, "{{ run.dir }}/artifacts", str(COUNT)],
        # Killed while it overwrites its one file, it has none, and is started again, as it must.
        "args": ["--rest-at", str(FIRST)],
        "launch": {"framework": "none", "launcher": "srun"},
        "resources": RESOURCES,
        "retry": {"backoff": "1s"},
        **CONFIGS[style],
    }
    path = hpcflow.write_config(f"{style}.yaml", json.dumps(config))
    done = hpcflow.json("run", path, "--site", "devcluster")
    return Counted(done["run_id"], Path(done["run_dir"]), hpcflow.home)


def begins(run: Counted, attempt: int) -> int:
    """Where the program of an attempt has begun, as it said so; -1 before it has."""
    path = run.run_dir.attempt(attempt).log
    text = path.read_text() if path.exists() else ""
    return int(text.split("begins at ")[1].split()[0]) if "begins at " in text else -1


def wait_saved(run: Counted, attempt: int, count: int) -> None:
    """Wait until that attempt has saved so often."""

    def log() -> str:
        path = run.run_dir.attempt(attempt).log
        return path.read_text() if path.exists() else ""

    poll(lambda: log().count("saved ") >= count, 300, log)


@pytest.mark.parametrize("style", ["marked", pytest.param("overwritten", marks=pytest.mark.soak)])
def test_preempted_it_goes_on_from_what_was_adopted(
    hpcflow: Hpcflow, grace: User, style: str
) -> None:
    run = start(hpcflow, style)
    wait_saved(run, 1, FIRST)
    take_all_nodes(grace)
    poll(lambda: run.events(1, "exited"), 300, "it was not preempted")
    # Nobody sends it again yet; meanwhile all that it has written itself is purged.
    assert run.checkpoints(), "nothing was adopted before its job ended"
    shutil.rmtree(run.path / "artifacts")
    with watch(hpcflow):
        wait_saved(run, 2, 2)
        second = begins(run, 2)
        assert second == FIRST
        take_all_nodes(grace)
        wait_saved(run, 3, 1)
        assert begins(run, 3) >= second
        poll(lambda: run.causes[-1:] == ["completed"], 300, lambda: str(run.records[-3:]))
    assert run.causes == ["preempted", "preempted", "completed"]
    newest = run.run_dir.checkpoints / f"{run.checkpoints()[-1]:09d}"
    (own,) = (newest / "adopted").iterdir()
    assert writer.load(style, own) == COUNT
    detail = hpcflow.json("show", run.run_id)
    assert detail["train_step"] == run.checkpoints()[-1], "its progress, as far as is known"
    shown = detail["checkpoints"]
    kept = [each["train_step"] for each in shown if each["complete"]]
    assert kept == run.checkpoints()
    assert len(kept) <= 4, "more than the newest three, and the one that it has resumed from"
    assert hpcflow("checkpoint", "verify", run.run_id).returncode == 0
    assert hpcflow("ledger", "check").returncode == 0


#: Saves when it is told to leave, and leaves with a word that srun may keep to itself.
SAVES_ON_NOTICE = """
trap 'mkdir -p "$1" && echo 7 > "$1/step-7" && exit 75' TERM
echo "saved nothing"
while :; do sleep 0.1; done
"""


def test_what_was_saved_on_notice_is_adopted_before_the_job_ends(
    hpcflow: Hpcflow, grace: User
) -> None:
    """It has no marker, and nobody could see for a minute that it does not change."""
    program = hpcflow.write_config("saves.sh", SAVES_ON_NOTICE)
    out = "{{ run.dir }}/artifacts"
    config: dict[str, Any] = {
        "name": "notice",
        "command": ["sh", str(program), out],
        "launch": {"framework": "none", "launcher": "srun"},
        "resources": RESOURCES,
        "checkpoint": {"adopt": {"pattern": "step-*", "folder": out, "stable": "1m"}},
    }
    done = hpcflow.json(
        "run", hpcflow.write_config("notice.yaml", json.dumps(config)), "--site", "devcluster"
    )
    run = Counted(done["run_id"], Path(done["run_dir"]), hpcflow.home)
    wait_saved(run, 1, 1)
    take_all_nodes(grace)
    poll(lambda: run.events(1, "exited"), 300, "it was not preempted")
    attempt = run.run_dir.attempt(1).path
    assert run.checkpoints() == [7], (attempt / "program").read_text()
