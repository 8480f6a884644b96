"""`hpcflow sweep install` and `uninstall`, and the line that removes itself; crontab is a stand-in.

With the real crontab and a real cron, as an ordinary user: tests/e2e/test_sweep_cron.py. What a
table does when others write in it, or nobody may: test_daemon_install.py, for the same code.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from hpcflow.settings import load_settings
from hpcflow.sweeps.install import remove_own_line
from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.cli.test_daemon_install import CRONTAB, DISABLED, FORBIDDEN, WORKING, Machine
from tests.daemons import daemon

SWEEP = """
name: search
base: {base}
space: {{lr: {{low: 0.1, high: 1.0}}}}
objective: {{metric: loss, direction: minimize}}
sampler: random
parallel: {trials}
budget: {{trials: {trials}}}
"""
#: A trial that goes on for longer than any test here, unless somebody ends it.
FOR_EVER = "sleep 60"
FOREIGN = b"# mine\n0 4 * * * true\n"


@pytest.fixture
def machine(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """With a crontab in which somebody has lines of their own."""
    machine = Machine(desk.folder / "bin")
    machine.has("crontab", CRONTAB)
    monkeypatch.setenv("PATH", f"{machine.folder}{os.pathsep}{os.environ['PATH']}")
    machine.table = FOREIGN
    return machine


def started(desk: Desk, shell: str, trials: int = 1) -> str:
    """A sweep under way: its id."""
    path = desk.folder / "sweep.yaml"
    path.write_text(SWEEP.format(base=desk.config("trial", shell), trials=trials))
    return str(desk.json("sweep", "start", str(path))["sweep_id"])


@contextmanager
def living_daemon() -> Iterator[None]:
    """Somebody who has the lease."""
    lease = daemon()
    yield
    lease.give_back()


def tick_of_the_line(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, *, code: int = 0, way: str = "cron"
) -> str:
    """A round as the line makes it; what it says on stderr."""
    with monkeypatch.context() as environment:
        environment.setenv("HPCFLOW_SWEEP_CRON", way)
        return desk.error("sweep", "tick", code=code)


def test_nothing_is_written_before_somebody_said_yes(desk: Desk, machine: Machine) -> None:
    shown = desk.say("sweep", "install", code=2)
    assert "add --yes" in desk.error("sweep", "install")
    assert machine.table == FOREIGN
    desk.say("sweep", "install", "--yes")
    assert machine.table.removesuffix(FOREIGN).decode() in shown


def test_installed_twice_it_is_one_line_and_what_others_wrote_is_untouched(
    desk: Desk, machine: Machine, home: Path
) -> None:
    for _ in range(2):
        desk.say("sweep", "install", "--yes")
    begin, remark, line, end = machine.table.removesuffix(FOREIGN).decode().splitlines()
    name = begin.removeprefix("# BEGIN hpcflow sweeps ")
    assert name.startswith("local-")
    assert end == f"# END hpcflow sweeps {name}"
    assert "removed automatically" in remark
    assert line.startswith("* * * * * HOME=")
    assert f" HPCFLOW_HOME={home} " in line
    assert " HPCFLOW_SWEEP_CRON=cron " in line
    assert line.endswith(f"hpcflow sweep tick >> {home}/daemon/{name}-sweeps.log 2>&1")
    assert (home / "daemon" / f"{name}-sweeps.log").stat().st_mode & 0o777 == 0o600
    assert "removed: the line in the crontab" in desk.say("sweep", "uninstall")
    assert machine.table == FOREIGN
    assert desk.say("sweep", "uninstall") == "nothing is installed\n"


def test_the_line_of_the_daemon_is_another_one(desk: Desk, machine: Machine) -> None:
    desk.say("daemon", "install", "--cron", "--yes")
    of_the_daemon = machine.table
    desk.say("sweep", "install", "--yes")
    assert machine.table.count(b"daemon --once") == machine.table.count(b"sweep tick") == 1
    desk.say("sweep", "uninstall")
    assert machine.table == of_the_daemon
    desk.say("sweep", "install", "--yes")
    assert "'local" not in desk.say("daemon", "uninstall")
    assert b"daemon --once" not in machine.table
    assert b"sweep tick" in machine.table


def test_the_line_of_another_home_is_another_one(
    desk: Desk, machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.say("sweep", "install", "--yes")
    with monkeypatch.context() as other:
        other.setenv("HPCFLOW_HOME", str(home.with_name("other")))
        said = desk.say("sweep", "uninstall")
        assert "but elsewhere:\n  'local-" in said
        desk.say("sweep", "install", "--yes")
        assert machine.table.count(b"# BEGIN") == 2
    tick_of_the_line(desk, monkeypatch)
    assert machine.table.count(b"# BEGIN") == 1
    assert b"HPCFLOW_HOME=%b " % os.fsencode(home) not in machine.table


def test_scripts_get_json(desk: Desk, machine: Machine) -> None:
    installed = desk.json("sweep", "install", "--yes")
    assert installed["way"] == "cron"
    assert machine.table.removesuffix(FOREIGN).decode() in installed["written"]
    assert list(desk.json("sweep", "uninstall")["removed"]) == ["cron"]


def test_slurms_own_cron_gets_a_job_of_its_own_name(
    desk: Desk, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine.has("scrontab", CRONTAB.replace('ada" >&2', 'ada"'))
    desk.say("sweep", "install", "--scrontab", "--yes", "--", "--partition=serial")
    assert b"#SCRON --job-name=hpcflow-sweeps" in machine.table
    assert b"#SCRON --partition=serial\n*/5 * * * * " in machine.table
    assert b" HPCFLOW_SWEEP_CRON=scrontab " in machine.table
    assert "the line in the scrontab is removed" in tick_of_the_line(
        desk, monkeypatch, way="scrontab"
    )
    assert machine.table == FOREIGN


def test_cron_takes_no_options_of_sbatch(desk: Desk, machine: Machine) -> None:
    error = desk.error("sweep", "install", "--yes", "--", "--partition=serial")
    assert "takes no options of sbatch" in error
    assert machine.table == FOREIGN


def test_where_cron_is_forbidden_the_daemon_is_named(desk: Desk, machine: Machine) -> None:
    machine.has("crontab", FORBIDDEN)
    machine.has("scrontab", DISABLED)
    assert "hpcflow daemon install --help" in desk.error("sweep", "install", "--yes")
    assert "hpcflow sweep install" in desk.error("sweep", "install", "--scrontab", "--yes")


def test_the_line_goes_when_no_sweep_is_under_way(
    desk: Desk, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.say("sweep", "install", "--yes")
    assert "no sweep is active" in desk.error("sweep", "install", "--yes", code=0)
    said = tick_of_the_line(desk, monkeypatch)
    assert said.count("\n") == 1
    assert "no sweep is active: the line in the crontab is removed" in said
    assert machine.table == FOREIGN
    assert tick_of_the_line(desk, monkeypatch) == ""


def test_who_types_tick_keeps_the_line(desk: Desk, machine: Machine) -> None:
    desk.say("sweep", "install", "--yes")
    before = machine.table
    desk.say("sweep", "tick")
    assert machine.table == before


def test_the_line_stays_while_a_sweep_is_under_way_and_goes_once_it_was_stopped(
    desk: Desk, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_id = started(desk, FOR_EVER)
    assert desk.error("sweep", "install", "--yes", code=0) == ""
    before = machine.table
    assert tick_of_the_line(desk, monkeypatch) == ""
    assert machine.table == before
    desk.say("sweep", "stop", "--cancel", sweep_id)

    def is_gone() -> bool:
        tick_of_the_line(desk, monkeypatch)
        return machine.table == FOREIGN

    poll(is_gone, 120, "the line stayed")
    assert desk.json("sweep", "status", sweep_id)["state"] == "stopped"


def test_a_halted_sweep_is_at_rest_and_who_resumes_it_is_told_what_to_type(
    desk: Desk, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_id = started(desk, "true")
    desk.say("sweep", "install", "--yes")

    def is_gone() -> bool:
        tick_of_the_line(desk, monkeypatch)
        return machine.table == FOREIGN

    poll(is_gone, 120, "the line stayed")
    assert desk.json("sweep", "status", sweep_id)["state"] == "halted"
    resume = ["sweep", "resume", sweep_id, "--set"]
    assert "next: hpcflow sweep install" in desk.say(*resume, "budget.trials=2")
    desk.say("sweep", "install", "--yes")
    assert "hpcflow sweep install" not in desk.say(*resume, "budget.trials=3")


def test_who_starts_a_sweep_is_told_of_the_line_unless_it_is_there(
    desk: Desk, machine: Machine
) -> None:
    path = desk.folder / "sweep.yaml"
    path.write_text(SWEEP.format(base=desk.config("trial", "true"), trials=1))
    start = ["sweep", "start", str(path), "--set"]
    hint = "hpcflow sweep install, or hpcflow daemon"
    assert hint in desk.say(*start, "name=first")
    desk.say("sweep", "install", "--yes")
    assert hint not in desk.say(*start, "name=second")
    desk.say("sweep", "uninstall")
    desk.say("daemon", "install", "--cron", "--yes")
    assert hint not in desk.say(*start, "name=third"), "the daemon makes rounds of sweeps, too"
    machine.has("crontab", FORBIDDEN)
    assert hint in desk.say(*start, "name=fourth"), "a table that nobody can read is no error"


def test_who_starts_a_sweep_while_a_daemon_lives_is_not_told_of_the_line(
    desk: Desk, machine: Machine
) -> None:
    path = desk.folder / "sweep.yaml"
    path.write_text(SWEEP.format(base=desk.config("trial", "true"), trials=1))
    machine.has("crontab", WORKING)
    with living_daemon():
        assert "hpcflow sweep install" not in desk.say("sweep", "start", str(path))
    assert not (machine.folder / "calls").exists(), "nobody has asked for the table"


def test_a_sweep_that_is_started_while_the_line_goes_keeps_it(
    desk: Desk, machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After the round has looked for sweeps, and before the table is written."""
    desk.say("sweep", "install", "--yes")
    before = machine.table
    sweep_id = started(desk, FOR_EVER)
    aside = machine.folder / "sweeps"
    (home / "sweeps").rename(aside)
    (machine.folder / "home").symlink_to(home)
    appears = "test ! -e sweeps || mv sweeps home/sweeps; mv table.new table"
    machine.has("crontab", CRONTAB.replace("mv table.new table", appears))
    assert tick_of_the_line(desk, monkeypatch) == ""
    assert not aside.exists()
    assert machine.table == before
    desk.say("sweep", "stop", "--cancel", sweep_id)


