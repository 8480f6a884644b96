"""No daemon at all: a real cron, with the line that `hpcflow daemon install` writes, is enough."""

from __future__ import annotations

import stat
import subprocess
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from hpcflow.testing.cluster import User, packages, poll
from tests.e2e.conftest import TWO_NODES, Hpcflow
from tests.e2e.test_daemon import take_all_nodes
from tests.e2e.test_main_job import assert_same, weights

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

#: Each costs up to a minute, for cron's clock has no smaller hand.
PREEMPTIONS = 2
FOREIGN = '# mine; keep it\nMAILTO=""\n0 4 1 1 * echo "100\\% of\tit" > /dev/null\n'


@pytest.fixture
def cron() -> Iterator[None]:
    """A cron that runs: that of the machine, else one of our own until the test is over."""
    if any(_name(process) in ("cron", "crond") for process in Path("/proc").glob("[0-9]*")):
        yield
        return
    program = packages.find_program("cron")
    assert program is not None
    with subprocess.Popen([program, "-f"], stdin=subprocess.DEVNULL) as process:
        try:
            yield
            assert process.poll() is None
        finally:
            process.terminate()


def _name(process: Path) -> str:
    try:
        return (process / "comm").read_text().strip()
    except OSError:
        return ""


@pytest.fixture
def hpcflow(hpcflow: Hpcflow) -> Iterator[Hpcflow]:
    """With a home whose name means something to shells and to cron, and a crontab of her own."""
    hpcflow.env["HPCFLOW_HOME"] = str(hpcflow.home.with_name("it's my 100%"))
    crontab(hpcflow.user, "-", text=FOREIGN)
    yield hpcflow
    crontab(hpcflow.user, "-r")


def crontab(user: User, option: str, text: str | None = None) -> str:
    return user.run(["crontab", option], input=text).stdout


@pytest.mark.usefixtures("cron")
def test_a_preempted_run_finishes_by_cron_alone(
    hpcflow: Hpcflow, grace: User, undisturbed: dict[str, Any]
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
    run = hpcflow.json(
        "run",
        hpcflow.digits,
        *TWO_NODES,
        *("--set", "resources.partition=spot", "--set", "resources.gpus_per_node=1"),
        *("--set", "checkpoint.every_train_steps=5"),
    )

    def look() -> Any:
        return hpcflow.json("show", run["run_id"])

    def has_new_checkpoint(attempt: int) -> bool:
        return any(each["attempt"] == attempt for each in look()["checkpoints"])

    (log,) = (hpcflow.home / "daemon").glob("*.log")
    for attempt in range(1, PREEMPTIONS + 1):
        poll(partial(has_new_checkpoint, attempt), 150, log.read_text)
        take_all_nodes(grace)
    poll(lambda: look()["state"] == "completed", 150, log.read_text)
    shown_run = look()
    causes = [attempt["cause"] for attempt in shown_run["attempts"]]
    assert causes == ["preempted"] * PREEMPTIONS + ["completed"]
    assert_same(weights(shown_run), weights(undisturbed))
    said = log.read_text()
    assert said.count("(go_on: ") == PREEMPTIONS, said
    assert "Traceback" not in said
    assert stat.S_IMODE(log.stat().st_mode) == 0o600
    status = hpcflow.json("daemon", "status", check=False)
    assert "crontab" in status["installed"]["cron"]
    assert hpcflow("ledger", "check").returncode == 0
    assert "crontab" in hpcflow("daemon", "uninstall").stdout
    assert crontab(hpcflow.user, "-l") == FOREIGN
    assert hpcflow("daemon", "uninstall", "--cron").stdout == "nothing is installed\n"
