"""A healthy project, one or more places of it damaged, and the commands that people type then."""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tests.soak.findings import Findings
from tests.soak.outside import Outside
from tests.soak.project import Project, shared_project
from tests.soak.typed import Try, warm_up

_COMMANDS_A_TRY: Final = 5
#: ``RUN`` and ``SWEEP`` stand for those of the try.
COMMANDS: Final = (
    "ls --all", "show RUN", "history RUN", "why RUN", "logs RUN", "checkpoint ls RUN",
    "checkpoint verify RUN", "checkpoint show RUN 200", "checkpoint prune RUN", "scratch",
    "ledger check", "ledger rebuild", "daemon --once", "daemon status", "sweep ls --all",
    "sweep status SWEEP", "sweep trials SWEEP", "sweep best SWEEP", "sweep export SWEEP",
    "sweep tick", "mirror --once", "mirror status", "mirror verify RUN", "restore RUN",
    "cost report", "cost wasted", "cost audit", "efficiency RUN", "efficiency --by project",
    "budget ls", "budget show project:vision", "nodes", "limits", "hold RUN", "release RUN",
    "cancel RUN", "resume RUN", "resume-path RUN", "purge and restore RUN", "site show devcluster",
)  # fmt: skip
#: Without these there is nothing; and a link in their place, the user's own, is followed.
_AS_A_WHOLE: Final = frozenset(
    {"scratch/hpcflow", "scratch/hpcflow/vision", "user/home", "user/home/runs"}
)  # fmt: skip


def run(folder: Path, findings: Findings, numbers: Sequence[int]) -> None:
    """Each try: damage, some commands, the oracle."""
    project, outside = shared_project(folder.parent), Outside(folder / "outside")
    warm_up(project)
    for number in numbers:
        this = Try(project, outside, findings.dice(number), findings)
        places = _places(project)
        for _ in range(this.dice.choice((1, 1, 1, 2, 4))):
            path = this.dice.choice(places[this.dice.choice(sorted(places))])
            if os.path.lexists(path) and path not in this.hurt:
                this.damage(path)
        this.listed()
        for command in this.dice.sample(COMMANDS, _COMMANDS_A_TRY):
            this.type(command)
        this.exactly_once()
        project.reset()
        findings.progress(len(numbers))


def _places(project: Project) -> dict[str, list[Path]]:
    """What can be damaged, by what it is: there are many more files of some kinds."""
    found: dict[str, list[Path]] = {}
    for path in sorted(project.folder.rglob("*"), key=project.role_of):
        parts = path.relative_to(project.folder).parts
        kind = parts[0]
        if kind == "slurm" or len(parts) < 2 or "/".join(parts) in _AS_A_WHOLE:
            continue
        if parts[-1].endswith(".yaml"):
            continue
        if kind == "user" and len(parts) > 2:
            named = parts[2] if len(parts) > 3 else "home"
            kind = f"{named} folder" if path.is_dir() and not path.is_symlink() else named
        elif kind == "scratch" and len(parts) > 3:
            kind = "run" if len(parts) == 5 else parts[4] if len(parts) > 5 else "run folder"
            if len(parts) == 6 and parts[4] == "checkpoints":
                kind = "checkpoint folder"
        if "runtime" in parts:
            kind = "runtime"
        found.setdefault(kind, []).append(path)
    return found
