"""What is written for cron, scrontab, systemd and Slurm, with values as hostile as people have."""

from __future__ import annotations

import os
import shlex
import subprocess
from collections.abc import Mapping
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.errors import InputError
from hpcflow.requeue.install.cron import LONGEST_COMMAND, cron_lines, escape_percent, round_command
from hpcflow.requeue.install.place import Place
from hpcflow.requeue.install.scrontab import scrontab_lines
from hpcflow.requeue.install.slurm_job import job_script
from hpcflow.requeue.install.systemd import Systemd, quote_word, unit_text
from hpcflow.resources import resource_dir

#: The manager; `--test` makes it read its units, say what it has read, and end. Not for root.
SYSTEMD, NOBODY = Path("/lib/systemd/systemd"), 65534

HOSTILE = 'it\'s 100% "mine" \\% $HOME `id` $(id) ; rm -rf ~ # é ü \\'

#: Everything that gets past `require_one_line`.
values = st.text(st.characters(exclude_categories=["Cs", "Cc", "Zl", "Zp"]))


def place(folder: Path = Path("/home/ada/.hpcflow/daemon")) -> Place:
    return Place("here", "", ("/opt/hpc flow/bin/hpcflow",), folder)


def as_cron_reads_it(command: str) -> str:
    """Vixie's do_command.c: a ``%`` ends the command, unless a backslash, then dropped, is there.

    The real one is asked in tests/e2e/test_cron.py.
    """
    out, is_escaped = "", False
    for char in command:
        if is_escaped:
            if char != "%":
                out += "\\"
        elif char == "%":
            return out
        is_escaped = char == "\\"
        if not is_escaped:
            out += char
    return out + ("\\" if is_escaped else "")


def as_bash_reads_it(command: str) -> list[str]:
    """The words, and for each assignment before the command what it assigns."""
    done = subprocess.run(
        ["/bin/sh", "-c", f"set -- {command}; printf '%s\\0' \"$@\""],
        capture_output=True,
        check=True,
    )
    return done.stdout.decode().split("\0")[:-1]


@given(values)
def test_no_value_means_anything_to_cron(value: str) -> None:
    assert as_cron_reads_it(escape_percent(value)) == value


@given(values)
def test_no_value_means_anything_to_the_shell(value: str) -> None:
    words = shlex.split(round_command(place(), {"A": value, "B": "b"}))
    assert words == [f"A={value}", "B=b", "/opt/hpc flow/bin/hpcflow", "daemon", "--once"]


def test_the_line_of_cron_runs_with_its_environment_and_no_other(tmp_path: Path) -> None:
    program = tmp_path / "hpc flow 100%"
    program.write_text('#!/bin/sh\necho "$A|$B|$HOME|$*"\n')
    program.chmod(0o700)
    here = Place("here", "", (str(program),), tmp_path / "it's 5%")
    here.make_folder()
    _, line = cron_lines(here, {"A": HOSTILE, "B": "", "HOME": "/nowhere"})
    schedule, command = line[:10], line[10:]
    assert schedule == "* * * * * "
    subprocess.run(["/bin/sh", "-c", as_cron_reads_it(command)], env={}, check=True)
    assert here.log.read_text() == f"{HOSTILE}||/nowhere|daemon --once\n"
    assert here.log.stat().st_mode & 0o777 == 0o600
    assert here.folder.stat().st_mode & 0o777 == 0o700


def test_a_line_that_cron_would_cut_is_refused() -> None:
    fits = LONGEST_COMMAND - len(cron_lines(place(), {"A": "/" * 100})[1][10:]) + 100
    assert len(cron_lines(place(), {"A": "/" * fits})[1]) == LONGEST_COMMAND + 10
    with pytest.raises(InputError, match="999 bytes, but cron accepts 998; the longest part is A="):
        cron_lines(place(), {"A": "/" * (fits + 1)})


def test_an_entry_of_scrontab_has_its_options_and_no_escapes_of_cron() -> None:
    lines = scrontab_lines(place(), {"A": "5%"}, ["--partition=serial", "--account=physics"])
    options = [line.removeprefix("#SCRON ") for line in lines if line.startswith("#SCRON")]
    assert options[-2:] == ["--partition=serial", "--account=physics"]
    assert "--output=/home/ada/.hpcflow/daemon/here.log" in options
    assert lines[-1].startswith("*/5 * * * * A=5% '/opt/hpc flow/bin/hpcflow' daemon --once")


@pytest.mark.parametrize(
    "option",
    ["serial", "-p", "--hold", "--comment=a b", "--x=$(id)", "--a=1\n#SCRON --b=2", "--x='"],
)
def test_what_cannot_be_an_option_of_a_job_is_refused(option: str) -> None:
    for build in (
        lambda: scrontab_lines(place(), {}, [option]),
        lambda: job_script(shipped(), place(), {}, [option]),
    ):
        with pytest.raises(InputError):
            build()


@pytest.mark.parametrize(
    "option",
    [
        *("--job-name=x", "--job=x", "--dependency=", "--depend=afterok:7", "--array=0-9"),
        *("--export=ALL", "--export-file=/x", "--wrap=x", "--begin=now+1day", "--clusters=b"),
        *("--output=/x", "--open-mode=truncate", "--signal=KILL@60"),
    ],
)
def test_what_would_break_the_chain_of_jobs_is_refused(option: str) -> None:
    for build in (
        lambda: scrontab_lines(place(), {}, [option]),
        lambda: job_script(shipped(), place(), {}, [option]),
    ):
        with pytest.raises(InputError, match="cannot be set"):
            build()
    harmless = ["--cpus-per-task=2", "--exclude=n7", "--mail-type=END", "--comment=x", "--mem=2G"]
    assert scrontab_lines(place(), {}, harmless)


