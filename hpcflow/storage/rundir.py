"""Create, read and discard run directories. ``runs.py`` finds them."""

from __future__ import annotations

import errno
import json
import os
import secrets
import shutil
from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path, PurePosixPath

from hpcflow.errors import ScratchError, StorageError, Where, shell_word
from hpcflow.filesystem import existing_parent
from hpcflow.model.run import FORMAT, Run
from hpcflow.ownership import NO_TRUST, Trust
from hpcflow.resources import doc_page
from hpcflow.runtime.reading import (
    MAX_JSON_BYTES,
    JsonError,
    parse_json,
    parse_object,
    read_file,
)
from hpcflow.storage.code_snapshot import CodeTree, add_code, discard_code
from hpcflow.storage.disk_errors import storage_error, storage_errors
from hpcflow.storage.files import (
    FILE_MODE,
    FOLDER_MODE,
    fsync_folder,
    make_folders,
    remove_leftovers,
    write_durably,
    write_new,
)
from hpcflow.storage.layout import SCRATCH, Home, RunDir
from hpcflow.storage.lustre import set_layout
from hpcflow.storage.path_check import require_safe_path
from hpcflow.storage.runs import find_run, list_runs, require_no_link, require_upgraded
from hpcflow.storage.runtime_copy import add_runtime

__all__ = [
    "FOLDERS",
    "create_run",
    "discard_run",
    "find_run",
    "frozen_json",
    "is_no_json",
    "link_run",
    "list_runs",
    "make_place",
    "make_record",
    "params_json",
    "parse_run",
    "read_run",
    "renew_params",
    "require_room",
]

FOLDERS = ("attempts", "checkpoints", "code", "runtime")


def create_run(
    run: Run,
    home: Home,
    *,
    code: Mapping[str, bytes] | None = None,
    snapshot: CodeTree | None = None,
    start: Callable[[Path], object] | None = None,
    trust: Trust = NO_TRUST,
) -> RunDir:
    """Make the directory of ``run`` on scratch and its record in ``home``, or change nothing.

    Both are built under a temporary name, synced, and renamed; the record last. A killed process
    leaves ``.<run_id>.<random>.tmp``, or a run directory without a record; no job was submitted for
    either. The temporary one may hold a copied checkpoint. The next run of the project that starts
    from a checkpoint removes it after a week.

    Args:
        run: the run to freeze, in ``run.run_dir``.
        code: files for ``code/``: relative name -> content.
        snapshot: the code that ``run.code`` names.
        start: copies the checkpoint ``run.begins_from`` of another run into a new folder.
        trust: the users that may replace directories on the path, besides root and this user.

    Raises:
        ScratchError: scratch or the home is full, read-only, not a folder, or another user's; or
            another user could replace a folder on the path. Nothing was created.
    """
    final = Path(run.run_dir)
    half = final.parent / f".{run.run_id}.{secrets.token_hex(4)}.tmp"
    undo: list[Callable[[], object]] = []
    try:
        make_folders(final.parent, undo, check=partial(_require_own, final, trust))
        if snapshot is not None:
            undo.append(partial(discard_code, final.parent.parent, snapshot))
        undo.append(partial(shutil.rmtree, half))
        _build(half, run, code or {}, undo)
        if snapshot is not None:
            add_code(RunDir(half).code, final.parent.parent, snapshot)
        if start is not None and run.begins_from is not None:
            start(half / run.begins_from)
            fsync_folder((half / run.begins_from).parent)
        fsync_folder(half)
        half.rename(final)
        undo.append(partial(shutil.rmtree, final))
        fsync_folder(final.parent)
        if not make_record(home, run, undo=undo):
            raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), home.runs / run.run_id)
    except BaseException as error:
        for step in reversed(undo):
            with suppress(OSError):
                step()
        if isinstance(error, OSError):
            raise _scratch_error(final, error) from error
        raise
    if start is not None:  # only then are leftovers large; the scan takes longer with each run
        remove_leftovers(final.parent)
    return home.run_dir(final)


