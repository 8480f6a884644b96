"""The daemon as a job of Slurm, and as an entry in Slurm's own crontab."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from hpcflow.testing.cluster import poll
from tests.e2e.conftest import Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(800)]

#: Leaves with "send me again" until it has been sent twice.
PATIENT = "command: [sh, -c, 'test $HPCFLOW_ATTEMPT = 2 || exit 75']\n"


@pytest.fixture
def hpcflow(hpcflow: Hpcflow) -> Iterator[Hpcflow]:
    """Without a daemon when the test is over."""
    yield hpcflow
    hpcflow("daemon", "uninstall", check=False)


def queue(hpcflow: Hpcflow) -> dict[str, str]:
    """Job id -> state, of the daemons in the queue; in the order in which they were sent."""
    text = hpcflow.user.run(["squeue", "--me", "-h", "-o", "%i %T %j", "--sort=i"]).stdout
    lines = [line.split() for line in text.splitlines()]
    ours = ("hpcflow-daemon-", "hpcflow-round-")
    return {job: state for job, state, name in lines if name.startswith(ours)}


def patient_run(hpcflow: Hpcflow) -> str:
    config = hpcflow.write_config("patient.yaml", f"name: patient\n{PATIENT}")
    return str(hpcflow.json("run", config, "--site", "devcluster")["run_id"])


@pytest.mark.soak
def test_a_job_is_the_daemon_and_hands_on_to_its_successor(hpcflow: Hpcflow) -> None:
    run_id = patient_run(hpcflow)
    # Slurm says it a minute before the end: it has a minute for its rounds, and then the next one.
    options = ["--", "--partition=short", "--time=2"]
    for _ in range(2):  # the second one takes the place of the first
        said = hpcflow("daemon", "install", "--slurm", "--yes", *options).stdout
    first = said.partition("installed; job ")[2].split()[0]
    (log,) = (hpcflow.home / "daemon").glob("*.log")

    def one_runs_and_one_waits_after(job_id: str) -> bool:
        states = {job: state for job, state in queue(hpcflow).items() if state != "COMPLETING"}
        return list(states.values()) == ["RUNNING", "PENDING"] and min(map(int, states)) > int(
            job_id
        )

    poll(lambda: one_runs_and_one_waits_after(str(int(first) - 1)), 300, log.read_text)
    poll(lambda: hpcflow.json("show", run_id)["state"] == "completed", 300, log.read_text)
    assert f"job {first} (running)" in hpcflow("daemon", "status").stdout
    # Its time limit ends it, and the one that waited goes on, with one behind it.
    poll(lambda: one_runs_and_one_waits_after(first), 300, log.read_text)
    second, third = queue(hpcflow)
    limits = hpcflow.user.run(["squeue", "--me", "-h", "-o", "%P %l", "-j", f"{second},{third}"])
    assert limits.stdout.split("\n")[:2] == ["short 2:00"] * 2
    # Who cancels the one that runs means the one that waits, too.
    hpcflow.user.run(["scancel", second])
    hpcflow.user.run(["scontrol", "update", f"jobid={third}", "StartTime=now"])
    poll(lambda: not queue(hpcflow), 300, lambda: f"{queue(hpcflow)} {log.read_text()}")
    assert f"job {third}: job {second} was cancelled, so this one exits too" in log.read_text()
    assert "Traceback" not in log.read_text()
    assert ", without a job in the queue" in hpcflow("daemon", "status", check=False).stdout


#: The user's crontab is the machine's: a test beside this one, of another cluster, may be in it.
NOTHING = "nothing is installed"


def test_what_slurm_refuses_leaves_nothing_and_uninstall_ends_both_jobs(hpcflow: Hpcflow) -> None:
    refused = hpcflow("daemon", "install", "--slurm", "--yes", "--", "--partition=no", check=False)
    assert refused.returncode == 2
    assert "invalid partition" in refused.stderr.lower()
    assert "-- --partition=serial" in refused.stderr
    assert hpcflow("daemon", "uninstall").stdout.startswith(NOTHING)
    hpcflow("daemon", "install", "--slurm", "--yes", "--", "--partition=gpu")
    poll(lambda: len(queue(hpcflow)) == 2, 300, "no successor")
    jobs = list(queue(hpcflow))
    said = hpcflow("daemon", "uninstall", "--slurm").stdout
    assert all(job in said for job in jobs)
    poll(lambda: not queue(hpcflow), 300, "they are still there")
    assert hpcflow("daemon", "uninstall").stdout.startswith(NOTHING)


@pytest.mark.parametrize("cluster", ["forky"], indirect=True, scope="session")
@pytest.mark.soak
def test_slurms_own_cron_does_the_rounds(hpcflow: Hpcflow) -> None:
    """On a newer Slurm: Debian 12 does not package scrontab."""
    run_id = patient_run(hpcflow)
    foreign = "# mine\n0 4 1 1 * true\n"
    hpcflow.user.run(["scrontab", "-"], input=foreign)
    hpcflow("daemon", "install", "--scrontab", "--yes", "--", "--partition=short", "--time=1")
    (log,) = (hpcflow.home / "daemon").glob("*.log")
    table = hpcflow.user.run(["scrontab", "-l"]).stdout
    assert table.endswith(foreign)
    hpcflow.user.run(["scrontab", "-"], input=table.replace("\n*/5 ", "\n* "))  # as people may
    poll(lambda: hpcflow.json("show", run_id)["state"] == "completed", 300, log.read_text)
    (job,) = queue(hpcflow)
    assert "(go_on: " in log.read_text()
    hpcflow.user.run(["scancel", job])

    def status() -> str:
        return str(hpcflow("daemon", "status", check=False).stdout)

    poll(lambda: "disabled" in status(), 300, status)
    hpcflow("daemon", "uninstall", "--scrontab")
    assert hpcflow.user.run(["scrontab", "-l"]).stdout == foreign
    hpcflow.user.run(["scrontab", "-r"])
