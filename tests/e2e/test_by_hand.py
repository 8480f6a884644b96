"""sbatch by hand: the same run, journal and ledger entry from inside the allocation."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.model.units import format_minutes
from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow

pytestmark = pytest.mark.cluster

#: It leaves a file for each rank that there is.
RANKS = """
import os
from pathlib import Path

Path({folder!r}, f"{{os.environ['RANK']}} of {{os.environ['WORLD_SIZE']}}").touch()
"""
_LIVES = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


def by_hand(
    hpcflow: Hpcflow, config: Path, *options: str, leaked: dict[str, str] | None = None
) -> int:
    """Send the wrapper as people do, and see the job through; its exit code.

    Options after ``--`` are the wrapper's. sbatch's own ``--wait`` looks after 2 seconds, then 4, 8
    and 16 seconds later.
    """
    border = options.index("--") if "--" in options else len(options)
    wrapper = [str(hpcflow.software.sbatch / "train.sbatch"), str(config), "--site", "devcluster"]
    command = ["sbatch", "--parsable", *options[:border], *wrapper, *options[border + 1 :]]
    env = {**hpcflow.env, **(leaked or {})}
    job_id = hpcflow.user.run(command, cwd=hpcflow.home.parent, env=env).stdout.strip()

    def ended() -> str:
        told = hpcflow.user.run(["scontrol", "show", "job", "--oneliner", job_id]).stdout
        return "" if any(f" JobState={state} " in told for state in _LIVES) else told

    told = poll(ended, 240, f"job {job_id} never ended", every_s=0.5)
    code, _, signal = told.partition(" ExitCode=")[2].partition(" ")[0].partition(":")
    assert signal == "0", told
    return int(code)


def ranks_of(hpcflow: Hpcflow, resources: str) -> Path:
    """A config of a program that only counts its ranks, started by torchrun."""
    folder = _folder_of_ranks(hpcflow)
    hpcflow.user.run(["mkdir", str(folder)])
    script = hpcflow.write_config("ranks.py", RANKS.format(folder=str(folder)))
    text = f"name: small\nscript: {script}\nresources: {{{resources}}}\n"
    return hpcflow.write_config("small.yaml", text)


def seen_ranks(hpcflow: Hpcflow) -> list[str]:
    return sorted(path.name for path in _folder_of_ranks(hpcflow).iterdir())


def _folder_of_ranks(hpcflow: Hpcflow) -> Path:
    return hpcflow.home.parent / "ranks"


def test_sbatch_train_sbatch_is_a_run_like_any_other(hpcflow: Hpcflow) -> None:
    wrapper = hpcflow.software.sbatch / "train.sbatch"
    command = ["sbatch", "--parsable", "--nodes=2", "--time=5", str(wrapper)]
    command += [str(hpcflow.digits), "--site", "devcluster", "--set", "params.epochs=4"]
    sent = hpcflow.user.run(command, cwd=hpcflow.home.parent, env=hpcflow.env)
    job_id = sent.stdout.strip()

    def seen() -> bool:
        return any(run["job_id"] == job_id for run in hpcflow.json("ls")["runs"])

    poll(seen, 300, f"the run of job {job_id} never appeared in the ledger")
    assert hpcflow("wait", "digits").returncode == 0
    shown = hpcflow.json("show", "digits")
    assert shown["nodes"] == 2
    assert shown["state"] == "completed"
    assert "accuracy" in shown["metrics"]
    (attempt,) = shown["attempts"]
    assert (attempt["job_id"], attempt["job_name"]) == (job_id, "hpcflow-by-hand")
    assert "accuracy" in hpcflow("logs", "digits").stdout
    assert hpcflow("ledger", "check").returncode == 0


def test_by_hand_with_gpus_every_rank_gets_its_cores(hpcflow: Hpcflow) -> None:
    options = ["--nodes=2", "--gpus-per-node=2", "--cpus-per-task=4", "--time=5"]
    assert by_hand(hpcflow, ranks_of(hpcflow, "time_limit: 10m"), *options) == 0
    shown = hpcflow.json("wait", "small")
    assert (shown["state"], shown["gpus"]) == ("completed", 4)
    assert seen_ranks(hpcflow) == [f"{rank} of 4" for rank in range(4)]


@pytest.mark.parametrize(
    ("options", "resources", "expected", "ranks"),
    [
        # The config's ten minutes are more than the partition allows, and Slurm was told two.
        (
            ["--partition=short", "--time=2", "--signal=B:USR2@5"],
            "time_limit: 10m",
            {"partition": "short", "nodes": 1},
            1,
        ),
        (["--nodes=1", "--cpus-per-task=2"], "tasks_per_node: 2", {"nodes": 1}, 2),
        (["--nodes=2", "--ntasks=3"], "nodes: 1", {"nodes": 2}, 2),  # 2 cores, and 1
    ],
)
def test_what_slurm_granted_is_what_the_run_has(
    hpcflow: Hpcflow, options: list[str], resources: str, expected: dict[str, object], ranks: int
) -> None:
    assert by_hand(hpcflow, ranks_of(hpcflow, resources), *options) == 0
    shown = hpcflow.json("wait", "small")
    assert shown["state"] == "completed"
    assert {key: shown[key] for key in expected} == expected
    assert seen_ranks(hpcflow) == [f"{rank} of {ranks}" for rank in range(ranks)]


def test_a_job_sent_from_an_interactive_one_is_a_batch_job_all_the_same(hpcflow: Hpcflow) -> None:
    leaked = {"SLURM_STEP_ID": "0", "SLURM_STEPID": "0"}
    config = hpcflow.write_config("small.yaml", "name: small\ncommand: ['true']\n")
    assert by_hand(hpcflow, config, "--time=5", leaked=leaked) == 0
    assert hpcflow.json("wait", "small")["state"] == "completed"


def test_a_job_step_is_refused(hpcflow: Hpcflow) -> None:
    config = str(hpcflow.digits)
    step = ["srun", "--ntasks=1", "python3", "-m", "hpcflow.inside", config]
    done = hpcflow.user.run(
        [*step, "--site", "devcluster"], cwd=hpcflow.home.parent, env=hpcflow.env, check=False
    )
    assert done.returncode != 0
    assert "not a Slurm batch job" in done.stderr
    assert hpcflow.json("ls")["runs"] == []


@pytest.mark.parametrize(
    ("option", "said"),
    [("--array=0-1", "job array"), ("--gpus-per-node=4", "--cpus-per-task=4")],
)
def test_what_cannot_be_a_run_is_refused_in_the_job(
    hpcflow: Hpcflow, option: str, said: str
) -> None:
    assert by_hand(hpcflow, hpcflow.digits, "--time=5", option) == 2
    logs = [path.read_text() for path in hpcflow.home.parent.glob("hpcflow-*.log")]
    assert logs
    assert all(said in log for log in logs)
    assert hpcflow.json("ls")["runs"] == []


def test_a_wrong_config_fails_the_job_with_one_message(hpcflow: Hpcflow) -> None:
    config = hpcflow.write_config("wrong.yaml", "name: wrong\nscirpt: train.py\n")
    assert by_hand(hpcflow, config, "--time=5") == 2
    (log,) = hpcflow.home.parent.glob("hpcflow-*.log")
    assert "scirpt" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert hpcflow.json("ls")["runs"] == []


def test_resume_sends_the_next_attempt_with_what_the_first_had(hpcflow: Hpcflow) -> None:
    once = "command: [sh, -c, 'test -e tried || { touch tried; exit 3; }']\n"
    config = hpcflow.write_config("twice.yaml", f"name: twice\n{once}")
    options = ["--partition=spot", "--nodes=1", "--cpus-per-task=2", "--time=5"]
    assert by_hand(hpcflow, config, *options) == 3
    assert hpcflow.json("wait", "twice", check=False)["state"] == "failed"
    hpcflow("resume", "twice")
    shown = hpcflow.json("wait", "twice")
    assert (shown["state"], shown["partition"]) == ("completed", "spot")
    assert len(shown["attempts"]) == 2
    (script,) = hpcflow.home.glob("runs/*/scratch/attempts/0002/job.sbatch")
    asked = {"--partition=spot", f"--time={format_minutes(5)}", "--cpus-per-task=2"}
    assert asked <= set(script.read_text().replace("#SBATCH ", "").splitlines())