def test_a_log_that_no_option_can_name_is_refused() -> None:
    with pytest.raises(InputError, match="cannot be written in a job script's options"):
        scrontab_lines(place(Path("/home/ada lovelace")), {})
    assert "--output=/h/100%%/here.log" in "".join(scrontab_lines(place(Path("/h/100%")), {}))


def shipped() -> str:
    return (resource_dir("sbatch") / "daemon.sbatch").read_text()


def test_the_job_script_is_the_shipped_one_with_variables_and_options_of_its_own() -> None:
    script = job_script(shipped(), place(), {"A": HOSTILE}, ["--partition=serial"])
    directives = [line for line in script.splitlines() if line.startswith("#SBATCH")]
    assert directives[-3:] == [
        "#SBATCH --job-name=hpcflow-daemon",
        "#SBATCH --output=/home/ada/.hpcflow/daemon/here.log",
        "#SBATCH --partition=serial",
    ]
    body = script.split("set -euo pipefail\n")[1]
    said = body.replace('"${HPCFLOW_PYTHON:-python3}"', "printf '%s\\n' \"$A\" ; true")
    done = subprocess.run(["bash", "-c", said], capture_output=True, text=True, check=True, env={})
    assert done.stdout == f"{HOSTILE}\n"


def test_the_shipped_job_script_needs_no_filling_in() -> None:
    assert "#SBATCH --dependency=singleton" in shipped()
    assert "#SBATCH --no-requeue" in shipped()
    subprocess.run(["bash", "-n"], input=shipped(), text=True, check=True)


def as_systemd_reads_it(word: str, specials: Mapping[str, str]) -> str:
    """systemd.syntax(7): quotes, then C escapes, then specifiers and, in a command, ``$``."""
    assert word[0] == word[-1] == '"'
    text = word[1:-1].replace("\\\\", "\0").replace('\\"', '"')
    assert "\\" not in text
    for doubled, single in specials.items():
        assert single not in text.replace(doubled, ""), text
        text = text.replace(doubled, single)
    return text.replace("\0", "\\")


@given(values)
def test_no_value_means_anything_to_systemd(value: str) -> None:
    assert as_systemd_reads_it(quote_word(value), {"%%": "%"}) == value
    in_command = quote_word(value, expands=True)
    assert as_systemd_reads_it(in_command, {"%%": "%", "$$": "$"}) == value


def test_the_unit_has_each_setting_once_and_starts_again_for_ever() -> None:
    text = unit_text(place(), {"A": HOSTILE, "B": "b"})
    lines = [line for line in text.splitlines() if line and not line.startswith(("#", "["))]
    settings = [line.partition("=")[0] for line in lines]
    assert settings.count("Environment") == 2
    assert 'ExecStart="/opt/hpc flow/bin/hpcflow" "daemon"' in lines
    assert {"Restart=always", "StartLimitIntervalSec=0", "WantedBy=default.target"} <= set(lines)


@pytest.mark.skipif(not SYSTEMD.exists(), reason="no systemd on this machine")
def test_systemd_itself_reads_what_was_meant() -> None:
    with TemporaryDirectory() as name:  # pytest's own is closed to whom root becomes here
        folder = Path(name)
        folder.chmod(0o755)
        program = folder / "hpc flow 100%"
        program.touch(0o755)
        units = folder / "systemd" / "user"
        units.mkdir(parents=True)
        here = Place("here", "", (str(program), "$HOME"), folder)
        (units / "x.service").write_text(unit_text(here, {"A": HOSTILE, "B": "b"}))
        environ = {"XDG_RUNTIME_DIR": name, "XDG_CONFIG_HOME": name, "HOME": "/nowhere"}
        done = subprocess.run(
            [SYSTEMD, "--user", "--test", "--unit=x.service"],
            env={**environ, "LC_ALL": "C.UTF-8"},
            user=None if os.geteuid() else NOBODY,
            capture_output=True,
            text=True,
            timeout=120,
        )
    _, found, unit = done.stdout.partition("-> Unit x.service:\n")
    assert found, done.stdout[-2000:] + done.stderr
    unit = unit.partition("-> Unit ")[0]
    assert f"Environment: A={HOSTILE}\n" in unit
    assert "Environment: B=b\n" in unit
    # As it shows words: quoted like a shell's. What is left of `$$` becomes `$` at the start.
    assert f'Command Line: "{program}" "\\$\\$HOME" daemon\n' in unit


def test_a_round_of_scrontab_is_not_taken_for_a_daemon_that_is_a_job() -> None:
    def name(lines: list[str]) -> str:
        return [line.partition("--job-name=")[2] for line in lines if "--job-name=" in line][-1]

    of_job = name(job_script(shipped(), place(), {}, []).splitlines())
    assert name(scrontab_lines(place(), {})) not in (of_job, "hpcflow-daemon")


def test_no_other_user_can_add_a_unit(tmp_path: Path) -> None:
    """Below ``~/.config``, which may be missing; whatever the umask."""
    place = Place("local", "", ("hpcflow",), tmp_path / "daemon")
    before = os.umask(0)
    try:
        Systemd(place, {}, {"HOME": str(tmp_path), "PATH": ""}, "ada").install()
    finally:
        os.umask(before)
    made = list((tmp_path / ".config").rglob("*"))
    assert [each for each in [tmp_path / ".config", *made] if each.stat().st_mode & 0o022] == []
