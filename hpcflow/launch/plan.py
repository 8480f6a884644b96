"""From a config to the whole request: everything is checked and built, nothing is written or sent.

``hpcflow render`` prints the script of a plan, ``hpcflow run`` sends one; there is no other way.
"""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcflow.clock import Clock
from hpcflow.config import load_spec
from hpcflow.documents import Document
from hpcflow.errors import InputError, SpecError, Where
from hpcflow.launch.mtbf import mtbf_of
from hpcflow.launch.provenance import code_state, provenance
from hpcflow.model.ids import make_run_id
from hpcflow.model.run import Run
from hpcflow.model.spec import RunSpec
from hpcflow.rendering.job import render_job
from hpcflow.settings import Settings
from hpcflow.sites.loader import load_site, search_path
from hpcflow.sites.mirror import mirror_of
from hpcflow.sites.placement import Placement, place
from hpcflow.sites.schema import SchedulerKind, Site
from hpcflow.sites.scratch import expand_scratch

if TYPE_CHECKING:
    from hpcflow.schedulers.base import Scheduler


@dataclass(frozen=True)
class Plan:
    """One run, complete: what `render` shows and `run` sends.

    Attributes:
        document: where each key of the config stands, for what Slurm may have to say about one.
        code: file name -> content, kept in the run directory's ``code/``.
        script: the job script of attempt 1.
    """

    run: Run
    site: Site
    placement: Placement
    script: str
    document: Document
    code: Mapping[str, bytes] = field(default_factory=dict)


def make_plan(
    config: Path,
    *,
    settings: Settings,
    clock: Clock,
    site: Site,
    site_reference: str | None = None,
    overrides: Sequence[str] = (),
    granted: Mapping[str, Any] | None = None,
) -> Plan:
    """Check ``config`` against ``site`` and build all that would be sent.

    Args:
        site_reference: how the site is found again later; its name if None.
        granted: keys of ``resources`` that the job has which this is for; None where it is still
            to be sent. They go over the config's, and no limit of the site is held against them.

    Raises:
        SpecError: the config or an override is wrong, alone or for this site.
        SiteError: the site's scratch cannot be named in this environment.
    """
    loaded = load_spec(config, overrides, granted=granted)
    placement = place(loaded.spec, site, loaded.document, is_granted=granted is not None)
    spec = with_default_environment(loaded.spec, settings.environ)
    created_at = clock.now()
    run_id = make_run_id(spec.name, created_at, os.urandom(8))
    state = code_state(loaded.base_dir)
    run_dir = run_dir_on(site, settings, placement, spec.project, run_id)
    require_plain(run_dir, loaded.base_dir)
    run = Run(
        run_id=run_id,
        user=settings.user,
        site=site_reference or site.name,
        created_at=created_at,
        run_dir=str(run_dir),
        working_dir=str(loaded.base_dir),
        partition=placement.partition,
        gpu_type=placement.gpu_type,
        umask=_umask(),
        spec=spec,
        mirror=mirror_of(
            spec, site, variables(settings), user=settings.user, account=placement.account
        ),
        estimated_cost_usd=estimate_cost_usd(placement),
        provenance=provenance(config.absolute(), overrides, state),
    )
    try:
        script = render_job(
            run,
            site,
            placement,
            attempt=1,
            resume_from=None,
            mtbf_s=mtbf_of(run, settings, created_at),
            template_dirs=template_dirs(settings),
            compiled=settings.home.compiled_templates,
        )
    except SpecError as error:
        error.where = loaded.document.located(error.where)
        raise
    code = {"uncommitted.diff": state.diff} if state.diff else {}
    return Plan(run, site, placement, script, loaded.document, code)


def run_dir_on(
    site: Site, settings: Settings, placement: Placement, project: str, run_id: str
) -> Path:
    """Where the directory of a run goes on ``site``.

    Raises:
        SiteError: the site's scratch cannot be named in this environment.
    """
    known = variables(settings)
    scratch = expand_scratch(site, known, user=settings.user, account=placement.account)
    return runs_folder(scratch, settings.user) / project / run_id


def variables(settings: Settings) -> dict[str, str]:
    """What may stand in the paths and URLs of a site file."""
    return {**settings.environ, "HPCFLOW_HOME": str(settings.home.path)}


