"""What is adopted may be very many files under any names, or a very large one."""

from __future__ import annotations

from pathlib import Path

from hpcflow.runtime.manifest import verify
from tests.runtime.adoption.bench import Bench
from tests.runtime.harness import RunFolder
from tests.runtime.sizes import BEYOND_4_GIB, end_of, sizes_of, write_large, write_many


def test_ten_thousand_small_files(tmp_path: Path) -> None:
    bench = Bench(RunFolder(tmp_path / "run"), tmp_path / "out", {"put_back": True})
    adopter = bench.watching()
    written = bench.out / "step-1"
    write_many(written)
    sizes = sizes_of(written)
    bench.pass_by(adopter, 10)
    own = bench.folder.checkpoint(1) / "adopted" / "step-1"
    assert len(sizes) == 10_000
    assert sizes_of(own) == sizes
    assert verify(bench.folder.checkpoint(1)).size_bytes == sum(sizes.values())

    next(written.iterdir()).rename(bench.folder.path / "lost")
    bench.program_ended(137)
    bench.next_attempt()
    assert bench.begin() == bench.folder.checkpoint(1)
    assert sizes_of(written) == sizes, "all of it is there again"


def test_a_file_larger_than_32_bits_can_count(bench: Bench) -> None:
    """The program never changes it again, so it takes room once, and here none."""
    bench.rule = {"renamed": True}
    adopter = bench.watching()
    write_large(bench.out / "step-1", BEYOND_4_GIB)
    adopter.look()
    checkpoint = verify(bench.folder.checkpoint(1))
    assert checkpoint.size_bytes == BEYOND_4_GIB
    assert end_of(checkpoint.path / "adopted" / "step-1") == (BEYOND_4_GIB, b"!")
    (event,) = bench.folder.events("checkpoint")
    assert event["size_bytes"] == BEYOND_4_GIB
