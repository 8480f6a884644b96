"""This machine as a scheduler: the contract, and what only a machine of one's own can do."""

from __future__ import annotations

import fcntl
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcflow.errors import SchedulerUnavailable, SubmissionInDoubt, SubmissionRefused
from hpcflow.model.state import AttemptState, Cause, cause_of_end
from hpcflow.schedulers import local_jobs
from hpcflow.schedulers.base import JobInfo, Scheduler, SubmitRequest
from hpcflow.schedulers.local import LocalScheduler
from hpcflow.schedulers.local_jobs import MARK_VARIABLE, carriers
from hpcflow.schedulers.local_runner import Directives, job_environment, read_directives
from hpcflow.testing.cluster import poll
from hpcflow.testing.scheduler_contract import SLEEPS, SchedulerContract


@pytest.fixture
def home(tmp_path: Path) -> Iterator[Path]:
    """A home whose jobs have all ended when the test has."""
    folder = tmp_path / 'home; "it\'s" $(here)'
    yield folder
    scheduler = LocalScheduler(folder)
    scheduler.cancel([job.job_id for job in scheduler.queue()])
    for job in scheduler.queue():
        _until(scheduler, job.job_id, lambda each: each.state is AttemptState.ENDED)


@pytest.fixture
def scheduler(home: Path) -> LocalScheduler:
    return LocalScheduler(home)


def _submit(scheduler: Scheduler, folder: Path, body: str, name: str = "a-job") -> str:
    script = folder / "job.sbatch"
    script.write_text(f"#!/bin/bash\n#SBATCH --job-name={name}\n{body}\n")
    return scheduler.submit(SubmitRequest(script, folder, name)).job_id


PATIENCE_S = 120


def _until(scheduler: Scheduler, job_id: str, condition: Callable[[JobInfo], bool]) -> JobInfo:
    deadline = time.monotonic() + PATIENCE_S
    while True:
        (job,) = scheduler.queue([job_id])
        if condition(job):
            return job
        assert time.monotonic() < deadline, job
        time.sleep(0.05)


def _ended(scheduler: Scheduler, job_id: str) -> JobInfo:
    return _until(scheduler, job_id, lambda job: job.state is AttemptState.ENDED)


def _wait_for(path: Path) -> None:
    deadline = time.monotonic() + 120
    while not path.exists():
        assert time.monotonic() < deadline, path
        time.sleep(0.02)


class TestContract(SchedulerContract):
    def waiting_lines(self, job_id: str) -> str:  # noqa: ARG002
        return ""

    @pytest.fixture
    def scheduler(self, home: Path) -> Scheduler:
        return LocalScheduler(home)

    @pytest.fixture
    def directory(self, tmp_path: Path) -> Path:
        return tmp_path

    def request(
        self, directory: Path, body: str, *, lines: str = "", lock_fd: int | None = None
    ) -> SubmitRequest:
        request = super().request(directory, body, lines=lines, lock_fd=lock_fd)
        if lines == self.refused_lines():
            request.script.unlink()  # the only thing that this machine refuses
        return request