def require_room(run: Run, home: Home, trust: Trust = NO_TRUST) -> None:
    """Check whether :func:`create_run` could begin, without creating anything.

    Raises:
        ScratchError: scratch or the home is not a folder, read-only, or another user's; or another
            user could replace a folder on the path.
    """
    final = Path(run.run_dir)
    require_upgraded(home)
    _require_own(final, trust)
    for folder, key in ((final.parent, None), (home.runs, "HPCFLOW_HOME")):
        nearest = existing_parent(folder / "new")
        if not (nearest.is_dir() and os.access(nearest, os.W_OK | os.X_OK)):
            raise ScratchError(
                f"cannot make {folder}: {nearest} is not a directory that you can write to",
                where=Where(key=key) if key else None,
                next_action=f"see its type and owner: ls -ld {shell_word(nearest)}",
            )


def make_place(final: Path, trust: Trust = NO_TRUST) -> None:
    """Make the missing parents of the run directory ``final``.

    Raises:
        ScratchError: scratch cannot be written, or another user could write in it or replace a
            folder on the path.
        StorageError: ``final`` is a link.
    """
    require_no_link(RunDir(final))
    try:
        make_folders(final.parent, check=partial(_require_own, final, trust))
    except OSError as error:
        raise _scratch_error(final, error) from error


def link_run(home: Home, final: Path) -> None:
    """Make or replace the link in the record of a run to its run directory ``final``."""
    link = home.scratch_link(final.name)
    if link.is_symlink() and link.readlink() == final:
        return
    new = link.with_name(f".{secrets.token_hex(8)}.tmp")
    try:
        make_folders(link.parent)
        new.symlink_to(final)
        new.replace(link)
        fsync_folder(link.parent)
        fsync_folder(home.runs)
    except OSError as error:
        with suppress(OSError):
            new.unlink()
        raise _home_error(home.runs, error) from error


def make_record(
    home: Home,
    run: Run,
    *,
    journal: bytes = b"",
    is_approved: bool = True,
    undo: list[Callable[[], object]] | None = None,
) -> bool:
    """Make the record of a run, atomically.

    Args:
        is_approved: whether a user of this home has approved what it executes.
        undo: receives functions that remove the record, and new folders of the home.

    Returns:
        False, and nothing is changed, if the home has a record of it.

    Raises:
        StorageError: an older hpcflow made it.
    """
    require_upgraded(home)
    record = home.runs / run.run_id
    half = home.runs / f".{run.run_id}.{secrets.token_hex(4)}.tmp"
    new = RunDir(Path(run.run_dir), half)
    try:
        make_folders(home.runs, undo)
        half.mkdir(mode=FOLDER_MODE)
        try:
            write_new(new.run_json, frozen_json(run))
            # A missing journal means a lost one. An empty file needs no sync beyond its folder's.
            if journal:
                write_new(new.journal, journal)
            else:
                new.journal.touch(mode=FILE_MODE)
            if not is_approved:
                new.unapproved.touch(mode=FILE_MODE)
            (half / SCRATCH).symlink_to(run.run_dir)
            fsync_folder(half)
            half.rename(record)
        except BaseException as error:
            shutil.rmtree(half, ignore_errors=True)
            if isinstance(error, OSError) and error.errno in (errno.ENOTEMPTY, errno.EEXIST):
                return False
            raise
        if undo is not None:
            undo.append(partial(shutil.rmtree, record))
        fsync_folder(home.runs)
    except OSError as error:
        raise _home_error(home.runs, error) from error
    return True


def _home_error(folder: Path, error: OSError) -> ScratchError:
    reason = storage_error("write the record of the run in", folder, error)
    return ScratchError(
        reason.message, where=Where(key="HPCFLOW_HOME"), next_action=reason.next_action
    )


def read_run(run_dir: RunDir) -> Run:
    """Return the run that was frozen into ``run.json``.

    Raises:
        StorageError: it is missing, damaged, of another run, or was written by a newer hpcflow.
    """
    path = run_dir.run_json
    try:
        data = read_file(path, MAX_JSON_BYTES)
    except FileNotFoundError:
        raise StorageError(
            f"{path} is gone",
            next_action=f"put it back from a backup; if the run was mirrored: hpcflow restore "
            f"{run_dir.path.name}; see its last state in the ledger: hpcflow show "
            f"{run_dir.path.name}",
        ) from None
    except OSError as error:
        raise storage_error("read", path, error) from error
    run = parse_run(data, str(path))
    if run.run_id != run_dir.path.name:  # else hpcflow would submit the other run
        raise _damaged(str(path), f"it belongs to another run: {run.run_id[:80]}")
    return run


