"""How the ranks are started: where they meet, ports, frameworks, containers."""

from __future__ import annotations

import json
import os
import re
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcflow.rendering.context import container_of
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.testing.cluster import poll
from tests.rendering.executed import NONE, RANK, SRUN_STUB, Bench, json_of, written
from tests.rendering.samples import RUN_ID, a_run, a_site, a_spec


def under_srun(bench: Bench, site: Site, **changes: Any) -> dict[str, str]:
    """The environment that srun gives to its tasks, and the words in `_`."""
    bench.program("srun", SRUN_STUB)
    bench.program("scontrol", "#!/bin/sh\nexit 1\n")
    bench.write(a_spec(script=None, command=["./go"], **changes), site)
    assert bench.execute(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[1-2]") == 0, bench.log()
    return dict(bench.dumped_environ())


def test_ranks_are_told_where_they_meet(bench: Bench) -> None:
    srun = {"launcher": "srun", "framework": "jax"}
    environ = under_srun(bench, a_site(), launch=srun, resources={"nodes": 2, "gpus_per_node": 4})
    assert environ["MASTER_ADDR"] == "n1"
    assert 10240 <= int(environ["MASTER_PORT"]) < 30720
    assert (environ["WORLD_SIZE"], environ["LOCAL_WORLD_SIZE"]) == ("8", "4")
    assert environ["JAX_NUM_PROCESSES"] == "8"
    assert environ["JAX_COORDINATOR_ADDRESS"] == f"n1:{environ['MASTER_PORT']}"
    words = [word.decode() for word in bench.dumped("argv")]
    assert {"--nodes=2", "--ntasks=8", "--ntasks-per-node=4"} <= set(words)
    assert {"--cpus-per-task=8", "--kill-on-bad-exit=1"} <= set(words)


def test_a_site_can_fix_the_port(bench: Bench) -> None:
    site = a_site(fabric={"master_port": 3442})
    assert under_srun(bench, site, launch={"launcher": "srun"})["MASTER_PORT"] == "3442"


def test_a_command_of_one_rank_is_a_world_of_one_without_torchrun(bench: Bench) -> None:
    written(bench, sys.executable, str(RANK), str(bench.work), "0", launch={})
    assert "torch.distributed.run" not in bench.attempt.script.read_text()
    assert bench.execute() == 0, bench.log()
    environ = json_of(bench.work / "0.json")["environ"]
    told = {
        name: environ[name]
        for name in ("RANK", "LOCAL_RANK", "NODE_RANK", "WORLD_SIZE", "LOCAL_WORLD_SIZE")
    }
    assert told == {
        "RANK": "0",
        "LOCAL_RANK": "0",
        "NODE_RANK": "0",
        "WORLD_SIZE": "1",
        "LOCAL_WORLD_SIZE": "1",
    }
    assert environ["MASTER_ADDR"] == "127.0.0.1"
    assert 10240 <= int(environ["MASTER_PORT"]) < 30720


def test_a_ddp_script_that_is_started_as_a_command_still_finds_its_world(bench: Bench) -> None:
    written(bench, sys.executable, str(RANK), str(bench.work), "0", "allreduce", launch={})
    assert bench.execute() == 0, bench.log()
    assert (bench.work / "0.sum").read_text() == "0.0"


def test_a_port_in_use_is_passed_over(bench: Bench) -> None:
    first = int(under_srun(bench, a_site(), launch={"launcher": "srun"})["MASTER_PORT"])
    bench.attempt.claim.unlink()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        taken.listen()
        second = int(under_srun(bench, a_site(), launch={"launcher": "srun"})["MASTER_PORT"])
    assert second == first + 16


def test_whoever_reaches_torchruns_port_executes_nothing(bench: Bench) -> None:
    """torchrun unpickles what stands under the name of its rendezvous, and looks every 5 s."""
    venv = {"venv": sys.prefix} if (Path(sys.prefix) / "bin" / "activate").exists() else {}
    torchrun = {"launcher": "torchrun"}
    rank = ("python3", str(RANK), str(bench.work), "6", "go")
    written(bench, *rank, launch=torchrun, environment=venv)
    job = bench.start()
    poll(lambda: (bench.work / "0.json").exists(), 120, bench.log)
    name = json_of(bench.work / "0.json")["environ"]["TORCHELASTIC_RUN_ID"]
    shown = b"".join(
        words for words in map(_command_line, Path("/proc").glob("[0-9]*/cmdline"))
        if os.fsencode(bench.work) in words
    )  # fmt: skip
    found = re.search(rb"--rdzv-endpoint=127\.0\.0\.1:(\d+)", shown)
    assert found is not None
    owned = bench.folder / "owned"
    stranger = f"""
import base64, datetime, os, pickle
from torch.distributed import TCPStore
class Code:
    def __reduce__(self):
        return os.mkdir, ({str(owned)!r},)
code = base64.b64encode(pickle.dumps(Code())).decode()
at_most = datetime.timedelta(seconds=60)
store = TCPStore("127.0.0.1", {int(found[1])}, is_master=False, timeout=at_most)
for name in ({RUN_ID!r}, "{RUN_ID}.1", "{RUN_ID}.1.0", "none"):
    store.set(f"torch.rendezvous.{{name}}", code)
"""
    subprocess.run([sys.executable, "-c", stranger], check=True)
    (bench.work / "go").touch()
    assert job.wait(120) == 0, bench.log()
    assert not owned.exists()
    assert name.encode() not in shown


def _command_line(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:  # it has ended
        return b""


def test_jobs_close_together_never_share_a_port(bench: Bench) -> None:
    written(bench, "true", site=a_site(), launch={"launcher": "srun", "framework": "none"})
    formula = re.search(r"hpcflow_port=\$\(\(.*\)\)", bench.attempt.script.read_text())
    assert formula is not None
    loop = f"for hpcflow_job_id in {{99000..100279}}; do hpcflow_restarts=0; {formula[0]}; "
    output = subprocess.run(
        ["bash", "-c", loop + "echo $hpcflow_port; done"], capture_output=True, check=True
    ).stdout.split()
    assert len(set(output)) == len(output) == 1280


def test_every_rank_of_tensorflow_knows_all_workers(bench: Bench) -> None:
    bench.program("srun", SRUN_STUB)
    (bench.bin / "goes-on").touch()
    bench.program("scontrol", "#!/bin/sh\nexit 1\n")
    test = ["sh", "-c", 'printf "%s" "$TF_CONFIG" > config; echo "$CUDA_VISIBLE_DEVICES" > gpus']
    tensorflow = {"launcher": "srun", "framework": "tensorflow"}
    resources = {"nodes": 2, "gpus_per_node": 2}
    written(bench, *test, site=a_site(), launch=tensorflow, resources=resources)
    job = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n[1-2]",
        "SLURM_PROCID": "3",
        "SLURM_LOCALID": "1",
        "CUDA_VISIBLE_DEVICES": "4,6",
    }
    assert bench.execute(**job) == 0, bench.log()
    assert (bench.work / "gpus").read_text() == "6\n", "TensorFlow takes all that it sees"
    config = json.loads((bench.work / "config").read_text())
    workers = config["cluster"]["worker"]
    assert [worker.split(":")[0] for worker in workers] == ["n1", "n1", "n2", "n2"]
    assert len({worker.split(":")[1] for worker in workers}) == 4
    assert config["task"] == {"type": "worker", "index": 3}


def test_a_container_gets_folders_driver_and_variables(bench: Bench) -> None:
    bench.program("apptainer", SRUN_STUB)
    secret = bench.folder / "secret"
    secret.write_text("x")
    plain = Bench(bench.folder.parent / "plain")  # a mount cannot hold every character
    plain.bin = bench.bin
    environment = {
        "container": {"image": "/images/train.sif", "mounts": ["/data:/data:ro"]},
        "variables": {"OWN": "it's"},
        "secrets": {"KEY": str(secret)},
    }
    site = a_site()
    resources = {"gpus_per_node": 1}
    written(plain, "./go", site=site, environment=environment, resources=resources)
    assert plain.execute(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n1") == 0, plain.log()
    words = [word.decode() for word in plain.dumped("argv")]
    assert words[0] == "exec"
    assert "--nv" in words
    assert f"{plain.run_dir.path}:{plain.run_dir.path}" in words
    assert "/data:/data:ro" in words
    assert words[-2:] == ["/images/train.sif", "./go"]
    environ = plain.dumped_environ()
    assert environ["APPTAINERENV_OWN"] == "it's"
    assert environ["APPTAINERENV_KEY"] == environ["SINGULARITYENV_KEY"] == "x"
    assert environ["APPTAINERENV_PYTHONPATH"] == str(plain.run_dir.runtime)


@pytest.mark.parametrize(
    ("script", "mounts", "first"),
    [
        ("/home/ada/shared/train.py", [], ["/home/ada/shared:/home/ada/shared"]),
        ("/home/ada/train.py", [], ["/home/ada:/home/ada"]),
        ("/home/ada/project/src/train.py", [], []),
        ("/shared/train.py", ["/archive/code:/shared:ro"], []),
    ],
)
def test_a_container_finds_the_script_wherever_it_lies(
    script: str, mounts: list[str], first: list[str]
) -> None:
    container = {"image": "/images/train.sif", "mounts": mounts}
    run = a_run(a_spec(script=script, environment={"container": container}))
    found = container_of(run, a_site(), place(run.spec, a_site()), [])
    assert found is not None
    own = [f"{folder}:{folder}" for folder in (run.run_dir, run.working_dir)]
    assert list(found.mounts) == [*first, *own, *mounts]


def test_pyxis_is_a_matter_of_srun(bench: Bench) -> None:
    plain = Bench(bench.folder.parent / "plain")
    container = {"runtime": "pyxis", "image": "nvcr.io#nvidia/pytorch:24.01"}
    environment = {"container": container, "variables": {"OWN": "x"}}
    under_srun(plain, a_site(), launch=NONE, environment=environment)
    words = [word.decode() for word in plain.dumped("argv")]
    assert "--container-image=nvcr.io#nvidia/pytorch:24.01" in words
    assert "--container-env=OWN,PYTHONPATH" in words
    assert "--ntasks=1" in words


@pytest.mark.parametrize(
    ("ranks", "given", "expected"),
    [
        (2, {"CUDA_VISIBLE_DEVICES": "4,6"}, ["4", "6"]),
        (2, {"CUDA_VISIBLE_DEVICES": "0,1,2,3"}, ["0,1", "2,3"]),
        (4, {"CUDA_VISIBLE_DEVICES": "0,1"}, ["0", "1", "0", "1"]),
        (2, {"CUDA_VISIBLE_DEVICES": "3"}, ["3", "3"]),
        (2, {"ROCR_VISIBLE_DEVICES": "6,7", "CUDA_VISIBLE_DEVICES": "6,7"}, ["6,7", "6,7"]),
        (2, {}, ["", ""]),
    ],
)
def test_every_rank_of_tensorflow_gets_its_share_of_the_gpus(
    bench: Bench, ranks: int, given: dict[str, str], expected: list[str]
) -> None:
    bench.program("srun", SRUN_STUB)
    (bench.bin / "goes-on").touch()
    words = ["sh", "-c", 'echo "$ROCR_VISIBLE_DEVICES $CUDA_VISIBLE_DEVICES" > gpus']
    tensorflow = {"launcher": "srun", "framework": "tensorflow"}
    resources = {"gpus_per_node": 4, "tasks_per_node": ranks}
    written(bench, *words, site=a_site(), launch=tensorflow, resources=resources)
    seen = []
    for rank in range(ranks):
        job = {"SLURM_JOB_ID": f"{rank + 7}", "SLURM_JOB_NODELIST": "n1"}
        bench.attempt.claim.unlink(missing_ok=True)
        assert bench.execute(**job, SLURM_LOCALID=str(rank), **given) == 0, bench.log()
        seen.append((bench.work / "gpus").read_text().strip("\n").split(" ", 1))
    assert [cuda for _, cuda in seen] == expected
    if "ROCR_VISIBLE_DEVICES" in given:
        assert [rocr for rocr, _ in seen] == ["6", "7"], "one of them is narrowed, not both"


@pytest.mark.parametrize("python3", ["exit 1", "echo 'Python 2.7.18'; exit 2", "exit 127"])
def test_a_rank_starts_without_a_python3_of_today(bench: Bench, python3: str) -> None:
    """An old image of a container may have none, or Python 3.5."""
    bench.program("srun", SRUN_STUB)
    (bench.bin / "goes-on").touch()
    bench.program("python3", f"#!/bin/sh\n{python3}\n")
    written(bench, "sh", "-c", "echo hello; exit 75", site=a_site(), launch={"launcher": "srun"})
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    assert bench.execute(**job) == 75, bench.log()
    assert "hello" in bench.log().splitlines()
