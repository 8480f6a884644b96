"""What the script does, executed by real bash: claim, events, notice, exit codes, resuming."""

from __future__ import annotations

import hashlib
import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import InputError, SpecError
from hpcflow.sites.schema import Site
from hpcflow.testing.cluster import poll
from tests.rendering.executed import SRUN_STUB, Bench
from tests.rendering.samples import RUN_ID, a_local_site, a_run, a_site, a_spec, script_of

NONE = {"launcher": "none", "framework": "none"}
RANK = Path(__file__).parent / "programs" / "rank.py"


@pytest.fixture
def bench(weird_tmp_path: Path) -> Iterator[Bench]:
    """A run directory under a path that breaks whoever forgets to quote it."""
    yield Bench(weird_tmp_path)
    assert not list(weird_tmp_path.parent.rglob("owned"))


def written(bench: Bench, *command: str, site: Site | None = None, **changes: Any) -> Bench:
    """The script of a plain command on this machine."""
    options = {name: changes.pop(name) for name in ("resume_from",) if name in changes}
    spec = a_spec(script=None, command=list(command), **{"launch": NONE, **changes})
    bench.write(spec, site or a_local_site(), **options)
    return bench


def kinds(bench: Bench) -> list[str]:
    return [str(event["event"]) for event in bench.events()]


# The claim


def test_an_attempt_leaves_its_claim_two_events_and_its_exit_code(bench: Bench) -> None:
    assert written(bench, "echo", "it's done").execute() == 0
    assert bench.attempt.claim.read_text() == "7\n"
    started, exited = bench.events()
    assert started["job_id"] == "7"
    assert started["restarts"] == 0
    assert len(started["nodes"]) == 1
    assert (exited["event"], exited["exit_code"]) == ("exited", 0)
    assert "it's done" in bench.log()


def test_another_job_leaves_a_claimed_attempt_alone(bench: Bench) -> None:
    written(bench, "touch", "done").execute()
    (bench.work / "done").unlink()
    before = bench.events()
    assert bench.execute(HPCFLOW_LOCAL_JOB_ID="8") == 0
    assert "job 7 executes this attempt; job 8 leaves it alone" in bench.log()
    assert bench.events() == before
    assert not (bench.work / "done").exists()


def test_of_many_jobs_of_one_attempt_exactly_one_executes_it(bench: Bench) -> None:
    written(bench, "sh", "-c", "echo x >> done")
    jobs = [bench.start(HPCFLOW_LOCAL_JOB_ID=str(number)) for number in range(10, 18)]
    assert {job.wait(60) for job in jobs} == {0}
    assert (bench.work / "done").read_text() == "x\n"
    assert kinds(bench) == ["started", "exited"]
    assert [path.name for path in bench.attempt.path.glob("claim*")] == ["claim"]


