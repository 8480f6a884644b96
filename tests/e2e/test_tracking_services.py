"""W&B and MLflow on a real cluster: one run of theirs for all attempts, and nothing is lost."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml

from hpcflow.testing.cluster import User, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.counted import Counted, take_all_nodes, watch

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

PAGE = Path(__file__).resolve().parents[2] / "docs" / "tracking_services.md"
PLAIN_LOG = """
def log(values, train_step):
    wandb.log(values, step=train_step)
"""
#: As one would write it for W&B and MLflow alone. After a preemption it does five train steps more.
SCRIPT = """
import time
import mlflow, wandb
from hpcflow import runtime

class Nothing:
    def state_dict(self):
        return {}
    def load_state_dict(self, state):
        pass

run = runtime.start()
wandb.init()
mlflow.start_run()
began_at = run.restore(nothing=Nothing())
for train_step in run.train_steps(began_at + 5 if began_at else 100_000):
    time.sleep(0.1)
    log({"loss": 1 / train_step, "note": f"<train step {train_step}>"}, train_step)
    mlflow.log_metric("loss", 1 / train_step, step=train_step)
    run.log(loss=1 / train_step)
run.finish()
"""
#: What MLflow's server knows of the one run.
STEPS = """
import json, sys, mlflow
(run,) = mlflow.search_runs(["0"], output_format="list")
history = mlflow.MlflowClient().get_metric_history(run.info.run_id, "loss")
print(json.dumps([metric.step for metric in history]))
"""


def blocks_of_the_page(language: str) -> list[str]:
    return re.findall(rf"```{language}\n(.*?)```", PAGE.read_text(), re.DOTALL)


def environment_of_the_page(database: str) -> dict[str, Any]:
    """What docs/tracking_services.md tells users to write, for a cluster without the internet."""
    wandb, mlflow = (yaml.safe_load(block)["environment"] for block in blocks_of_the_page("yaml"))
    setup = [re.sub(r"(TRACKING_URI=)\S+", rf"\1{database}", line) for line in mlflow["setup"]]
    return {"variables": {**wandb["variables"], "WANDB_MODE": "offline"}, "setup": setup}


@pytest.mark.soak
def test_a_preempted_script_goes_on_with_its_run_of_wandb_and_mlflow(
    hpcflow: Hpcflow, grace: User
) -> None:
    """Where Slurm signals W&B's process, too, the script needs the function of the page."""
    (function,) = blocks_of_the_page("python")
    has_cgroups = "proctrack/cgroup" in hpcflow.user.run(["scontrol", "show", "config"]).stdout
    log = PLAIN_LOG if has_cgroups else function[function.index("def log") :]
    database = f"sqlite:///{hpcflow.home.parent}/mlflow.db"
    config = {
        "name": "tracked",
        "script": str(hpcflow.write_config("tracked.py", log + SCRIPT)),
        "launch": {"framework": "none", "launcher": "srun"},
        "resources": {"partition": "spot", "cpus_per_task": 1, "mem": "1G", "time_limit": "10m"},
        "retry": {"backoff": "1s"},
        "environment": environment_of_the_page(database),
    }
    path = hpcflow.write_config("tracked.yaml", json.dumps(config))
    done = hpcflow.json("run", path, "--site", "devcluster")
    run = Counted(done["run_id"], Path(done["run_dir"]), hpcflow.home)
    poll(lambda: run.events(1, "progress"), 240, "it does not train")
    with watch(hpcflow):
        take_all_nodes(grace)
        poll(lambda: run.causes == ["preempted", "completed"], 300, lambda: str(run.records[-3:]))

    first, second = hpcflow.json("history", run.run_id)["attempts"]
    assert (first["exit_code"], first["lost_train_steps"]) == (75, 0)
    train_steps = list(range(1, second["reached_train_step"] + 1))
    asked = hpcflow.user.run(["python3", "-c", STEPS], env={"MLFLOW_TRACKING_URI": database})
    assert json.loads(asked.stdout) == train_steps

    folders = sorted((run.path / "wandb").glob("offline-run-*"))
    assert [folder.name.endswith(f"-{run.run_id}") for folder in folders] == [True, True]
    logged = b"".join(path.read_bytes() for folder in folders for path in folder.glob("*.wandb"))
    missing = [step for step in train_steps if b"<train step %d>" % step not in logged]
    assert missing == [] or not has_cgroups
