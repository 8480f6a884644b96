"""Session fixtures for the real parts: a Slurm cluster, its two users, Postgres, S3, a browser.

Loaded by tests/conftest.py as a plugin. A running cluster is used; one that does not run is
started and, when the last pytest process (xdist has several) is done with it, stopped again. In CI
and with ``HPCFLOW_REQUIRE_CLUSTER=1``, a part that cannot be had is an error; elsewhere it is a
skip that says what is missing. What the cluster is and how it works: docs/cluster.md.
"""

from __future__ import annotations

import fcntl
import functools
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TextIO

import pytest

from hpcflow.errors import InputError
from hpcflow.testing.browser import Browser
from hpcflow.testing.cluster import S3, Cluster, Postgres, Progress, Software, User, packages, poll
from hpcflow.testing.cluster.releases import version_of
from hpcflow.testing.cluster.settings import DIRECTORY_VARIABLE

__all__ = ["poll"]

TREE = Path(__file__).resolve().parents[1]
CLUSTER = Path(f"/var/tmp/hpcflow-test-cluster{os.environ.get('PYTEST_XDIST_WORKER', '')}")
"""The tests' own, of each process of xdist one, for tests take all nodes; it is deleted at the end.
One that HPCFLOW_CLUSTER_DIR names is only stopped."""
SERVERS = f"/var/tmp/hpcflow-test-{os.geteuid()}-"
"""For Postgres and S3 without Slurm. Of each user its own, for they need no root."""


@pytest.fixture(scope="session")
def clusters(pytestconfig: pytest.Config) -> Iterator[Callable[[str | None], Cluster]]:
    """Start a cluster when it is first asked for, with the Slurm of a Debian release, or (None)
    with the one that --slurm names, or the installed one."""
    need(packages.require)
    chosen: str | None = pytestconfig.getoption("slurm")
    with ExitStack() as stack:

        @functools.cache
        def running(suite: str | None) -> Cluster:
            return stack.enter_context(_running(chosen if suite is None else version_of(suite)))

        yield running


@contextmanager
def _running(version: str | None) -> Iterator[Cluster]:
    named = os.environ.get(DIRECTORY_VARIABLE)
    folder = named or (CLUSTER if version is None else f"{CLUSTER}-{version}")
    cluster = Cluster(folder, progress=Progress(sys.stderr))
    started = cluster.directory / "started-by-tests"

    def stop() -> None:
        if named is None:
            cluster.down(purge=True)
        elif started.exists():
            started.unlink()
            cluster.down()

    with shared(cluster.directory, stop):
        is_healthy = cluster.healthy()
        if not is_healthy and not cluster.processes():
            started.touch()
        if not is_healthy or version is not None:  # one of another version is refused
            cluster.up(version=version)
        yield cluster


@pytest.fixture(scope="session")
def cluster(request: pytest.FixtureRequest, clusters: Callable[[str | None], Cluster]) -> Cluster:
    """Real Slurm, with every node ready."""
    return clusters(getattr(request, "param", None))


@pytest.fixture(scope="session")
def software(cluster: Cluster) -> Software:
    """hpcflow from this tree, installed where the cluster's users can run it."""
    return cluster.software(TREE, Path(sys.executable))


@pytest.fixture(scope="session")
def ada(cluster: Cluster, software: Software) -> User:  # noqa: ARG001
    """An ordinary user of the account ``physics``, with hpcflow on PATH."""
    return cluster.user("hpcf-ada")


@pytest.fixture(scope="session")
def grace(cluster: Cluster, software: Software) -> User:  # noqa: ARG001
    """An ordinary user of the account ``biology``, with hpcflow on PATH."""
    return cluster.user("hpcf-grace")


@pytest.fixture(scope="session")
def postgres_server() -> Iterator[Postgres]:
    """A Postgres server, shared by all processes: each test creates a database of its own name."""
    need(packages.require_postgres)
    server = Postgres(f"{SERVERS}postgres")
    with shared(server.folder, lambda: _delete(server)):
        yield server.start()


@pytest.fixture(scope="module")
def own_postgres() -> Iterator[Postgres]:
    """A Postgres server that nobody else uses, for it is stopped or killed."""
    need(packages.require_postgres)
    server = Postgres(f"{SERVERS}{os.getpid()}-postgres")
    try:
        yield server.start()
    finally:
        _delete(server)


@pytest.fixture(scope="session")
def s3_server() -> Iterator[S3]:
    """An S3 server, shared by all processes: each test creates a bucket of its own name."""
    need(packages.require_rclone)
    server = S3(f"{SERVERS}s3")
    with shared(server.folder, lambda: _delete(server)):
        yield server.start()


def _delete(server: Postgres | S3) -> None:
    server.stop()
    shutil.rmtree(server.folder)


@pytest.fixture(scope="session")
def browser() -> Browser:
    """A real Chromium."""
    need(packages.require_chromium)
    return Browser()


def need(check: Callable[[], object]) -> None:
    """Skip with the reason that ``check`` gives when it refuses; fail where skips are forbidden."""
    forbidden = os.environ.get("CI") == "true" or os.environ.get("HPCFLOW_REQUIRE_CLUSTER") == "1"
    try:
        check()
    except InputError as error:
        if forbidden:
            raise
        pytest.skip(str(error))


@contextmanager
def small_disk(folder: Path, size: str, *, owner: int | None = None) -> Iterator[None]:
    """For the length of the block ``folder`` is a disk of that size; this needs root."""
    options = f"size={size},mode=700,uid={os.geteuid() if owner is None else owner}"

    def mount() -> None:
        argv = ["mount", "-t", "tmpfs", "-o", options, "tmpfs", str(folder)]
        done = subprocess.run(argv, capture_output=True, text=True)
        if done.returncode != 0:
            raise InputError(f"no tmpfs can be mounted here; be root: {done.stderr.strip()}")

    need(mount)
    try:
        yield
    finally:
        subprocess.run(["umount", "--lazy", str(folder)], check=True)


@contextmanager
def shared(folder: Path, stop: Callable[[], None]) -> Iterator[None]:
    """Use what is in ``folder`` together with other pytest processes; the last one out stops it.

    Each holds a shared lock while it uses the folder, so one that is killed does not count.
    """
    lease = _lease(folder)
    with lease:
        try:
            yield
        finally:
            if _last_one(lease):
                stop()


def _lease(folder: Path) -> TextIO:
    while True:
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "in-use"
        lease = path.open("a")
        fcntl.flock(lease, fcntl.LOCK_SH)
        # While we waited for the lock, the last session may have deleted the folder.
        if path.exists() and os.path.samestat(os.fstat(lease.fileno()), path.stat()):
            return lease
        lease.close()


def _last_one(lease: TextIO) -> bool:
    try:
        fcntl.flock(lease, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
