"""From a config to the whole request: everything is checked and built, nothing is written or sent.

``hpcflow render`` prints the script of a plan, ``hpcflow run`` sends one; there is no other way.
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
from hpcflow.launch.choosing import Chooser, charged_to
from hpcflow.launch.frozen_code import frozen_code, no_code, state_of
from hpcflow.launch.mtbf import mtbf_of
from hpcflow.launch.places import (
    require_plain,
    run_dir_on,
    template_dirs,
    trust_on,
    variables,
)
from hpcflow.launch.price import estimate_cost_usd
from hpcflow.launch.provenance import DIFF_FILE, CodeState, provenance
from hpcflow.launch.snapshot import Taken
from hpcflow.model.ids import make_run_id
from hpcflow.model.kinds import AUTO
from hpcflow.model.run import Run
from hpcflow.model.secret import random_keys
from hpcflow.model.spec import RunSpec
from hpcflow.model.start import START
from hpcflow.ownership import NO_TRUST, Trust
from hpcflow.rendering.integrity import make_integrity_check
from hpcflow.rendering.job import render_job
from hpcflow.settings import Settings
from hpcflow.sites.mirror import mirror_of
from hpcflow.sites.placement import Placement, place
from hpcflow.sites.schema import Site
from hpcflow.storage.code_snapshot import CodeTree
from hpcflow.storage.files import link_tree
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import create_run
from hpcflow.storage.runtime_copy import installed_sum

# It imports the mirror, and few runs start from another one.
if TYPE_CHECKING:
    from hpcflow.launch.start import Start


@dataclass(frozen=True)
class Plan:
    """One run, complete: what `render` shows and `run` sends.

    Attributes:
        document: where each key of the config stands, for what Slurm may have to say about one.
        code: file name -> content, kept in the run directory's ``code/``.
        snapshot: the files of the program's code; None where it is read live.
        script: the job script of attempt 1.
        start: makes a folder the checkpoint of another run that it begins from.
        warnings: warnings about what is recorded and what is not.
        trust: the users and groups that may replace directories on the path to it.
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
        """Make the run directory: :func:`hpcflow.storage.rundir.create_run`."""
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
    """Check ``config`` against ``site`` and build all that would be sent.

    Args:
        site_reference: how the site is found again later; its name if None.
        granted: keys of ``resources`` that the job has which this is for; None where it is still
            to be sent. They go over the config's, and no limit of the site is held against them.
        chooser: decides what `auto` becomes; None takes the first partition that fits.

    Raises:
        SpecError: the config or an override is wrong, alone or for this site.
        SiteError: the site's scratch cannot be named in this environment, or it trusts a user or
            group that there is not.
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
    """What a run is to the sweep that it belongs to.

    Attributes:
        run_id: chosen before, so that it is made and sent once, even if a process is killed.
        repeat: which of the runs of its trial, from 0.
        umask: that of the process that started the sweep; a round of cron has another one.
        start: a checkpoint of another run that it goes on from.
        find_start: finds what the base run's `start_from` is, at another trial if that has it.
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
    """The same for a spec that was read already.

    Args:
        document: where its keys stand; in a file without lines where it was frozen.
        working_dir: where its program starts.
        config: the file that it is from.
        taken: the snapshot of its code; None for one of now, if it asks for any.

    Raises:
        SpecError: it is wrong for this site.
        SiteError: the site's scratch cannot be named in this environment, or it trusts a user or
            group that there is not.
    """
    if chooser is not None and not is_granted:
        spec, placement = chooser.choose(spec, document)
    else:
        placement = place(spec, site, document, is_granted=is_granted)
    if spec.resources.account == AUTO:  # later attempts are charged to the same
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
        # By the time that a trial is made, another one may have it.
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
    """Yield a warning for each value that looks random, and so may be a secret."""
    for path in random_keys(document.data):
        yield (
            f"{document.where(path)}: looks random, as a key does, and is recorded; if it is a "
            "secret, put it into a file, and name that file under environment.secrets"
        )


def own_umask() -> str:
    """The caller's. Attempts that a daemon sends would have the daemon's, which Slurm hands on."""
    mask = os.umask(0o077)  # it can only be asked for by setting it
    os.umask(mask)
    return f"{mask & 0o777:04o}"


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
