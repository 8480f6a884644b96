"""Large files: in parts, in little memory."""

from __future__ import annotations

import filecmp
import json
import os
import secrets
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from hpcflow.clock import SystemClock
from hpcflow.mirror import upload as upload_module
from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.limits import Bandwidth, Line, Memory
from hpcflow.mirror.remote import Part
from hpcflow.mirror.s3_remote import S3Parts
from hpcflow.mirror.stores import open_remote
from hpcflow.mirror.upload import PART_BYTES, Uploader
from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.files import Written
from hpcflow.runtime.store import CheckpointStore
from hpcflow.storage.layout import RunDir
from tests.mirror.runs import checkpoint_names, desk_in

GIB = 1 << 30
SMALLEST_PART = 5 << 20
LARGE = (512 << 20) + 12_345  # more than all the memory it may take

#: A process does not hear of its peak from others: wait4 counts what it was forked from, too.
MIRROR_AND_SAY_PEAK = r"""
import re
from pathlib import Path
from hpcflow.cli.main import main
assert main(["mirror", "--once"]) == 0
print(re.search(r"VmHWM:\s+(\d+)", Path("/proc/self/status").read_text())[1])
"""


def save_sparse(run_dir: RunDir, train_step: int, size_bytes: int, *marks: int) -> Path:
    """A checkpoint with one file that is one large hole, but for some bytes from each mark on."""
    store = CheckpointStore(run_dir.checkpoints)
    staged = store.stage(train_step, secrets.randbits(60))
    with (staged / "model.pt").open("wb") as file:
        file.truncate(size_bytes)
        for mark in marks:
            file.seek(mark)
            file.write(secrets.token_bytes(7))
    written = {"model.pt": Written(size_bytes, sha256_of(staged / "model.pt"))}
    facts: dict[str, Any] = {"run_id": run_dir.path.name, "attempt": 1}
    return store.publish(staged, train_step, written, **facts).path


def test_a_large_file_goes_in_parts_and_little_memory(bucket_url: str, tmp_path: Path) -> None:
    desk = desk_in(tmp_path, bucket_url)
    run_dir = desk.make()
    desk.home.path.chmod(0o700)
    save_sparse(run_dir, 400, LARGE)
    environ = {**os.environ, "HPCFLOW_HOME": str(desk.home.path)}
    argv = [sys.executable, "-c", MIRROR_AND_SAY_PEAK]
    done = subprocess.run(argv, env=environ, check=True, capture_output=True, text=True)
    peak_kib = int(done.stdout.split()[-1])
    assert peak_kib < 500 * 1024
    assert set(checkpoint_names(400, {"model.pt": 0})) < set(desk.there(run_dir))
    (entry,) = desk.remote.names(f"{run_dir.path.name}/checkpoints/000000400/model").values()
    assert entry.size_bytes == LARGE


@pytest.mark.soak
def test_a_file_larger_than_32_bits_can_count_there_and_back(
    bucket_url: str, tmp_path: Path
) -> None:
    """By its own parts. Of 20 GB see below: the server keeps the parts of an upload in memory."""
    desk = desk_in(tmp_path, bucket_url)
    run_dir = desk.make()
    size_bytes = 4 * GIB + PART_BYTES + 7
    checkpoint = save_sparse(run_dir, 400, size_bytes, 0, 2 * GIB - 3, 4 * GIB - 3, size_bytes - 7)
    assert desk.mirror().problems == {}
    remote, folder = desk.remote, f"{run_dir.path.name}/checkpoints/000000400"
    said = json.loads(remote.read(f"{folder}/manifest.json"))["files"]["model.pt"]
    back = tmp_path / "back" / "model.pt"
    download(remote, [Wanted(f"{folder}/model.pt", back, size_bytes, said["sha256"])])
    assert filecmp.cmp(back, checkpoint / "model.pt", shallow=False)
    remote.delete(remote.names())
    back.unlink()  # pytest keeps the folders of some sessions


def test_as_many_parts_as_20_gb_have_and_none_of_them_twice(
    bucket_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parts are small here: 20 GB take minutes, but a store lists parts by the thousand."""
    desk = desk_in(tmp_path, bucket_url)
    run_dir = desk.make()
    count, part_bytes = 20 * 10**9 // PART_BYTES + 1, 4 << 10
    save_sparse(run_dir, 400, count * part_bytes)
    monkeypatch.setattr(upload_module, "PART_BYTES", part_bytes)
    put, sent = S3Parts.put, []

    def counted(*args: Any, **known: Any) -> Part:
        sent.append(args[3])
        return put(*args, **known)

    monkeypatch.setattr(S3Parts, "put", counted)
    with monkeypatch.context() as patch:  # it is killed before the object is made of its parts
        patch.setattr(S3Parts, "finish", lambda *_: (_ for _ in ()).throw(KeyboardInterrupt))
        with pytest.raises(KeyboardInterrupt):
            desk.mirror()
    assert desk.mirror().problems == {}
    assert sorted(sent) == list(range(1, count + 1))
    entry = desk.remote.stat(f"{run_dir.path.name}/checkpoints/000000400/model.pt")
    assert entry is not None and entry.size_bytes == count * part_bytes


@pytest.mark.parametrize("bytes_s", [None, 1 << 20, 200 << 20])
@pytest.mark.parametrize("size_bytes", [PART_BYTES + 1, 20 * GIB, 5000 * GIB])
def test_no_file_has_more_parts_than_stores_take(size_bytes: int, bytes_s: int | None) -> None:
    with Line(Bandwidth(bytes_s, SystemClock())) as line:
        part_bytes = Uploader(open_remote("/x"), line).part_bytes(size_bytes)
    assert -(-size_bytes // part_bytes) <= 10_000
    assert part_bytes >= SMALLEST_PART


def test_memory_is_given_when_there_is_some() -> None:
    memory = Memory(100)
    memory.take(60)
    memory.take(40)
    memory.give(60)
    memory.give(40)
    with memory.holding(1000):  # larger than all there is, and nobody has any
        pass
    memory.take(100)
