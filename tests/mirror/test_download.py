"""Objects -> files."""

from __future__ import annotations

import errno
import hashlib
import os
import secrets
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import (
    DamagedError,
    MirrorError,
    MirrorUnavailable,
    MissingObjectError,
    StorageError,
)
from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.folder_remote import FolderRemote
from hpcflow.mirror.remote import Options, Remote
from hpcflow.mirror.stores import open_remote
from hpcflow.runtime.checksum import PIECE_BYTES, Checksum
from hpcflow.testing.cluster import S3
from tests.cluster_fixture import small_disk
from tests.mirror.proxy import Proxy

LARGE = 2 * PIECE_BYTES + 777
#: No piece of a file has the same as another: this is no part of a piece.
_SOME = secrets.token_bytes((1 << 20) + 7)


def put(remote: Remote, name: str, size_bytes: int, to: Path) -> tuple[bytes, Wanted]:
    data = (_SOME * (size_bytes // len(_SOME) + 1))[:size_bytes]
    remote.put_bytes(data, name)
    checksum = Checksum()
    checksum.update(data)
    return data, Wanted(name, to / name, size_bytes, checksum.text())


@pytest.mark.parametrize("size_bytes", [0, 1, 777_777, PIECE_BYTES, PIECE_BYTES + 1, LARGE])
def test_files_of_every_size(remote: Remote, tmp_path: Path, size_bytes: int) -> None:
    data, wanted = put(remote, "a/b c.pt", size_bytes, tmp_path / "new")
    counted: list[int] = []
    download(remote, [wanted], on_bytes=counted.append)
    assert wanted.path.read_bytes() == data
    assert sum(counted) == size_bytes
    assert wanted.path.stat().st_mode & 0o777 == 0o600


def test_many_files_at_once(remote: Remote, tmp_path: Path) -> None:
    sizes = [*(n * 17_000 for n in range(40)), PIECE_BYTES + 1, LARGE]
    files = [put(remote, f"run/{n}", size, tmp_path / "new") for n, size in enumerate(sizes)]
    download(remote, [wanted for _, wanted in files])
    assert all(wanted.path.read_bytes() == data for data, wanted in files)


def test_nothing_is_wanted(remote: Remote) -> None:
    download(remote, [])


@pytest.mark.parametrize("size_bytes", [1000, LARGE])
def test_another_checksum_is_found(remote: Remote, tmp_path: Path, size_bytes: int) -> None:
    _, wanted = put(remote, "model.pt", size_bytes, tmp_path / "new")
    remote.put_bytes(secrets.token_bytes(size_bytes), "model.pt")
    with pytest.raises(DamagedError, match=r"model\.pt is damaged"):
        download(remote, [wanted])


@pytest.mark.parametrize("is_hurt", [False, True])
def test_a_large_file_of_an_older_manifest(remote: Remote, tmp_path: Path, is_hurt: bool) -> None:
    """It has the SHA-256 of all, not of pieces."""
    data, wanted = put(remote, "model.pt", LARGE, tmp_path)
    older = Wanted("model.pt", wanted.path, LARGE, hashlib.sha256(data).hexdigest())
    if is_hurt:
        remote.put_bytes(data[:-1] + bytes([data[-1] ^ 1]), "model.pt")
        with pytest.raises(DamagedError, match="checksum"):
            download(remote, [older])
    else:
        download(remote, [older])
        assert wanted.path.read_bytes() == data


@pytest.mark.parametrize("more", [-1, 1])
@pytest.mark.parametrize("size_bytes", [1000, PIECE_BYTES, LARGE])
def test_another_size_is_found(remote: Remote, tmp_path: Path, size_bytes: int, more: int) -> None:
    data, wanted = put(remote, "model.pt", size_bytes, tmp_path / "new")
    remote.put_bytes((data + b"?")[: size_bytes + more], "model.pt")
    with pytest.raises(DamagedError, match=f"(more|fewer) than {size_bytes} bytes"):
        download(remote, [wanted])


def test_one_that_is_missing_ends_all(remote: Remote, tmp_path: Path) -> None:
    _, wanted = put(remote, "here", 1000, tmp_path / "new")
    missing = Wanted("not-here", tmp_path / "new" / "not-here", 10)
    with pytest.raises(MissingObjectError):
        download(remote, [wanted, missing])


@pytest.mark.parametrize("patience_s", [20, 0.1])
def test_an_answer_that_is_cut_goes_on_where_it_was(
    bucket_url: str, proxy: Proxy, tmp_path: Path, patience_s: float
) -> None:
    """However often, as long as something comes; what is told of progress is not told twice."""
    remote = open_remote(bucket_url, clock=SystemClock(), patience_s=patience_s)
    data, wanted = put(remote, "model.pt", LARGE, tmp_path / "new")
    proxy.answer_cuts, proxy.answer_cut_after_bytes = 1000, 5 << 20
    counted: list[int] = []
    download(remote, [wanted], on_bytes=counted.append)
    assert proxy.answer_cuts <= 1000 - LARGE // (5 << 20)
    assert wanted.path.read_bytes() == data
    assert sum(counted) == LARGE


def test_a_store_of_which_nothing_comes(bucket_url: str, proxy: Proxy, tmp_path: Path) -> None:
    remote = open_remote(bucket_url, clock=SystemClock(), patience_s=1)
    _, wanted = put(remote, "model.pt", LARGE, tmp_path / "new")
    proxy.answer_cuts, proxy.answer_cut_after_bytes = 1000, 1
    with pytest.raises(MirrorUnavailable, match=r"cannot read .*model\.pt"):
        download(remote, [wanted])


def test_what_was_replaced_while_it_was_read_is_no_mixture(
    s3_environ: S3, bucket_url: str, proxy: Proxy, tmp_path: Path
) -> None:
    """Of the same size; and nobody knows its checksum, as of a run's small files."""
    remote = open_remote(bucket_url, clock=SystemClock(), patience_s=20)
    data, wanted = put(remote, "log", 5 << 20, tmp_path / "new")
    direct = open_remote(bucket_url, Options(endpoint_url=s3_environ.endpoint))
    proxy.on_answer_cut = lambda: direct.put_bytes(data[::-1], "log")
    proxy.answer_cuts, proxy.answer_cut_after_bytes = 1, 3 << 20
    with pytest.raises(DamagedError, match="was replaced while it was read"):
        download(remote, [Wanted("log", wanted.path, wanted.size_bytes)])


def test_a_proxy_that_knows_no_ranges(bucket_url: str, proxy: Proxy, tmp_path: Path) -> None:
    """Which must not look like a damaged checkpoint, for that would be thrown away."""
    remote = open_remote(bucket_url, clock=SystemClock(), patience_s=1)
    _, wanted = put(remote, "model.pt", 5 << 20, tmp_path / "new")
    proxy.answer_cuts, proxy.answer_cut_after_bytes = 1, 3 << 20
    proxy.hides_ranges = True
    with pytest.raises(MirrorError, match="sends whole objects only") as caught:
        download(remote, [wanted])
    assert not isinstance(caught.value, DamagedError)


@pytest.mark.parametrize("size_bytes", [1, 8 << 20, 16 << 20, LARGE])
def test_a_store_that_refuses_what_begins_at_the_end(tmp_path: Path, size_bytes: int) -> None:
    """As Google's does."""

    class Strict(FolderRemote):
        def read_range(self, name: str, begin: int, end: int) -> bytes:
            assert begin < size_bytes
            return super().read_range(name, begin, end)

    remote = Strict(str(tmp_path), shared=False, clock=SystemClock(), patience_s=1)
    data, wanted = put(remote, "model.pt", size_bytes, tmp_path / "new")
    download(remote, [wanted])
    assert wanted.path.read_bytes() == data


def test_what_could_not_be_synced_is_not_there_for_the_next_try(
    remote: Remote, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel says so once; after that its memory has the bytes, and the disk does not."""
    _, wanted = put(remote, "model.pt", 1000, tmp_path / "new")

    def fail(_: int) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    with monkeypatch.context() as patch, pytest.raises(StorageError, match="Input/output error"):
        patch.setattr(os, "fsync", fail)
        download(remote, [wanted])
    assert not wanted.path.exists()
    download(remote, [wanted])


def test_one_that_fails_is_heard_though_another_waits(
    bucket_url: str, proxy: Proxy, tmp_path: Path
) -> None:
    """Whoever waits for a store that is busy asks no more, once all is in vain."""
    remote = open_remote(bucket_url, clock=SystemClock(), patience_s=100_000)
    _, wanted = put(remote, "model.pt", LARGE, tmp_path / "new")
    wanted.path.parent.mkdir()
    (tmp_path / "new" / "there").touch()
    proxy.answer_cuts, proxy.answer_cut_after_bytes = 1_000_000, 1
    with pytest.raises(StorageError, match="File exists"):
        download(remote, [wanted, Wanted("x", tmp_path / "new" / "there", 1)])


@pytest.mark.parametrize("size_bytes", [3 << 20, LARGE])
def test_a_full_disk_is_no_fault_of_the_store(
    remote: Remote, tmp_path: Path, size_bytes: int
) -> None:
    _, wanted = put(remote, "model.pt", size_bytes, tmp_path / "small")
    wanted.path.parent.mkdir()
    with small_disk(wanted.path.parent, "2m"), pytest.raises(StorageError, match="No space left"):
        download(remote, [wanted])


def test_nothing_is_overwritten(remote: Remote, tmp_path: Path) -> None:
    _, wanted = put(remote, "model.pt", 10, tmp_path / "new")
    download(remote, [wanted])
    with pytest.raises(StorageError, match="File exists"):
        download(remote, [wanted])
