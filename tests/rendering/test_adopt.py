"""Unmodified programs: what the script adopts, and what it tells the program to resume from."""

from __future__ import annotations

import json
import os
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import SpecError
from hpcflow.runtime.files import NewFile
from hpcflow.runtime.store import CheckpointStore
from hpcflow.storage.runtime_copy import add_runtime
from hpcflow.testing.cluster import poll
from tests.cluster_fixture import small_disk
from tests.rendering.executed import RANK, SRUN_STUB, Bench, json_of, kinds, written
from tests.rendering.samples import a_site, a_spec
from tests.runtime.adoption import writer

#: Nobody sees this name in a script without having to quote it.
HOSTILE = 'step-40 it\'s $(touch owned)\n"ü" --x'
RESUME = ["--resume", "{{ resume.path }}", "-r={{resume.path}}!", "$HPCFLOW_RESUME_PATH", ""]


def checkpoint(bench: Bench, name: str | None = None) -> Path:
    """A whole checkpoint of train step 40; adopted under ``name``."""
    store = CheckpointStore(bench.run_dir.checkpoints)
    staged = store.stage(40, 7)
    below = f"adopted/{name}" if name else "model.pt"
    (staged / below).parent.mkdir(parents=True, exist_ok=True)
    file = NewFile(staged / below)
    file.write(b"weights")
    files = {below: file.close()}
    adopted = {"name": name, "changed_ns": 1}
    return store.publish(staged, 40, files, run_id=None, attempt=1, adopted=adopted).path


def words_of(bench: Bench, **changes: Any) -> list[str]:
    """The arguments with which the program was started."""
    bench.attempt.claim.unlink(missing_ok=True)  # or it would be a restart
    show = "import json, sys; json.dump(sys.argv[1:], open('argv.json', 'w'))"
    written(bench, sys.executable, "-c", show, **{"args": ["--lr", "1"], **changes})
    assert bench.execute() == 0, bench.log()
    words = json.loads((bench.work / "argv.json").read_text())
    assert words[:2] == ["--lr", "1"]
    return list(words[2:])


@pytest.fixture
def runtime(bench: Bench) -> Bench:
    add_runtime(bench.run_dir.runtime, bench.folder / "shared", [])
    return bench


def test_what_is_said_on_resuming_is_said_only_then(runtime: Bench) -> None:
    assert words_of(runtime, resume_args=RESUME) == []
    path = str(checkpoint(runtime))
    expected = ["--resume", path, f"-r={path}!", "$HPCFLOW_RESUME_PATH", ""]
    assert words_of(runtime, resume_args=RESUME) == expected


@pytest.mark.parametrize("name", ["ckpt.pt", HOSTILE])
def test_what_was_adopted_is_handed_back_in_the_shape_in_which_it_was_written(
    runtime: Bench, name: str
) -> None:
    adopt = {"adopt": {"pattern": "step-*"}}
    assert words_of(runtime, resume_args=RESUME, checkpoint=adopt) == []
    path = str(checkpoint(runtime, name) / "adopted" / name)
    (runtime.run_dir.checkpoints / "000000040" / "KEEP").touch()
    expected = ["--resume", path, f"-r={path}!", "$HPCFLOW_RESUME_PATH", ""]
    assert words_of(runtime, resume_args=RESUME, checkpoint=adopt) == expected


def test_it_is_in_the_environment_too(runtime: Bench) -> None:
    path = checkpoint(runtime, "ckpt.pt")
    adopt = {"adopt": {"like": "nanogpt", "folder": "{{ run.dir }}/artifacts/{{ params.x }}"}}
    written(
        runtime,
        *(sys.executable, str(RANK), str(runtime.work), "0"),
        checkpoint=adopt,
        params={"x": "it's"},
    )
    assert runtime.execute(HPCFLOW_ADOPT="x", HPCFLOW_RESUME_PATH="/of/another") == 0
    environ = json_of(runtime.work / "none.json")["environ"]
    assert environ["HPCFLOW_RESUME_FROM"] == str(path)
    assert environ["HPCFLOW_RESUME_PATH"] == str(path / "adopted" / "ckpt.pt")
    assert json.loads(environ["HPCFLOW_ADOPT"])["folder"] == (
        f"{runtime.run_dir.path}/artifacts/it's"
    )
    assert not [name for name in environ if name.startswith("HPCFLOW_CHECKPOINT_INTERVAL")]
    back = runtime.run_dir.path / "artifacts" / "it's" / "ckpt.pt"
    assert back.read_bytes() == b"weights"


ADOPT: dict[str, dict[str, Any]] = {
    "overwritten": {"like": "nanogpt", "folder": "o u t", "stable": "1s"},
    "marked": {"like": "huggingface", "folder": "o u t", "stable": "1s"},
    "renamed": {"pattern": "step-*", "folder": "o u t", "renamed": True},
}


