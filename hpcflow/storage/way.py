"""Whether others could put another folder in the place of a run's: asked before a job is sent."""

from __future__ import annotations

from pathlib import Path

from hpcflow.errors import ScratchError, StorageError, shell_word
from hpcflow.ownership import NOBODY_ELSE, Trust, WeakPoint, weak_point
from hpcflow.storage.files import UnsafeFileError, storage_error
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runtime_copy import runtime_sum


def require_safe_way(path: Path, trust: Trust = NOBODY_ELSE) -> None:
    """Refuse a path where others could replace a folder on the way.

    Args:
        trust: whom the site trusts.

    Raises:
        ScratchError: others could, or that cannot be seen.
    """
    try:
        weak = weak_point(path, trust)
    except OSError as error:
        reason = storage_error("look at the way to", path, error)
        raise ScratchError(reason.message, next_action=reason.next_action) from error
    if weak is not None:
        raise ScratchError(
            f"{weak}, on the way to {path}, and so could change what your jobs run",
            next_action=_way_out(weak),
        )


def sum_of_safe_runtime(run_dir: RunDir, trust: Trust = NOBODY_ELSE) -> str:
    """Return the checksum of ``runtime/``, for the next job to compare.

    Raises:
        ScratchError: others could replace it.
        StorageError: it cannot be read, or holds what is not this user's.
    """
    try:
        require_safe_way(run_dir.runtime, trust)
        return runtime_sum(run_dir.runtime)
    except UnsafeFileError as error:
        raise StorageError(
            f"{error.filename} is in the folder that jobs import from, and {error.strerror}",
            next_action=f"see how it got there, and take it away: ls -la "
            f"{shell_word(error.filename)}",
        ) from error
    except OSError as error:
        raise storage_error("read", run_dir.runtime, error) from error


def _way_out(weak: WeakPoint) -> str:
    if weak.is_own:
        return weak.remedy
    folder = shell_word(weak.folder)
    kind, _, name = weak.who.partition(" ")
    ways = [
        "name another folder in the site file: scratch.path",
        f"ask its owner to close it, or to set its sticky bit: chmod +t {folder}"
        if not weak.is_owner
        else f"ask your site to give it to root or to you: ls -ld {folder}",
    ]
    if weak.who != "every user":
        key = "trusted_users" if kind in ("user", "uid") else "trusted_groups"
        trusted = f"scratch: {{{key}: [{name}]}}"
        ways.append(f"if {weak.who} may run commands as you, say so in the site file: {trusted}")
    return "; or ".join(ways)
