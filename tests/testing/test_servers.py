"""Postgres and S3 work without Slurm, keep their data over a kill, and let no stranger in."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest
import s3fs

from hpcflow.testing.cluster import S3, Postgres, packages
from tests.cluster_fixture import need, shared


@pytest.fixture(scope="module")
def postgres_server() -> Iterator[Postgres]:
    """One that nobody else uses, for it is killed here."""
    need(packages.require_postgres)
    with tempfile.TemporaryDirectory(prefix="hpcf-", dir="/tmp") as folder:
        Path(folder).chmod(0o755)
        server = Postgres(folder)
        yield server.start()
        server.stop()


@pytest.fixture(scope="module")
def s3_server() -> Iterator[S3]:
    """One that nobody else uses, for it is killed here."""
    need(packages.require_rclone)
    with tempfile.TemporaryDirectory(prefix="hpcf-", dir="/tmp") as folder:
        server = S3(folder)
        yield server.start()
        server.stop()


def connect(url: str) -> psycopg.Connection:
    """By the URL that SQLAlchemy gets."""
    return psycopg.connect(url.replace("postgresql+psycopg://", "postgresql://"))


@pytest.mark.postgres
def test_postgres_keeps_what_was_committed_when_it_is_killed(postgres_server: Postgres) -> None:
    """kill -9, start, read."""
    url = postgres_server.create_database("keeps")
    with connect(url) as connection:
        connection.execute("create table t (n int)")
        connection.execute("insert into t values (42)")
    before = postgres_server.daemon.pid
    postgres_server.daemon.kill()
    postgres_server.start()
    assert postgres_server.daemon.pid != before
    with connect(url) as connection:
        assert connection.execute("select n from t").fetchall() == [(42,)]
    postgres_server.drop_database("keeps")
    with pytest.raises(psycopg.OperationalError, match="does not exist"):
        connect(url)


@pytest.mark.postgres
def test_postgres_wants_the_password(postgres_server: Postgres) -> None:
    """Others on this machine do not get in."""
    url = postgres_server.url()
    password = url.partition("hpcflow:")[2].partition("@")[0]
    with pytest.raises(psycopg.OperationalError, match="password"):
        connect(url.replace(password, "guessed"))


def store(server: S3, key: str | None = None, secret: str | None = None) -> s3fs.S3FileSystem:
    """A client, with the server's keys or with others."""
    env = server.env()
    return s3fs.S3FileSystem(
        key=key or env["AWS_ACCESS_KEY_ID"],
        secret=secret or env["AWS_SECRET_ACCESS_KEY"],
        endpoint_url=server.endpoint,
        skip_instance_cache=True,
    )


@pytest.mark.s3
def test_s3_keeps_an_object_when_it_is_killed(s3_server: S3) -> None:
    """Write, kill -9, start, read."""
    bucket = s3_server.create_bucket("keeps")
    store(s3_server).pipe(f"{bucket}/a/b.bin", b"x" * 100_000)
    s3_server.daemon.kill()
    s3_server.start()
    assert store(s3_server).cat(f"{bucket}/a/b.bin") == b"x" * 100_000
    assert store(s3_server).info(f"{bucket}/a/b.bin")["size"] == 100_000


@pytest.mark.s3
def test_s3_wants_the_keys(s3_server: S3) -> None:
    """Others on this machine do not get in."""
    s3_server.create_bucket("private")
    with pytest.raises(PermissionError):
        store(s3_server, secret="guessed").ls("private")


def test_the_last_test_process_out_stops_what_they_shared(tmp_path: Path) -> None:
    """Not the one that started it: others may still be at work."""
    stopped: list[str] = []
    with shared(tmp_path / "f", lambda: stopped.append("first")):
        with shared(tmp_path / "f", lambda: stopped.append("second")):
            pass
        assert stopped == []
    assert stopped == ["first"]
