"""``mirror_program.py URL FOLDER``: a checkpoint is fetched and verified as by a restore."""

from __future__ import annotations

import sys
from pathlib import Path

from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.stores import open_remote
from hpcflow.runtime.manifest import NAME, parse_manifest


def main() -> int:
    """Fetch all that is there; what the manifest names is compared with its checksums."""
    remote, folder = open_remote(sys.argv[1]), Path(sys.argv[2])
    names = remote.names()
    (manifest,) = (name for name in names if name.endswith(f"/{NAME}"))
    place = manifest.removesuffix(NAME)
    files = parse_manifest(remote.read(manifest))["files"]
    sha256 = {f"{place}{name}": entry["sha256"] for name, entry in files.items()}
    wanted = [
        Wanted(name, folder / name, each.size_bytes, sha256.get(name))
        for name, each in names.items()
    ]
    assert sum(each.sha256 is not None for each in wanted) == len(files)
    download(remote, wanted)
    return 0


if __name__ == "__main__":
    sys.exit(main())
