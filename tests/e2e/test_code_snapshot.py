"""The code of a run is frozen, on the real cluster, for a user who is not root."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.test_by_hand import by_hand
from tests.e2e.test_sweep import Search

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200)]

#: Each rank says which code it is, and keeps a copy of it; the first attempt asks for another one.
PROGRAM = """
import os, shutil, sys
from helper import CODE
print("rank", os.environ["RANK"], "code", CODE, flush=True)
kept = f"kept-{os.environ['RANK']}"
shutil.copytree(os.path.dirname(__file__), kept, dirs_exist_ok=True)
shutil.copy(__file__, f"{kept}/copy.py")
sys.exit(75 if os.environ["HPCFLOW_ATTEMPT"] == "1" else 0)
"""
CONFIG = """
name: frozen
script: train.py
resources: {nodes: 2, tasks_per_node: 2, time_limit: 5m}
launch: {launcher: srun}
"""


def write(hpcflow: Hpcflow, code: str) -> Path:
    hpcflow.write_config("helper.py", f"CODE = {code!r}\n")
    hpcflow.write_config("train.py", PROGRAM)
    return hpcflow.write_config("run.yaml", CONFIG)


def goes_on_with_its_code(hpcflow: Hpcflow) -> None:
    """Edit the code of a run that asked for another attempt: that one does not see it."""
    folder = hpcflow.write_config("helper.py", "CODE = 'second'\n").parent
    done = hpcflow.json("resume", "frozen", "--wait")
    assert done["state"] == "completed"
    for attempt in (1, 2):
        said = (Path(done["run_dir"]) / f"attempts/{attempt:04d}/out.log").read_text()
        assert said.count("code first") == 4, said
    assert (folder / "kept-3/copy.py").exists()


def test_train_py_edited_between_two_attempts_changes_nothing(hpcflow: Hpcflow) -> None:
    config = write(hpcflow, "first")
    hpcflow.json("run", config, "--site", "devcluster", "--wait", check=False)
    goes_on_with_its_code(hpcflow)


def test_a_run_that_was_sent_by_hand_keeps_its_code_too(hpcflow: Hpcflow) -> None:
    config = write(hpcflow, "first")
    assert by_hand(hpcflow, config, "--nodes=2", "--cpus-per-task=2", "--time=5") == 75
    goes_on_with_its_code(hpcflow)


OBJECTIVE = """
from hpcflow import runtime

run = runtime.start()
run.restore()
run.finish(accuracy=run.params.momentum)
"""


def test_a_sweep_of_arrays_keeps_the_code_of_its_start(hpcflow: Hpcflow) -> None:
    script = hpcflow.write_config("objective.py", OBJECTIVE)
    more = "submit: array\nsampler: random\nbudget: {trials: 2}\n"
    search = Search(hpcflow, "frozen", more, script=script)
    search.start()
    script.write_text("raise SystemExit('the code of now')\n")

    def is_over() -> bool:
        search.tick()
        return bool(search.status()["state"] == "over")

    poll(is_over, 600, "the sweep never ended")
    assert search.status()["complete"] == 2
