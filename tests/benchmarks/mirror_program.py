"""``mirror_program.py URL FOLDER``: fetch all objects below a URL, as restoring does it."""

from __future__ import annotations

import sys
from pathlib import Path

from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.remote import open_remote


def main() -> int:
    """Fetch the files that a manifest would name, with their sizes."""
    remote, folder = open_remote(sys.argv[1]), Path(sys.argv[2])
    names = remote.names()
    download(remote, [Wanted(name, folder / name, each.size_bytes) for name, each in names.items()])
    return 0


if __name__ == "__main__":
    sys.exit(main())
