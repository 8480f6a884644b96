"""Render the script of an array: runs with equal requests, submitted with one sbatch."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from hpcflow.rendering.directives import NO_LOG
from hpcflow.rendering.integrity import IntegrityCheck
from hpcflow.rendering.templates import render

LAYOUT: Final = "array.sbatch.j2"
_MARK: Final = "#SBATCH "
#: Options that each script has for itself.
_OWN: Final = ("--job-name=", "--output=out.log")


def common_directives(scripts: Sequence[str]) -> list[str] | None:
    """Return the ``#SBATCH`` options that all scripts have; None if they differ."""
    asked = [_directives(script) for script in scripts]
    return asked[0] if all(each == asked[0] for each in asked) else None


def render_array(
    name: str,
    directives: Sequence[str],
    folder: Path,
    scripts: Sequence[str],
    *,
    integrity: IntegrityCheck,
    template_dirs: Sequence[Path] = (),
    compiled: Path | None = None,
) -> str:
    """Return the script of an array.

    Args:
        directives: from :func:`common_directives`.
        folder: has a link to the folder of each attempt, named by the number of its task.
        scripts: the scripts of the tasks, by their number.
        integrity: what each task checks before it executes its script.
    """
    options = [
        *directives,
        f"--job-name={name}",
        f"--array=0-{len(scripts) - 1}",
        *([] if NO_LOG in directives else ["--output=%a/out.log"]),
    ]
    context = {
        "directives": options,
        "folder": str(folder),
        "count": len(scripts),
        "sums": [hashlib.sha256(script.encode()).hexdigest() for script in scripts],
        "integrity": integrity,
    }
    return render(LAYOUT, context, template_dirs, compiled)


def _directives(script: str) -> list[str]:
    lines = script.split("\n")[1:]
    header = []
    for line in lines:
        if not line.startswith(_MARK):
            break
        header.append(line.removeprefix(_MARK))
    return [option for option in header if not option.startswith(_OWN)]
