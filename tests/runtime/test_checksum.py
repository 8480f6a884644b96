"""One checksum, however it was computed: in order, by several threads, of a file, of parts."""

from __future__ import annotations

import hashlib
import os
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from pathlib import Path

import pytest

from hpcflow.runtime.checksum import Checksum, is_checksum, sha256_of

MIB = 1 << 20
PIECE = 16 * MIB
SIZES = [0, 1, PIECE - 1, PIECE, PIECE + 1, 2 * PIECE, 2 * PIECE + 3 * MIB + 7]


def by_its_definition(data: bytes | bytearray) -> str:
    """As docs/checkpoints.md describes it."""
    if len(data) <= PIECE:
        return hashlib.sha256(data).hexdigest()
    pieces = [data[begin : begin + PIECE] for begin in range(0, len(data), PIECE)]
    digests = b"".join(hashlib.sha256(piece).digest() for piece in pieces)
    return f"{hashlib.sha256(digests).hexdigest()}-{len(pieces)}"


@pytest.mark.parametrize("size_bytes", SIZES)
def test_a_file_has_the_same_one_by_one_thread_or_by_many(tmp_path: Path, size_bytes: int) -> None:
    data = os.urandom(size_bytes)
    path = tmp_path / "file"
    path.write_bytes(data)
    said = by_its_definition(data)
    assert sha256_of(path) == said
    with ThreadPoolExecutor(3) as pool:
        assert sha256_of(path, each=pool.map) == said
    assert is_checksum(said)


@pytest.mark.parametrize("cuts", [[], [1, 2], [PIECE], [PIECE - 1, PIECE + 1], [5 * MIB, 33 * MIB]])
@pytest.mark.parametrize("threads", [0, 1, 3])
def test_so_have_bytes_that_come_in_any_portions(cuts: list[int], threads: int) -> None:
    data = os.urandom(SIZES[-1])
    portions = [memoryview(data)[begin:end] for begin, end in pairwise([0, *cuts, len(data)])]
    in_order, beside = Checksum(), Checksum()
    for portion in portions:
        in_order.update(portion)
        assert beside.begin(portion, threads).finish() is None
    assert in_order.text() == beside.text() == by_its_definition(data)


@pytest.mark.parametrize("size_bytes", SIZES[1:])
def test_so_have_pieces_that_were_hashed_elsewhere(size_bytes: int) -> None:
    data = os.urandom(size_bytes)
    checksum = Checksum()
    for begin in range(0, size_bytes, PIECE):
        checksum.add_piece(hashlib.sha256(data[begin : begin + PIECE]))
    assert checksum.text() == by_its_definition(data)


def test_what_older_manifests_say_of_a_large_file_is_computed_as_it_was(tmp_path: Path) -> None:
    data = os.urandom(PIECE + 5)
    path = tmp_path / "file"
    path.write_bytes(data)
    older = hashlib.sha256(data).hexdigest()
    assert sha256_of(path, older) == older
    checksum = Checksum(older)
    checksum.update(data[:7])
    assert checksum.begin(memoryview(data)[7:], 2).finish() is None
    assert checksum.text() == older


def test_one_bit_makes_another_checksum_wherever_it_is(tmp_path: Path) -> None:
    data = bytearray(os.urandom(PIECE + 100))
    good = by_its_definition(data)
    for at in (0, PIECE - 1, PIECE, len(data) - 1):
        data[at] ^= 1
        (tmp_path / "file").write_bytes(data)
        assert sha256_of(tmp_path / "file") != good
        data[at] ^= 1


@pytest.mark.parametrize("text", ["", "a" * 63, "A" * 64, "a" * 64 + "-", "a" * 64 + "-0", None, 7])
def test_what_is_no_checksum(text: object) -> None:
    assert not is_checksum(text)
