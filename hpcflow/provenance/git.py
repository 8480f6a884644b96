"""Run git on an untrusted repository without executing what its configuration names.

git reads the objects, the index and the files with hpcflow's own configuration, in hpcflow's own
git directory. Of the repository's configuration, it uses only the keys in :data:`_KEPT`. Functions
here raise GitError if git fails.
"""

from __future__ import annotations

import os
import re
import resource
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Final

from hpcflow.errors import StorageError
from hpcflow.ownership import temporary_folder

#: git may be slow on a cold file system, but a submission must not hang on it.
_TIMEOUT_S: Final = 10.0
_MAX_ANSWER_BYTES: Final = 1 << 16
#: The limit of git's memory: it reads a ref whole, and compares files in memory.
_MAX_DATA_BYTES: Final = 1 << 30
#: git counts the stacks of its 20 threads as memory. Larger ones would not fit.
_MAX_STACK_BYTES: Final = 16 << 20
#: Before the difference, git names each changed file in a line.
_MAX_NAMES_BYTES: Final = 1 << 20
#: The limit of a list of all files in a work tree.
_MAX_LIST_BYTES: Final = 16 << 20
#: The limit of such a list without git.
_MAX_WALKED: Final = 100_000
#: Parts of a path that git never writes into an index.
_NO_NAMES: Final = frozenset({b"", b".", b"..", b".git"})
#: git uses one and removes old ones.
_MAX_SHARED_INDEXES: Final = 1000
_NO_ANSWER: Final = "did not answer"
_TOO_LARGE: Final = "needs more than 1 GiB of memory"
_NO_FILE: Final = "no temporary file can be made"
#: After these errors there may be a repository.
_SAYS_NOTHING: Final = ("dubious ownership", _NO_ANSWER, _TOO_LARGE, _NO_FILE)

#: How git compares files and names objects. None of these keys names a program or a file.
_KEPT: Final = (
    r"^(core\.(filemode|symlinks|ignorecase|precomposeunicode|autocrlf|eol)"
    r"|extensions\.objectformat)$"
)
#: The caller's variables that git gets. The second line names the files with `safe.directory`.
#: Other variables of git, such as GIT_DIR in a hook, would lead it elsewhere.
_INHERITED: Final = ("PATH", "HOME", "XDG_CONFIG_HOME", "LD_LIBRARY_PATH", "TMPDIR")
_INHERITED_OF_GIT: Final = ("GIT_CONFIG_GLOBAL", "GIT_CONFIG_SYSTEM", "GIT_CONFIG_NOSYSTEM")
#: git fetches nothing, writes nothing and prompts for nothing.
_QUIET: Final = {
    "LC_ALL": "C",
    "GIT_TERMINAL_PROMPT": "0",
    "GIT_OPTIONAL_LOCKS": "0",
    "GIT_NO_LAZY_FETCH": "1",
    "GIT_NO_REPLACE_OBJECTS": "1",
    "GIT_ALLOW_PROTOCOL": "none",
}
#: For the queries that need the repository's own configuration: its location and its settings.
_ASKING: Final = ("--no-pager", "-c", "core.fsmonitor=false", "-c", "core.hooksPath=/dev/null")


class GitError(Exception):
    """git did not answer; the text says why."""


class TooManyFilesError(GitError):
    """A work tree has more files than hpcflow lists."""


@dataclass(frozen=True)
class Repository:
    """A work tree, and what git keeps about it.

    Attributes:
        commit: the commit that is checked out.
        git_dir: the folder of this work tree's index.
        objects: the folder of all objects.
        top: the work tree.
        settings: the keys that are used of its configuration.
    """

    commit: str
    git_dir: Path
    objects: Path
    top: Path
    settings: Mapping[str, str]


def find_repository(folder: Path) -> Repository | None:
    """Return the repository whose work tree holds ``folder``; None without one, or without commit.

    Raises:
        GitError: git refuses it, as it does with a repository of another user, or hangs.
    """
    here = folder.resolve()
    # This is faster than starting git.
    if not any(os.path.lexists(f"{each}/.git") for each in _up(here)):
        return None
    try:
        answer = _git(
            folder,
            *(*_ASKING, "rev-parse", "HEAD", "--absolute-git-dir", "--git-path", "objects"),
            "--show-toplevel",
            environment=_environment(),
        )
    except GitError as error:
        if any(word in str(error) for word in _SAYS_NOTHING):
            raise
        return None
    lines = answer.decode("utf-8", "surrogateescape").split("\n")[:-1]
    if len(lines) != 4:  # a newline in a path
        return None
    commit, git_dir, objects, top = lines[0], Path(lines[1]), folder / lines[2], Path(lines[3])
    # `core.worktree` could name any folder; accept only one that contains ``folder``.
    if not (here == top or top in here.parents) or not os.path.lexists(top / ".git"):
        return None
    return Repository(commit, git_dir, objects.resolve(), top, _settings(folder))