def training(bench: Bench, style: str, count: int) -> Bench:
    bench.attempt.claim.unlink(missing_ok=True)
    return written(
        bench,
        *(sys.executable, writer.__file__, style, "o u t", str(count)),
        resume_args=["--resume", "{{ resume.path }}"],
        checkpoint={"adopt": ADOPT[style]},
    )


@pytest.mark.parametrize("style", ["overwritten", "renamed"])
def test_a_program_that_is_stopped_goes_on(runtime: Bench, style: str) -> None:
    job = training(runtime, style, 1000).start()
    poll(lambda: "saved 3" in runtime.log(), 120, runtime.log)
    os.kill(int((runtime.attempt.path / "program").read_text()), signal.SIGTERM)
    assert job.wait(120) == 143
    assert kinds(runtime)[0] == "started"
    assert kinds(runtime)[-1] == "exited"

    assert training(runtime, style, 5).execute() == 0, runtime.log()
    begins = [line for line in runtime.log().splitlines() if line.startswith("begins at ")]
    assert begins[0] == "begins at 0"
    assert int(begins[1].split()[-1]) >= 2, runtime.log()
    newest = max(runtime.run_dir.checkpoints.glob("0*"))
    (own,) = (newest / "adopted").iterdir()
    assert writer.load(style, own) == 5


@pytest.mark.parametrize("code", [0, 75])
def test_a_job_whose_last_checkpoint_has_no_room_has_not_failed(runtime: Bench, code: int) -> None:
    """It lies where the program wrote it."""
    runtime.run_dir.checkpoints.mkdir()
    with small_disk(runtime.run_dir.checkpoints, "4k"):
        (runtime.run_dir.checkpoints / "ballast").write_bytes(bytes(4096))
        save = f"echo weights > step-1; exit {code}"
        written(runtime, "sh", "-c", save, checkpoint={"adopt": {"pattern": "step-*"}})
        assert runtime.execute() == code, runtime.log()
    assert "'step-1' is not adopted, the training continues" in runtime.log()
    assert kinds(runtime)[-2:] == ["checkpoint_failed", "exited"]


def test_the_watcher_that_was_killed_is_not_missed(runtime: Bench) -> None:
    job = training(runtime, "marked", 2).start()
    poll(lambda: "begins" in runtime.log(), 120, runtime.log)
    (watcher,) = (
        int(path.parent.name)
        for path in Path("/proc").glob("[0-9]*/cmdline")
        if b"adopt\0watch" in _read(path) and str(job.pid).encode() in _read(path).split(b"\0")
    )
    os.kill(watcher, signal.SIGKILL)
    assert job.wait(120) == 0
    assert (runtime.run_dir.checkpoints / "000000002").is_dir()
    assert kinds(runtime)[-2:] == ["checkpoint", "exited"]


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError:
        return b""


def test_a_node_without_a_fitting_python_is_no_place_to_adopt(runtime: Bench) -> None:
    runtime.program("python3", "#!/bin/sh\nexit 1\n")
    written(runtime, "touch", "done", checkpoint={"adopt": {"pattern": "step-*"}})
    assert runtime.execute() == 1
    assert "needs python3 3.8 or newer, from environment.venv" in runtime.log()
    assert not (runtime.work / "done").exists()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (
            {"args": ["{{ resume.path }}"]},
            r"args\[0\]: .*only known in resume_args.*\n.*resume_args:",
        ),
        ({"resume_args": ["a", "{{ resume.pth }}"]}, r"resume_args\[1\]: there is no resume\.?"),
        ({"resume_args": ["{{ params.x }}"]}, r"resume_args\[0\]: there is no params\.x"),
        (
            {"checkpoint": {"adopt": {"pattern": "x", "folder": "{{ params.x }}"}}},
            r"checkpoint\.adopt\.folder: there is no params\.x",
        ),
    ],
)
def test_a_name_that_there_is_not_is_refused(
    bench: Bench, changes: dict[str, Any], message: str
) -> None:
    with pytest.raises(SpecError, match=message):
        bench.write(a_spec(**changes), a_site())


def test_the_words_stay_where_they_are_under_every_launcher(runtime: Bench) -> None:
    """The last words of all, behind those of srun, torchrun and the shells between."""
    path = str(checkpoint(runtime))
    runtime.program("scontrol", "#!/bin/sh\nexit 1\n")
    runtime.program("srun", SRUN_STUB)
    for launcher in ("srun", "torchrun"):
        runtime.attempt.claim.unlink(missing_ok=True)
        spec = a_spec(
            args=["--lr", "1"], resume_args=["{{ resume.path }}"], launch={"launcher": launcher}
        )
        runtime.write(spec, a_site())
        job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
        assert runtime.execute(**job) == 0, runtime.log()
        words = [word.decode() for word in runtime.dumped("argv")]
        assert words[-4:] == [*spec.program[-1:], "--lr", "1", path]
