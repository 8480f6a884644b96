"""What a program finds around it: variables, secrets, the checkpoint to resume from."""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any

import pytest

from hpcflow.errors import SpecError
from hpcflow.runtime.checksum import sha256_of
from hpcflow.storage.runtime_copy import add_runtime
from tests.rendering.executed import RANK, Bench, json_of, written
from tests.rendering.samples import RUN_ID, a_local_site, a_site
from tests.runtime.published import publish
from tests.untrusted_paths import EVE


def test_the_variables_of_a_job(bench: Bench) -> None:
    written(
        bench,
        sys.executable,
        str(RANK),
        str(bench.work),
        "0",
        checkpoint={"interval": "10m", "every_train_steps": 5, "when_busy": "skip"},
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
        "HPCFLOW_CHECKPOINT_WHEN_BUSY": "skip",
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


def test_names_in_variables_are_filled_in(bench: Bench) -> None:
    variables = {"WANDB_RUN_ID": "{{ run.id }}", "NOTE": "lr={{params.lr}} $HOME", "PLAIN": "{x}"}
    rank = (sys.executable, str(RANK), str(bench.work), "0")
    written(bench, *rank, environment={"variables": variables}, params={"lr": 0.1})
    assert bench.execute() == 0
    environ = json_of(bench.work / "none.json")["environ"]
    assert {name: environ[name] for name in variables} == {
        "WANDB_RUN_ID": RUN_ID,
        "NOTE": "lr=0.1 $HOME",
        "PLAIN": "{x}",
    }


def test_an_unknown_name_in_a_variable_is_refused_by_its_key(bench: Bench) -> None:
    with pytest.raises(SpecError, match=r"there is no params.rl") as wrong:
        written(bench, "true", environment={"variables": {"A": "{{ params.rl }}"}})
    assert wrong.value.where is not None
    assert wrong.value.where.key == "environment.variables.A"


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


def checkpoint(bench: Bench, name: str, *, complete: bool = True) -> None:
    folder = bench.run_dir.checkpoints / name
    folder.mkdir(parents=True)
    if complete:
        (folder / "manifest.json").write_text("{}")


def resumed_from(
    bench: Bench,
    resume_from: str | None = None,
    leaked: Mapping[str, str] = MappingProxyType({}),
    **changes: Any,
) -> str | None:
    """What the program is told to resume from; ``leaked`` is what the submitting shell had."""
    bench.attempt.claim.unlink(missing_ok=True)  # or it would be a restart
    command = (sys.executable, str(RANK), str(bench.work), "0")
    bench.work.joinpath("none.json").unlink(missing_ok=True)
    written(bench, *command, resume_from=resume_from, **changes).execute(
        HPCFLOW_RESUME_VERIFIED="stale", **leaked
    )
    found: str | None = environ_of(bench).get("HPCFLOW_RESUME_FROM")
    return found


def environ_of(bench: Bench) -> dict[str, str]:
    environ: dict[str, str] = json_of(bench.work / "none.json")["environ"]
    return environ


def test_without_checkpoints_there_is_nothing_to_resume_from(bench: Bench) -> None:
    assert resumed_from(bench) is None


def test_the_checkpoint_of_the_submission_is_taken(bench: Bench) -> None:
    given = bench.run_dir.path / "artifacts/it's old"
    given.mkdir(parents=True)
    (given / "manifest.json").touch()
    assert resumed_from(bench, "artifacts/it's old") == str(given)


@pytest.mark.parametrize("adopting", [{}, {"adopt": {"pattern": "step-*"}}])
def test_one_that_this_node_does_not_see_is_no_reason_to_begin_anew(
    bench: Bench, adopting: dict[str, Any]
) -> None:
    """Not every program looks whether there is what it is told to resume from."""
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    submitted: dict[str, Any] = {"resume_from": "checkpoints/000000020", "checkpoint": adopting}
    assert written(bench, "touch", "done", **submitted).execute() == 1
    assert "000000020 existed when this job was submitted, but not on this node" in bench.log()
    assert not (bench.work / "done").exists()


def test_the_newest_complete_checkpoint_is_taken_by_its_number(bench: Bench) -> None:
    for name in ("9", "010", "00099", "0100000000000000000000", "latest", "-5"):
        checkpoint(bench, name)
    checkpoint(bench, "500", complete=False)
    assert resumed_from(bench, "checkpoints/9") == str(bench.run_dir.checkpoints / "00099")


def named_as_a_pattern(bench: Bench) -> Bench:
    inner = Bench(bench.folder / "[of] ada\\n?")
    checkpoint(inner, "000000030")
    return inner


def test_a_folder_whose_name_is_a_pattern_is_looked_into(bench: Bench) -> None:
    inner = named_as_a_pattern(bench)
    assert resumed_from(inner, "artifacts") == str(inner.run_dir.checkpoints / "000000030")


def test_so_it_is_where_checkpoints_are_adopted(bench: Bench) -> None:
    inner = named_as_a_pattern(bench)
    add_runtime(inner.run_dir.runtime, inner.folder / "shared", [])
    adopting = {"adopt": {"pattern": "step-*"}}
    assert resumed_from(inner, "artifacts", checkpoint=adopting) is None, "it is there, and damaged"
    (inner.run_dir.checkpoints / "000000030" / "manifest.json").unlink()
    given = inner.run_dir.path / "artifacts"
    given.mkdir(exist_ok=True)
    (given / "manifest.json").touch()
    assert resumed_from(inner, "artifacts", checkpoint=adopting) == str(given)


def whole_checkpoint(bench: Bench, train_step: int) -> Path:
    return publish(bench.run_dir.checkpoints, train_step, {"model.pt": b"weights"}).path


def test_a_damaged_checkpoint_is_passed_over_for_the_one_before(bench: Bench) -> None:
    """The program may never have heard of hpcflow, and would resume from what it is told."""
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    older, newer = whole_checkpoint(bench, 10), whole_checkpoint(bench, 20)
    assert resumed_from(bench, "checkpoints/000000020") == str(newer)
    assert environ_of(bench)["HPCFLOW_RESUME_VERIFIED"] == sha256_of(newer / "manifest.json")
    (newer / "model.pt").write_bytes(b"weight\0")
    assert resumed_from(bench, "checkpoints/000000020") == str(older)
    assert environ_of(bench)["HPCFLOW_RESUME_VERIFIED"] == sha256_of(older / "manifest.json")
    assert "its checksum differs" in bench.log()
    (older / "model.pt").unlink()
    assert resumed_from(bench, "checkpoints/000000020") is None
    assert "HPCFLOW_RESUME_VERIFIED" not in environ_of(bench)


@pytest.mark.parametrize("adopting", [{}, {"adopt": {"pattern": "step-*"}}])
@pytest.mark.parametrize("submitted", ["start/000000005", "checkpoints/000000020"])
def test_a_run_without_a_whole_checkpoint_of_its_own_begins_from_that_of_another_run(
    bench: Bench, submitted: str, adopting: dict[str, Any]
) -> None:
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    start = publish(bench.run_dir.path / "start", 5, {"model.pt": b"weights"}).path
    bench.begins_from = "start/000000005"
    if submitted == bench.begins_from:
        assert resumed_from(bench, submitted, checkpoint=adopting) == str(start)
    older, newer = whole_checkpoint(bench, 10), whole_checkpoint(bench, 20)
    (newer / "model.pt").write_bytes(b"weight\0")
    assert resumed_from(bench, submitted, checkpoint=adopting) == str(older)
    assert environ_of(bench)["HPCFLOW_BEGIN_FROM"] == str(start)
    (older / "model.pt").unlink()
    assert resumed_from(bench, submitted, checkpoint=adopting) == str(start)
    assert environ_of(bench)["HPCFLOW_RESUME_PATH"] == str(start)
    assert environ_of(bench)["HPCFLOW_RESUME_VERIFIED"] == sha256_of(start / "manifest.json")
    (start / "manifest.json").unlink()
    bench.attempt.claim.unlink()
    assert written(bench, "touch", "done", checkpoint=adopting, resume_from=submitted).execute()
    assert "this run starts from" in bench.log()


@pytest.mark.parametrize("adopting", [{}, {"adopt": {"pattern": "step-*"}}])
def test_a_run_whose_start_is_damaged_is_not_begun(bench: Bench, adopting: dict[str, Any]) -> None:
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    start = publish(bench.run_dir.path / "start", 0, {"model.pt": b"weights"}).path
    bench.begins_from = "start/000000000"
    (start / "model.pt").write_bytes(b"weight\0")
    job = written(bench, "touch", "done", checkpoint=adopting, resume_from=bench.begins_from)
    assert job.execute() != 0
    assert "which cannot be used: see the lines above" in bench.log()
    assert "its checksum differs" in bench.log()


def test_a_start_that_no_python_can_verify_is_taken_as_it_is(bench: Bench) -> None:
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    start = publish(bench.run_dir.path / "start", 0, {"model.pt": b"weights"}).path
    bench.begins_from = "start/000000000"
    main = bench.run_dir.runtime / "hpcflow/runtime/__main__.py"
    main.unlink()
    main.write_text("raise SystemExit(1)\n")
    assert resumed_from(bench, bench.begins_from) == str(start)
    assert "is used unverified" in bench.log()
    assert "HPCFLOW_RESUME_VERIFIED" not in environ_of(bench)


def test_what_another_run_began_from_is_not_inherited(bench: Bench) -> None:
    assert resumed_from(bench, leaked={"HPCFLOW_BEGIN_FROM": "/tmp"}) is None
    assert "HPCFLOW_BEGIN_FROM" not in environ_of(bench)


def test_a_check_that_crashes_does_not_make_a_training_begin_anew(bench: Bench) -> None:
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    newest = whole_checkpoint(bench, 20)
    (bench.work / "argparse.py").write_text("raise SystemExit(1)\n")
    assert resumed_from(bench) == str(newest), "a file of the user's is none of Python's"
    main = bench.run_dir.runtime / "hpcflow/runtime/__main__.py"
    main.unlink()
    main.write_text("raise SystemExit(1)\n")
    assert resumed_from(bench) == str(newest)
    assert "cannot verify" in bench.log()


def test_what_cannot_be_read_now_is_neither_taken_nor_passed_over(bench: Bench) -> None:
    """The newest may be known to be damaged, and the one before it be what the disk refuses."""
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    whole_checkpoint(bench, 20)
    main = bench.run_dir.runtime / "hpcflow/runtime/__main__.py"
    text = main.read_text()
    main.unlink()
    main.write_text(
        "import errno, hashlib\n"
        "def refuse(*_): raise OSError(errno.EIO, 'Input/output error')\n"
        "hashlib.sha256 = refuse\n" + text.replace("from __future__ import annotations\n", "")
    )
    written(bench, "touch", "done", resume_from="checkpoints/000000020")
    assert bench.execute() == 1
    assert "checkpoints cannot be read now" in bench.log()
    assert not (bench.work / "done").exists()


def test_python_is_asked_whatever_the_submitting_shell_has_told_it(bench: Bench) -> None:
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    older, newer = whole_checkpoint(bench, 10), whole_checkpoint(bench, 20)
    (newer / "model.pt").write_bytes(b"weight\0")
    assert resumed_from(bench, leaked={"PYTHONSAFEPATH": "1"}) == str(older)
    assert "cannot verify" not in bench.log()
    for site in (
        "print('welcome to /site/python')",
        "import atexit; atexit.register(print, 'see you')",
    ):
        (bench.run_dir.runtime / "sitecustomize.py").write_text(f"{site}\n")
        assert resumed_from(bench) == str(older)
    assert "cannot verify" not in bench.log()


def plant(bench: Bench, *names: str) -> None:
    """Put programs into the working directory, as another user may in a shared one."""
    for name in names:
        path = bench.work / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("#!/bin/sh\necho planted\n")
        path.chmod(0o755)


@pytest.mark.parametrize(
    "leaked",
    [
        {"PATH": "/usr/bin:/bin"},
        {"PATH": "/usr/bin:/bin:."},
        {"PATH": "/usr/bin:/bin:"},
        {"PATH": "/usr/bin:/bin:train/bin"},
        {"CONDA_EXE": "./conda"},
        {"CONDA_EXE": "conda", "PATH": "/usr/bin:/bin:."},
    ],
    ids=str,
)
def test_conda_is_not_looked_for_in_the_working_directory(
    bench: Bench, leaked: dict[str, str]
) -> None:
    plant(bench, "conda", "train/bin/conda")
    bench.program("conda", "#!/bin/sh\nexit 1\n")
    written(bench, "touch", "done", environment={"conda": "train"})
    assert bench.execute(**leaked) == 1
    assert "planted" not in bench.log()
    assert not (bench.work / "done").exists()


@pytest.mark.parametrize("path", ["/usr/bin:/bin:.", "/usr/bin:/bin:"])
def test_nor_are_the_programs_that_start_the_program(bench: Bench, path: str) -> None:
    plant(bench, "apptainer", "singularity", "module", "srun")
    for environment, missing in (
        ({"container": {"image": "/x.sif"}}, "neither apptainer nor singularity"),
        ({"modules": ["cuda/12"]}, "cannot load the module cuda/12"),
    ):
        bench.attempt.claim.unlink(missing_ok=True)
        written(bench, "touch", "done", environment=environment)
        assert bench.execute(PATH=path) == 1
        assert missing in bench.log()
    assert "planted" not in bench.log()


def test_srun_is_not_looked_for_there(bench: Bench) -> None:
    plant(bench, "srun")
    tools = bench.folder / "tools"
    tools.mkdir()
    for name in ("bash", "cat", "date", "env", "grep", "ln", "mkdir", "mv", "printf", "readlink",
                 "rm", "sha256sum", "sort", "stat", "sync", "tail", "timeout", "tr"):  # fmt: skip
        (tools / name).symlink_to(f"/usr/bin/{name}")
    srun = {"launcher": "srun", "framework": "none"}
    written(bench, "touch", "done", site=a_site(), launch=srun)
    assert bench.execute(PATH=f"{tools}:.", SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n1") == 1
    assert "there is no srun on this node" in bench.log()
    assert "planted" not in bench.log()


def test_a_relative_path_to_an_environment_begins_in_the_working_directory(bench: Bench) -> None:
    (bench.work / ".venv/bin").mkdir(parents=True)
    (bench.work / ".venv/bin/activate").write_text("export SEEN=$PWD\n")
    written(bench, "sh", "-c", 'echo "$SEEN $PWD"', environment={"venv": ".venv"})
    assert bench.execute() == 0, bench.log()
    assert f"/ {bench.work}\n" in bench.log()
    plant(bench, "envs/train/bin/conda")
    conda = "#!/bin/sh\necho 'conda() { echo \"$@\"; }'\n"
    (bench.work / "envs/train/bin/conda").write_text(conda)
    bench.attempt.claim.unlink()
    written(bench, "pwd", environment={"conda": "envs/train"})
    assert bench.execute() == 0, bench.log()
    assert f"activate {bench.work}/envs/train\n{bench.work}\n" in bench.log()


def a_conda_two_folders_up(bench: Bench) -> Path:
    """An installation, if the environment ``work/scratch/ada/env`` were one of conda's."""
    scratch = bench.work / "scratch"
    (scratch / "ada/env").mkdir(parents=True)
    (scratch / "bin").mkdir()
    conda = scratch / "bin/conda"
    conda.write_text("#!/bin/sh\necho 'conda() { echo conda \"$@\"; }'\n")
    conda.chmod(0o755)
    written(bench, "touch", "done", environment={"conda": "scratch/ada/env"})
    return scratch


@pytest.mark.parametrize("planted", ["bin", "bin/conda", "a link at bin", "a link at bin/conda"])
@pytest.mark.skipif(os.geteuid() != 0, reason="another user owns files")
def test_a_conda_of_another_user_two_folders_up_is_not_executed(bench: Bench, planted: str) -> None:
    """``../../bin`` of /scratch/ada/env is /scratch/bin: there everybody may create it."""
    scratch = a_conda_two_folders_up(bench)
    place = scratch / planted.removeprefix("a link at ")
    if planted.startswith("a link"):
        place.rename(scratch / "own")
        place.symlink_to(scratch / "own")
    os.chown(place, EVE, EVE, follow_symlinks=False)
    assert bench.execute() == 1
    assert "there is no conda" in bench.log()
    assert "conda activate" not in bench.log()


@pytest.mark.parametrize("owner", [0, EVE], ids=["root's", "the environment's owner's"])
@pytest.mark.skipif(os.geteuid() != 0, reason="another user owns files")
def test_a_conda_two_folders_up_is_of_an_installation_that_others_share(
    bench: Bench, owner: int
) -> None:
    scratch = a_conda_two_folders_up(bench)
    for path in (scratch / "ada/env", scratch / "bin", scratch / "bin/conda"):
        os.chown(path, EVE if path.name == "env" else owner, -1)
    assert bench.execute() == 0, bench.log()
    assert f"conda activate {scratch}/ada/env\n" in bench.log()


def test_lines_of_setup_are_run_by_the_job_and_what_they_export_is_kept(bench: Bench) -> None:
    """After the environment, in the working directory; with quotes as they were written."""
    (bench.work / "env.sh").write_text('export OF_FILE="$PWD"\n')
    setup = [
        "source ./env.sh",
        'export WORDS="it\'s $(echo two) words"',
        "if true; then\n  export BLOCK='a\nb'\nfi",
        "ulimit -c 0",
        '[ -z "$NOT_SET" ]',
        "export OWN=setup",
    ]
    environment = {"setup": setup, "variables": {"OWN": "variables"}}
    written(bench, sys.executable, str(RANK), str(bench.work), "0", environment=environment)
    assert bench.execute() == 0, bench.log()
    environ = json_of(bench.work / "none.json")["environ"]
    assert environ["OF_FILE"] == str(bench.work)
    assert environ["WORDS"] == "it's two words"
    assert environ["BLOCK"] == "a\nb"
    assert environ["OWN"] == "variables"


@pytest.mark.parametrize("line", ["false", "source ./nowhere.sh", "if", "export A=1; (exit 3)"])
def test_an_item_of_setup_that_fails_fails_the_attempt(bench: Bench, line: str) -> None:
    written(bench, "touch", "ran", environment={"setup": ["true", line, "true"]})
    assert bench.execute() == 1
    assert "item 1 of environment.setup has failed" in bench.log()
    assert bench.events()[-1]["exit_code"] == 1
    assert not (bench.work / "ran").exists()