def parse_run(data: bytes, path: str) -> Run:
    """Return the run in the bytes of a ``run.json``.

    Args:
        path: the source, for errors.

    Raises:
        StorageError: they are damaged, or of a newer hpcflow.
    """
    try:
        content = parse_object(data)
        if content.get("format", FORMAT) > FORMAT:
            raise StorageError(
                f"{path} was written by a newer hpcflow",
                next_action=f"update this hpcflow: {doc_page('installation')}",
            )
        if b"\\ud" in data.lower():  # a lone surrogate cannot be part of a path
            os.fsencode(json.dumps(content, ensure_ascii=False))
        return Run.model_validate(content)
    except (ValueError, TypeError, AttributeError) as error:
        raise _damaged(path, str(error).splitlines()[0]) from error


def _damaged(path: str, why: str) -> StorageError:
    return StorageError(
        f"{path} is damaged: {why}",
        next_action=f"if the run was mirrored: hpcflow restore {PurePosixPath(path).parent.name}; "
        "else start a new run: hpcflow run CONFIG",
    )


def is_no_json(data: bytes) -> bool:
    """Return whether ``data`` is not valid JSON, for example truncated by a full disk."""
    try:
        parse_json(data)
    except JsonError:
        return True
    return False


def discard_run(run_dir: RunDir, home: Home) -> None:
    """Delete the directory of a run that was never submitted, and its record in ``home``."""
    with storage_errors("delete", run_dir.path):
        for folder in (run_dir.path, home.runs / run_dir.path.name):
            with suppress(FileNotFoundError):
                shutil.rmtree(folder)


def _require_own(final: Path, trust: Trust) -> None:
    """Refuse a path that another user could replace, as far as it exists."""
    for folder in (final.parent.parent, final.parent):
        if os.path.lexists(folder):
            _require_private(folder)
    require_safe_path(final, trust)


def _require_private(folder: Path) -> None:
    """Refuse a folder in which another user could replace the run by one with other commands."""
    status = folder.stat()
    if status.st_uid != os.geteuid():
        raise ScratchError(
            f"{folder} belongs to another user, who could change what your jobs run",
            next_action="name a scratch folder that you own: export SCRATCH=...",
        )
    if status.st_mode & 0o022:
        raise ScratchError(
            f"other users can write in {folder}, and so change what your jobs run",
            next_action=f"remove their write permission: chmod go-w {shell_word(folder)}",
        )


def _build(
    half: Path, run: Run, code: Mapping[str, bytes], undo: list[Callable[[], object]]
) -> None:
    """Make the folder ``half`` and sync its files, but not its folders."""
    half.mkdir(mode=FOLDER_MODE)
    for name in FOLDERS:
        (half / name).mkdir(mode=FOLDER_MODE)
    target = RunDir(half)
    set_layout(target.checkpoints)  # first, because it does not change existing files
    write_new(target.params_json, params_json(run))
    add_runtime(target.runtime, Path(run.run_dir).parent.parent / ".runtime", undo)
    for name, data in code.items():
        path = target.code / _relative(name)
        path.parent.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        write_new(path, data)


def frozen_json(run: Run) -> bytes:
    return json.dumps(run.model_dump(mode="json"), indent=1).encode() + b"\n"


def params_json(run: Run) -> bytes:
    return json.dumps(run.model_dump(mode="json")["spec"]["params"], indent=1).encode() + b"\n"


def renew_params(run_dir: RunDir, run: Run) -> None:
    """Write ``params.json`` of ``run`` if it differs, or is missing after a purge or a restore."""
    path = run_dir.params_json
    data = params_json(run)
    with suppress(OSError):
        if read_file(path) == data:
            return
    write_durably(path, data)


def _relative(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if path.is_absolute() or ".." in path.parts or not path.name:
        raise StorageError(
            f"cannot store the code file {name!r}",
            next_action="name a file below the folder of the code",
        )
    return path


def _scratch_error(final: Path, error: OSError) -> ScratchError:
    place = error.filename2 or error.filename or final
    reason = storage_error("make the run directory below", final.parent, error)
    where = "" if str(place).startswith(str(final.parent)) else f" ({place})"
    return ScratchError(f"{reason.message}{where}", next_action=reason.next_action)
