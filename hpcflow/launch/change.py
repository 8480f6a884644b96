"""What a run asks for is changed before it is sent again: other resources, another partition."""

from __future__ import annotations

from collections.abc import Sequence

from hpcflow.clock import Clock
from hpcflow.config import change_spec
from hpcflow.errors import InputError, Where
from hpcflow.launch.choosing import charged_to
from hpcflow.launch.places import variables
from hpcflow.launch.price import estimate_cost_usd
from hpcflow.model.journal import Changed
from hpcflow.model.kinds import AUTO
from hpcflow.model.run import Run
from hpcflow.settings import Settings
from hpcflow.sites.mirror import mirror_of
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage import journal
from hpcflow.storage.files import write_durably
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import frozen_files


def changed(run: Run, overrides: Sequence[str], *, site: Site, settings: Settings) -> Run:
    """``run`` with ``overrides`` over what it asks for; nothing is written.

    Raises:
        SpecError: an override is wrong, a file that the new spec names is missing or unsafe, or it
            does not fit the site any more.
        InputError: it is about what a run is found by.
    """
    spec = change_spec(run.spec, overrides, checks_files=True)
    for key in ("name", "project"):
        if getattr(spec, key) != getattr(run.spec, key):
            raise InputError(
                f"the {key} of a run stays: its directory is called so",
                where=Where(key=f"--set {key}"),
                next_action="begin a new run: hpcflow run CONFIG",
            )
    if spec.resources.account == AUTO:  # that was decided when the run began
        spec = charged_to(spec, run.spec.resources.account)
    placement = place(spec, site, prefer=run.partition)
    update: dict[str, object] = {
        "spec": spec,
        "partition": placement.partition,
        "gpu_type": placement.gpu_type,
        "estimated_cost_usd": estimate_cost_usd(placement, run.created_at),
    }
    if spec.mirror != run.spec.mirror:
        update["mirror"] = mirror_of(
            spec, site, variables(settings), user=settings.user, account=placement.account
        )
    return run.model_copy(update=update)


def freeze_anew(
    run_dir: RunDir, run: Run, overrides: Sequence[str], *, settings: Settings, clock: Clock
) -> None:
    """Write ``run`` over what was frozen, and say so; the caller holds the run's submit lock.

    In this order: a process that reads the record reads ``run.json`` again.

    Raises:
        StorageError: it could not be written.
    """
    for name, data in frozen_files(run).items():
        write_durably(run_dir.path / name, data)
    record = Changed(at=clock.now(), by=settings.user, overrides=list(overrides))
    journal.append(run_dir, record, begins=True)
