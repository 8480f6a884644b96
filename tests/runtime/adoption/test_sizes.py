"""What is adopted may be very many files under any names, or a very large one."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.runtime.manifest import verify
from tests.runtime.adoption.bench import Bench
from tests.runtime.harness import RunFolder
from tests.runtime.sizes import (
    BEYOND_2_GIB,
    BEYOND_4_GIB,
    MANY,
    end_of,
    sizes_of,
    write_large,
    write_many,
)


@pytest.mark.parametrize("count", MANY)
def test_thousands_of_small_files(tmp_path: Path, count: int) -> None:
    bench = Bench(RunFolder(tmp_path / "run"), tmp_path / "out", {"put_back": True})
    adopter = bench.watching()
    written = bench.out / "step-1"
    write_many(written, count)
    sizes = sizes_of(written)
    bench.pass_by(adopter, 10)
    own = bench.folder.checkpoint(1) / "adopted" / "step-1"
    assert len(sizes) == count
    assert sizes_of(own) == sizes
    assert verify(bench.folder.checkpoint(1)).size_bytes == sum(sizes.values())

    next(written.iterdir()).rename(bench.folder.path / "lost")
    bench.program_ended(137)
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(1)
    assert sizes_of(written) == sizes, "all of it is there again"


@pytest.mark.parametrize(
    "size_bytes", [BEYOND_2_GIB, pytest.param(BEYOND_4_GIB, marks=pytest.mark.soak)]
)
def test_a_file_larger_than_31_or_32_bits_can_count(bench: Bench, size_bytes: int) -> None:
    """The program never changes it again, so it takes room once, and here none."""
    bench.rule = {"renamed": True}
    adopter = bench.watching()
    write_large(bench.out / "step-1", size_bytes)
    adopter.look()
    checkpoint = verify(bench.folder.checkpoint(1))
    assert checkpoint.size_bytes == size_bytes
    assert end_of(checkpoint.path / "adopted" / "step-1") == (size_bytes, b"!")
    (event,) = bench.folder.events("checkpoint")
    assert event["size_bytes"] == size_bytes
