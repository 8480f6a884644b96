"""Place the next attempt of a run: to submit it, and to check whether a budget has room for it."""

from __future__ import annotations

from hpcflow.model.run import Run
from hpcflow.sites.placement import Placement, place
from hpcflow.sites.schema import Site


def next_placement(run: Run, site: Site, mem_mb: int | None) -> Placement:
    """Return the placement of the next attempt.

    Args:
        mem_mb: memory on every node, instead of what the run requests.

    Raises:
        SpecError: the run does not fit its site any more.
    """
    spec = run.spec
    if mem_mb is not None:
        resources = spec.resources.model_copy(update={"mem_mb": mem_mb})
        spec = spec.model_copy(update={"resources": resources})
    return place(spec, site, prefer=run.partition)
