"""Which state of the user's code a run came from: the git commit, and what was not committed."""

from __future__ import annotations

import socket
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path

from hpcflow import __version__
from hpcflow.model.run import Provenance

#: A larger difference is data that somebody forgot to ignore; the commit is recorded all the same.
MAX_DIFF_BYTES = 1 << 20

#: git may be slow on a cold file system, but a submission must not hang on it.
_GIT_TIMEOUT_S = 10


@dataclass(frozen=True)
class CodeState:
    """What git says about a folder; all empty outside a work tree."""

    commit: str | None = None
    is_dirty: bool | None = None
    diff: bytes | None = None


@lru_cache(maxsize=64)
def code_state(folder: Path) -> CodeState:
    """The commit checked out in ``folder``, and the difference of tracked files from it.

    Asked once a process and folder: a thousand runs sent by one program are of one state.
    """
    commit = _git(folder, "rev-parse", "HEAD")
    if commit is None:
        return CodeState()
    # External diff programs and text converters are the repository's to name, so they stay off.
    diff = _git(folder, "diff", "--no-ext-diff", "--no-textconv", "--binary", "HEAD", "--", ".")
    kept = diff if diff and len(diff) <= MAX_DIFF_BYTES else None
    return CodeState(commit.decode("ascii", "replace").strip(), bool(diff), kept)


def provenance(config: Path | None, overrides: Sequence[str], state: CodeState) -> Provenance:
    """Everything that run.json keeps about where a run came from."""
    return Provenance(
        hpcflow_version=__version__,
        python_version=".".join(map(str, sys.version_info[:3])),
        submit_host=socket.gethostname(),
        config_path=str(config) if config else None,
        overrides=list(overrides),
        git_commit=state.commit,
        git_dirty=state.is_dirty,
    )


def _git(folder: Path, *args: str) -> bytes | None:
    try:
        done = subprocess.run(
            ["git", "-C", str(folder), *args],
            capture_output=True,
            timeout=_GIT_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    return done.stdout if done.returncode == 0 else None