def difference(repository: Repository, folder: Path, max_bytes: int) -> bytes:
    """Return the diff between the commit and the tracked files below ``folder``.

    It is cut to one byte more than ``max_bytes``. Binary files are only named.
    """
    with _own_git_dir(repository) as environment:
        answer = _git(
            folder,
            *("--no-pager", "-c", "core.quotePath=false", *_threads(), "diff", "--patch-with-raw"),
            *("--no-ext-diff", "--no-textconv", "--no-color"),
            # To find changes in a submodule, git would read the submodule's configuration.
            *("--full-index", "--ignore-submodules=dirty", "HEAD", "--", "."),
            environment=environment,
            max_bytes=max_bytes + _MAX_NAMES_BYTES,
        )
    if len(answer) > max_bytes + _MAX_NAMES_BYTES:
        return answer[: max_bytes + 1]
    lines, _, diff = answer.partition(b"\n\n")
    for path in (each for line in lines.splitlines() for each in line.split(b"\t")[1:]):
        # git would read any file that an index of another user names.
        if not _NO_NAMES.isdisjoint(path.strip(b'"').lower().split(b"/")):
            raise GitError(f"git's index names a file elsewhere: {path.decode(errors='replace')}")
    return diff[: max_bytes + 1]


@dataclass(frozen=True)
class Listing:
    """The names in a work tree, relative to its top.

    Attributes:
        files: tracked and untracked files that git does not ignore. Some may be missing, and some
            are folders that are repositories of their own, perhaps with a ``/`` at the end.
        ignored: what git ignores; a folder that it ignores as a whole is one name. Of very many,
            the first.
    """

    files: tuple[str, ...]
    ignored: tuple[str, ...]


def list_files(top: Path, repository: Repository | None) -> Listing:
    """List the folder ``top``, the work tree of ``repository``, or of none.

    Without a repository, ``.gitignore`` files apply all the same, if git is installed.

    Raises:
        TooManyFilesError: there are too many files.
    """
    if shutil.which("git") is None and not any((each / ".git").exists() for each in _up(top)):
        return Listing(tuple(islice(_walk(top), _MAX_WALKED)), ())
    files = [each for each in _exclude_files(repository) if each.is_file()]
    ignoring = ["--exclude-per-directory=.gitignore"]
    ignoring += [f"--exclude-from={each}" for each in files]
    found = []
    with _own_git_dir(repository or _empty_repository(top)) as environment:
        ignored = ("--others", "--ignored", "--directory")
        for which in (("--cached", "--others"), ignored):
            answer = _git(
                top,
                *("--no-pager", *_threads(), "ls-files", "-z", *which, *ignoring),
                environment=environment,
                max_bytes=_MAX_LIST_BYTES,
            )
            if len(answer) > _MAX_LIST_BYTES and which != ignored:
                raise TooManyFilesError(f"there are too many files in {top}")
            names = dict.fromkeys(answer.split(b"\0")[:-1])
            for name in names:
                if not _NO_NAMES.isdisjoint(name.rstrip(b"/").lower().split(b"/")):
                    raise GitError(f"git's index names a file elsewhere: {os.fsdecode(name)}")
            found.append(tuple(os.fsdecode(name) for name in names))
    return Listing(*found)


def _up(folder: Path) -> tuple[Path, ...]:
    return (folder, *folder.parents)


def _walk(top: Path) -> Iterator[str]:
    """Yield the names of all files below ``top``, as git does."""
    for folder, folders, names in os.walk(top):
        links = [name for name in folders if Path(folder, name).is_symlink()]
        folders[:] = [name for name in folders if name != "__pycache__"]
        for name in (*names, *links):
            yield Path(folder, name).relative_to(top).as_posix()


def _empty_repository(top: Path) -> Repository:
    return Repository("0" * 40, top / ".git", top, top, {})


def _exclude_files(repository: Repository | None) -> Iterator[Path]:
    """Yield the files with patterns that git would read, beside each ``.gitignore``."""
    if repository is not None:
        yield repository.objects.parent / "info/exclude"
    yield _own_exclude_file(os.environ.get("HOME"), os.environ.get("XDG_CONFIG_HOME"))


@lru_cache(maxsize=4)
def _own_exclude_file(_home: str | None, settings: str | None) -> Path:
    try:
        answer = _git(
            Path("/"),
            *(*_ASKING, "config", "--global", "--type=path", "--get", "core.excludesFile"),
            environment=_environment(),
        )
        return Path(os.fsdecode(answer).rstrip("\n"))
    except GitError:  # the user has named none
        return Path(settings or os.path.expanduser("~/.config"), "git/ignore")  # noqa: PTH111


