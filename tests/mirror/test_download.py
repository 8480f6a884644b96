"""Objects -> files."""

from __future__ import annotations

import hashlib
import secrets
from pathlib import Path

import pytest

from hpcflow.errors import DamagedError, MissingObjectError, StorageError
from hpcflow.mirror import download as module
from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.remote import Remote

RANGE = 100_000


@pytest.fixture(autouse=True)
def _small_ranges(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_RANGE_BYTES", RANGE)


def put(remote: Remote, name: str, size_bytes: int, to: Path) -> tuple[bytes, Wanted]:
    data = secrets.token_bytes(size_bytes)
    remote.put_bytes(data, name)
    return data, Wanted(name, to / name, size_bytes, hashlib.sha256(data).hexdigest())


@pytest.mark.parametrize("size_bytes", [0, 1, RANGE, RANGE + 1, 777_777])
def test_files_of_every_size(remote: Remote, tmp_path: Path, size_bytes: int) -> None:
    data, wanted = put(remote, "a/b c.pt", size_bytes, tmp_path / "new")
    counted: list[int] = []
    download(remote, [wanted], on_bytes=counted.append)
    assert wanted.path.read_bytes() == data
    assert sum(counted) == size_bytes
    assert wanted.path.stat().st_mode & 0o777 == 0o600


def test_many_files_at_once(remote: Remote, tmp_path: Path) -> None:
    files = [put(remote, f"run/{n}", n * 17_000, tmp_path / "new") for n in range(40)]
    download(remote, [wanted for _, wanted in files])
    assert all(wanted.path.read_bytes() == data for data, wanted in files)


@pytest.mark.parametrize("size_bytes", [1000, 3 * RANGE])
def test_another_checksum_is_found(remote: Remote, tmp_path: Path, size_bytes: int) -> None:
    _, wanted = put(remote, "model.pt", size_bytes, tmp_path / "new")
    remote.put_bytes(secrets.token_bytes(size_bytes), "model.pt")
    with pytest.raises(DamagedError, match=r"model\.pt is not what was sent"):
        download(remote, [wanted])


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("size_bytes", [1000, 3 * RANGE])
def test_another_size_is_found(remote: Remote, tmp_path: Path, size_bytes: int, more: int) -> None:
    data, wanted = put(remote, "model.pt", size_bytes, tmp_path / "new")
    remote.put_bytes((data + secrets.token_bytes(RANGE))[: size_bytes + more], "model.pt")
    with pytest.raises(DamagedError):
        download(remote, [wanted])


def test_one_that_is_missing_ends_all(remote: Remote, tmp_path: Path) -> None:
    _, wanted = put(remote, "here", 1000, tmp_path / "new")
    missing = Wanted("not-here", tmp_path / "new" / "not-here", 10)
    with pytest.raises(MissingObjectError):
        download(remote, [wanted, missing])


def test_nothing_is_overwritten(remote: Remote, tmp_path: Path) -> None:
    _, wanted = put(remote, "model.pt", 10, tmp_path / "new")
    download(remote, [wanted])
    with pytest.raises(StorageError, match="File exists"):
        download(remote, [wanted])