def test_the_log_gets_both_streams_and_is_never_truncated(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    (tmp_path / "out.log").write_text("before\n")
    job_id = _submit(scheduler, tmp_path, "echo out; echo err >&2")
    _ended(scheduler, job_id)
    assert (tmp_path / "out.log").read_text() == "before\nout\nerr\n"


def test_its_files_are_for_their_owner_only(
    scheduler: LocalScheduler, home: Path, tmp_path: Path
) -> None:
    before = os.umask(0)
    try:
        _ended(scheduler, _submit(scheduler, tmp_path, "echo said"))
    finally:
        os.umask(before)
    made = [tmp_path / "out.log", *(home / "local").rglob("*")]
    assert len(made) > 5
    assert [path for path in made if path.lstat().st_mode & 0o077] == []


def test_the_script_finds_the_users_environment_and_its_job_id_and_no_slurm(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MINE", "a b")
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "GPU-8f2,1")
    monkeypatch.setenv("PYTHONPATH", "/somewhere")
    monkeypatch.setenv("SLURM_JOB_ID", "77")
    monkeypatch.setenv("SBATCH_ACCOUNT", "other")
    job_id = _submit(scheduler, tmp_path, "env -0 > environment")
    _ended(scheduler, job_id)
    pairs = (tmp_path / "environment").read_text().strip("\0").split("\0")
    environment = dict(pair.split("=", 1) for pair in pairs)
    assert environment["MINE"] == "a b"
    assert environment["CUDA_VISIBLE_DEVICES"] == "GPU-8f2,1"
    assert environment["PYTHONPATH"] == "/somewhere"
    assert environment["HPCFLOW_LOCAL_JOB_ID"] == job_id
    assert not [name for name in environment if name.startswith(("SLURM", "SBATCH", "SUBMITIT"))]


def test_an_unset_variable_is_unset_again() -> None:
    changed = json.dumps({"PYTHONPATH": None})
    environment = {"PYTHONPATH": "/own", "HPCFLOW_LOCAL_RESTORE": changed, "SUBMITIT_X": "1"}
    assert job_environment(environment, "3") == {"HPCFLOW_LOCAL_JOB_ID": "3"}


def test_a_job_outlives_the_process_that_submitted_it(home: Path, tmp_path: Path) -> None:
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\nuntil [ -e go ]; do sleep 0.05; done; exit 5\n")
    code = (
        "import sys; from pathlib import Path\n"
        "from hpcflow.schedulers.local import LocalScheduler\n"
        "from hpcflow.schedulers.base import SubmitRequest\n"
        "home, folder = map(Path, sys.argv[1:])\n"
        "request = SubmitRequest(folder / 'job.sbatch', folder, 'name')\n"
        "print(LocalScheduler(home).submit(request).job_id, flush=True)\n"
        "sys.stdin.read()\n"
    )
    cli = subprocess.Popen(
        [sys.executable, "-c", code, str(home), str(tmp_path)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
        env={**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])},
    )
    assert cli.stdout is not None
    job_id = cli.stdout.readline().strip()
    os.killpg(cli.pid, signal.SIGINT)  # Ctrl-C reaches all that the terminal started
    os.killpg(cli.pid, signal.SIGHUP)
    os.killpg(cli.pid, signal.SIGKILL)
    cli.communicate()
    scheduler = LocalScheduler(home)
    assert scheduler.queue([job_id])[0].state is not AttemptState.ENDED
    (tmp_path / "go").touch()
    assert _ended(scheduler, job_id).exit_code == 5


def test_a_job_killed_at_the_root_has_vanished_and_does_not_run_forever(
    scheduler: LocalScheduler, home: Path, tmp_path: Path
) -> None:
    job_id = _submit(scheduler, tmp_path, "sleep 600")
    # What is started after the others are listed lives on, and so does the job.
    poll(lambda: any(map(_is_sleep, _processes(home, job_id))), 60, "nothing sleeps")
    for pid in _processes(home, job_id):
        os.kill(pid, signal.SIGKILL)
    job = _ended(scheduler, job_id)
    assert (job.raw_state, job.exit_code) == ("", None)
    assert cause_of_end(job.raw_state, job.exit_code) is Cause.VANISHED


def test_while_anything_of_a_job_lives_it_runs_and_can_be_cancelled(
    scheduler: LocalScheduler, home: Path, tmp_path: Path
) -> None:
    job_id = _submit(scheduler, tmp_path, "setsid sleep 600 & touch up; wait")
    _wait_for(tmp_path / "up")
    asleep = poll(
        lambda: [pid for pid in _processes(home, job_id) if _is_sleep(pid)], 60, "nothing sleeps"
    )
    orphan = asleep[0]
    for pid in _processes(home, job_id):
        if pid != orphan:
            os.kill(pid, signal.SIGKILL)
    _until(scheduler, job_id, lambda _: _processes(home, job_id) == [orphan])
    assert scheduler.queue([job_id])[0].state is AttemptState.RUNNING
    scheduler.cancel([job_id])
    assert _ended(scheduler, job_id).raw_state == "CANCELLED"


def _processes(home: Path, job_id: str) -> list[int]:
    mark = json.loads((home / "local" / job_id / "job.json").read_text())["mark"]
    return carriers({mark})[mark]


