"""Decide where a restored run goes, and how its frozen config changes for that place."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcflow.config import change_spec
from hpcflow.errors import InputError, SpecError, Where, shell_word
from hpcflow.launch.connecting import reference
from hpcflow.model.run import Mirror, Run
from hpcflow.model.spec import RunSpec
from hpcflow.placement.price import estimate_cost_usd
from hpcflow.placement.run_paths import require_plain, run_dir_on, variables
from hpcflow.restore.local import frozen
from hpcflow.settings import Settings
from hpcflow.sites.loader import is_site_file
from hpcflow.sites.mirror import mirror_of
from hpcflow.sites.placement import Placement, place
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import RunDir


@dataclass(frozen=True)
class Place:
    """The new place of a run.

    Attributes:
        run: as it is frozen there.
        before: as it was frozen at its earlier place; the same object unless it moves.
    """

    run_dir: RunDir
    run: Run
    before: Run

    @property
    def is_move(self) -> bool:
        return self.run is not self.before


def where_it_was(
    run: Run,
    run_dir: RunDir,
    url: str,
    *,
    site: str | None,
    mirror: Mirror | None,
) -> Place:
    """Return the earlier place of a run, which its link in the home names.

    Args:
        run: as the store has it.
        run_dir: that place.
        site: its site, if known; used if ``run.json`` is missing or damaged.
        mirror: the new mirror, if ``run.json`` is missing here.

    Raises:
        InputError: the run was moved to another place.
    """
    here = frozen(run_dir)
    if here is not None:
        is_ours = run.place_id in (here.place_id, here.place_before)
    else:
        is_site = run.site == site or (site is None and not is_site_file(run.site))
        is_ours = Path(run.run_dir) == run_dir.path and is_site
    if not is_ours:
        raise InputError(
            f"run {run.run_id} was moved: {url} has it in {run.run_dir}, on site {run.site}",
            next_action=f"continue it there; or take it back: hpcflow restore --from "
            f"{shell_word(url)}",
        )
    if here is None:
        here = mirrored_to(run, mirror)
    return Place(run_dir, here, here)


def mirrored_to(run: Run, mirror: Mirror | None) -> Run:
    """Return ``run`` with ``mirror`` instead of the untrusted mirror of the store."""
    own = mirror is not None and run.spec.mirror is not None
    spec = run.spec.model_copy(update={"mirror": mirror.url if mirror and own else None})
    return run.model_copy(update={"spec": spec, "mirror": mirror})


def moved(run: Run, before: Run) -> Run:
    """Return ``run`` with a new place, taken over from the place of ``before``."""
    update = {"place": secrets.token_hex(16), "place_before": before.place_id}
    return run.model_copy(update=update)


def place_on(
    site: Site,
    run: Run,
    *,
    settings: Settings,
    url: str,
    site_reference: str | None = None,
    overrides: Sequence[str] = (),
    working_dir: Path | None = None,
    mirror: Mirror | None = None,
) -> Place:
    """Return the place on ``site`` of a run from another cluster or user.

    The run is checked against this site, as ``hpcflow run`` does.

    Args:
        url: where it comes from, for errors.
        site_reference: name or file of the site; its name if None.
        overrides: as for ``--set``, over the frozen config.
        working_dir: working directory of its program; the earlier one if None.
        mirror: its new mirror, if this site has none.

    Raises:
        InputError: it does not fit this site, or its working directory does not exist here.
    """
    again = f"hpcflow restore --from {shell_word(url)}"
    try:
        spec = change_spec(_named_mirror(run.spec, url), overrides)
        placement = place(spec, site)
    except SpecError as error:
        error.next_action = (
            f"{error.next_action or 'change what it asks for'}; with: {again} --set KEY=VALUE; "
            f"see what site {site.name} has: hpcflow site show {shell_word(site.name)}"
        )
        raise
    folder = working_dir or Path(run.working_dir)
    if not folder.is_dir():
        raise InputError(
            f"the working directory {folder} of run {run.run_id} does not exist here",
            where=Where(key="--working-dir"),
            next_action=f"copy its code here and name the directory: {again} --working-dir FOLDER",
        )
    final = run_dir_on(site, settings, placement, spec.project, run.run_id)
    require_plain(final, folder)
    here = run.model_copy(
        update={
            "user": settings.user,
            "site": site_reference or reference(site, None),
            "run_dir": str(final),
            "working_dir": str(folder),
            "partition": placement.partition,
            "gpu_type": placement.gpu_type,
            "spec": spec,
            "mirror": _mirror(spec, site, settings, placement, mirror),
            "estimated_cost_usd": estimate_cost_usd(placement, run.created_at),
        }
    )
    return Place(settings.home.run_dir(final), moved(here, run), run)


def _named_mirror(spec: RunSpec, url: str) -> RunSpec:
    """Return ``spec`` without the mirror URL of the store, which is untrusted.

    A run that had its own mirror gets the one that the user gave with ``--from``.
    """
    if spec.mirror in (None, "never"):
        return spec.model_copy(update={"mirror": None})
    return spec.model_copy(update={"mirror": url.rpartition("/")[0]})


def _mirror(
    spec: RunSpec, site: Site, settings: Settings, placement: Placement, other: Mirror | None
) -> Mirror | None:
    if spec.mirror == "never":
        return None
    known = variables(settings)
    return mirror_of(spec, site, known, user=settings.user, account=placement.account) or other


def missing_environment(run: Run) -> list[str]:
    """Return warnings about paths of the run that do not exist on this machine."""
    environment = run.spec.environment
    named = {
        "environment.venv": environment.venv,
        "environment.conda": environment.conda if "/" in (environment.conda or "") else None,
        "script": run.spec.script if run.code is None else None,
        **{f"environment.secrets.{name}": path for name, path in environment.secrets.items()},
    }
    return [
        f"{key} is {path}, which is not on this machine"
        for key, path in named.items()
        if path is not None and not (Path(run.working_dir) / path).exists()
    ]
