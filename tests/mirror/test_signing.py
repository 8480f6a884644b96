"""What is sent in parts is hashed once: for the checksum, and for S3's signature of it."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path
from typing import Any

import botocore.auth
import pytest

from hpcflow.mirror.remote import Parts
from hpcflow.mirror.stores import open_remote
from hpcflow.mirror.upload import PART_BYTES
from tests.mirror.proxy import Proxy
from tests.mirror.runs import desk_in, save

MIB = 1 << 20


@pytest.fixture
def hashed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The sizes of what botocore hashes itself."""
    sizes: list[int] = []

    def counting(data: Any = b"") -> Any:
        sizes.append(len(data))
        return hashlib.sha256(data)

    monkeypatch.setattr(botocore.auth, "sha256", counting)
    return sizes


def parts_in(url: str) -> Parts:
    parts = open_remote(url, patience_s=5).parts
    assert parts is not None
    return parts


def test_a_part_is_signed_with_the_checksum_that_is_known(
    bucket_url: str, proxy: Proxy, hashed: list[int]
) -> None:
    parts = parts_in(bucket_url)
    data = bytearray(secrets.token_bytes(5 * MIB))
    sha256 = hashlib.sha256(data).hexdigest()
    upload_id = parts.begin("big")
    part = parts.put("big", upload_id, 1, data, sha256=sha256)
    assert max(hashed) < MIB
    assert f"x-amz-content-sha256: {sha256}" in proxy.headers
    parts.finish("big", upload_id, [part])
    assert open_remote(bucket_url).read("big") == data


def test_where_nobody_knows_it_botocore_computes_it(
    bucket_url: str, proxy: Proxy, hashed: list[int]
) -> None:
    parts = parts_in(bucket_url)
    data = bytearray(secrets.token_bytes(5 * MIB))
    parts.put("big", parts.begin("big"), 1, data)
    assert max(hashed) == 5 * MIB
    assert f"x-amz-content-sha256: {hashlib.sha256(data).hexdigest()}" in proxy.headers


def test_the_store_is_asked_whether_it_wants_a_part(bucket_url: str, proxy: Proxy) -> None:
    """Or its refusal would be lost while 16 MiB are on their way to it."""
    parts = parts_in(bucket_url)
    data = bytearray(5 * MIB)
    upload_id = parts.begin("big")
    assert "expect: 100-continue" not in proxy.headers
    parts.put("big", upload_id, 1, data, sha256=hashlib.sha256(data).hexdigest())
    assert "expect: 100-continue" in proxy.headers


def test_who_signs_no_payloads_has_that_respected(
    bucket_url: str, proxy: Proxy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = tmp_path / "config"
    config.write_text("[default]\ns3 =\n    payload_signing_enabled = false\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    parts = parts_in(bucket_url)
    data = bytearray(secrets.token_bytes(5 * MIB))
    sha256 = hashlib.sha256(data).hexdigest()
    parts.put("big", parts.begin("big"), 1, data, sha256=sha256)
    assert f"x-amz-content-sha256: {sha256}" not in proxy.headers
    assert "x-amz-content-sha256: unsigned-payload" in proxy.headers


def test_the_pieces_of_a_checkpoint_are_its_parts(
    bucket_url: str, proxy: Proxy, hashed: list[int], tmp_path: Path
) -> None:
    desk = desk_in(tmp_path, bucket_url)
    run_dir = desk.make()
    desk.home.path.chmod(0o700)
    files = {"model.pt": 2 * PART_BYTES + 5 * MIB}
    checkpoint = save(run_dir, 400, files)
    assert desk.mirror().problems == {}
    data = (checkpoint / "model.pt").read_bytes()
    for begin in range(0, len(data), PART_BYTES):
        sha256 = hashlib.sha256(data[begin : begin + PART_BYTES]).hexdigest()
        assert f"x-amz-content-sha256: {sha256}" in proxy.headers
    assert max(hashed) < MIB
    (name,) = desk.remote.names(f"{run_dir.path.name}/checkpoints/000000400/model")
    assert desk.remote.read(name) == data
