"""Render the job script of an attempt."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from pathlib import Path
from typing import Final

from hpcflow.model.run import Run
from hpcflow.rendering.context import Standby, make_job
from hpcflow.rendering.directives import START_CONDITIONS
from hpcflow.rendering.integrity import IntegrityCheck
from hpcflow.rendering.templates import render
from hpcflow.sites.placement import Placement
from hpcflow.sites.schema import Site

LAYOUT: Final = "job.sbatch.j2"


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
