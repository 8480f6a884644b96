"""Hostile text, shown by every command on a real terminal: the terminal obeys none of it.

A run of another user lies in the shared ledger, with hostile text in each column that has any; the
journal, events, log and checkpoints of an own run are as a stranger's bucket could have made them.
"""

from __future__ import annotations

import json
import os
import re
import sqlite3
import subprocess
import sys
from dataclasses import asdict
from pathlib import Path
from typing import Any

import pytest

from hpcflow.cli.main import COMMANDS, main
from hpcflow.ledger.rows import PartRow
from hpcflow.terminal import escaped
from tests.cli.desk import Desk
from tests.cli.terminal import Terminal
from tests.cli.trained import Trained
from tests.json_output import checked
from tests.test_terminal import is_obeyed

#: Would set a title, clear the screen, colour, turn directions, hide, and forge a line.
EVIL = (
    "E\x1b]0;owned\x07\x1b[2J\x1b[38;5;199m\x9b1m\x85\x7f\b\t\u202e\u2066\u061c\u200b\u200d\ufeff"
    "\u2028\u2029\U000e0041\ufe0f\r\nFORGED: type this\n[red]markup[/red]"
)

IN_YAML = escaped(json.dumps(EVIL, ensure_ascii=False))

#: Columns that hold words of ours, of which no other can be read.
OURS = {"state", "cause", "framework", "removed", "path"}

RUN = "%RUN%"
#: What is typed, in a home where there is one own run, and a stranger's.
LINES: list[tuple[str, ...]] = [
    ("ls",),
    ("ls", "--all"),
    ("ls", "--project", EVIL),
    ("show", RUN),
    ("show", EVIL),
    ("why", RUN),
    ("history", RUN),
    ("logs", RUN),
    ("logs", RUN, "--follow"),
    ("wait", RUN),
    ("wait", RUN, "--follow"),
    ("ledger", "check"),
    ("ledger", "rebuild"),
    ("setup",),
    ("doctor",),
    ("doctor", "--site", EVIL),
    ("site", "list"),
    ("site", "show", "hostile"),
    ("site", "show", EVIL),
    ("site", "check", "local"),
    ("checkpoint", "ls", RUN),
    ("checkpoint", "show", RUN, "1"),
    ("checkpoint", "verify", RUN),
    ("checkpoint", "prune", RUN, "--dry-run"),
    ("checkpoint", "export", RUN, f"export{EVIL}"),
    ("scratch",),
    ("mirror", "status"),
    ("mirror", "--once"),
    ("restore", RUN),
    ("restore", "--from", f"s3://{EVIL}/x"),
    ("cost", "report"),
    *(("cost", "report", "--by", key) for key in ("user", "project", "partition", "account")),
    ("cost", "report", "--by", "gpu_type"),
    ("cost", "report", "--by", "user", "--csv"),
    ("cost", "showback"),
    ("cost", "showback", "--csv"),
    ("cost", "wasted"),
    ("cost", "audit"),
    ("limits",),
    ("efficiency", RUN),
    ("efficiency", "--by", "user"),
    ("efficiency", "--by", "project"),
    ("estimate", "--parameters", EVIL),
    ("estimate", "--parameters", "7B", "--site", "hostile"),
    ("budget", "ls"),
    ("budget", "set", "project:tests", "--hard", "5", "--why", EVIL),
    ("budget", "show", "project:tests"),
    ("budget", "show", EVIL),
    ("nodes",),
    ("nodes", "forgive", EVIL),
    ("sweep", "ls", "--all"),
    ("sweep", "status", EVIL),
    ("sweep", "start", f"{EVIL}.yaml"),
    ("sweep", "tick"),
    ("daemon", "status"),
    ("home", "upgrade"),
    ("render", "hostile.yaml"),
    ("run", "hostile.yaml", "--dry-run"),
    ("plan", "hostile.yaml"),
    ("run", f"{EVIL}.yaml"),
    ("run", "hostile.yaml", "--set", EVIL),
    ("run", "hostile.yaml", "--set", f"name={EVIL}"),
    ("ssh", RUN),
    ("ssh", EVIL, "--node", EVIL),
    ("tensorboard", EVIL),
    ("hold", RUN),
    ("release", RUN),
    ("cancel", EVIL),
    ("cancel", RUN),
    ("resume", EVIL),
    ("version", EVIL),
    ("version",),
    ("completion", EVIL),
    ("completion", "bash"),
    (EVIL,),
    (f"--{EVIL}",),
]


#: What these print has lines of its own, and a pipe gets it byte by byte.
PASSED_ON = ("logs", "render")


