"""Decide where a restored run goes, and what has to change so that it runs there."""

from __future__ import annotations

import secrets
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from hpcflow.config import change_spec
from hpcflow.errors import InputError, SpecError, Where, shell_word
from hpcflow.launch.connecting import reference
from hpcflow.launch.places import require_plain, run_dir_on, variables
from hpcflow.launch.price import estimate_cost_usd
from hpcflow.model.run import Mirror, Run
from hpcflow.model.spec import RunSpec
from hpcflow.restore.local import frozen
from hpcflow.settings import Settings
from hpcflow.sites.loader import is_site_file
from hpcflow.sites.mirror import mirror_of
from hpcflow.sites.placement import Placement, place
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import RunDir


@dataclass(frozen=True)
class Place:
    """Where a run is to be, and what it is there.

    Attributes:
        run: as it is frozen there.
        before: as it was frozen where it comes from; the same unless it moves.
    """

    run_dir: RunDir
    run: Run
    before: Run

    @property
    def is_move(self) -> bool:
        return self.run is not self.before


def where_it_was(
    run: Run,
    linked: Path,
    url: str,
    *,
    site: str | None,
    is_known: bool,
    mirror: Mirror | None,
) -> Place:
    """The place that the run had, which its link in the home still names.

    Args:
        run: as the store has it.
        site: where it was here, as far as anybody knows; asked where ``run.json`` is gone, or is
            damaged.
        is_known: whether the store's ``run.json`` is what was frozen here.
        mirror: where the run is mirrored from now on, if it is not and there is none here.

    Raises:
        InputError: the run has gone to another place since.
        StorageError: what is frozen here cannot be read.
    """
    run_dir = RunDir(linked)
    here = frozen(run_dir)
    if here is not None:
        is_ours = run.place_id in (here.place_id, here.place_before)
    else:
        is_site = run.site == site or (site is None and not is_site_file(run.site))
        is_ours = Path(run.run_dir) == linked and (is_known or is_site)
    if not is_ours:
        raise InputError(
            f"run {run.run_id} is not of this place any more: {url} has it in {run.run_dir}, on "
            f"site {run.site}",
            next_action=f"continue it there; or take it back: hpcflow restore --from "
            f"{shell_word(url)}",
        )
    if here is None:
        here = run if is_known else mirrored_to(run, mirror)
    return Place(run_dir, here, here)


def mirrored_to(run: Run, mirror: Mirror | None) -> Run:
    """Return ``run`` with ``mirror`` in place of all that the untrusted store says of it."""
    own = mirror is not None and run.spec.mirror is not None
    spec = run.spec.model_copy(update={"mirror": mirror.url if mirror and own else None})
    return run.model_copy(update={"spec": spec, "mirror": mirror})


def moved(run: Run, before: Run) -> Run:
    """``run``, now that it is taken over from where it is ``before``: a place of its own."""
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
    """The place of a run that comes from another cluster, or another user's name, to ``site``.

    What the run asks for is held against this site, as ``hpcflow run`` would.

    Args:
        url: where it comes from, for errors.
        site_reference: how the site is found again later; its name if None.
        overrides: as for ``--set``, over what was frozen.
        working_dir: where its program is to be run; where it was run before if None.
        mirror: where it is mirrored from now on, if this site has no mirror of its own.

    Raises:
        InputError: it does not fit this site, or its working directory is not here.
    """
    again = f"hpcflow restore --from {shell_word(url)}"
    try:
        spec = change_spec(_named_mirror(run.spec, url), overrides)
        placement = place(spec, site)
    except SpecError as error:
        error.next_action = (
            f"{error.next_action or 'change what it asks for'}; here by: {again} --set KEY=VALUE, "
            f"what site {site.name} has: hpcflow site show {shell_word(site.name)}"
        )
        raise
    folder = working_dir or Path(run.working_dir)
    if not folder.is_dir():
        raise InputError(
            f"run {run.run_id} works in {folder}, which is not here",
            where=Where(key="--working-dir"),
            next_action=f"bring its code here and name the folder: {again} --working-dir FOLDER",
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
    return Place(RunDir(final), moved(here, run), run)


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
    """What the run's program needs and this machine does not have; compute nodes may."""
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