def require_plain(run_dir: Path, working_dir: Path) -> None:
    """Refuse folders that a job could not use, before anything is made.

    Raises:
        InputError: a name that is no UTF-8 text, or a run directory that PYTHONPATH would split.
    """
    for folder in (str(run_dir), str(working_dir)):
        if folder.encode("utf-8", "replace").decode() != folder:
            raise InputError(
                f"the name of this folder is no UTF-8 text: {folder!r}",
                next_action="rename it, or work in another one",
            )
    if ":" in str(run_dir):
        raise InputError(
            f"a run directory cannot lie below a folder with ':' in its name: {run_dir}",
            next_action="name another scratch folder, or another HPCFLOW_HOME",
        )


def _umask() -> str:
    """The caller's. Attempts that a daemon sends would have the daemon's, which Slurm hands on."""
    mask = os.umask(0o077)  # it can only be asked for by setting it
    os.umask(mask)
    return f"{mask & 0o777:04o}"


def runs_folder(scratch: Path, user: str) -> Path:
    """Where a user's runs go on ``scratch``: a folder of their own, where it is a project's."""
    try:
        is_shared = scratch.stat().st_uid != os.geteuid()
    except OSError:
        is_shared = False  # it is made by us, or refused, when the run directory is made
    return scratch / (f"hpcflow-{user}" if is_shared else "hpcflow")


def template_dirs(settings: Settings) -> list[Path]:
    """Where templates are looked for before the shipped ones."""
    own = settings.home.templates
    return [own] if own.is_dir() else []


def resolve_site(settings: Settings, name: str | None, *, named_in: Where | None = None) -> Site:
    """The site that was named, chosen in the settings, or recognized from this machine.

    Args:
        named_in: where ``name`` stands, for an error about it.

    Raises:
        SiteError: no such site, or it cannot be told which one this is.
    """
    from hpcflow.sites.recognize import recognize

    search = search_path(settings.home.path)
    if name:
        return load_site(name, search=search, named_in=named_in)
    if settings.site:
        return load_site(settings.site, search=search, named_in=settings.site_named_in)
    return recognize(search)


def reference(site: Site, name: str | None) -> str:
    """How ``site``, which was asked for as ``name``, is found again from any folder."""
    return site.name if name in (None, site.name) else str(Path(str(name)).absolute())


def connect_scheduler(site: Site, settings: Settings, clock: Clock) -> Scheduler:
    """The scheduler of ``site``.

    Raises:
        InputError: this machine has no sbatch.
    """
    from hpcflow.schedulers.registry import connect

    path = settings.environ.get("PATH")
    if site.scheduler is SchedulerKind.SLURM and shutil.which("sbatch", path=path) is None:
        raise InputError(
            f"site {site.name} is a Slurm cluster, and there is no sbatch on this machine's PATH",
            next_action="log in to the cluster, load its Slurm module, or use `--site local`",
        )
    return connect(site, clock=clock, home=settings.home.path)


def with_default_environment(spec: RunSpec, environ: Mapping[str, str]) -> RunSpec:
    """``spec`` with the Python that its user would expect, where it names none.

    That is the activated environment; else the one that hpcflow runs in, unless modules or a
    container bring their own. It is frozen into the run, so that a later attempt gets the same.
    """
    environment = spec.environment
    if environment.venv or environment.conda or environment.container:
        return spec
    if venv := environ.get("VIRTUAL_ENV"):
        found = {"venv": venv}
    elif conda := environ.get("CONDA_PREFIX"):
        found = {"conda": conda}
    elif not environment.modules and sys.prefix != sys.base_prefix:
        found = {"venv": sys.prefix}
    else:
        return spec
    return spec.model_copy(update={"environment": environment.model_copy(update=found)})


def estimate_cost_usd(placement: Placement) -> str | None:
    """What one attempt costs with its whole time limit; None where price or limit is unknown."""
    price, limit_min = placement.options.price, placement.time_limit_min
    if price is None or limit_min is None:
        return None
    hourly = Decimal(0)
    if price.gpu_hour_usd is not None:
        hourly += price.gpu_hour_usd * placement.nodes * placement.gpus_per_node
    if price.node_hour_usd is not None:
        hourly += price.node_hour_usd * placement.nodes
    if price.gpu_hour_usd is None and price.node_hour_usd is None:
        return None
    return str((hourly * limit_min / 60).quantize(Decimal("0.01")))
