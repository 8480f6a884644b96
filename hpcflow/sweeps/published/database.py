"""Create, open and update the database of the studies, through Optuna.

Importing this module takes a second, because it imports Optuna and SQLAlchemy.
"""

from __future__ import annotations

import math
import os
import secrets
import sqlite3
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from optuna.exceptions import OptunaError
from optuna.storages import RDBStorage
from optuna.storages._rdb import models
from optuna.study import StudyDirection
from sqlalchemy.exc import SQLAlchemyError
from sqlalchemy.orm import Session
from sqlalchemy.pool import QueuePool

from hpcflow.ledger.connection import connect_postgres
from hpcflow.ledger.url import DatabaseUrl
from hpcflow.storage.files import FILE_MODE, FOLDER_MODE
from hpcflow.sweeps.published.marks import mark_of
from hpcflow.sweeps.published.rows import lock, write_study, write_trials, written
from hpcflow.sweeps.state import SweepProgress
from hpcflow.sweeps.study import quiet

#: How long a round waits for a lock of another session.
_BUSY_TIMEOUT_S: Final = 2.0
#: After this time the rest is left to the next round, so that publishing does not delay a sweep.
_ENOUGH_S: Final = 3.0
_TRIALS_AT_ONCE: Final = 500
_TIMEOUTS_S: Final = {
    "lock_timeout": _BUSY_TIMEOUT_S,
    "statement_timeout": 4.0,
    "idle_in_transaction_session_timeout": 30.0,
}
#: To detect that the server's host or the network is down.
_ALIVE: Final = {
    "tcp_user_timeout": 4000,
    "keepalives_idle": 2,
    "keepalives_interval": 1,
    "keepalives_count": 2,
}
#: Errors if two processes create the same tables at once.
_MADE_MEANWHILE: Final = ("already exists", "duplicate key")
#: Tables of Optuna, and of alembic.
_TABLES: Final = (*models.BaseModel.metadata.tables, "alembic_version")


def bring_up_to_date(
    database: DatabaseUrl,
    url: str,
    schema: str,
    sweep_id: str,
    progress: SweepProgress,
    *,
    wholly: bool = False,
) -> int:
    """Write what is missing or has changed; return how many trials are left for later.

    Args:
        url: of ``database``, for Optuna.
        schema: of the studies, in Postgres.
        wholly: leave none.

    Raises:
        Exception: any error of Optuna, SQLAlchemy or the file system.
    """
    enough = math.inf if wholly else time.monotonic() + _ENOUGH_S
    with quiet(), _opened(database, url, schema) as storage:
        study_id = _study(storage, sweep_id, progress)
        while True:
            left = _write_some(storage, study_id, progress)
            if not left or time.monotonic() > enough:
                return left


def _study(storage: RDBStorage, sweep_id: str, progress: SweepProgress) -> int:
    try:
        return storage.get_study_id_from_name(sweep_id)
    except KeyError:
        directions = [StudyDirection[g.direction.value.upper()] for g in progress.spec.goals]
        return storage.create_new_study(directions, sweep_id)


def _write_some(storage: RDBStorage, study_id: int, progress: SweepProgress) -> int:
    """Write some trials in one transaction; return how many are left."""
    with Session(storage.engine) as session, session.begin():
        lock(session, study_id)
        there = written(session, study_id, len(progress.trials))
        marks = [mark for _, mark in there]
        marks += [None] * (len(progress.trials) - len(there))
        changed = [
            trial
            for trial, mark in zip(progress.trials, marks, strict=True)
            if mark_of(trial) != mark
        ]
        write_study(session, study_id, progress)
        write_trials(session, study_id, progress, changed[:_TRIALS_AT_ONCE], there)
    return max(0, len(changed) - _TRIALS_AT_ONCE)


@contextmanager
def _opened(database: DatabaseUrl, url: str, schema: str) -> Iterator[RDBStorage]:
    if database.kind == "sqlite":
        _make_file(database.path)
        with _pool(lambda: _connect_sqlite(database.path)) as pool:
            yield RDBStorage("sqlite://", engine_kwargs={"pool": pool})
    else:
        with _pool(lambda: _connect_postgres(database, url, schema)) as pool:
            yield _postgres_storage(pool)


@contextmanager
def _pool(connect: Callable[[], Any]) -> Iterator[QueuePool]:
    """Pool hpcflow's own connections.

    So all are closed, even if Optuna fails, and no password is in its messages.
    """
    pool = QueuePool(connect)
    try:
        yield pool
    finally:
        pool.dispose()


def _make_file(path: Path) -> None:
    """Create the database with all its tables atomically, private to the user."""
    if path.exists():
        return
    path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
    half = path.with_name(f".{path.stem}.{secrets.token_hex(4)}.tmp")
    try:
        os.close(os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE))
        with _pool(lambda: _connect_sqlite(half)) as pool:
            RDBStorage("sqlite://", engine_kwargs={"pool": pool})
        if not path.exists():
            half.rename(path)
    finally:
        half.unlink(missing_ok=True)


def _connect_sqlite(path: Path) -> sqlite3.Connection:
    # SQLite's default, a rollback journal: a write-ahead log is not safe on NFS.
    return sqlite3.connect(f"{path.as_uri()}?mode=rw", uri=True, timeout=_BUSY_TIMEOUT_S)


def _postgres_storage(pool: QueuePool) -> RDBStorage:
    def made() -> RDBStorage:
        return RDBStorage("postgresql+psycopg://", engine_kwargs={"pool": pool})

    try:
        return made()
    except (SQLAlchemyError, OptunaError) as error:
        if not any(word in str(error) for word in _MADE_MEANWHILE):
            raise
    return made()


def _connect_postgres(database: DatabaseUrl, url: str, schema: str) -> Any:
    dsn = url.replace("+psycopg", "", 1)
    raw = connect_postgres(database, dsn, _TABLES, schema=schema, **_ALIVE)
    try:
        for setting in ("lock_timeout", "statement_timeout", "idle_in_transaction_session_timeout"):
            raw.execute(f"SET {setting} TO {round(_TIMEOUTS_S[setting] * 1000)}")
        raw.autocommit = False
    except BaseException:
        raw.close()
        raise
    return raw