@contextmanager
def _own_git_dir(repository: Repository) -> Iterator[dict[str, str]]:
    """Yield an environment in which git works on ``repository`` with hpcflow's configuration."""
    try:
        temporary = temporary_folder()
    except StorageError as error:
        raise GitError(error.message) from error
    with temporary as name:
        ours = Path(name)
        try:
            for part in ("objects", "refs"):
                (ours / part).mkdir()
            (ours / "HEAD").write_text(f"{repository.commit}\n")
            (ours / "config").write_text(_config(repository.settings))
            for shared in islice(repository.git_dir.glob("sharedindex.*"), _MAX_SHARED_INDEXES):
                (ours / shared.name).symlink_to(shared)
        except OSError as error:
            raise GitError(str(error)) from error
        yield _environment() | {
            "HOME": name,
            "XDG_CONFIG_HOME": name,
            "GIT_CONFIG_GLOBAL": os.devnull,
            "GIT_CONFIG_SYSTEM": os.devnull,
            "GIT_CONFIG_NOSYSTEM": "1",
            "GIT_ATTR_NOSYSTEM": "1",
            "GIT_DIR": name,
            "GIT_WORK_TREE": str(repository.top),
            "GIT_OBJECT_DIRECTORY": str(repository.objects),
            "GIT_INDEX_FILE": str(repository.git_dir / "index"),
        }


def _threads() -> tuple[str, ...]:
    """Return options: one thread reads the index; if stacks are large, one looks at the files.

    Many look at them faster if the file system is cold.
    """
    stack_bytes, _ = resource.getrlimit(resource.RLIMIT_STACK)  # -1: unlimited, then it is 2 MiB
    preload = "false" if stack_bytes > _MAX_STACK_BYTES else "true"
    return ("-c", "index.threads=1", "-c", f"core.preloadIndex={preload}")


def _settings(folder: Path) -> dict[str, str]:
    try:
        answer = _git(
            folder,
            *(*_ASKING, "config", "-z", "--get-regexp", _KEPT),
            environment=_environment(),
        )
    except GitError as error:
        if _NO_ANSWER in str(error):
            raise
        return {}
    found = {}
    for item in answer.decode("utf-8", "replace").split("\0"):
        key, _, value = item.partition("\n")
        if re.fullmatch(r"[a-z]+\.[a-z]+", key) and re.fullmatch(r"[A-Za-z0-9]+", value):
            found[key] = value
    return found


def _config(settings: Mapping[str, str]) -> str:
    version = 1 if "extensions.objectformat" in settings else 0
    lines = [f"[core]\nrepositoryformatversion = {version}\nbare = false\n"]
    for key, value in settings.items():
        section, _, name = key.partition(".")
        lines.append(f"[{section}]\n{name} = {value}\n")
    return "".join(lines)


def _environment() -> dict[str, str]:
    names = (*_INHERITED, *_INHERITED_OF_GIT)
    return {name: os.environ[name] for name in names if name in os.environ} | _QUIET


def _git(
    folder: Path,
    *args: str,
    environment: Mapping[str, str],
    max_bytes: int = _MAX_ANSWER_BYTES,
) -> bytes:
    """Return the output of git, cut to one byte more than ``max_bytes``."""
    is_late = threading.Event()

    def stop() -> None:
        is_late.set()
        process.kill()

    try:
        errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed below
    except OSError as error:
        raise GitError(f"{_NO_FILE}: {error.strerror}") from error
    with errors:
        try:
            process = subprocess.Popen(
                ["git", *args],
                cwd=folder,
                env=dict(environment),
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=errors,
            )
        except OSError as error:
            raise GitError(f"git cannot be started: {error.strerror}") from error
        with suppress(OSError):  # it has ended
            resource.prlimit(process.pid, resource.RLIMIT_DATA, (_MAX_DATA_BYTES,) * 2)
        timer = threading.Timer(_TIMEOUT_S, stop)
        timer.daemon = True
        with process:
            timer.start()
            try:
                assert process.stdout is not None
                answer = process.stdout.read(max_bytes + 1)
                if len(answer) > max_bytes:
                    process.kill()
                    return answer
                status = process.wait()
            finally:
                timer.cancel()
        if is_late.is_set():
            raise GitError(f"git {_NO_ANSWER} within {_TIMEOUT_S:.0f} s")
        if status != 0:
            errors.seek(0)
            message = errors.read(_MAX_ANSWER_BYTES).decode("utf-8", "replace").strip()
            raise GitError(f"git {_TOO_LARGE}" if "Out of memory" in message else message)
        return answer
