"""Export the best trial of a sweep as a config, or submit it as a run outside the sweep."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

from hpcflow.clock import Clock
from hpcflow.documents import Document, Place
from hpcflow.documents.writer import written
from hpcflow.launch.plan import plan_spec
from hpcflow.launch.run import Launched, launch
from hpcflow.model.execution import CodeMode
from hpcflow.model.spec import RunSpec, as_yaml_config
from hpcflow.schedulers.base import Scheduler
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site
from hpcflow.storage.sweeps import SweepDir
from hpcflow.sweeps.trials import code_of, trial_spec
from hpcflow.sweeps.view import look


def best_config(sweep_dir: SweepDir, trial: int) -> str:
    """Return the YAML config of a run with the parameters of a trial."""
    said = as_yaml_config(_spec(sweep_dir, trial))
    head = f"# Trial {trial} of sweep {sweep_dir.sweep_id}.\n"
    return head + written(said, allow_unicode=True, width=100)


def run_best(
    sweep_dir: SweepDir,
    trial: int,
    *,
    settings: Settings,
    clock: Clock,
    find_site: Callable[[str], Site],
    connect: Callable[[str], Scheduler],
) -> Launched:
    """Submit a trial again, as a run outside the sweep.

    Raises:
        HpcflowError: as for :func:`hpcflow.launch.run.launch`.
    """
    sweep, _ = look(sweep_dir)
    spec = _spec(sweep_dir, trial)
    if sweep.code is None:
        spec = spec.model_copy(update={"code": CodeMode.LIVE})
    site = find_site(sweep.site)
    file = sweep.provenance.config_path
    plan = plan_spec(
        spec,
        settings=settings,
        clock=clock,
        site=site,
        site_reference=sweep.site,
        document=Document(Path(file) if file else None, {}, Place(file, None)),
        working_dir=Path(sweep.working_dir),
        config=Path(file) if file else None,
        taken=code_of(sweep, settings),
    )
    return launch(plan, settings=settings, scheduler=connect(sweep.site), clock=clock)


def _spec(sweep_dir: SweepDir, trial: int) -> RunSpec:
    sweep, progress = look(sweep_dir)
    found = trial_spec(sweep, trial, progress.trials[trial].params, 0)
    return found.model_copy(update={"name": f"{sweep.spec.name}-best"})
