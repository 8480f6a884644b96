"""A cloud's object store as fsspec shows it: an object appears when its file is closed."""

from __future__ import annotations

import io
import secrets
from typing import Any

from fsspec.implementations.memory import MemoryFileSystem

from hpcflow.clock import SystemClock
from hpcflow.mirror.fsspec_remote import FsspecRemote


class _Object(io.BytesIO):
    def __init__(self, fs: Cloud, path: str) -> None:
        super().__init__()
        self._fs, self._path = fs, path

    def close(self) -> None:
        if not self.closed:
            self._fs.pipe_file(self._path, self.getvalue())
        super().close()

    def discard(self) -> None:
        super().close()


class Cloud(MemoryFileSystem):  # type: ignore[misc]  # fsspec has no types
    """As gcsfs and adlfs do, and unlike fsspec's own: nothing is there before it is whole."""

    def open(self, path: str, mode: str = "rb", **how: Any) -> Any:
        is_whole = mode != "wb" or "data" in how
        return super().open(path, mode, **how) if is_whole else _Object(self, path)


def cloud_remote() -> FsspecRemote:
    """A new folder in it."""
    root = f"/{secrets.token_hex(6)}/runs"
    return FsspecRemote(f"gs:/{root}", Cloud(), root, clock=SystemClock(), patience_s=5)
