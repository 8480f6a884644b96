"""Stores for the tests of the mirror: a real S3 server, a plain folder, a cloud's."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.mirror.remote import Remote
from hpcflow.mirror.stores import open_remote
from hpcflow.testing.cluster import S3
from tests.mirror.clouds import cloud_remote
from tests.mirror.proxy import Proxy


@pytest.fixture
def s3_environ(s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> S3:
    """The server, with its credentials where AWS clients look for them."""
    for name, value in s3_server.env().items():
        monkeypatch.setenv(name, value)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    return s3_server


@pytest.fixture(scope="module")
def bucket(s3_server: S3) -> str:
    """A new bucket of the server."""
    return s3_server.create_bucket(f"test-{secrets.token_hex(6)}")


@pytest.fixture
def bucket_url(s3_environ: S3, bucket: str) -> str:  # noqa: ARG001
    """A folder in a bucket, in which there is nothing yet."""
    return f"s3://{bucket}/{secrets.token_hex(6)}/runs"


@pytest.fixture
def proxy(s3_environ: S3, monkeypatch: pytest.MonkeyPatch) -> Iterator[Proxy]:
    """All that goes to the server goes through it."""
    with Proxy(s3_environ.endpoint) as proxy:
        monkeypatch.setenv("AWS_ENDPOINT_URL", proxy.endpoint)
        yield proxy


@pytest.fixture(params=["s3", "folder", "cloud"])
def remote(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Remote]:
    """One folder in each kind of store."""
    if request.param == "cloud":
        yield cloud_remote()
        return
    is_s3 = request.param == "s3"
    url = request.getfixturevalue("bucket_url") if is_s3 else str(tmp_path / "store")
    remote = open_remote(url, clock=SystemClock(), patience_s=5)
    remote.make_root()
    yield remote
