"""``make soak``: the long proofs, or those parts that are named; exit code 1 if one finds."""

from __future__ import annotations

import argparse
import secrets
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Final

from tests.soak import bucket, corruptions, kills, postgres, strangers
from tests.soak.findings import Findings


@dataclass(frozen=True)
class Part:
    """What a part does, in a folder of its own, and how many tries it has by default."""

    run: Callable[[Path, Findings, Sequence[int]], None]
    tries: int


PARTS: Final[dict[str, Part]] = {
    "corruptions": Part(corruptions.run, 2000),
    "kills": Part(kills.run, 500),
    "bucket": Part(bucket.run, 300),
    "postgres": Part(postgres.run, 300),
    "user": Part(strangers.run_user, 100),
    "project": Part(strangers.run_project, 50),
}


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.soak", description=__doc__)
    parser.add_argument("parts", nargs="*", metavar="PART", help=f"of: {', '.join(PARTS)}")
    parser.add_argument("--seed", type=int, help="default: another one each time; it is printed")
    parser.add_argument("--tries", type=int, help="of each part; default: as many as it has")
    parser.add_argument("--only", type=int, metavar="TRY", help="this try alone, of that seed")
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - PARTS.keys():
        parser.error(f"no part {', '.join(sorted(unknown))}; there are: {', '.join(PARTS)}")
    seed = secrets.randbelow(10**6) if given.seed is None else given.seed
    memory = Path("/dev/shm")  # if it is there: thousands of small files are synced
    with TemporaryDirectory(
        prefix="hpcflow-soak-",
        dir=memory if memory.is_dir() else None,
        ignore_cleanup_errors=True,
    ) as folder:
        tries = given.tries if given.only is None else None
        found = [
            soak(name, Path(folder, name), seed, tries, only=given.only)
            for name in given.parts or PARTS
        ]
    for findings in found:
        print(findings.summary())
    return 1 if any(findings.kinds for findings in found) else 0


def soak(
    name: str, folder: Path, seed: int, tries: int | None = None, *, only: int | None = None
) -> Findings:
    """One part, in a new folder of its own."""
    findings, part = Findings(name, seed), PARTS[name]
    numbers = range(part.tries if tries is None else tries) if only is None else [only]
    print(f"{name}: {len(numbers)} tries, seed {seed}", file=sys.stderr, flush=True)
    folder.mkdir()
    part.run(folder, findings, numbers)
    return findings


if __name__ == "__main__":
    sys.exit(main())
