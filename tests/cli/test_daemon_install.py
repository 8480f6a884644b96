"""`hpcflow daemon install` and `uninstall`, typed by a person; crontab and systemctl are stand-ins.

With the real crontab, as an ordinary user of a real machine: tests/e2e/test_cron.py. The messages
of the stand-ins are those of Debian's cron.
"""

from __future__ import annotations

import os
import pty
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.desk import Desk

CRONTAB = """#!/bin/sh
cd "$(dirname "$0")" || exit 3
case $1 in
  -l) test -e table || { echo "no crontab for ada" >&2; exit 1; }; cat table ;;
  -r) rm table ;;
  -) cat > table.new; test -z "$(tail -c1 table.new)" || { echo "missing newline" >&2; exit 1; }
     mv table.new table ;;
esac
"""
FORBIDDEN = """#!/bin/sh
echo "You (ada) are not allowed to use this program (crontab)" >&2
echo "See crontab(1) for more information" >&2
exit 1
"""
NO_BUS = """#!/bin/sh
echo "Failed to connect to bus: No medium found" >&2
exit 1
"""
WORKING = """#!/bin/sh
echo "$*" >> "$(dirname "$0")/calls"
"""


class Machine:
    """The programs on PATH, and the crontab."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        for name in ("cat", "dirname", "mv", "rm", "tail"):
            (folder / name).symlink_to(str(shutil.which(name)))

    def has(self, name: str, text: str) -> None:
        path = self.folder / name
        path.write_text(text)
        path.chmod(0o755)

    @property
    def table(self) -> bytes:
        path = self.folder / "table"
        return path.read_bytes() if path.exists() else b""

    @table.setter
    def table(self, content: bytes) -> None:
        (self.folder / "table").write_bytes(content)

    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()


@pytest.fixture
def machine(desk: Desk, home: Path, monkeypatch: pytest.MonkeyPatch) -> Machine:
    """With a crontab, and no systemctl that works."""
    machine = Machine(desk.folder / "bin")
    machine.has("crontab", CRONTAB)
    machine.has("systemctl", NO_BUS)
    # And nothing else: the crontab of whoever runs the tests is not to be found.
    monkeypatch.setenv("PATH", str(machine.folder))
    monkeypatch.setenv("XDG_CONFIG_HOME", str(home.parent / "config"))
    return machine


def test_nothing_is_written_before_somebody_said_yes(desk: Desk, machine: Machine) -> None:
    assert "* * * * * " in desk.say("daemon", "install", "--cron", code=2)
    assert "add --yes" in desk.error("daemon", "install", "--cron")
    assert machine.table == b""


@pytest.mark.parametrize(("answer", "code"), [("n\n", 1), ("y\n", 0)])
def test_at_a_terminal_it_asks(desk: Desk, machine: Machine, answer: str, code: int) -> None:
    ours, theirs = pty.openpty()
    words = [sys.executable, "-m", "hpcflow.cli.main", "daemon", "install", "--cron"]
    with subprocess.Popen(words, stdin=theirs, stdout=subprocess.PIPE, text=True) as process:
        os.write(ours, answer.encode())
        said = process.communicate(timeout=60)[0]
    for descriptor in (ours, theirs):
        os.close(descriptor)
    assert process.returncode == code
    assert "Write it?" in said
    assert ("daemon --once" in machine.table.decode()) == (code == 0)
    assert ("nothing was written" in said) == (code == 1)
    assert desk.say("daemon", "uninstall").startswith("nothing is" if code else "removed: the line")


@pytest.mark.parametrize(
    "foreign", [b"", b"# mine\n0 4 * * * true\n", b"MAILTO=\xff\xe9\r\n\n \n", b"# no newline"]
)
def test_a_crontab_is_afterwards_what_it_was_before(
    desk: Desk, machine: Machine, foreign: bytes
) -> None:
    if foreign:
        machine.table = foreign
    for _ in range(2):
        desk.say("daemon", "install", "--cron", "--yes")
    assert machine.table.count(b"daemon --once") == 1
    closed = foreign if not foreign or foreign.endswith(b"\n") else foreign + b"\n"
    assert machine.table.endswith(closed)
    assert "crontab" in desk.json("daemon", "status", code=1)["installed"]["cron"]
    desk.say("daemon", "uninstall", "--cron")
    assert machine.table == closed
    assert (machine.folder / "table").exists() == bool(foreign)
    assert desk.json("daemon", "status", code=1)["installed"] == {}


def test_a_crontab_that_cannot_be_used_is_said(desk: Desk, machine: Machine) -> None:
    machine.has("crontab", FORBIDDEN)
    error = desk.error("daemon", "install", "--cron", "--yes")
    assert "You (ada) are not allowed to use this program (crontab)" in error
    assert "another way" in error
    assert desk.json("daemon", "status", code=1)["installed"] == {"cron": None}
    assert "--cron: not known" in desk.say("daemon", "status", code=1)
    desk.say("daemon", "uninstall", code=2)
    (machine.folder / "crontab").unlink()
    assert "no crontab on this machine" in desk.error("daemon", "install", "--cron", "--yes")
    assert desk.say("daemon", "uninstall") == "nothing is installed\n"


def test_an_entry_that_slurm_has_switched_off_is_told_and_mended(
    desk: Desk, machine: Machine
) -> None:
    # As Slurm's program does it, whose "none" goes to stdout.
    machine.has("scrontab", CRONTAB.replace('ada" >&2', 'ada"'))
    foreign = b"#SCRON --time=1\n@daily true\n"
    machine.table = foreign
    options = ["--", "--partition=serial"]
    desk.say("daemon", "install", "--scrontab", "--yes", *options)
    written = machine.table
    assert b"#SCRON --partition=serial\n*/5 * * * * " in written
    ours, end, rest = written.partition(b"# END")
    for begin in (b"#SCRON", b"*/5 "):
        ours = ours.replace(b"\n" + begin, b"\n#DISABLED: " + begin)
    machine.table = ours + end + rest  # what `scrontab -l` prints after an scancel
    assert "switched off" in desk.json("daemon", "status", code=1)["installed"]["scrontab"]
    desk.say("daemon", "install", "--scrontab", "--yes", *options)
    assert machine.table == written
    desk.say("daemon", "uninstall", "--scrontab")
    assert machine.table == foreign
    machine.has(
        "scrontab", "#!/bin/sh\necho 'fatal: scrontab is disabled on this cluster' >&2; false\n"
    )
    assert "take another way" in desk.error("daemon", "install", "--scrontab", "--yes")


def test_a_block_that_somebody_has_cut_is_left_alone(desk: Desk, machine: Machine) -> None:
    desk.say("daemon", "install", "--cron", "--yes")
    cut = machine.table[: machine.table.index(b"# END")]
    machine.table = cut
    for word in (["install", "--yes"], ["uninstall"]):
        assert "somebody has edited" in desk.error("daemon", *word, "--cron")
        assert machine.table == cut


def test_without_a_service_manager_the_unit_is_written_and_said_what_to_type(
    desk: Desk, machine: Machine, home: Path
) -> None:
    said = desk.say("daemon", "install", "--systemd", "--yes")
    (unit,) = (home.parent / "config" / "systemd" / "user").glob("*.service")
    assert unit.read_text() in said, "what was shown is what was written"
    assert unit.stat().st_mode & 0o777 == 0o600
    assert "does not run: Failed to connect to bus" in said
    assert f"systemctl --user restart {unit.name}" in said
    assert "loginctl enable-linger" in said
    assert str(unit) in desk.json("daemon", "status", code=1)["installed"]["systemd"]
    assert f"systemctl --user stop {unit.name}" in desk.say("daemon", "uninstall")
    assert not unit.exists()
    machine.has("systemctl", WORKING)
    desk.say("daemon", "install", "--systemd", "--yes")
    assert [call.split()[1] for call in machine.calls()] == ["daemon-reload", "enable", "restart"]
    desk.say("daemon", "uninstall", "--systemd")
    assert machine.calls()[-2:] == [f"--user disable --now {unit.name}", "--user daemon-reload"]


def test_scripts_get_json(desk: Desk, machine: Machine) -> None:
    assert "add --yes" in desk.json("daemon", "install", "--cron", code=2)["error"]["next_action"]
    installed = desk.json("daemon", "install", "--cron", "--yes")
    assert installed["way"] == "cron"
    assert machine.table.decode() in installed["written"]
    assert list(desk.json("daemon", "uninstall")["removed"]) == ["cron"]
    machine.has("crontab", FORBIDDEN)
    wrong = desk.json("daemon", "uninstall", code=2)
    assert (wrong["removed"], list(wrong["errors"])) == ({}, ["cron"])


def test_without_flags_everything_is_taken_away(desk: Desk, machine: Machine) -> None:
    for way in ("--cron", "--systemd"):
        desk.say("daemon", "install", way, "--yes")
    said = desk.say("daemon", "status", code=1)
    assert "installed by --cron: " in said
    assert "installed by --systemd: " in said
    assert desk.say("daemon", "uninstall").count("removed: ") == 2
    assert machine.table == b""


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ([], "name one way"),
        (["--cron", "--systemd"], "name one way"),
        (["--cron", "--yes", "--", "--partition=gpu"], "takes no options of sbatch"),
        (["--scrontab", "--yes", "--", "gpu"], "not an option of sbatch"),
    ],
)
@pytest.mark.usefixtures("machine")
def test_what_makes_no_sense_is_refused(desk: Desk, words: list[str], said: str) -> None:
    assert said in desk.error("daemon", "install", *words)
