"""Find the code that a run executes: the files of its snapshot, and what is read live.

A word of the command or its arguments that names a source file is replaced by the snapshot's file.
All else is read from the working directory, where the program runs.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final, Protocol

from hpcflow.errors import SpecError, StorageError, Where
from hpcflow.model.execution import CodeMode
from hpcflow.model.run import CodeSnapshot, Run
from hpcflow.provenance.code_state import CodeState, code_state, why_no_git
from hpcflow.provenance.git import GitError, find_repository
from hpcflow.provenance.snapshot import Taken, take
from hpcflow.rendering.arguments import MODULE, command_words, is_python_module, program_words
from hpcflow.settings import Settings
from hpcflow.storage.code_snapshot import (
    CodeTree,
    add_code,
    folders_above,
    has_code,
    read_archive,
    read_shared,
)
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import make_folders
from hpcflow.storage.layout import RunDir

#: Files of these kinds are programs, not data that a program may write.
_PROGRAM: Final = re.compile(r".+\.(?:py|sh|bash|zsh|R|r|jl|pl|lua|rb|js|m)")
#: The name of such a file in what a shell executes, relative to the working directory.
_IN_SHELL: Final = re.compile(
    r"(?<![\w./$}-])(?:\./)?\w[\w./-]*\.(?:py|sh|bash|zsh|R|r|jl|pl|lua|rb|js)\b"
)
_SHELL_SCRIPT: Final = re.compile(rb"#!.*\b(?:ba|z|da)?sh\b")
_PACKAGES: Final = frozenset({"pyproject.toml", "setup.py", "setup.cfg"})


def code_folder(run: Run) -> Path | None:
    """Return the folder that has the code of ``run``; None if its program is installed software.

    It is the working directory, or the folder of a script that is elsewhere.
    """
    working_dir = Path(run.working_dir)
    if run.spec.script is not None:
        script = Path(run.spec.script)
        return working_dir if script.is_relative_to(working_dir) else script.parent
    programs = [working_dir / path for _, path in _program_words(run, _is_program)]
    if any(Path(os.path.normpath(each)).is_relative_to(working_dir) for each in programs):
        return working_dir
    try:
        return working_dir if find_repository(working_dir) is not None else None
    except GitError:
        return working_dir  # take() says why


def no_code(run: Run, settings: Settings) -> tuple[Path, ...]:
    """Return the folders of hpcflow, which are never code."""
    return settings.home.path, Path(run.run_dir).parents[1]


def state_of(run: Run, taken: Taken | None) -> CodeState:
    """Return the git commit of the code of ``run``, and what was not committed."""
    working_dir = Path(run.working_dir)
    if taken is None or run.code is None:
        return code_state(working_dir)
    if taken.state is not None:
        return taken.state
    is_in = working_dir.resolve().is_relative_to(taken.root)
    folder = working_dir if is_in else taken.root
    return code_state(folder, run.code.digest)


def frozen_code(
    run: Run, *, excluded: Sequence[Path], taken: Taken | None = None
) -> tuple[Run, Taken | None, list[str]]:
    """Return ``run`` with a snapshot of its code, if it asks for one; the snapshot; and warnings.

    Args:
        excluded: as for :func:`take`.
        taken: the snapshot that a sweep has; None for one of now.

    Raises:
        SpecError: the code is too large, or cannot be read.
    """
    live = run.model_copy(update={"code": None})
    if run.spec.code is CodeMode.LIVE:
        return live, None, []
    if taken is None:
        folder = code_folder(run)
        if folder is None:
            return live, None, []
        try:
            taken = take(folder, excluded=excluded, is_mirrored=run.mirror is not None)
        except GitError as error:
            why = why_no_git(folder, error)
            what = f"no code snapshot, so each attempt reads the code in {folder} when it starts"
            return live, None, [f"{what}: {why}"]
        except OSError as error:
            raise SpecError(
                f"the code of the run cannot be read: {error}",
                where=Where(key="code"),
                next_action="correct that, name it in .gitignore, or write `code: live`",
            ) from error
    code, warnings = snapshot_of(run, taken)
    return run.model_copy(update={"code": code}), taken, [*taken.warnings, *warnings]


def renew_code(run_dir: RunDir, run: Run, *, excluded: Sequence[Path]) -> None:
    """Make the snapshot of ``run`` again, if scratch has lost a part of it: from its archive, or
    from the code itself, if that has not changed.

    Raises:
        StorageError: it is lost, and the code has changed; or scratch cannot be read or written.
    """
    if run.code is None:
        return
    with storage_errors("make the code snapshot of", run_dir.path):
        if has_code(run_dir, run.code.digest):
            return
        code = own_code(run_dir, run, run.code, excluded=excluded)
        make_folders(run_dir.code)
        add_code(run_dir.code, run_dir.path.parent.parent, code)


def own_code(
    run_dir: RunDir, run: Run, code: CodeSnapshot, *, excluded: Sequence[Path]
) -> CodeTree:
    """Return the snapshot ``code`` of ``run``: from its archive; from the code itself, if that has
    not changed; or from another run of the same code.

    Raises:
        StorageError: it is lost, and the code has changed; or it cannot be read.
    """
    with storage_errors("read the code snapshot of", run_dir.path):
        tree = read_archive(run_dir.code, code.digest)
        if tree is None and (folder := code_folder(run)) is not None:
            with suppress(GitError, SpecError, OSError):
                now = take(folder, excluded=excluded, is_mirrored=run.mirror is not None).tree
                tree = now if now.digest == code.digest else None
        tree = tree or read_shared(run_dir, code.digest)
    if tree is None:
        raise StorageError(
            f"scratch has lost the code snapshot of run {run.run_id}, and the code in {code.root} "
            "has changed since",
            next_action=f"if the run was mirrored: hpcflow restore {run.run_id}; to continue with "
            f"the present code: hpcflow resume {run.run_id} --set code=snapshot",
        )
    return tree


def snapshot_of(run: Run, taken: Taken) -> tuple[CodeSnapshot, list[str]]:
    """Return what ``run.json`` keeps of a snapshot, and warnings about code that is read live."""
    names, inside = taken.names, taken.tree.files
    working_dir = Path(run.working_dir)
    folder = _name_of(working_dir.resolve(), taken.root)
    folders = _folders(run)

    def is_program(path: Path, *, executable: bool) -> bool:
        """Return whether a file is in the snapshot, or exists now."""
        name = _name_of(path, taken.root)
        if name in names:
            return not executable or (name in inside and inside[name].is_executable)
        return _is_program(path, executable=executable)

    files, live = {}, []
    for word, path in dict(_program_words(run, is_program)).items():
        name = _name_of(working_dir / path, taken.root)
        if name is not None and (name in names or word in folders):
            files[word] = name
        elif word == run.spec.script or _PROGRAM.fullmatch(Path(path).name):
            live.append(
                f"{word.removeprefix(MODULE)} is not part of the code snapshot: git ignores it, "
                "or it is in another folder; each attempt reads it when it starts"
            )
    live += _live_folders(run, taken)
    live += _live_modules(run, taken)
    live += _live_in_shell(run, taken, files)
    paths = (*_python_path(run, taken), *_package_roots(names, folder or ".", files.values()))
    code = CodeSnapshot(
        digest=taken.tree.digest,
        root=str(taken.root),
        folder=folder or ".",
        files=files,
        paths=list(dict.fromkeys(paths)),
    )
    return code, live


def _live_modules(run: Run, taken: Taken) -> Iterator[str]:
    """Yield a warning for each module that a launcher imports from the working directory."""
    words = program_words(run)
    for index, word in enumerate(words):
        if words[index - 1 : index] == ["-m"] and not is_python_module(words, index):
            files = (Path(run.working_dir, file) for file in _module_files(word))
            if not taken.names.isdisjoint(_name_of(file, taken.root) for file in files):
                yield (
                    f"each attempt imports {word} from the working directory, as it is then; to "
                    f"execute the code snapshot, write `command: [python, -m, {word}]` and "
                    "launch.launcher"
                )


def _module_files(module: str) -> tuple[str, str]:
    below = module.replace(".", "/")
    return f"{below}.py", f"{below}/__main__.py"


def _python_path(run: Run, taken: Taken) -> Iterator[str]:
    folders = taken.tree.folders()
    return (name for _, name in _on_python_path(run, taken) if name in folders)


def _live_folders(run: Run, taken: Taken) -> Iterator[str]:
    """Yield a warning for each folder in PYTHONPATH that should be part of the snapshot."""
    folders = taken.tree.folders()
    for entry, name in _on_python_path(run, taken):
        if name not in folders and (taken.root / name).is_dir():
            yield (
                f"{entry} in PYTHONPATH is not part of the code snapshot, and each attempt imports "
                "from it as it is then: git ignores it"
            )


def _on_python_path(run: Run, taken: Taken) -> Iterator[tuple[str, str]]:
    """Yield what the config names in PYTHONPATH, and its name below the root of the snapshot."""
    for entry in filter(None, run.spec.environment.variables.get("PYTHONPATH", "").split(":")):
        path = Path(os.path.realpath(Path(run.working_dir, entry)))
        if (name := _name_of(path, taken.root)) is not None:
            yield entry, name


def _live_in_shell(run: Run, taken: Taken, files: Mapping[str, str]) -> Iterator[str]:
    """Yield a warning for each program that a shell executes from the working directory."""
    texts = "\n".join(_shell_texts(run, taken, files))
    for found in dict.fromkeys(_IN_SHELL.findall(texts)):
        if _name_of(Path(run.working_dir, found), taken.root) in taken.names:
            yield (
                f"each attempt executes {found} from the working directory, as it is then; to "
                f'execute the code snapshot, write: "$HPCFLOW_CODE/{found.removeprefix("./")}"'
            )


def _shell_texts(run: Run, taken: Taken, files: Mapping[str, str]) -> Iterator[str]:
    """Yield what a shell executes: words such as that after ``bash -c``, and shell scripts."""
    commands = (run.spec.command or (), *run.spec.before, *run.spec.after)
    yield from run.spec.environment.setup
    yield from (word for words in commands for word in words if " " in word and word not in files)
    for name in files.values():
        if name in taken.tree.files:
            data = taken.tree.files[name].data
            if _SHELL_SCRIPT.match(data) or name.endswith((".sh", ".bash", ".zsh")):
                yield data.decode("utf-8", "replace")


def _name_of(path: Path, root: Path) -> str | None:
    """Return the name of ``path`` below ``root``; None if it is not there."""
    # As texts: it is called several times for each of a thousand trials.
    full = f"{os.path.realpath(path.parent).rstrip('/')}/{path.name}"
    if full == str(root):
        return "."
    above = f"{str(root).rstrip('/')}/"
    return full.removeprefix(above) if full.startswith(above) else None


def _package_roots(names: frozenset[str], folder: str, files: Iterable[str]) -> Iterator[str]:
    """Yield the folders that an editable installation of the code adds to ``sys.path``."""
    above = {"."}
    for name in (f"{folder}/x", *files):
        above.update(folders_above(name))
    for each in sorted(name for name in above if ":" not in name):
        prefix = "" if each == "." else f"{each}/"
        if any(f"{prefix}{name}" in names for name in _PACKAGES):
            source = f"{prefix}src"
            yield source if any(name.startswith(f"{source}/") for name in names) else each


class _IsProgram(Protocol):
    def __call__(self, path: Path, *, executable: bool) -> bool:
        """Return whether a file is there, and can be executed if it has to."""


def _is_program(path: Path, *, executable: bool) -> bool:
    try:
        return path.is_file() and (not executable or os.access(path, os.X_OK))
    except (OSError, ValueError):  # no path
        return False


def _program_words(run: Run, is_program: _IsProgram) -> Iterator[tuple[str, str]]:
    """Yield each word that names a file of the program, and its path from the working directory."""
    if run.spec.script is not None:
        yield run.spec.script, run.spec.script
    yield from _files_of(program_words(run), len(run.spec.program), run, is_program)
    for words in (*command_words(run, "before"), *command_words(run, "after")):
        yield from _files_of(words, len(words), run, is_program)
    for path in _folders(run):
        yield path, path


def _files_of(
    words: list[str], of_program: int, run: Run, is_program: _IsProgram
) -> Iterator[tuple[str, str]]:
    """Yield the files that a command names; its first ``of_program`` words are no arguments."""
    working_dir = Path(run.working_dir)
    for index, word in enumerate(words):
        if is_python_module(words, index):
            for path in _module_files(word):
                if is_program(working_dir / path, executable=False):
                    yield f"{MODULE}{word}", path
                    break
            continue
        path = word.partition(":")[0] if ".py:" in word else word
        full = working_dir / path
        is_here = index < of_program and "/" in path and full.is_relative_to(working_dir)
        may_be_binary = is_here and (index == 0 or not full.suffix)
        is_source = index > 0 and _PROGRAM.fullmatch(full.name) is not None
        if (is_source and is_program(full, executable=False)) or (
            may_be_binary and is_program(full, executable=True)
        ):
            yield path, path


def _folders(run: Run) -> list[str]:
    """Return the folders that a function of :mod:`hpcflow.sweeps.call` finds its modules in."""
    words = run.spec.command or []
    if "hpcflow.sweeps.call" not in words:
        return []
    return words[words.index("hpcflow.sweeps.call") + 3].split(":")
