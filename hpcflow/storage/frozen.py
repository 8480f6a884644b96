"""What the home knows of each run's ``run.json``: its checksum, where nobody else writes.

What a run executes stands in ``run.json``, on scratch and in the mirror. Where scratch was purged,
the mirror's is all there is, and others may be able to write there. So it is believed where it is
what was frozen here, or what a person said ``hpcflow resume`` to; else the run waits for that word.
"""

from __future__ import annotations

import hashlib
import os
from contextlib import suppress

from hpcflow.storage.files import FILE_MODE, FOLDER_MODE, read_file
from hpcflow.storage.layout import Home, RunDir

_DIGEST_BYTES = 64


def keep_frozen(home: Home, run_dir: RunDir) -> None:
    """Remember what is frozen of a run now. Where that fails, or a crash cuts it, it is only not
    known later: so it is not put on the disk, which takes long."""
    with suppress(OSError):
        home.frozen.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        write_frozen(home, run_dir)


def write_frozen(home: Home, run_dir: RunDir) -> None:
    """The same, in a folder that is there. ``OSError`` as it comes."""
    digest = hashlib.sha256(read_file(run_dir.run_json)).hexdigest().encode()
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(home.frozen / run_dir.path.name, flags, FILE_MODE)
    try:
        os.write(descriptor, digest)
    finally:
        os.close(descriptor)


def is_frozen_as(home: Home, run_id: str, data: bytes) -> bool:
    """Whether ``data`` is the ``run.json`` that was last remembered of a run."""
    try:
        known = read_file(home.frozen / run_id, _DIGEST_BYTES)
    except OSError:
        return False
    return known == hashlib.sha256(data).hexdigest().encode()