def _is_sleep(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "sleep"
    except OSError:
        return False


#: For the submitting process alone: it takes a second to exit.
SLOW_TO_EXIT = """
import atexit, sys, time
if "hpcflow.schedulers.local_submit" in sys.orig_argv:
    atexit.register(time.sleep, 1)
"""


def test_a_job_that_ends_at_once_does_not_take_the_process_that_submits_it_along(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A job ends all processes that have its mark."""
    (tmp_path / "sitecustomize.py").write_text(SLOW_TO_EXIT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    job_id = _submit(scheduler, tmp_path, "exit 0")
    assert _ended(scheduler, job_id).raw_state == "COMPLETED"


def test_what_a_script_leaves_behind_ends_with_it(
    scheduler: LocalScheduler, home: Path, tmp_path: Path
) -> None:
    job_id = _submit(scheduler, tmp_path, "setsid sleep 600 & exit 0")
    assert _ended(scheduler, job_id).raw_state == "COMPLETED"
    assert not [pid for pid in _processes(home, job_id) if _is_sleep(pid)]


def test_cancel_gives_every_process_the_chance_to_save(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    body = "trap 'touch saved; exit 9' TERM\ntouch up\nwhile :; do sleep 0.1; done"
    job_id = _submit(scheduler, tmp_path, body)
    _wait_for(tmp_path / "up")
    scheduler.cancel([job_id])
    job = _ended(scheduler, job_id)
    assert (job.raw_state, job.exit_code) == ("CANCELLED", 9)
    assert (tmp_path / "saved").exists()


def test_the_notice_comes_before_the_time_limit_and_then_the_end(
    scheduler: LocalScheduler, tmp_path: Path
) -> None:
    body = (
        "#SBATCH --time=00:00:02\n#SBATCH --signal=B:USR2@1\n"
        "trap 'touch noticed' USR2\nwhile :; do sleep 0.1; done"
    )
    job_id = _submit(scheduler, tmp_path, body)
    assert _ended(scheduler, job_id).raw_state == "TIMEOUT"
    assert (tmp_path / "noticed").exists()


def test_directives_end_where_the_commands_begin() -> None:
    script = (
        "#!/bin/bash\n#SBATCH --output=x.log\n\n#SBATCH --time 1:30:00\necho\n#SBATCH --time=5\n"
    )
    assert read_directives(script) == Directives("x.log", 5400, None, 0)
    assert read_directives("#!/bin/bash\n").time_limit_s is None
    notice = read_directives("#SBATCH --signal=B:USR2@120\n")
    assert (notice.notice_signal, notice.notice_s) == (signal.SIGUSR2, 120)


def test_a_machine_that_was_started_anew_has_lost_its_jobs(
    scheduler: LocalScheduler, home: Path, tmp_path: Path
) -> None:
    job_id = _submit(scheduler, tmp_path, "sleep 600")
    path = home / "local" / job_id / "job.json"
    job = json.loads(path.read_text())
    path.write_text(json.dumps({**job, "boot_id": "an earlier one"}))
    assert scheduler.queue([job_id])[0].raw_state == "NODE_FAIL"
    path.write_text(json.dumps({**job, "host": "login7"}))
    renamed = scheduler.queue([job_id])[0]
    assert renamed.state is not AttemptState.ENDED
    assert renamed.reason is None, "it is this very machine, by another name"
    path.write_text(json.dumps({**job, "host": "login7", "pid_namespace": "pid:[1]"}))
    elsewhere = scheduler.queue([job_id])[0]
    assert elsewhere.state is not AttemptState.ENDED
    assert "machine is login7, and its state is only visible there" in str(elsewhere.reason)
    path.write_text(json.dumps(job))


def test_a_job_whose_files_are_damaged_hides_no_other(
    scheduler: LocalScheduler, home: Path, tmp_path: Path
) -> None:
    first, second = (_submit(scheduler, tmp_path, "sleep 600") for _ in range(2))
    path = home / "local" / first / "job.json"
    whole = path.read_text()
    for text in ("", "{", "[]", '{"job_name": "x"}'):
        path.write_text(text)
        assert [job.job_id for job in scheduler.queue()] == [second]
        scheduler.cancel([first])
    path.write_text(whole)
    assert [job.job_id for job in scheduler.queue()] == [first, second]


def test_ids_are_not_given_twice_when_many_submit_at_once(
    scheduler: LocalScheduler, home: Path, tmp_path: Path
) -> None:
    from concurrent.futures import ThreadPoolExecutor

    folders = [tmp_path / str(number) for number in range(6)]
    for folder in folders:
        folder.mkdir()
    with ThreadPoolExecutor(6) as pool:
        ids = list(pool.map(lambda folder: _submit(scheduler, folder, "exit 0"), folders))
    assert sorted(ids) == [str(number) for number in range(1, 7)]
    assert oct((home / "local").stat().st_mode & 0o777) == "0o700"


@pytest.mark.parametrize("delay_s", [0.0, 0.02, 0.05, 0.08, 0.12, 0.3])
def test_a_submission_killed_at_any_moment_leaves_one_job_or_none(
    scheduler: LocalScheduler, tmp_path: Path, delay_s: float
) -> None:
    since = datetime.now(timezone.utc) - timedelta(seconds=1)
    script = tmp_path / "job.sbatch"
    script.write_text("#!/bin/bash\necho ran >> ran\n")
    hasty = LocalScheduler(scheduler.home, submit_timeout_s=delay_s)
    with pytest.raises(SubmissionRefused):
        hasty.submit(SubmitRequest(tmp_path / "missing", tmp_path, "name"))
    try:
        hasty.submit(SubmitRequest(script, tmp_path, "name"))
    except Exception as doubt:
        assert type(doubt).__name__ == "SubmissionInDoubt"
    jobs = scheduler.find("name", since).jobs
    assert len(jobs) <= 1
    for job in jobs:
        ended = _ended(scheduler, job.job_id)
        ran = (tmp_path / "ran").read_text() if (tmp_path / "ran").exists() else ""
        assert ran == ("ran\n" if ended.raw_state == "COMPLETED" else "")


def test_a_name_is_found_in_this_home_only(scheduler: LocalScheduler, tmp_path: Path) -> None:
    since = datetime.now(timezone.utc) - timedelta(seconds=1)
    _submit(scheduler, tmp_path, SLEEPS, name="one")
    assert len(scheduler.find("one", since).jobs) == 1
    assert LocalScheduler(tmp_path / "other").find("one", since).jobs == ()
    assert LocalScheduler(tmp_path / "other").queue() == []


def test_an_orphaned_submission_keeps_the_lock_until_its_job_can_be_found(
    scheduler: LocalScheduler, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    since = datetime.now(timezone.utc) - timedelta(seconds=1)
    script, locked, slow = tmp_path / "job.sbatch", tmp_path / "submit.lock", tmp_path / "python"
    script.write_text("#!/bin/bash\nexit 0\n")
    slow.write_text(
        f"#!/bin/bash\ntouch '{tmp_path}/up'\nuntil [ -e '{tmp_path}/go' ]; do sleep 0.02; done\n"
        f'exec "{sys.executable}" "$@"\n'
    )
    slow.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(slow))
    cli = os.fork()
    if cli == 0:
        fd = os.open(locked, os.O_RDWR | os.O_CREAT)
        fcntl.flock(fd, fcntl.LOCK_EX)
        scheduler.submit(SubmitRequest(script, tmp_path, "name", fd))
        os._exit(0)
    _wait_for(tmp_path / "up")
    os.kill(cli, signal.SIGKILL)
    os.waitpid(cli, 0)
    with locked.open("r+") as file:
        with pytest.raises(BlockingIOError):
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        (tmp_path / "go").touch()
        fcntl.flock(file, fcntl.LOCK_EX)
    assert len(scheduler.find("name", since).jobs) == 1


def test_a_mark_is_looked_for_again_before_nobody_is_said_to_carry_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    answers = [{"a": [7], "b": []}, {"b": [8]}, {"a": []}, {"a": []}]
    monkeypatch.setattr(local_jobs, "_scan", lambda _: answers.pop(0))
    assert carriers({"a", "b"}) == {"a": [7], "b": [8]}
    assert carriers({"a"}) == {"a": []}


def test_a_process_carries_its_mark_also_while_it_becomes_another_program() -> None:
    """Between two programs there is a moment in which /proc shows no environment."""
    again = """exec /bin/sh -c 'eval "$AGAIN"'"""
    environment = {"AGAIN": again, MARK_VARIABLE: "restless"}
    with subprocess.Popen(["/bin/sh", "-c", again], env=environment) as restless:
        poll(lambda: carriers({"restless"})["restless"], 120, "it does not start")
        missed = sum(not carriers({"restless"})["restless"] for _ in range(300))
        restless.kill()
    assert missed == 0


def test_a_home_that_takes_no_job_is_named_with_the_reason(
    scheduler: LocalScheduler, home: Path, tmp_path: Path
) -> None:
    home.mkdir()
    (home / "local").symlink_to("/sys")  # nobody can make a folder there
    with pytest.raises(SubmissionInDoubt, match=r"(not permitted|denied): .*/local/\.new-"):
        _submit(scheduler, tmp_path, "true")
    (home / "local").unlink()
    (home / "local").touch()
    with pytest.raises(SchedulerUnavailable, match="File exists"):
        _submit(scheduler, tmp_path, "true")
    (home / "local").unlink()
