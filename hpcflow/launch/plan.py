"""Check a config and build the whole request; nothing is written or submitted.

``hpcflow render`` prints the script of a plan, and ``hpcflow run`` submits one.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from hpcflow.clock import Clock
from hpcflow.config import load_spec
from hpcflow.documents import Document
from hpcflow.errors import HpcflowError, SiteError, SpecError
from hpcflow.model.ids import make_run_id
from hpcflow.model.kinds import AUTO
from hpcflow.model.run import Run
from hpcflow.model.secret import random_keys
from hpcflow.model.spec import RunSpec
from hpcflow.model.start import START
from hpcflow.ownership import NO_TRUST, Trust
from hpcflow.placement.choosing import Chooser, charged_to
from hpcflow.placement.mtbf import mtbf_of
from hpcflow.placement.price import estimate_cost_usd
from hpcflow.placement.run_paths import (
    require_plain,
    run_dir_on,
    template_dirs,
    trust_on,
    variables,
)
from hpcflow.provenance.code_state import DIFF_FILE, CodeState, provenance
from hpcflow.provenance.frozen_code import frozen_code, no_code, state_of
from hpcflow.provenance.snapshot import Taken
from hpcflow.rendering.job import make_integrity_check, render_job
from hpcflow.settings import Settings
from hpcflow.sites.mirror import mirror_of
from hpcflow.sites.placement import Placement, place
from hpcflow.sites.schema import Site
from hpcflow.storage.code_snapshot import CodeTree
from hpcflow.storage.files import link_tree
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import create_run
from hpcflow.storage.runtime_copy import installed_sum

# This imports the mirror, and few runs start from another one.
if TYPE_CHECKING:
    from hpcflow.launch.start import Start


@dataclass(frozen=True)
class Plan:
    """One run, ready to be created and submitted.

    Attributes:
        document: the position of each key of the config, for errors.
        code: file name -> content, for the run directory's ``code/``.
        snapshot: the files of the program's code; None if it is read live.
        script: the job script of attempt 1.
        start: copies the checkpoint that the run starts from to a folder.
        warnings: about what is recorded and what is not.
        trust: users and groups that may replace directories on the path to the run directory.
    """

    run: Run
    site: Site
    placement: Placement
    script: str
    document: Document
    code: Mapping[str, bytes] = field(default_factory=dict)
    snapshot: CodeTree | None = None
    start: Callable[[Path], object] | None = None
    warnings: tuple[str, ...] = ()
    trust: Trust = NO_TRUST

    def create_run(self, home: Home) -> RunDir:
        return create_run(
            self.run,
            home,
            code=self.code,
            snapshot=self.snapshot,
            start=self.start,
            trust=self.trust,
        )


def make_plan(
    config: Path,
    *,
    settings: Settings,
    clock: Clock,
    site: Site,
    site_reference: str | None = None,
    overrides: Sequence[str] = (),
    granted: Mapping[str, Any] | None = None,
    chooser: Chooser | None = None,
) -> Plan:
    """Check ``config`` against ``site`` and build the plan.

    Args:
        site_reference: name or path by which the site is found later; its name if None.
        granted: keys of ``resources`` of the existing job that executes the run; None if a job is
            still to be submitted. They override the config's and are not checked against the site.
        chooser: resolves `auto`; None takes the first partition that fits.

    Raises:
        SpecError: the config or an override is wrong, alone or for this site.
        SiteError: the site's scratch has an unset variable, or it trusts an unknown user or group.
    """
    loaded = load_spec(config, overrides, granted=granted)
    return plan_spec(
        loaded.spec,
        settings=settings,
        clock=clock,
        site=site,
        site_reference=site_reference,
        document=loaded.document,
        working_dir=loaded.base_dir,
        config=config.absolute(),
        overrides=overrides,
        is_granted=granted is not None,
        chooser=chooser,
    )


@dataclass(frozen=True)
class OfSweep:
    """A run's place in its sweep.

    Attributes:
        run_id: chosen before, so that the run is created and submitted once, even after a kill.
        repeat: index of the run in its trial, from 0.
        umask: of the process that started the sweep; a round of cron has another one.
        start: checkpoint of another run that it continues from.
        find_start: finds the base run's `start_from`, in another trial if that has a copy.
    """

    sweep_id: str
    run_id: str
    trial: int
    repeat: int
    umask: str
    start: Path | None = None
    find_start: Callable[[], Start] | None = None


def plan_spec(
    spec: RunSpec,
    *,
    settings: Settings,
    clock: Clock,
    site: Site,
    site_reference: str | None,
    document: Document,
    working_dir: Path,
    config: Path | None,
    overrides: Sequence[str] = (),
    is_granted: bool = False,
    of_sweep: OfSweep | None = None,
    chooser: Chooser | None = None,
    taken: Taken | None = None,
) -> Plan:
    """Build the plan of a spec; see :func:`make_plan`, also for its errors.

    Args:
        document: the positions of its keys; without lines for a frozen spec.
        working_dir: where its program starts.
        config: the file that it is from.
        taken: the snapshot of its code; None to take one now, if it asks for one.
    """
    if chooser is not None and not is_granted:
        spec, placement = chooser.choose(spec, document)
    else:
        placement = place(spec, site, document, is_granted=is_granted)
    if spec.resources.account == AUTO:  # later attempts are charged to the same account
        spec = charged_to(spec, placement.account)
    spec = with_default_environment(spec, settings.environ)
    created_at = clock.now()
    if of_sweep is None:
        run_id, umask = make_run_id(spec.name, created_at, os.urandom(8)), own_umask()
    else:
        run_id, umask = of_sweep.run_id, of_sweep.umask
    begins_from, started_from = None, None
    start: Callable[[Path], object] | None = None
    if of_sweep is not None and of_sweep.start is not None:
        begins_from = f"start/{of_sweep.start.name}"
        start = partial(link_tree, of_sweep.start)
    elif spec.start_from is not None:
        find = of_sweep.find_start if of_sweep is not None else None
        found = _start(spec.start_from, document, find, site, settings, clock)
        spec = spec.model_copy(update={"start_from": found.pinned})
        begins_from, started_from = START, found.origin
        # When the trial is created, another trial may have a copy.
        start = found.copy_to if find is None else lambda target: find().copy_to(target)
    run_dir = run_dir_on(site, settings, placement, spec.project, run_id)
    require_plain(run_dir, working_dir)
    trust = trust_on(site, settings, placement.account)
    try:
        mirror = mirror_of(
            spec, site, variables(settings), user=settings.user, account=placement.account
        )
    except SiteError as error:
        error.where = document.located(error.where)
        raise
    run = Run(
        run_id=run_id,
        user=settings.user,
        site=site_reference or site.name,
        created_at=created_at,
        run_dir=str(run_dir),
        working_dir=str(working_dir),
        partition=placement.partition,
        gpu_type=placement.gpu_type,
        umask=umask,
        spec=spec,
        mirror=mirror,
        parent_sweep=of_sweep.sweep_id if of_sweep else None,
        trial=of_sweep.trial if of_sweep else None,
        repeat=of_sweep.repeat if of_sweep else None,
        begins_from=begins_from,
        started_from=started_from,
        estimated_cost_usd=estimate_cost_usd(placement, created_at),
        provenance=provenance(config, overrides, CodeState()),
    )
    try:
        run, taken, about_code = frozen_code(run, excluded=no_code(run, settings), taken=taken)
        state = state_of(run, taken)
        run = run.model_copy(update={"provenance": provenance(config, overrides, state)})
        script = render_job(
            run,
            site,
            placement,
            attempt=1,
            resume_from=run.begins_from,
            integrity=make_integrity_check(run_dir, trust, installed_sum()),
            mtbf_s=mtbf_of(run, settings, created_at),
            template_dirs=template_dirs(settings),
            compiled=settings.home.compiled_templates,
        )
    except SpecError as error:
        error.where = document.located(error.where)
        raise
    warnings = (*state.warnings, *about_code, *_possible_secrets(document))
    code = {DIFF_FILE: state.diff} if state.diff else {}
    snapshot = taken.tree if taken is not None else None
    return Plan(run, site, placement, script, document, code, snapshot, start, warnings, trust)


def _start(
    text: str,
    document: Document,
    find: Callable[[], Start] | None,
    site: Site,
    settings: Settings,
    clock: Clock,
) -> Start:
    from hpcflow.launch.start import find_start

    try:
        return find() if find else find_start(text, site=site, settings=settings, clock=clock)
    except HpcflowError as error:
        error.where = document.where(("start_from",))
        raise


def _possible_secrets(document: Document) -> Iterator[str]:
    for path in random_keys(document.data):
        yield (
            f"{document.where(path)}: looks like a random key and is recorded; if it is a secret, "
            "move it to a file, and name that file under environment.secrets"
        )


def own_umask() -> str:
    """Return the caller's umask, for later attempts: Slurm would give them the daemon's."""
    mask = os.umask(0o077)  # the umask can only be read by setting it
    os.umask(mask)
    return f"{mask & 0o777:04o}"


def with_default_environment(spec: RunSpec, environ: Mapping[str, str]) -> RunSpec:
    """Return ``spec`` with a default environment, if it names none.

    That is the activated environment; else hpcflow's own, unless modules or a container bring
    another. It is frozen into the run, so that later attempts get the same.
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
