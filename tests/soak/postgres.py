"""A Postgres that several people share: rows of theirs, and what they wrote into ours.

Whoever may write there may say anything; the files are the truth. So nothing that a row says is
executed, obeyed by a terminal, or opened; no command falls over it; and ``ledger rebuild`` makes it
good, or says that another database is needed, and there makes it good. The rest is in ``typed``.
"""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Sequence
from pathlib import Path
from typing import Any, Final

import psycopg

from hpcflow.testing.cluster import Postgres, packages
from tests.soak.damage import ESCAPES
from tests.soak.findings import Findings
from tests.soak.outside import Outside
from tests.soak.project import Project
from tests.soak.typed import Try, warm_up

_COMMANDS: Final = (
    "ls --all", "ls --all --json", "show RUN", "show RUN --json", "history RUN", "why RUN",
    "scratch", "ledger check", "daemon --once", "daemon status", "sweep ls --all",
    "sweep status SWEEP", "sweep trials SWEEP", "sweep tick", "mirror status", "mirror --once",
    "restore RUN", "cost report", "cost wasted", "cost showback", "cost audit", "efficiency RUN",
    "efficiency --by user", "budget ls", "nodes", "checkpoint ls RUN", "cancel RUN", "resume RUN",
    "hold RUN", "logs RUN",
)  # fmt: skip
_COMMANDS_A_TRY: Final = 4
_TABLES: Final = ("run", "attempt", "checkpoint", "lease", "run", "attempt")
_HOSTILE: Final[dict[str, tuple[str, ...]]] = {
    "text": (*ESCAPES, "", "x" * 1_000_000, "../../..", "completed", "cancelled", "-rf", "$(id)",
             "/dev/zero", "[bold]x[/bold]", "{{ 7*7 }}", "9" * 400),
    "json": ("null", "1", "[]", "{}", '"x"', "[" * 3000 + "]" * 3000,
             '{"a":' * 3000 + "1" + "}" * 3000,
             '{"a": 1e999}', '{"a": "\\u001b[2J\\u202e"}', '{"loss": "x"}', '{"loss": [1]}',
             '{"\\u001b]0;owned\\u0007": 1}', '[null, 1, {}]', json.dumps({"a": "x" * 5_000_000})),
    "number": ("NaN", "Infinity", "-Infinity", "-1", "1e300", "0"),
    "integer": ("-1", "0", "2147483647", "-2147483648"),
    "time": ("infinity", "-infinity", "294276-01-01 00:00:00+00", "4713-01-01 00:00:00+00 BC",
             "9999-12-31 23:59:59+00", "0001-01-01 00:00:00+00", "1969-12-31 00:00:00+00"),
    "truth": ("true", "false"),
}  # fmt: skip
_KINDS: Final = {
    "character varying": "text", "text": "text", "json": "json", "jsonb": "json",
    "double precision": "number", "numeric": "number", "bigint": "integer", "integer": "integer",
    "timestamp with time zone": "time", "boolean": "truth",
}  # fmt: skip


def run(folder: Path, findings: Findings, numbers: Sequence[int]) -> None:
    """Each try: hostile rows, the owner's commands, and the rebuild that makes it good."""
    packages.require_postgres()
    server = Postgres(f"/var/tmp/hpcflow-soak-{os.getpid()}-postgres").start()
    try:
        _administer(server, "CREATE DATABASE work")
        url = server.url("work")
        project = Project(folder, {"HPCFLOW_LEDGER": url})
        outside = Outside(folder / "outside")
        warm_up(project)
        _administer(server, "CREATE DATABASE first TEMPLATE work")
        for number in numbers:
            this = Try(project, outside, findings.dice(number), findings)
            with _connect(url) as connection:
                for _ in range(this.dice.choice((1, 1, 2, 3))):
                    _attack(this, connection)
            for command in this.dice.sample(_COMMANDS, _COMMANDS_A_TRY):
                this.type(command)
            this.exactly_once()
            _rebuild(this)
            project.reset()
            _administer(server, "DROP DATABASE work WITH (FORCE)")
            _administer(server, "CREATE DATABASE work TEMPLATE first")
            findings.progress(len(numbers))
    finally:
        server.stop()
        shutil.rmtree(server.folder)


def _rebuild(this: Try) -> None:
    """The owner's runs are listed as they are, in this database or in another one."""
    rebuilt = this.type("ledger rebuild")
    if rebuilt.code == 0:
        this.listed()
        return
    if "is damaged" not in rebuilt.text or "HPCFLOW_LEDGER" not in rebuilt.text:
        this.found("ledger rebuild fails and does not say what to do", rebuilt.text[-800:])
    elsewhere = {"HPCFLOW_LEDGER": f"sqlite:///{this.project.folder}/other.sqlite"}
    for args in (["ledger", "rebuild"], ["ls", "--all", "--json"]):
        ended = this.project.say(*args, environ=elsewhere)
        if ended.code != 0 or (args[0] == "ls" and this.project.runs["held"] not in ended.text):
            this.found("an empty ledger is not rebuilt from the files", ended.text[-800:])


def _attack(this: Try, connection: psycopg.Connection[Any]) -> None:
    """Something is written by somebody else: into a row, or a row of theirs."""
    table = this.dice.choice(_TABLES)
    columns = connection.execute(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name = %s AND table_schema = current_schema() ORDER BY ordinal_position",
        [table],
    ).fetchall()
    if not columns:
        return
    foreign = table == "run" and this.dice.random() < 0.4
    if foreign:
        run_id = this.dice.choice(
            ("grace-20260101-abcdefgh", *ESCAPES, "../../x", "x" * 5000, "a b")
        )
        names = ", ".join(f'"{name}"' for name, _ in columns if name != "run_id")
        _execute(
            this, connection,
            f"INSERT INTO run (run_id, {names}) SELECT %s, {names} FROM run LIMIT 1", [run_id],
        )  # fmt: skip
    for _ in range(this.dice.choice((1, 1, 2, 4))):
        name, kind = this.dice.choice(columns)
        value = this.dice.choice(_HOSTILE[_KINDS[kind]])
        if name == "run_dir":
            value = this.dice.choice((str(this.outside.folder), "/", "/dev", value))
        where = "run_id = %s" if foreign else "TRUE"
        one = f"SELECT ctid FROM {table} WHERE {where} ORDER BY random() LIMIT 1"
        if this.dice.random() < 0.3 and not foreign:
            one = f"SELECT ctid FROM {table}"
        _execute(
            this, connection,
            f'UPDATE {table} SET "{name}" = CAST(%s AS {kind}) WHERE ctid IN ({one})',
            [value, run_id] if foreign else [value],
        )  # fmt: skip


def _execute(
    this: Try, connection: psycopg.Connection[Any], sql: str, values: Sequence[str]
) -> None:
    try:
        connection.execute(sql.encode(), values)
    except psycopg.Error as error:
        this.story.append(f"not written: {str(error).splitlines()[0]}")
    else:
        this.story.append(f"another wrote {sql} {[value[:60] for value in values]}")


def _connect(url: str) -> psycopg.Connection[Any]:
    return psycopg.connect(url.replace("postgresql+psycopg", "postgresql"), autocommit=True)


def _administer(server: Postgres, sql: str) -> None:
    with _connect(server.url()) as connection:
        connection.execute(sql.encode())
