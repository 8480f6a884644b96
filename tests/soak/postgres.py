"""A Postgres that several users share: another role writes whatever it can.

It copies rows of the owner's runs, and changes its copies. Nothing that such a row says is
executed, obeyed by a terminal, or opened; no command fails because of it; the owner's runs are
listed as they are. The rest is in ``typed``.
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
from tests.ledger.roles import SharedServer
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
        shared = SharedServer(server)
        work = shared.database()
        project = Project(folder, {"HPCFLOW_LEDGER": shared.url(work, shared.ada)})
        outside = Outside(folder / "outside")
        warm_up(project)
        shared.administer(f"CREATE DATABASE first TEMPLATE {work} OWNER {shared.ada}")
        for number in numbers:
            this = Try(project, outside, findings.dice(number), findings)
            with psycopg.connect(shared.url(work, shared.eve), autocommit=True) as connection:
                connection.execute("SET hpcflow.everyone = 'on'")
                for _ in range(this.dice.choice((1, 1, 2, 3))):
                    _attack(this, connection)
            for command in this.dice.sample(_COMMANDS, _COMMANDS_A_TRY):
                this.type(command)
            this.exactly_once()
            this.type("ledger rebuild")
            this.listed()
            project.reset()
            shared.administer(f"DROP DATABASE {work} WITH (FORCE)")
            shared.administer(f"CREATE DATABASE {work} TEMPLATE first OWNER {shared.ada}")
            findings.progress(len(numbers))
    finally:
        server.stop()
        shutil.rmtree(server.folder)


def _attack(this: Try, connection: psycopg.Connection[Any]) -> None:
    """The other role copies rows of a table, and changes its copies."""
    table = this.dice.choice(_TABLES)
    columns = _columns(connection, table)
    run_id = this.dice.choice((None, "grace-20260101-abcdefgh", *ESCAPES, "../../x", "x" * 5000))
    for each in dict.fromkeys(("run", table)):
        names = ", ".join(f'"{name}"' for name, _ in _columns(connection, each))
        sql = f"INSERT INTO {each} ({names}) SELECT {names} FROM {each} ON CONFLICT DO NOTHING"
        _execute(this, connection, sql, [])
    if table == "run" and run_id is not None:
        one = "SELECT ctid FROM run WHERE owner = current_user LIMIT 1"
        _execute(this, connection, f"UPDATE run SET run_id = %s WHERE ctid IN ({one})", [run_id])
    for _ in range(this.dice.choice((1, 1, 2, 4))):
        name, kind = this.dice.choice(columns)
        value = this.dice.choice(_HOSTILE[_KINDS[kind]])
        if name == "run_dir":
            value = this.dice.choice((str(this.outside.folder), "/", "/dev", value))
        one = f"SELECT ctid FROM {table} WHERE owner = current_user"
        if this.dice.random() < 0.7:
            one += " ORDER BY random() LIMIT 1"
        sql = f'UPDATE {table} SET "{name}" = CAST(%s AS {kind}) WHERE ctid IN ({one})'
        _execute(this, connection, sql, [value])


def _columns(connection: psycopg.Connection[Any], table: str) -> list[tuple[str, str]]:
    """Names and types."""
    return connection.execute(
        "SELECT column_name, data_type FROM information_schema.columns "
        "WHERE table_name = %s AND table_schema = current_schema() AND column_name <> 'owner' "
        "ORDER BY ordinal_position",
        [table],
    ).fetchall()


def _execute(
    this: Try, connection: psycopg.Connection[Any], sql: str, values: Sequence[str]
) -> None:
    try:
        connection.execute(sql.encode(), values)
    except psycopg.Error as error:
        this.story.append(f"not written: {str(error).splitlines()[0]}")
    else:
        this.story.append(f"another wrote {sql} {[value[:60] for value in values]}")
