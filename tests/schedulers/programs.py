"""Programs that stand in for Slurm's: real processes on PATH that print what they are told to."""

from __future__ import annotations

import shlex
from pathlib import Path

import pytest


def install(
    monkeypatch: pytest.MonkeyPatch,
    folder: Path,
    name: str,
    *,
    stdout: str = "",
    stderr: str = "",
    exit_code: int = 0,
    then: str = "",
) -> Path:
    """Put a program before all others on PATH; it writes its arguments to ``NAME.argv``."""
    programs = folder / "programs"
    programs.mkdir(exist_ok=True)
    program = programs / name
    argv = programs / f"{name}.argv"
    program.write_text(
        "#!/bin/bash\n"
        f"printf '%s\\0' \"$@\" > {shlex.quote(str(argv))}\n"
        f"env -0 > {shlex.quote(str(programs / f'{name}.environment'))}\n"
        f"printf %s {shlex.quote(stdout)}\nprintf %s {shlex.quote(stderr)} >&2\n{then}\n"
        f"exit {exit_code}\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{programs}:/usr/bin:/bin")
    return argv


def arguments(argv: Path) -> list[str]:
    """What the program was called with."""
    return argv.read_text().split("\0")[:-1]


def environment(argv: Path) -> dict[str, str]:
    """What the program found in its environment."""
    pairs = argv.with_suffix(".environment").read_text().split("\0")[:-1]
    return dict(pair.split("=", 1) for pair in pairs)
