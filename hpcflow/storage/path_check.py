"""Check, before submission, that no other user can replace a run directory."""

from __future__ import annotations

from pathlib import Path

from hpcflow.errors import ScratchError, StorageError, shell_word
from hpcflow.ownership import NO_TRUST, Trust, WeakPoint, weak_point
from hpcflow.runtime.reading import UnsafeFileError
from hpcflow.storage.disk_errors import storage_error
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runtime_copy import compiled_sum, runtime_sum


def require_safe_path(path: Path, trust: Trust = NO_TRUST) -> None:
    """Refuse a path on which other users could replace a directory.

    Raises:
        ScratchError: another user could replace one, or the path cannot be checked.
    """
    try:
        weak = weak_point(path, trust)
    except OSError as error:
        reason = storage_error("check the path to", path, error)
        raise ScratchError(reason.message, next_action=reason.next_action) from error
    if weak is not None:
        raise ScratchError(
            f"{weak}, on the path to {path}, and so could change what your jobs run",
            next_action=_advice(weak),
        )


def checked_runtime_sums(run_dir: RunDir, trust: Trust = NO_TRUST) -> tuple[str, str]:
    """Check the path to ``runtime/``; return the checksums of it and of its compiled files.

    The next job compares them.

    Raises:
        ScratchError: another user could replace ``runtime/``.
        StorageError: it cannot be read, or another user owns a file in it.
    """
    try:
        require_safe_path(run_dir.runtime, trust)
        return runtime_sum(run_dir.runtime), compiled_sum(run_dir.runtime)
    except UnsafeFileError as error:
        raise StorageError(
            f"{error.filename}, in the folder from which jobs import, is unsafe: {error.strerror}",
            next_action=f"find its owner, and remove it: ls -la {shell_word(error.filename)}",
        ) from error
    except OSError as error:
        raise storage_error("read", run_dir.runtime, error) from error


def _advice(weak: WeakPoint) -> str:
    if weak.is_own:
        return weak.remedy
    folder = shell_word(weak.folder)
    kind, _, name = weak.who.partition(" ")
    choices = [
        "name another folder in the site file: scratch.path",
        f"ask its owner to remove the write permission, or to set the sticky bit: chmod +t {folder}"
        if not weak.is_owner
        else f"ask your site to make root or you its owner: ls -ld {folder}",
    ]
    if weak.who != "every user":
        key = "trusted_users" if kind in ("user", "uid") else "trusted_groups"
        trusted = f"scratch: {{{key}: [{name}]}}"
        choices.append(
            f"if {weak.who} may run commands as you, trust it in the site file: {trusted}"
        )
    return "; or ".join(choices)
