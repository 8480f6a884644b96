"""Render the job script of an attempt, and that of an array: runs with equal requests.

Each begins with an integrity check, before it uses anything on scratch.
"""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.model.run import Run
from hpcflow.model.state import UNTRUSTED_EXIT_CODE
from hpcflow.ownership import Trust, is_open_to_others
from hpcflow.rendering.context import Standby, make_job
from hpcflow.rendering.directives import NO_LOG, START_CONDITIONS
from hpcflow.rendering.templates import render
from hpcflow.runtime.creators import private_groups
from hpcflow.sites.placement import Placement
from hpcflow.sites.schema import Site

LAYOUT: Final = "job.sbatch.j2"
_ARRAY_LAYOUT: Final = "array.sbatch.j2"
_MARK: Final = "#SBATCH "
#: Options that each script has for itself.
_OWN: Final = ("--job-name=", "--output=out.log")
#: The checksum of no file.
NO_COMPILED: Final = hashlib.sha256(b"").hexdigest()


@dataclass(frozen=True)
class IntegrityCheck:
    """The users and groups that a job trusts, and the checksum that it expects.

    Attributes:
        users: ids of users who may own directories on the path, besides root and the job's user.
        groups: ids of groups that may write to them.
        runtime_sum: the checksum of ``runtime/``, from hpcflow.storage.runtime_copy.
        compiled_sum: the same of the compiled files in it; the job removes others.
        opens_log: whether the script opens its log itself, after the check. Slurm opens a log and
            enters a directory before the script can check anything.
    """

    users: tuple[int, ...] = ()
    groups: tuple[int, ...] = ()
    runtime_sum: str = ""
    compiled_sum: str = NO_COMPILED
    opens_log: bool = False

    @property
    def exit_code(self) -> int:
        """The exit code of a job that does not trust its run directory."""
        return UNTRUSTED_EXIT_CODE


def make_integrity_check(
    folder: Path, trust: Trust, runtime_sum: str = "", compiled_sum: str = NO_COMPILED
) -> IntegrityCheck:
    """Return the integrity check for a job that writes its log below ``folder``."""
    groups = trust.groups | private_groups()
    return IntegrityCheck(
        tuple(sorted(trust.users)),
        tuple(sorted(groups)),
        runtime_sum,
        compiled_sum,
        opens_log=is_open_to_others(folder, trust),
    )


def render_job(
    run: Run,
    site: Site,
    placement: Placement,
    *,
    attempt: int,
    resume_from: str | None,
    integrity: IntegrityCheck,
    excluded: Sequence[str] = (),
    start_conditions: Collection[str] = START_CONDITIONS,
    standby: Standby | None = None,
    mtbf_s: int | None = None,
    template_dirs: Sequence[Path] = (),
    compiled: Path | None = None,
) -> str:
    """Return the script of attempt ``attempt`` of ``run``: the same for the same arguments.

    Args:
        attempt: counted from 1.
        resume_from: the newest complete checkpoint known now, relative to the run directory. The
            script prefers a newer one that it finds when it starts.
        integrity: what the job checks before it uses its run directory.
        excluded: nodes to exclude, besides those that the run names.
        start_conditions: which of ``dependency`` and ``begin`` apply to this attempt.
        standby: the job that this job waits for; None for none.
        mtbf_s: mean time to an unplanned end of the job, for ``checkpoint.interval: auto``.
        template_dirs: folders whose files override the shipped templates of the same name.
        compiled: the file with compiled templates.

    Raises:
        SpecError: the run has a value that cannot be in a script, such as ``{{ params.x }}``
            without an ``x``.
        InputError: a template is wrong.
    """
    job = make_job(
        run,
        site,
        placement,
        attempt=attempt,
        resume_from=resume_from,
        opens_log=integrity.opens_log,
        excluded=excluded,
        start_conditions=start_conditions,
        standby=standby,
        mtbf_s=mtbf_s,
    )
    context = {"run": run, "site": site, "placement": placement, "job": job, "integrity": integrity}
    return render(LAYOUT, context, template_dirs, compiled)


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
    return render(_ARRAY_LAYOUT, context, template_dirs, compiled)


def _directives(script: str) -> list[str]:
    lines = script.split("\n")[1:]
    header = []
    for line in lines:
        if not line.startswith(_MARK):
            break
        header.append(line.removeprefix(_MARK))
    return [option for option in header if not option.startswith(_OWN)]
