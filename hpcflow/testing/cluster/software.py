"""Install hpcflow and its libraries where every user can run them: ``<folder>/software``.

A checkout and its ``.venv`` may be unreadable to ordinary users (below /root, in a private folder
of a CI). So the users get their own venv: the libraries are hard-linked from the project's venv,
and hpcflow is a wheel built from the tree. Each step is skipped if its input has not changed.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from hpcflow.errors import HpcflowError
from hpcflow.testing.cluster.files import make_directory, read_json, write_json

_SHIPPED = ("hpcflow", "templates", "site_configs", "sbatch", "docs", "examples", "setup.cfg",
            "pyproject.toml", "MANIFEST.in", "README.md", "LICENSE")  # fmt: skip
"""What is in the wheel or copied for the users; only changes of these build a new wheel."""


@dataclass(frozen=True)
class Software:
    venv: Path
    examples: Path
    sbatch: Path

    @property
    def bin(self) -> Path:
        return self.venv / "bin"

    @property
    def python(self) -> Path:
        return self.bin / "python"


def refresh(tree: Path, python: Path, target: Path) -> Software:
    """Update ``target`` from ``tree`` and the libraries of the venv of ``python``."""
    software = Software(target / "venv", target / "examples", target / "sbatch")
    make_directory(target)
    state = target / "state.json"
    done = read_json(state)
    libraries = _libraries_digest(python)
    if done.get("libraries") != libraries or not software.python.exists():
        state.unlink(missing_ok=True)
        _make_venv(python, software)
        done = {"libraries": libraries}
        write_json(state, done)
    sources = _sources_digest(tree)
    if done.get("sources") != sources:
        write_json(state, {"libraries": libraries})
        _install(tree, python, software)
        write_json(state, {"libraries": libraries, "sources": sources})
    return software


def _site_packages(venv: Path) -> Path:
    found = sorted(venv.glob("lib/python3*/site-packages"))
    if not found:
        raise HpcflowError(
            f"{venv} is not a virtual environment", next_action="create one: make venv"
        )
    return found[0]


def _venv_of(python: Path) -> Path:
    return python.parent.parent.absolute()


def _libraries_digest(python: Path) -> str:
    """Return a digest of the packages in the project's venv, except hpcflow."""
    packages = _site_packages(_venv_of(python))
    digest = hashlib.sha256(str(packages).encode())
    for info in sorted(packages.glob("*.dist-info")):
        if not info.name.startswith("hpcflow-"):
            digest.update(f"{info.name} {info.stat().st_mtime_ns}\n".encode())
    return digest.hexdigest()


def _shipped_files(tree: Path) -> Iterator[Path]:
    for name in _SHIPPED:
        top = tree / name
        for path in sorted(top.rglob("*")) if top.is_dir() else [top]:
            hidden = "__pycache__" in path.parts or path.name.endswith(".egg-info")
            if path.is_file() and not hidden:
                yield path


def _sources_digest(tree: Path) -> str:
    digest = hashlib.sha256(str(tree).encode())
    for path in _shipped_files(tree):
        content = hashlib.sha256(path.read_bytes()).hexdigest()
        digest.update(
            f"{path.relative_to(tree)} {path.stat().st_mode & 0o111} {content}\n".encode()
        )
    return digest.hexdigest()


def _make_venv(python: Path, software: Software) -> None:
    shutil.rmtree(software.venv, ignore_errors=True)
    base = _base_python(python)
    _run([base, "-m", "venv", "--without-pip", software.venv], "making the users' venv")
    project = _venv_of(python)
    link_libraries(_site_packages(project), _site_packages(software.venv))
    link_programs(project / "bin", software.bin)


