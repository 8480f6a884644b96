"""How a job ends: exit codes, the request to be sent again, what is missing, the notice."""

from __future__ import annotations

import os
import shlex
import shutil
import signal
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import poll
from tests.rendering.executed import NONE, RANK, Bench, json_of, kinds, written
from tests.rendering.samples import a_local_site, a_site


@pytest.mark.parametrize(
    ("code", "expected"), [(0, 0), (1, 1), (75, 75), (85, 75), (127, 127), (255, 255)]
)
def test_the_exit_code_is_the_programs_or_the_request_to_be_sent_again(
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
    stub = 'while [[ $1 == --* ]]; do shift; done; "$@"; code=$?; echo "rank: $code"; exit $code'
    bench.program("srun", f"#!/bin/bash\n{stub}\n")
    srun = {"launcher": "srun", "framework": "none"}
    written(bench, "sh", "-c", "exit 75", site=a_site(), launch=srun)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    assert bench.execute(**job) == 75
    assert "rank: 0" in bench.log()
    written(bench, "sh", "-c", "exit 3", site=a_site(), launch=srun)
    assert bench.execute(**job) == 3, "the word of its former life counted, or a failure was lost"


@pytest.mark.parametrize("code", [75, 85, 0])
def test_a_rank_whose_word_cannot_be_written_leaves_with_its_own_code(
    bench: Bench, code: int
) -> None:
    """Some shells leave with one of theirs at once, and a full disk made the job a failed one."""
    stub = 'while [[ $1 == --* ]]; do shift; done; "$@"; code=$?; echo "rank: $code"; exit $code'
    bench.program("srun", f"#!/bin/bash\n{stub}\n")
    for word in ("resubmit", "ended"):
        (bench.attempt.path / word).symlink_to("/not/there/at/all")
    (bench.bin / "rm").symlink_to("/bin/true")  # or the script would take them away
    srun = {"launcher": "srun", "framework": "none"}
    retry = {"resubmit_exit_codes": [75, 85]}
    written(bench, "sh", "-c", f"exit {code}", site=a_site(), launch=srun, retry=retry)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    assert bench.execute(**job) == (75 if code else 1)
    assert f"rank: {code}" in bench.log()


@pytest.mark.parametrize(
    ("crash", "mark"), [("exit 139", "failed"), ("exit 1", "failed"), ("exit 143", "terminated")]
)
def test_the_mark_of_a_rank_keeps_the_date_of_the_first_that_failed(
    bench: Bench, crash: str, mark: str
) -> None:
    """What was being saved then may be half, however long the others live."""
    stub = 'while [[ $1 == --* ]]; do shift; done; "$@"; touch -d @7 -- *ed; "$@"; exit 1'
    bench.program("srun", f'#!/bin/bash\ncd -- "$HPCFLOW_ATTEMPT_DIR"\n{stub}\n')
    srun = {"launcher": "srun", "framework": "none"}
    written(bench, "sh", "-c", crash, site=a_site(), launch=srun)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    assert bench.execute(**job) == 1
    assert (bench.attempt.path / mark).stat().st_mtime == 7


@pytest.mark.parametrize(("ranks", "is_killed"), [("kill -9 $$", True), ("exit 1", False)])
def test_a_rank_that_was_killed_first_says_so(bench: Bench, ranks: str, is_killed: bool) -> None:
    """Often it had run out of memory. Those that are killed later are killed by the launcher."""
    stub = 'while [[ $1 == --* ]]; do shift; done; "$@"; SLURM_PROCID=1 "$@"; exit 1'
    bench.program("srun", f"#!/bin/bash\n{stub}\n")
    program = f'[ "$RANK" = 0 ] || kill -9 $$; {ranks}'
    srun = {"launcher": "srun", "framework": "none"}
    written(bench, "sh", "-c", program, site=a_site(), launch=srun)
    assert bench.execute(SLURM_JOB_ID="7", SLURM_JOB_NODELIST="n1") == 1
    assert bench.attempt.killed.exists() is is_killed
    assert (bench.attempt.path / "failed").exists()


@pytest.mark.parametrize(
    ("crash", "expected"), [("exit 139", 1), ("kill -s SEGV $$", 1), ("kill -s TERM $$", 75)]
)
def test_a_rank_that_crashed_outweighs_one_that_wants_to_be_sent_again(
    bench: Bench, crash: str, expected: int
) -> None:
    """Sent again, it would crash again, for ever. One that ended of TERM was told to."""
    stub = 'while [[ $1 == --* ]]; do shift; done; "$@"; SLURM_PROCID=1 "$@"; exit 1'
    bench.program("srun", f"#!/bin/bash\n{stub}\n")
    ranks = f'[ "$RANK" = 0 ] && exit 75; {crash}'
    srun = {"launcher": "srun", "framework": "none"}
    written(bench, "sh", "-c", ranks, site=a_site(), launch=srun)
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1", "SLURM_PROCID": "0"}
    assert bench.execute(**job) == expected
    written(bench, "sh", "-c", "exit 75", site=a_site(), launch=srun)
    assert bench.execute(**job) == 75, "the crash of its former life counted"


def test_an_srun_that_lost_its_tasks_is_no_success(bench: Bench) -> None:
    """srun exits with 0 when Slurm has given up the node; the program may not even have ended."""
    bench.program("srun", "#!/bin/bash\nexit 0\n")
    srun = {"launcher": "srun", "framework": "none"}
    job = {"SLURM_JOB_ID": "7", "SLURM_JOB_NODELIST": "n1"}
    written(bench, "true", site=a_site(), launch=srun)
    assert bench.execute(**job) == 1
    assert bench.events()[-1]["exit_code"] == 1
    assert "srun has ended, but not the program" in bench.log()


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


@pytest.mark.parametrize(("name", "launch"), [("none", NONE), ("0", {"launcher": "torchrun"})])
@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_the_notice_reaches_the_program_and_its_word_comes_back(
    bench: Bench, name: str, launch: dict[str, str], number: signal.Signals
) -> None:
    """Under a real torchrun too, which forwards no USR2 and would die of it."""
    venv = {"venv": sys.prefix} if (Path(sys.prefix) / "bin" / "activate").exists() else {}
    written(bench, "python3", str(RANK), str(bench.work), "60", launch=launch, environment=venv)
    job = bench.start()
    poll(lambda: (bench.work / f"{name}.json").exists(), 120, bench.log)
    assert json_of(bench.work / f"{name}.json")["usr2_ignored"]
    job.send_signal(number)
    assert job.wait(120) == 75, bench.log()
    assert bench.attempt.notice.read_text() == number.name.removeprefix("SIG") + "\n"
    assert (bench.work / f"{name}.signals").read_text().split()[0] == "SIGUSR2"
    assert bench.events()[-1]["exit_code"] == 75


#: What a script of another author leaves behind in the shell that sources it.
_LEFT_BEHIND = [
    "set -e",
    "set -euo pipefail",
    "set -o posix -o noglob -o noclobber -o monitor",
    "shopt -s nullglob failglob",
    "IFS=,",
    "trap : TERM USR1 USR2",
    "trap '' TERM USR1 USR2",
    "trap - TERM USR2; trap : USR1 CHLD",
    "set -E; trap exit ERR; trap '' USR1",
    "trap : USR1 DEBUG RETURN; shopt -s extdebug",
]
_WAYS = [("setup", line) for line in _LEFT_BEHIND]
_WAYS += [(way, "trap : TERM USR1 USR2; set -e") for way in ("module", "venv", "conda")]


def an_environment(bench: Bench, way: str, line: str) -> dict[str, Any]:
    """The config and the site whose ``way`` to set up the environment executes ``line``."""
    if way == "setup":
        vendor = bench.program("vendor.sh", line)
        return {"environment": {"setup": [f". {shlex.quote(str(vendor))}"]}}
    if way == "module":
        init = bench.program("init", f"module() {{\n{line}\n}}\n")
        return {"site": a_local_site(modules={"init": str(init), "load": ["x"]})}
    if way == "venv":
        (bench.work / "env/bin").mkdir(parents=True)
        (bench.work / "env/bin/activate").write_text(line)
        return {"environment": {"venv": "env"}}
    conda = f"#!/bin/sh\necho {shlex.quote(f'conda() {{ :; }}; {line}')}\n"
    bench.program("conda", conda)
    return {"environment": {"conda": "train"}}


@pytest.mark.parametrize(("way", "line"), _WAYS)
def test_nothing_that_sets_up_the_environment_takes_the_notice_away(
    bench: Bench, way: str, line: str
) -> None:
    """The script has its shell options, its traps and IFS again; the program what was exported."""
    environment = an_environment(bench, way, f"export SEEN=yes; {line}")
    written(bench, sys.executable, str(RANK), str(bench.work), "60", **environment)
    job = bench.start()
    poll(lambda: (bench.work / "none.json").exists() or job.poll() is not None, 120, bench.log)
    assert job.poll() is None, bench.log()
    assert json_of(bench.work / "none.json")["environ"]["SEEN"] == "yes"
    if "USR1" in line:
        job.send_signal(signal.SIGUSR1)
    job.send_signal(signal.SIGTERM)
    assert job.wait(120) == 75, bench.log()
    assert (bench.work / "none.signals").read_text().split() == ["SIGUSR2"]
    assert bench.events()[-1]["exit_code"] == 75


@pytest.mark.parametrize(
    ("way", "named"),
    [
        ("setup", "item 1 of environment.setup"),
        ("module", "module x"),
        ("venv", "/env"),
        ("conda", "conda environment train"),
    ],
)
@pytest.mark.parametrize("line", ["exit 0", "exit 1", ": ${NOT_SET_ANYWHERE:?}", "set -e; false"])
def test_an_environment_that_ends_the_script_is_a_failure_that_names_it(
    bench: Bench, way: str, named: str, line: str
) -> None:
    """Also with 0: the program has not run. bash ignores `set -e` where a failure is handled."""
    options = an_environment(bench, way, line)
    if way == "setup":
        options["environment"]["setup"].insert(0, "trap 'echo unmounted' EXIT")
    written(bench, "touch", "ran", **options)
    assert bench.execute() == 1
    is_handled = line == "set -e; false" and way in ("setup", "module")
    assert f"{named} has ended the job script\n" in bench.log() or is_handled, bench.log()
    assert kinds(bench) == ["started", "exited"], "it ended twice, or without a word"
    assert bench.events()[-1]["exit_code"] == 1
    assert bench.log().count("unmounted") == (way == "setup")
    assert not (bench.work / "ran").exists()


def test_what_setup_removes_at_the_end_is_there_until_then(bench: Bench) -> None:
    setup = ["touch mounted; trap 'rm mounted' EXIT", "true"]
    written(bench, "test", "-e", "mounted", environment={"setup": setup})
    assert bench.execute() == 0, bench.log()
    assert not (bench.work / "mounted").exists()


def test_a_program_that_ends_just_as_the_notice_comes_keeps_its_exit_code(bench: Bench) -> None:
    """bash 5.2's `wait` forgets it about every tenth time."""
    fifo = bench.work / "script"
    os.mkfifo(fifo)
    written(bench, "sh", "-c", 'read -r script < script; kill -s TERM "$script"; exit 3')
    for _ in range(30):
        job = bench.start()
        fifo.write_text(f"{job.pid}\n")
        assert job.wait(120) == 3, bench.log()


@pytest.mark.parametrize("kept", ["0027", None])
def test_the_program_gets_the_umask_of_whoever_asked_for_the_run(
    bench: Bench, kept: str | None
) -> None:
    """The script's own files are private; those of the program are its user's business. A run from
    before its umask was kept has that of whoever sends the attempt."""
    bench.umask = kept
    written(bench, "sh", "-c", "umask > umask")
    before = os.umask(0o002 if kept else 0o027)
    try:
        assert bench.execute() == 0
    finally:
        os.umask(before)
    assert (bench.work / "umask").read_text() == "0027\n"
    assert bench.attempt.events.stat().st_mode & 0o777 == 0o600


def test_a_program_that_does_not_listen_outlives_the_notice(bench: Bench) -> None:
    """The script waits until the program has really ended, however often it is interrupted."""
    written(bench, "sh", "-c", "touch up; while [ ! -e go ]; do sleep 0.05; done; exit 3")
    job = bench.start()
    poll(lambda: (bench.work / "up").exists(), 120, bench.log)
    for number in (signal.SIGUSR2, signal.SIGTERM, signal.SIGUSR2):
        job.send_signal(number)
    poll(lambda: bench.attempt.notice.exists(), 120, bench.log)
    (bench.work / "go").touch()
    assert job.wait(120) == 3
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
    poll(lambda: loading.exists(), 120, bench.log)
    job.send_signal(signal.SIGUSR2)
    fifo.write_text("go\n")
    assert job.wait(120) == 0, bench.log()


def test_commands_run_before_the_program_and_after_it(bench: Bench) -> None:
    """In turn, with the variables of the program and the names filled in."""
    say = "sh -c 'echo \"$@\" $OWN $HPCFLOW_ATTEMPT >> said' sh"
    written(
        bench,
        "sh",
        "-c",
        "echo program >> said",
        before=[f"{say} first", ["sh", "-c", "echo second {{ params.lr }} >> said"]],
        after=[f"{say} third", f"{say} fourth"],
        params={"lr": 0.1},
        environment={"variables": {"OWN": "own"}},
    )
    assert bench.execute() == 0, bench.log()
    said = (bench.work / "said").read_text().splitlines()
    assert said == ["first own 1", "second 0.1", "program", "third own 1", "fourth own 1"]


def test_what_fails_before_the_program_is_the_end_of_the_attempt(bench: Bench) -> None:
    before = ["true", "sh -c 'exit 7'", "touch next"]
    written(bench, "touch", "ran", before=before, after=["touch after"])
    assert bench.execute() == 7
    assert "hpcflow: this command has failed with exit code 7: sh -c exit 7" in bench.log()
    assert bench.events()[-1]["exit_code"] == 7
    assert not [*bench.work.iterdir()]


@pytest.mark.parametrize(
    "program",
    [
        "exit 3",
        "exit 75",
        ': > "$HPCFLOW_ATTEMPT_DIR/resubmit"',
        'while [ ! -e "$HPCFLOW_NOTICE" ]; do kill -s USR2 "$(cat job)"; sleep 0.05; done',
    ],
)
def test_nothing_runs_after_a_program_that_has_not_completed(bench: Bench, program: str) -> None:
    written(bench, "sh", "-c", program, after=["touch after"])
    job = bench.start()
    (bench.work / "job").write_text(f"{job.pid}\n")
    job.wait(120)
    assert not (bench.work / "after").exists()


def test_a_run_whose_last_command_fails_has_not_completed(bench: Bench) -> None:
    written(bench, "true", after=["false", "touch after"])
    assert bench.execute() == 1
    assert not (bench.work / "after").exists()


@pytest.mark.parametrize("where", ["before", "after"])
def test_a_notice_ends_no_command_beside_the_program(bench: Bench, where: str) -> None:
    wait = "sh -c 'touch up; while [ ! -e go ]; do sleep 0.05; done; touch done'"
    written(
        bench,
        "true",
        before=[wait] if where == "before" else [],
        after=[wait] if where == "after" else [],
    )
    job = bench.start()
    poll(lambda: (bench.work / "up").exists(), 120, bench.log)
    job.send_signal(signal.SIGUSR2)
    poll(lambda: bench.attempt.notice.exists(), 120, bench.log)
    (bench.work / "go").touch()
    assert job.wait(120) == 0
    assert (bench.work / "done").exists()