def test_a_job_that_slurm_restarts_goes_on_with_its_own_claim(bench: Bench) -> None:
    site, job = a_site(), {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    written(bench, "true", site=site).execute(**job)
    bench.attempt.notice.write_text("TERM\n")
    bench.attempt.resubmit.touch()
    assert bench.execute(**job, SLURM_RESTART_COUNT="1") == 0, "the word of its former life counted"
    assert [event.get("restarts") for event in bench.events()] == [0, None, 1, None]
    assert not bench.attempt.notice.exists()


def test_where_there_are_no_hard_links_the_claim_holds_as_well(bench: Bench) -> None:
    bench.program("ln", "#!/bin/sh\nexit 1\n")
    written(bench, "sh", "-c", "echo x >> done").execute()
    bench.execute(HPCFLOW_LOCAL_JOB_ID="8")
    assert bench.attempt.claim.read_text() == "7\n"
    assert (bench.work / "done").read_text() == "x\n"


def test_a_cancelled_run_does_not_start(bench: Bench) -> None:
    """It was cancelled while nobody knew whether this job existed."""
    bench.run_dir.cancel.touch()
    assert written(bench, "touch", "done").execute() == 0
    assert kinds(bench) == ["exited"]
    assert not (bench.work / "done").exists()


def test_without_its_folder_the_script_says_so(bench: Bench) -> None:
    written(bench, "true")
    script = bench.attempt.script.read_text()
    shutil.rmtree(bench.run_dir.path)
    done = subprocess.run(
        ["bash"], input=script, env=bench.environment(), capture_output=True, text=True
    )
    assert done.returncode == 1
    assert "cannot write to" in done.stderr


def test_a_slurm_script_outside_slurm_says_what_to_do(bench: Bench) -> None:
    assert written(bench, "true", site=a_site()).execute() == 1
    assert "send the script with sbatch" in bench.log()
    assert not bench.attempt.claim.exists()


# Events


def test_half_a_line_of_a_killed_writer_spoils_no_event(bench: Bench) -> None:
    bench.attempt.events.write_text('{"at": "2026-01-02T00:00:00.000Z", "event": "prog')
    written(bench, "true").execute()
    lines = bench.attempt.events.read_bytes().splitlines()
    assert len(lines) == 3
    assert b'"started"' in lines[1]


@pytest.mark.parametrize(
    ("nodelist", "nodes"),
    [
        ("n1", ["n1"]),
        ("n[1-3]", ["n1", "n2", "n3"]),
        ("n[08-10,012],login1", ["n08", "n09", "n10", "n012", "login1"]),
        ("r[1-2]c[3-4]-x,b", ["r1c3-x", "r1c4-x", "r2c3-x", "r2c4-x", "b"]),
        ("nid[001234-001235]", ["nid001234", "nid001235"]),
    ],
)
def test_the_nodes_are_known_without_scontrol(
    bench: Bench, nodelist: str, nodes: list[str]
) -> None:
    bench.program("scontrol", "#!/bin/sh\nexit 1\n")
    written(bench, "true", site=a_site()).execute(SLURM_JOB_ID="7", SLURM_JOB_NODELIST=nodelist)
    assert bench.events()[0]["nodes"] == nodes


def test_what_scontrol_says_goes_before(bench: Bench) -> None:
    bench.program("scontrol", "#!/bin/sh\nprintf 'odd\"\\\\name\\nn2\\n'\n")
    written(bench, "true", site=a_site()).execute(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n[1-2]")
    assert bench.events()[0]["nodes"] == ['odd"\\name', "n2"]


# How it ends


@pytest.mark.parametrize(
    ("code", "expected"), [(0, 0), (1, 1), (75, 75), (85, 75), (127, 127), (255, 255)]
)
def test_the_exit_code_is_the_programs_or_the_wish_to_be_sent_again(
    bench: Bench, code: int, expected: int
) -> None:
    written(bench, "sh", "-c", f"exit {code}", retry={"resubmit_exit_codes": [85]})
    assert bench.execute() == expected
    assert bench.events()[-1]["exit_code"] == expected


def test_a_program_that_is_killed_is_no_success(bench: Bench) -> None:
    assert written(bench, "sh", "-c", "kill -9 $$").execute() == 137
    assert bench.events()[-1]["exit_code"] == 137


def test_the_word_in_the_file_counts_whatever_the_launcher_made_of_the_exit_code(
    bench: Bench,
) -> None:
    written(bench, "sh", "-c", ': > "$HPCFLOW_ATTEMPT_DIR/resubmit"; exit 1')
    assert bench.execute() == 75


def test_a_rank_under_a_launcher_leaves_the_word_and_no_failure(bench: Bench) -> None:
    """srun would kill the other ranks in the middle of their last save."""
    bench.program("srun", SRUN_STUB + 'echo "ended with $?"')
    (bench.bin / "goes-on").touch()
    srun = {"launcher": "srun", "framework": "none"}
    written(bench, "sh", "-c", "exit 75", site=a_site(), launch=srun)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    assert bench.execute(**job) == 75
    assert bench.attempt.resubmit.exists()


@pytest.mark.parametrize(
    ("environment", "message"),
    [
        ({"venv": "/no/venv"}, "there is no virtual environment /no/venv"),
        ({"secrets": {"KEY": "/no/secret"}}, "cannot read the file of the secret KEY: /no/secret"),
        ({"secrets": {"KEY": "/"}}, "cannot read the file of the secret KEY"),
        ({"conda": "train"}, "there is no conda"),
        ({"modules": ["cuda/12"]}, "cannot load the module cuda/12"),
        ({"container": {"image": "/x.sif"}}, "neither apptainer nor singularity"),
    ],
)
def test_what_is_missing_is_said_and_the_program_does_not_start(
    bench: Bench, environment: dict[str, Any], message: str
) -> None:
    written(bench, "touch", "done", environment=environment, retry={"resubmit_exit_codes": [1]})
    assert bench.execute() == 1
    assert message in bench.log()
    assert kinds(bench) == ["started", "exited"]
    assert not (bench.work / "done").exists()


def test_a_missing_working_directory_is_said(bench: Bench) -> None:
    shutil.rmtree(bench.work)
    assert written(bench, "true").execute() == 1
    assert "cannot enter the working directory" in bench.log()


# What the program finds


def test_the_variables_of_a_job(bench: Bench) -> None:
    written(
        bench,
        sys.executable,
        str(RANK),
        str(bench.work),
        "0",
        checkpoint={"interval": "10m", "every_train_steps": 5},
        environment={"variables": {"NCCL_DEBUG": "run", "OWN": "a  b\n'c'"}},
        site=a_local_site(
            variables={"OWN": "site", "SITE": "s"},
            fabric={"variables": {"NCCL_DEBUG": "site", "FI": "x"}},
        ),
    )
    assert bench.execute(HPCFLOW_RESUME_FROM="/of/another/run", RANK="3", PYTHONPATH="/own") == 0
    environ = json_of(bench.work / "none.json")["environ"]
    run_dir, attempt = bench.run_dir, bench.attempt
    expected = {
        "HPCFLOW_RUN_ID": RUN_ID,
        "HPCFLOW_RUN_DIR": str(run_dir.path),
        "HPCFLOW_ATTEMPT": "1",
        "HPCFLOW_ATTEMPT_DIR": str(attempt.path),
        "HPCFLOW_EVENTS": str(attempt.events),
        "HPCFLOW_NOTICE": str(attempt.notice),
        "HPCFLOW_CHECKPOINT_DIR": str(run_dir.checkpoints),
        "HPCFLOW_PARAMS": str(run_dir.params_json),
        "HPCFLOW_TENSORBOARD_DIR": str(run_dir.tensorboard),
        "HPCFLOW_CHECKPOINT_INTERVAL_S": "600",
        "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": "5",
        "HPCFLOW_RESUBMIT_EXIT_CODE": "75",
        "PYTHONPATH": f"{run_dir.runtime}:/own",
        "NCCL_DEBUG": "run",
        "OWN": "a  b\n'c'",
        "SITE": "s",
        "FI": "x",
        "PWD": str(bench.work),
    }
    assert {name: environ.get(name) for name in expected} == expected
    assert not {"HPCFLOW_RESUME_FROM", "RANK", "WORLD_SIZE", "MASTER_PORT"} & set(environ)


def json_of(path: Path) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(path.read_text())
    return found


def test_names_that_are_switched_off_are_absent(bench: Bench) -> None:
    never = {"interval": "never"}
    written(bench, sys.executable, str(RANK), str(bench.work), "0", checkpoint=never)
    bench.execute(HPCFLOW_CHECKPOINT_INTERVAL_S="1", HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS="1")
    environ = json_of(bench.work / "none.json")["environ"]
    assert "HPCFLOW_CHECKPOINT_INTERVAL_S" not in environ
    assert "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS" not in environ


def test_a_secret_reaches_the_program_and_nothing_else(bench: Bench) -> None:
    secret = bench.folder / "the key"
    secret.write_text("s3cr3t $(touch owned) 'x'\n")
    test = 'printf "%s" "$KEY" | sha256sum > sum'
    written(bench, "sh", "-c", test, environment={"secrets": {"KEY": str(secret)}})
    assert bench.execute() == 0, bench.log()
    value = secret.read_bytes().rstrip(b"\n")
    assert (bench.work / "sum").read_text().split()[0] == hashlib.sha256(value).hexdigest()
    for path in bench.run_dir.path.rglob("*"):
        assert path.is_dir() or b"s3cr3t" not in path.read_bytes()


def test_what_the_submitting_shell_leaked_is_gone(bench: Bench) -> None:
    bench.program("scontrol", "#!/bin/sh\nexit 1\n")  # the real one misses its configuration
    site = a_site(dialect={"options": ["--hint=nomultithread"]})
    written(bench, sys.executable, str(RANK), str(bench.work), "0", site=site)
    leaked = {
        "SLURM_CPU_BIND": "mask_cpu:0x1",
        "SLURM_MEM_BIND": "local",
        "SLURM_MEM_PER_CPU": "1",
        "SLURM_STEP_ID": "0",
        "SLURM_TIME_FORMAT": "relative",
        "SBATCH_PARTITION": "debug",
        "SRUN_DEBUG": "3",
        "PMI_RANK": "1",
        "PMIX_RANK": "1",
        "PET_NPROC_PER_NODE": "9",
        "CDPATH": "/",
    }
    own = {
        "SLURM_JOB_ID": "7",
        "SLURM_JOB_NODELIST": "n1",
        "SLURM_JOB_NUM_NODES": "1",
        "SLURM_HINT": "nomultithread",
        "SLURM_CPUS_PER_TASK": "4",
        "SLURM_CONF": "/etc/slurm.conf",
        "SLURM_SUBMIT_DIR": "/x",
    }
    assert bench.execute(**leaked, **own) == 0, bench.log()
    environ = json_of(bench.work / "none.json")["environ"]
    assert not set(leaked) & set(environ)
    assert {name: environ.get(name) for name in own} == own
    assert environ["SLURM_EXPORT_ENV"] == "ALL"


# What it resumes from


def checkpoint(bench: Bench, name: str, *, complete: bool = True) -> None:
    folder = bench.run_dir.checkpoints / name
    folder.mkdir(parents=True)
    if complete:
        (folder / "manifest.json").write_text("{}")


def resumed_from(bench: Bench, resume_from: str | None = None) -> str | None:
    written(
        bench, sys.executable, str(RANK), str(bench.work), "0", resume_from=resume_from
    ).execute()
    found: str | None = json_of(bench.work / "none.json")["environ"].get("HPCFLOW_RESUME_FROM")
    return found


def test_without_checkpoints_there_is_nothing_to_resume_from(bench: Bench) -> None:
    assert resumed_from(bench) is None


def test_the_checkpoint_of_the_submission_is_taken(bench: Bench) -> None:
    given = str(bench.run_dir.path / "artifacts/it's old")
    assert resumed_from(bench, "artifacts/it's old") == given


def test_the_newest_complete_checkpoint_is_taken_by_its_number(bench: Bench) -> None:
    for name in ("9", "010", "00099", "0100000000000000000000", "latest", "-5"):
        checkpoint(bench, name)
    checkpoint(bench, "500", complete=False)
    assert resumed_from(bench, "checkpoints/9") == str(bench.run_dir.checkpoints / "00099")


# The notice


@pytest.mark.parametrize(("name", "launch"), [("none", NONE), ("0", {"launcher": "torchrun"})])
@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_the_notice_reaches_the_program_and_its_word_comes_back(
    bench: Bench, name: str, launch: dict[str, str], number: signal.Signals
) -> None:
    """Under a real torchrun too, which forwards no USR2 and would die of it."""
    venv = {"venv": sys.prefix} if (Path(sys.prefix) / "bin" / "activate").exists() else {}
    written(bench, "python3", str(RANK), str(bench.work), "60", launch=launch, environment=venv)
    job = bench.start()
    poll(lambda: (bench.work / f"{name}.json").exists(), 60, bench.log)
    assert json_of(bench.work / f"{name}.json")["usr2_ignored"]
    job.send_signal(number)
    assert job.wait(60) == 75, bench.log()
    assert bench.attempt.notice.read_text() == number.name.removeprefix("SIG") + "\n"
    assert (bench.work / f"{name}.signals").read_text().split()[0] == "SIGUSR2"
    assert bench.events()[-1]["exit_code"] == 75


def test_a_program_that_does_not_listen_outlives_the_notice(bench: Bench) -> None:
    """The script waits until the program has really ended, however often it is interrupted."""
    written(bench, "sh", "-c", "touch up; while [ ! -e go ]; do sleep 0.05; done; exit 3")
    job = bench.start()
    poll(lambda: (bench.work / "up").exists(), 30, bench.log)
    for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGUSR2):
        job.send_signal(number)
    poll(lambda: bench.attempt.notice.exists(), 30, bench.log)
    (bench.work / "go").touch()
    assert job.wait(60) == 3
    assert bench.events()[-1]["exit_code"] == 3


def test_a_notice_that_comes_too_early_waits_for_the_program(bench: Bench) -> None:
    """While the environment is made ready there is only the flag file to tell it by."""
    folder = bench.folder.parent  # its name needs no quotes
    loading, fifo = folder / "loading", folder / "fifo"
    os.mkfifo(fifo)
    init = bench.program("init", f"module() {{ : > {loading}; read -r _ < {fifo}; }}\n")
    written(
        bench,
        "sh",
        "-c",
        'test -e "$HPCFLOW_NOTICE"',
        site=a_local_site(modules={"init": str(init), "load": ["x"]}),
    )
    job = bench.start()
    poll(lambda: loading.exists(), 30, bench.log)
    job.send_signal(signal.SIGUSR2)
    fifo.write_text("go\n")
    assert job.wait(60) == 0, bench.log()


# How the ranks are started


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


def test_a_port_in_use_is_passed_over(bench: Bench) -> None:
    first = int(under_srun(bench, a_site(), launch={"launcher": "srun"})["MASTER_PORT"])
    bench.attempt.claim.unlink()
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", first))
        taken.listen()
        second = int(under_srun(bench, a_site(), launch={"launcher": "srun"})["MASTER_PORT"])
    assert second == first + 16


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
    test = ["sh", "-c", 'printf "%s" "$TF_CONFIG" > config']
    tensorflow = {"launcher": "srun", "framework": "tensorflow"}
    resources = {"nodes": 2, "gpus_per_node": 2}
    written(bench, *test, site=a_site(), launch=tensorflow, resources=resources)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n[1-2]", "SLURM_PROCID": "3"}
    assert bench.execute(**job) == 0, bench.log()
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


def test_pyxis_is_a_matter_of_srun(bench: Bench) -> None:
    plain = Bench(bench.folder.parent / "plain")
    container = {"runtime": "pyxis", "image": "nvcr.io#nvidia/pytorch:24.01"}
    environment = {"container": container, "variables": {"OWN": "x"}}
    under_srun(plain, a_site(), launch=NONE, environment=environment)
    words = [word.decode() for word in plain.dumped("argv")]
    assert "--container-image=nvcr.io#nvidia/pytorch:24.01" in words
    assert "--container-env=OWN,PYTHONPATH" in words
    assert "--ntasks=1" in words


# What cannot be rendered


@pytest.mark.parametrize(
    ("changes", "site", "message"),
    [
        ({"environment": {"variables": {"UID": "1"}}}, a_site(), r"variables\.UID.*belongs to"),
        ({"environment": {"secrets": {"BASH_ENV": "/x"}}}, a_site(), r"secrets\.BASH_ENV"),
        ({}, a_site(variables={"RANDOM": "1"}), "RANDOM of site here"),
        (
            {"environment": {"container": {"image": "/x", "runtime": "pyxis"}}},
            a_local_site(),
            "pyxis is a part of srun",
        ),
    ],
)
def test_what_no_script_can_do_is_said_before(
    changes: dict[str, Any], site: Site, message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        script_of(a_run(a_spec(**changes)), site)


def test_a_folder_that_cannot_be_mounted_is_said_before() -> None:
    spec = a_spec(environment={"container": {"image": "/x.sif"}})
    with pytest.raises(SpecError, match="cannot mount"):
        script_of(a_run(spec, working_dir="/home/a:b"), a_site())


# The user's own templates


def test_a_users_own_part_replaces_the_shipped_one(bench: Bench, tmp_path: Path) -> None:
    own = tmp_path / "templates"
    (own / "parts").mkdir(parents=True)
    (own / "parts" / "started.j2").write_text("echo mine {{ run.spec.name | sh }}\n")
    spec = a_spec(script=None, command=["true"], launch=NONE)
    script = script_of(bench.run(spec), a_local_site(), template_dirs=[tmp_path / "none", own])
    bench.attempt.script.write_text(script)
    assert bench.execute() == 0
    assert "mine digits" in bench.log()
    assert kinds(bench) == ["exited"]


def test_a_wrong_template_of_a_user_is_named(tmp_path: Path) -> None:
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "header.j2").write_text("#SBATCH --nodes={{ placement.partition }}\n")
    with pytest.raises(InputError, match=r"parts/header\.j2:1: .*directive"):
        script_of(a_run(a_spec()), a_site(), template_dirs=[tmp_path])
