"""No daemon at all: a real cron, with the line that `hpcflow daemon install` writes, is enough."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Literal

import pytest

from hpcflow.testing.cluster import User, packages, poll
from tests.e2e.conftest import Hpcflow
from tests.e2e.preempted import assert_survives

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1800)]

FOREIGN = '# mine; keep it\nMAILTO=""\n0 4 1 1 * echo "100\\% of\tit" > /dev/null\n'


@pytest.fixture
def cron() -> Iterator[None]:
    """A cron that runs: that of the machine, else one of our own until the test is over.

    Which of the two it is, cron's own lock says: a process of its name may be the child of one that
    has ended, and still at work on a line.
    """
    program = packages.find_program("cron")
    assert program is not None
    ours = poll(lambda: _start(program), 300, "neither ours nor the machine's cron has the lock")
    yield
    if isinstance(ours, subprocess.Popen):
        assert ours.poll() is None
        ours.terminate()
        ours.wait()


def _start(program: str) -> subprocess.Popen[bytes] | Literal["the machine's", ""]:
    """Ours, if it got the lock; empty where nobody has it who makes rounds."""
    process = subprocess.Popen([program, "-f"], stdin=subprocess.DEVNULL)
    poll(lambda: process.poll() is not None or _owner() == process.pid, 30, "it does not start")
    if process.poll() is None:
        return process
    return "the machine's" if _is_cron(_owner()) else ""


def _owner() -> int:
    try:
        return int(Path("/run/crond.pid").read_text())
    except (OSError, ValueError):
        return 0


def _is_cron(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/comm").read_text().strip() == "cron"
    except OSError:
        return False


@pytest.fixture
def hpcflow(hpcflow: Hpcflow) -> Iterator[Hpcflow]:
    """With a home whose name means something to shells and to cron, and a crontab of her own."""
    hpcflow.env["HPCFLOW_HOME"] = str(hpcflow.home.with_name("it's my 100%"))
    crontab(hpcflow.user, "-", text=FOREIGN)
    yield hpcflow
    crontab(hpcflow.user, "-r")


def crontab(user: User, option: str, text: str | None = None) -> str:
    return user.run(["crontab", option], input=text).stdout


# Each preemption costs a minute or two, for cron's clock has no smaller hand.
@pytest.mark.usefixtures("cron")
@pytest.mark.parametrize("preemptions", [1, pytest.param(4, marks=pytest.mark.soak)])
def test_a_run_that_is_preempted_at_random_moments_finishes_by_cron_alone(
    hpcflow: Hpcflow, grace: User, preemptions: int
) -> None:
    shown = hpcflow("daemon", "install", "--cron", check=False)
    assert shown.returncode == 2
    assert "add --yes" in shown.stderr
    assert crontab(hpcflow.user, "-l") == FOREIGN, "nothing is written before somebody said yes"
    for _ in range(2):  # the second time in place of the first
        hpcflow("daemon", "install", "--cron", "--yes")
    table = crontab(hpcflow.user, "-l")
    assert table.endswith(FOREIGN)
    assert table.count("daemon --once") == 1
    assert table.removesuffix(FOREIGN) in shown.stdout, "what was shown is what was written"
    assert_survives(hpcflow, grace, preemptions)
    (log,) = (hpcflow.home / "daemon").glob("*.log")
    said = log.read_text()
    assert said.count("(go_on: ") == preemptions, said
    assert "Traceback" not in said
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    status = hpcflow.json("daemon", "status", check=False)
    assert "crontab" in status["installed"]["cron"]
    assert hpcflow("ledger", "check").returncode == 0
    assert "crontab" in hpcflow("daemon", "uninstall").stdout
    assert crontab(hpcflow.user, "-l") == FOREIGN
    assert hpcflow("daemon", "uninstall", "--cron").stdout == "nothing is installed\n"
