"""Keep compiled templates in one file in the home; compiling takes longer than the rest.

The file begins with the checksum of its rest, because damaged bytecode crashes Python. Like
``__pycache__``, it is trusted code, in a home that is only its user's (:mod:`hpcflow.settings`).
Entries for another template text, Python or Jinja are compiled again.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path

from jinja2 import BytecodeCache
from jinja2.bccache import Bucket

import hpcflow
from hpcflow.runtime.reading import open_file

_CHECKSUM_BYTES = hashlib.sha256().digest_size


class CompiledTemplates(BytecodeCache):
    """Jinja's interface to the file; :meth:`save` writes it if a template was compiled."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made_by = f"{sys.version} jinja {version('jinja2')} hpcflow {hpcflow.__version__}"
        self._entries: dict[str, tuple[str, bytes]] = {}
        self._is_new = False
        with suppress(OSError, ValueError, EOFError, TypeError):
            made_by, entries = marshal.loads(_own_file(path))  # noqa: S302 - as Python's own .pyc
            if made_by == self._made_by:
                self._entries = dict(entries)

    def load_bytecode(self, bucket: Bucket) -> None:
        checksum, code = self._entries.get(bucket.key, ("", b""))
        if checksum == bucket.checksum:
            bucket.code = marshal.loads(code)  # noqa: S302 - from the same private file

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._entries[bucket.key] = (bucket.checksum, marshal.dumps(bucket.code))
        self._is_new = True

    def save(self) -> None:
        """Write the templates compiled since the last call. Errors are ignored."""
        if not self._is_new:
            return
        self._is_new = False
        half = self._path.with_name(f".{self._path.name}.{os.urandom(8).hex()}.tmp")
        with suppress(OSError):
            descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                data = marshal.dumps((self._made_by, self._entries))
                file.write(hashlib.sha256(data).digest() + data)
            half.replace(self._path)


def _own_file(path: Path) -> bytes:
    """Return the content after the checksum, if only this user can write it and it is intact."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_mode & 0o022:
            raise PermissionError(path)
        checksum, data = file.read(_CHECKSUM_BYTES), file.read()
    if hashlib.sha256(data).digest() != checksum:
        raise ValueError(path)
    return data
