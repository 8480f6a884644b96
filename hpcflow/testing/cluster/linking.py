"""Link or copy files to another folder: hard links if everyone can read them, else copies."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

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
