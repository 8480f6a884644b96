"""Starting Slurm's programs: what they find around them, and what becomes of them."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import SchedulerUnavailable, SubmissionInDoubt
from hpcflow.schedulers.base import JobRef, SubmitRequest
from hpcflow.schedulers.slurm.commands import SlurmCommands
from hpcflow.schedulers.slurm.run_command import (
    Answer,
    ask,
    clean_environment,
    run_query,
    run_submission,
)
from tests.schedulers.programs import arguments, environment, install


def _request(folder: Path, lock_fd: int | None = None) -> SubmitRequest:
    script = folder / "job.sbatch"
    script.write_text("#!/bin/bash\n")
    return SubmitRequest(script, folder, "a-name", lock_fd)


def test_what_the_shell_says_to_slurm_is_taken_out_and_the_way_to_it_kept() -> None:
    inherited = {
        "SLURM_JOB_ID": "7",
        "SLURM_CPU_BIND": "x",
        "SLURM_CLUSTERS": "other",
        "SBATCH_ACCOUNT": "a",
        "SQUEUE_FORMAT": "%i",
        "SACCT_FORMAT": "jobid",
        "SCANCEL_ACCOUNT": "a",
        "SINFO_FORMAT": "%n",
        "SRUN_DEBUG": "3",
        "SALLOC_PARTITION": "p",
        "PMI_RANK": "0",
        "PMIX_RANK": "0",
        "SPANK_X": "1",
        "_SLURM_SPANK_OPTION_x": "1",
    }
    kept = {"SLURM_CONF": "/etc/slurm.conf", "SLURM_JWT": "t", "PATH": "/bin", "PMIN": "mine"}
    assert clean_environment({**inherited, **kept}) == kept


#: As a supervisor that wants no zombies starts programs.
IGNORING: str = "import os, signal, sys; signal.signal(signal.SIGCHLD, signal.SIG_IGN); os.execv"


@pytest.mark.parametrize("starts", ["function", "command"])
def test_exit_codes_survive_an_ignored_sigchld(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, starts: str
) -> None:
    """Exit codes are lost then, and a squeue that failed would say that no job exists."""
    install(monkeypatch, tmp_path, "squeue", exit_code=1)
    call = {
        "function": "from hpcflow.schedulers.slurm.run_command import run_query as run\n"
        'print("exit code", run(["squeue"]).exit_code)',
        "command": "import signal; from hpcflow.cli.main import main; main(['--help'])\n"
        'print("exit code", int(signal.getsignal(signal.SIGCHLD) is not signal.SIG_IGN))',
    }[starts]
    given = f"(sys.executable, [sys.executable, '-c', {call!r}])"
    command = [sys.executable, "-c", IGNORING + given]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert done.stdout.endswith("exit code 1\n"), done.stderr


def test_sbatch_has_the_umask_that_the_log_of_the_job_is_made_with(tmp_path: Path) -> None:
    """Slurm makes it before the job script can say anything."""
    answer = run_submission(["sh", "-c", "umask"], cwd=tmp_path, timeout_s=60, lock_fd=None)
    assert answer.stdout == "0077\n"


def test_queries_ask_for_utc_and_whole_arrays_and_sbatch_gets_the_users_own_environment(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("TZ", "America/New_York")
    monkeypatch.setenv("SLURM_TIME_FORMAT", "relative")
    query = environment_of_query(monkeypatch, tmp_path)
    assert query["TZ"] == "UTC"
    assert query["SLURM_TIME_FORMAT"] == "standard"
    assert query["SLURM_BITSTR_LEN"] == "0"
    sbatch = install(monkeypatch, tmp_path, "sbatch", stdout="7\n")
    SlurmCommands(clock=SystemClock()).submit(_request(tmp_path))
    found = environment(sbatch)
    assert found["TZ"] == "America/New_York"  # what it finds may go on into the job
    assert "SLURM_TIME_FORMAT" not in found


def environment_of_query(monkeypatch: pytest.MonkeyPatch, folder: Path) -> dict[str, str]:
    squeue = install(monkeypatch, folder, "squeue")
    ask(["squeue"])
    return environment(squeue)


def test_sbatch_is_called_in_the_jobs_directory_and_no_shell_looks_at_the_path(
    monkeypatch: pytest.MonkeyPatch, weird_tmp_path: Path, tmp_path: Path
) -> None:
    sbatch = install(monkeypatch, tmp_path, "sbatch", stdout="7;c1\n", then='pwd > "$0.pwd"')
    job = SlurmCommands(clock=SystemClock()).submit(_request(weird_tmp_path))
    assert job == JobRef("7", "c1")
    assert arguments(sbatch) == ["--parsable", str(weird_tmp_path / "job.sbatch")]
    assert sbatch.with_suffix(".pwd").read_text() == f"{weird_tmp_path}\n"


def test_no_program_is_no_scheduler(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(SchedulerUnavailable, match="no sbatch on this machine") as error:
        SlurmCommands(clock=SystemClock()).submit(_request(tmp_path))
    assert error.value.next_action
    with pytest.raises(SchedulerUnavailable, match="no squeue on this machine"):
        SlurmCommands(clock=SystemClock()).queue()


def test_a_query_that_fails_says_what_it_complained_of_once(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    complaint = "squeue: error: Unable to contact slurm controller (connect failure)\n"
    install(monkeypatch, tmp_path, "squeue", stderr=complaint * 2, exit_code=1)
    with pytest.raises(SchedulerUnavailable) as error:
        ask(["squeue"])
    assert error.value.message == (
        "squeue got no answer: Unable to contact slurm controller (connect failure)"
    )


def test_a_query_that_hangs_is_ended_with_all_that_it_started(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    child = tmp_path / "child"
    install(monkeypatch, tmp_path, "squeue", then=f"sleep 600 & echo $! > '{child}'; wait")
    for timeout_s in (0.5, 5, 50):  # a busy machine may need longer to start the child
        with pytest.raises(SchedulerUnavailable, match=f"did not answer within {timeout_s} s"):
            ask(["squeue"], timeout_s=timeout_s)
        if child.exists() and child.read_text():
            break
    pid = int(child.read_text())
    while Path(f"/proc/{pid}").exists() and "Z" not in _state(pid):
        time.sleep(0.01)


@pytest.mark.parametrize("is_answered", [True, False])
def test_a_process_that_a_wrapper_leaves_behind_is_not_waited_for(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, *, is_answered: bool
) -> None:
    """Such as the shared connection of ssh: a session of its own that keeps the output open."""
    child = tmp_path / "child"
    leave = f"setsid sh -c 'echo $$ > \"$0\"; exec sleep 600' '{child}' & "
    wait = f"until [ -s '{child}' ]; do sleep 0.01; done"
    then = f"{leave}{wait}{'' if is_answered else '; sleep 600'}"
    install(monkeypatch, tmp_path, "squeue", stdout="7 R\n", then=then)
    answer = run_query(["squeue"], timeout_s=60 if is_answered else 2)
    assert _state(int(child.read_text())) != "Z"
    os.kill(int(child.read_text()), signal.SIGKILL)
    assert answer.exit_code == (0 if is_answered else None)
    assert answer.stdout == "7 R\n"


@pytest.mark.parametrize(
    "wrapper",
    [
        "exec > >(sleep 0.2; cat); printf '7 R\\n'",
        "printf '7 R\\n'; printf '' > /dev/stdout",
        "printf '7 ' > /dev/stdout; printf 'R\\n' > /dev/stdout",
        "printf '7 R\\n' | tee /dev/stderr",
    ],
)
def test_an_answer_is_whole_however_a_wrapper_hands_it_on(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, wrapper: str
) -> None:
    install(monkeypatch, tmp_path, "squeue", then=wrapper)
    assert ask(["squeue"]) == "7 R\n"


def test_an_answer_that_came_while_we_were_stopped_is_read(tmp_path: Path) -> None:
    """Ctrl-Z, or a suspended job: the time is over, and the pipe holds the answer."""
    mark = tmp_path / "started"
    code = (
        "import sys; from hpcflow.schedulers.slurm.run_command import run_query; "
        f"print(run_query(['sh', '-c', 'touch {mark}; sleep 0.5; echo 7 R'], timeout_s=1))"
    )
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, text=True)
    while not mark.exists():
        time.sleep(0.01)
    process.send_signal(signal.SIGSTOP)
    time.sleep(1.5)  # more than both
    process.send_signal(signal.SIGCONT)
    said, _ = process.communicate(timeout=60)
    assert "exit_code=0, stdout='7 R\\n'" in said


def test_a_filter_that_goes_on_after_the_program_is_read_to_its_end(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    lines = "for i in 1 2 3 4 5 6; do sleep 0.5; echo $i; done"
    install(monkeypatch, tmp_path, "squeue", then=f"exec > >({lines})")
    assert ask(["squeue"]).split() == list("123456")


def test_a_long_answer_is_read_while_it_is_printed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    both = "head -c 3000000 /dev/zero | tr '\\0' x"
    install(monkeypatch, tmp_path, "squeue", then=f"{both}; {both} >&2")
    answer = run_query(["squeue"])
    assert (len(answer.stdout), len(answer.stderr)) == (3_000_000, 3_000_000)


def _state(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    except OSError:
        return "Z"


def test_an_sbatch_that_hangs_leaves_a_doubt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tmp_path, "sbatch", stdout="12", then="sleep 600")
    hasty = SlurmCommands(clock=SystemClock(), submit_timeout_s=0.5)
    with pytest.raises(SubmissionInDoubt, match=r"did not answer within 0\.5 s"):
        hasty.submit(_request(tmp_path))


def test_an_sbatch_that_is_killed_leaves_a_doubt(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tmp_path, "sbatch", then="kill -9 $$")
    with pytest.raises(SubmissionInDoubt, match="SIGKILL"):
        SlurmCommands(clock=SystemClock()).submit(_request(tmp_path))


def test_an_orphaned_sbatch_keeps_the_lock_until_it_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    go, locked = tmp_path / "go", tmp_path / "submit.lock"
    waiting = f"until [ -e '{go}' ]; do sleep 0.02; done"
    install(monkeypatch, tmp_path, "sbatch", then=f"touch '{tmp_path}/up'; {waiting}")
    cli = os.fork()
    if cli == 0:
        fd = os.open(locked, os.O_RDWR | os.O_CREAT)
        fcntl.flock(fd, fcntl.LOCK_EX)
        SlurmCommands(clock=SystemClock()).submit(_request(tmp_path, lock_fd=fd))
        os._exit(0)
    while not (tmp_path / "up").exists():
        time.sleep(0.01)
    os.kill(cli, 9)
    os.waitpid(cli, 0)
    with locked.open("r+") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        go.touch()
        fcntl.flock(file, fcntl.LOCK_EX)


def test_output_that_is_no_text_is_still_an_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    install(monkeypatch, tmp_path, "squeue", then=r"printf '\xff\xfe'")
    assert run_query(["squeue"]).stdout == "\ufffd\ufffd"


def test_a_program_without_a_word_is_described_by_its_exit_code() -> None:
    assert Answer("squeue", 3, "", "", 60).complaint == "exit code 3 without a message"
    assert Answer("squeue", -64, "", "", 60).complaint == "ended by SIGRTMAX"
    assert Answer("squeue", -65, "", "", 60).complaint == "ended by signal 65"


def test_a_program_that_cannot_be_started_is_no_answer(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    for name in ("squeue", "sbatch"):
        program = install(monkeypatch, tmp_path, name).with_suffix("")
        program.write_bytes(b"\x7fELF half a program")
    with pytest.raises(SchedulerUnavailable, match="squeue cannot be started: Exec format error"):
        ask(["squeue"])
    with pytest.raises(SchedulerUnavailable, match="sbatch cannot be started"):
        SlurmCommands(clock=SystemClock()).submit(_request(tmp_path))
