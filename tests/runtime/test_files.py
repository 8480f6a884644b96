"""What is written has the checksum of what was meant, in pieces of any size."""

from __future__ import annotations

import errno
import os
import threading
from itertools import pairwise
from pathlib import Path

import pytest

from hpcflow.runtime.checksum import sha256_of
from hpcflow.runtime.files import NewFile, Written
from tests.runtime.test_checksum import by_its_definition

MIB = 1 << 20


@pytest.mark.parametrize(
    "cuts", [[], [1], [MIB], [MIB + 1, 16 * MIB, 16 * MIB + 3], [33 * MIB, 34 * MIB]]
)
@pytest.mark.parametrize("hashers", [1, 3])
def test_the_checksum_is_that_of_all_bytes_whatever_the_pieces(
    tmp_path: Path, cuts: list[int], hashers: int
) -> None:
    data = os.urandom(35 * MIB + 7)
    file = NewFile(tmp_path / "file", hashers=hashers)
    for begin, end in pairwise([0, *cuts, len(data)]):
        assert file.write(memoryview(data)[begin:end]) == end - begin
    written = file.close()
    assert written == Written(len(data), by_its_definition(data))
    assert sha256_of(tmp_path / "file") == written.sha256


def test_without_threads_and_advice_it_takes_longer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A limit on processes; a file system, or a sandbox, that takes no advice."""

    def refuse(*_arguments: object) -> None:
        raise RuntimeError("can't start new thread")

    def advise(*_arguments: object) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    monkeypatch.setattr(os, "posix_fadvise", advise)
    data = os.urandom(17 * MIB)
    file = NewFile(tmp_path / "file")
    file.write(data)
    assert file.close().sha256 == by_its_definition(data)


def test_a_writer_that_must_stop_stops_within_the_piece(tmp_path: Path) -> None:
    left = [20]

    def must_stop() -> bool:
        left[0] -= 1
        return left[0] < 0

    file = NewFile(tmp_path / "file", must_stop)
    file.write(bytes(40 * MIB))
    assert file.write(b"more") == 4, "which nobody writes"
    with pytest.raises(OSError, match="the program has ended"):
        file.close()
    assert (tmp_path / "file").stat().st_size == 20 * MIB


def test_an_interrupt_leaves_nobody_reading_what_was_to_be_written(tmp_path: Path) -> None:
    """It may be of a tensor that is gone a moment later."""
    left = [20]

    def interrupt() -> bool:
        left[0] -= 1
        if left[0] < 0:
            raise KeyboardInterrupt
        return False

    data = bytearray(128 * MIB)
    file = NewFile(tmp_path / "file", interrupt, hashers=3)
    with pytest.raises(KeyboardInterrupt):
        file.write(memoryview(data))
    file.close()
    assert [each.name for each in threading.enumerate() if each.name == "hpcflow-checkpoint"] == []