def test_a_sweep_of_another_cluster_with_the_same_home_does_not_keep_the_line(
    desk: Desk, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_id = started(desk, FOR_EVER)
    desk.say("sweep", "install", "--yes")
    with monkeypatch.context() as environment:
        environment.setenv("HPCFLOW_SWEEP_CRON", "cron")
        assert remove_own_line(load_settings(), lambda _site: True) is None
        assert machine.table != FOREIGN
        assert remove_own_line(load_settings(), lambda _site: False) == "the line in the crontab"
    assert machine.table == FOREIGN
    desk.say("sweep", "stop", "--cancel", sweep_id)


def test_a_table_that_cannot_be_read_is_a_warning_and_the_round_is_fine(
    desk: Desk, machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.say("sweep", "install", "--yes")
    machine.has("crontab", FORBIDDEN)
    said = tick_of_the_line(desk, monkeypatch, code=0)
    assert said.startswith("warning: cannot read your table with crontab: You (ada)")


def test_a_sweep_of_which_nobody_can_tell_keeps_the_line(
    desk: Desk, machine: Machine, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sweep_id = started(desk, "true")
    desk.say("sweep", "install", "--yes")
    before = machine.table
    (home / "sweeps" / sweep_id / "sweep.json").write_text("{")
    assert "is damaged" in tick_of_the_line(desk, monkeypatch, code=1)
    assert machine.table == before


def test_a_round_on_a_compute_node_leaves_shared_sqlite_alone(
    desk: Desk, home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SLURMD_NODENAME", "n7")
    monkeypatch.setattr("hpcflow.requeue.install.ledger_for_jobs.is_shared", lambda _path: True)
    assert "must not be opened on a compute node" in desk.error("sweep", "tick")
    assert not list(home.glob("ledger*"))