def require_harmless(shown: str, *, has_lines: bool = False) -> None:
    """Nothing in what a terminal got is obeyed but colours of ours, and what progress bars move."""
    assert "[38;5;199m" not in re.findall(r"\x1b(\[[0-9;]*m)", shown)
    ours = re.sub(r"\x1b\[([0-9;]*m|\?25[lh]|[0-9]*[AKG])", "", shown)
    bad = {hex(ord(char)) for char in ours if is_obeyed(char) and char not in "\r\n\t"}
    assert not bad, (bad, shown)
    lines = ours.replace("\r", "\n").split("\n")
    forged = [line for line in lines if line.lstrip(" │┃").startswith("FORGED")]
    assert has_lines or not forged, shown


@pytest.fixture
def run_id(desk: Desk, home: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The own run. The stranger's is in the ledger, too."""
    monkeypatch.chdir(desk.folder)
    monkeypatch.setenv("TERM", "xterm-256color")
    for name in ("COLUMNS", "LINES", "NO_COLOR"):
        monkeypatch.delenv(name, raising=False)
    trained = Trained(desk)
    made = trained.save(1, **{EVIL: 0.5})
    manifest = json.loads((made / "manifest.json").read_text())
    manifest["files"] = {f"{EVIL}.pt": next(iter(manifest["files"].values()))}
    trained.save(2, loss=0.5)
    (made / "manifest.json").write_text(json.dumps(manifest))
    trained.event("checkpoint_failed", train_step=5, why=EVIL)
    trained.event("progress", train_step=2, metrics={EVIL: 1.0})
    attempt = trained.dir.attempt(1)
    attempt.log.write_bytes(EVIL.encode() + b"\xff\xfe\x9b" + "\udc9b".encode(errors="replace"))
    at = "2026-01-01T00:00:00.000Z"
    records: list[dict[str, Any]] = [
        {"record": "held", "by": EVIL},
        {"record": "released", "by": EVIL},
        {"record": "cancel_requested", "by": EVIL, "why": EVIL},
        {"record": "refused", "attempt": 2, "reason": EVIL},
        {"record": "decided", "after": 1, "action": "wait", "rule": EVIL, "why": EVIL},
    ]
    with trained.dir.journal.open("a") as journal:
        journal.writelines(json.dumps({"at": at, **record}) + "\n" for record in records)
    (desk.folder / "hostile.yaml").write_text(
        f"name: hostile\ncommand: [echo, {IN_YAML}]\nproject: tests\n"
        f"params: {{a: {IN_YAML}}}\n"
        "launch: {framework: none, launcher: none}\n"
    )
    sites = home / "sites"
    sites.mkdir(mode=0o700, parents=True, exist_ok=True)
    (sites / "hostile.yaml").write_text(
        f"name: hostile\ndescription: {IN_YAML}\nscheduler: local\n"
        f"has_accounting: false\nscratch: {{path: /tmp/x}}\n"
        f"variables: {{A: {IN_YAML}}}\n"
        "partitions: {local: {cpus_per_node: machine, nodes_max: 1, description: "
        f"{IN_YAML}}}}}\n"
    )
    (sites / "broken.yaml").write_text(f"{IN_YAML}: 1\n")
    (sites / f"{EVIL.replace('/', '')}.yaml").write_text("name: x\n")
    desk.say("ledger", "rebuild")
    _write_stranger(home / "ledger.sqlite", trained.run_id)
    return trained.run_id


def _write_stranger(ledger: Path, run_id: str) -> None:
    """A copy of the rows of a run, with hostile text wherever there is text."""
    with sqlite3.connect(ledger) as database:
        for table in ("run", "attempt", "checkpoint"):
            cursor = database.execute(f"select * from {table} where run_id = ?", (run_id,))
            names = [column[0] for column in cursor.description]
            marks = ", ".join("?" * len(names))
            for row in cursor.fetchall():
                named = dict(zip(names, row, strict=True))
                other = {name: _hostile(name, value) for name, value in named.items()}
                # And one that is said to be an own one.
                mine = {**other, "run_id": f"mine{EVIL}"}
                if "user_name" in named:
                    mine["user_name"] = named["user_name"]
                for values in (other, mine):
                    database.execute(
                        f"insert into {table} values ({marks})",
                        list(values.values()),
                    )


def _hostile(name: str, value: Any) -> Any:
    if name == "run_id":
        return f"other{EVIL}"
    if name in OURS or name.endswith(("_at", "_usd", "_su")):
        return value
    if name in ("next_action", "reason", "raw_state", "save_error", "image", "job_id", "account"):
        return EVIL
    if name == "metrics":
        return json.dumps({EVIL: 1.5})
    if name in ("nodes", "tags", "command") and isinstance(value, str):
        return json.dumps([EVIL])
    if name == "parts":
        return json.dumps([asdict(PartRow(EVIL, EVIL, EVIL, 1.0, "1", None, None))])
    if name in ("params", "data"):
        return json.dumps({EVIL: EVIL})
    return EVIL if isinstance(value, str) and not value.startswith(("{", "[")) else value


def test_no_command_shows_what_a_terminal_obeys(run_id: str) -> None:
    terminal = Terminal()
    shows: set[str] = set()
    for line in LINES:
        shown = terminal.type(*(run_id if word == RUN else word for word in line))
        require_harmless(shown, has_lines=line[0] in PASSED_ON)
        if "owned" in shown:
            shows |= {line[0], " ".join(line[:2])}
    # Else this would prove nothing.
    assert shows >= {
        *("ls", "show", "history", "logs", "render", "run", "ledger check", "site list"),
        *("site show", "cost report", "cost showback", "efficiency --by", "budget show"),
    }


def test_every_command_is_tried() -> None:
    assert {line[0] for line in LINES} >= set(COMMANDS)


def test_what_a_pipe_gets_is_harmless_too(run_id: str, capfd: pytest.CaptureFixture[str]) -> None:
    for line in LINES:
        if line[0] in PASSED_ON:
            continue
        assert main([run_id if word == RUN else word for word in line]) in (0, 1, 2)
        said = capfd.readouterr()
        assert "\x1b" not in said.out + said.err
        require_harmless(said.out + said.err)


@pytest.mark.parametrize(
    "line",
    [
        *(("ls",), ("show", RUN), ("history", RUN), ("checkpoint", "ls", RUN), ("why", RUN)),
        *(("cost", "report", "--by", "user"), ("site", "list"), ("site", "show", "hostile")),
        *(("render", "hostile.yaml"), ("show", EVIL), ("version", EVIL), ("ledger", "check")),
    ],
    ids=lambda line: "_".join(word.split("\x1b")[0] for word in line),
)
def test_json_is_ascii(line: tuple[str, ...], run_id: str, desk: Desk) -> None:
    words = [run_id if word == RUN else word for word in line]
    desk._capfd.readouterr()
    main([*words, "--json"])
    said = desk._capfd.readouterr().out
    assert said.isascii() and said.replace("\n", "").isprintable()
    checked(words, said)


def test_a_pipe_gets_scripts_and_logs_byte_by_byte(run_id: str) -> None:
    said = subprocess.run(
        [sys.executable, "-m", "hpcflow.cli.main", "logs", run_id], capture_output=True, check=True
    )
    assert said.stdout.startswith(EVIL.encode() + b"\xff\xfe\x9b")


def test_a_locale_without_utf_8_makes_nothing_fail(run_id: str) -> None:
    env = {**os.environ, "PYTHONIOENCODING": "ascii", "LANG": "C", "LC_ALL": "C"}
    for line in (("ls", "--all"), ("show", run_id), ("history", run_id), ("show", EVIL)):
        said = subprocess.run(
            [sys.executable, "-m", "hpcflow.cli.main", *line],
            capture_output=True,
            env=env,
            check=False,
        )
        assert said.returncode in (0, 2), said.stderr
        assert b"Traceback" not in said.stderr
        require_harmless((said.stdout + said.stderr).decode("ascii"))


@pytest.mark.parametrize("line", [("ls", "--all"), ("cost", "report", "--by", "project")])
def test_a_long_name_of_another_user_widens_no_table_without_limit(
    line: tuple[str, ...], desk: Desk, home: Path
) -> None:
    """A pipe gets each line whole: with a name of 100,000 characters, thousands of runs would be
    gigabytes."""
    run_id = Trained(desk).run_id
    desk.say("ledger", "rebuild")
    _copy_runs(home / "ledger.sqlite", run_id, 200, project="p" * 90_000, site="s" * 90_000)
    shown = desk.say(*line)
    assert "pppp" in shown or "ssss" in shown
    assert len(shown) < 4_000_000


def _copy_runs(ledger: Path, run_id: str, times: int, **last: str) -> None:
    """Runs of another user, with such columns in the last one."""
    with sqlite3.connect(ledger) as database:
        for table in ("run", "attempt"):
            cursor = database.execute(f"select * from {table} where run_id = ?", (run_id,))
            names = [column[0] for column in cursor.description]
            row = dict(zip(names, cursor.fetchone(), strict=True))
            for number in range(times):
                if "project" in names:
                    row["project"] = f"project-{number}"
                if number == times - 1:
                    row.update({name: text for name, text in last.items() if name in names})
                values = [f"other-{number}", *list(row.values())[1:]]
                database.execute(
                    f"insert into {table} values ({', '.join('?' * len(names))})", values
                )