def _base_python(python: Path) -> Path:
    """Return the base interpreter of the project's venv if others can run it, else Debian's."""
    question = "import sys; print(sys._base_executable); print(sys.version_info[:2])"
    base, version = _run([python, "-c", question], "asking Python").splitlines()
    for candidate in (Path(base).resolve(), Path("/usr/bin/python3")):
        if not _reachable_by_all(candidate):
            continue
        if _run([candidate, "-c", question], "asking Python").splitlines()[1] == version:
            return candidate
    raise HpcflowError(
        f"no Python {version} that ordinary users can run: {base} is in a private folder",
        next_action="create the project's venv from /usr/bin/python3",
    )


def _reachable_by_all(program: Path) -> bool:
    folders_open = all(folder.stat().st_mode & 0o001 for folder in program.parents)
    return program.exists() and folders_open and bool(program.stat().st_mode & 0o001)


def _install(tree: Path, python: Path, software: Software) -> None:
    """Build and install the wheel, from a copy: setuptools writes build/ and egg-info."""
    with tempfile.TemporaryDirectory(prefix="hpcflow-wheel-") as temporary:
        copy = Path(temporary) / "tree"
        for path in _shipped_files(tree):
            readable_copy(path, copy / path.relative_to(tree))
        pip: list[str | Path] = [python, "-m", "pip", "--disable-pip-version-check"]
        _run([*pip, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", temporary, copy],
             "building the wheel")  # fmt: skip
        (wheel,) = Path(temporary).glob("hpcflow-*.whl")
        _run([*pip, "--python", software.python, "install", "--no-deps", "--no-index",
              "--force-reinstall", wheel], "installing the wheel")  # fmt: skip
        for destination in (software.examples, software.sbatch):
            shutil.rmtree(destination, ignore_errors=True)
            make_directory(destination)
            source = copy / destination.name
            if source.is_dir():
                shutil.copytree(source, destination, dirs_exist_ok=True)


def _run(argv: list[str | Path], what: str) -> str:
    done = subprocess.run(
        [os.fspath(word) for word in argv], capture_output=True, text=True, umask=0o022
    )
    if done.returncode != 0:
        raise HpcflowError(
            f"{what} failed with {done.returncode}:\n{done.stdout[-1500:]}{done.stderr[-1500:]}",
            next_action="repeat it by hand: " + " ".join(os.fspath(word) for word in argv),
        )
    return done.stdout


_OURS = ("hpcflow", "__editable__")
_NOT_PROGRAMS = ("python", "activate", "Activate", "pip", "hpcflow")


def link_libraries(source: Path, target: Path) -> None:
    """Link all packages of a site-packages folder except hpcflow, which is a wheel."""
    for folder, names, files in os.walk(source):
        here = target / Path(folder).relative_to(source)
        if Path(folder) == source:
            names[:] = [name for name in names if not name.startswith(_OURS)]
            files = [name for name in files if not name.startswith(_OURS)]
        here.mkdir(mode=0o755, exist_ok=True)
        for name in files:
            _link(Path(folder, name), here / name)


def link_programs(source: Path, target: Path) -> None:
    """Copy the console scripts of a venv so that they start the Python of the other venv."""
    old, new = f"#!{source}/python".encode(), f"#!{target}/python".encode()
    for program in source.iterdir():
        if program.name.startswith(_NOT_PROGRAMS) or not program.is_file():
            continue
        content = program.read_bytes()
        if content.startswith(old):
            copy = target / program.name
            copy.write_bytes(content.replace(old, new, 1))
            copy.chmod(0o755)
        else:
            _link(program, target / program.name)


def readable_copy(source: Path, target: Path) -> None:
    """Copy a file so that everyone can read it, independent of the checkout's umask."""
    target.parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    shutil.copyfile(source, target)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)


def _link(source: Path, target: Path) -> None:
    if source.stat().st_mode & 0o004:
        try:
            os.link(source, target)
            return
        except OSError:
            pass  # another file system, or one without hard links
    shutil.copy2(source, target)
    target.chmod(0o755 if source.stat().st_mode & 0o100 else 0o644)
