"""Start a sweep: check it completely, then freeze it. Nothing is submitted yet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hpcflow.clock import Clock
from hpcflow.config import LoadedSpec
from hpcflow.config.sweep import LoadedSweep, load_sweep
from hpcflow.errors import HpcflowError, InputError, SpecError, Where
from hpcflow.launch.choosing import Chooser
from hpcflow.launch.connecting import reference
from hpcflow.launch.plan import Plan, own_umask, with_default_environment
from hpcflow.launch.provenance import CodeState, provenance
from hpcflow.model.ids import make_run_id
from hpcflow.model.kinds import AUTO
from hpcflow.model.run import FORMAT
from hpcflow.model.scalars import printable
from hpcflow.model.space import Choice, Parameter, Scalar, Space, is_one_of
from hpcflow.model.spec import RunSpec
from hpcflow.model.sweep import SweepSpec
from hpcflow.model.sweep_records import Sweep
from hpcflow.schedulers.base import Scheduler
from hpcflow.settings import Settings
from hpcflow.sites.schema import Site
from hpcflow.storage.code_snapshot import archive_name, pack
from hpcflow.storage.sweeps import (
    DamagedSweepError,
    SweepDir,
    create_sweep,
    list_sweeps,
    read_journal,
    read_sweep,
)
from hpcflow.sweeps.budget import complaint
from hpcflow.sweeps.sampling import require_sampler
from hpcflow.sweeps.state import fold
from hpcflow.sweeps.trials import TrialRuns


@dataclass(frozen=True)
class SweepPlan:
    """A sweep that could be started, and the first of its trials as it would be sent."""

    sweep: Sweep
    loaded: LoadedSweep
    example: Plan
    example_params: dict[str, Scalar]


def plan_sweep(
    path: Path | None,
    *,
    settings: Settings,
    clock: Clock,
    site: Site,
    scheduler: Scheduler,
    site_name: str | None = None,
    overrides: Sequence[str] = (),
    loaded: LoadedSweep | None = None,
    sweep_id: str | None = None,
) -> SweepPlan:
    """Check everything about the sweep in ``path``; nothing is written or sent.

    Args:
        loaded: the sweep, where it is none of a file of its own; ``path`` is then where its program
            is, if that is a file.
        sweep_id: where something of it has to know that before.

    Raises:
        InputError: something is wrong with the sweep, its base run, or with the two together.
    """
    if path is not None:
        _require_plain_name(path)
    if loaded is None:
        assert path is not None
        loaded = load_sweep(path, overrides)
    spec, base = loaded.spec, loaded.base
    named = reference(site, site_name or settings.site)
    try:
        require_sampler(spec)
    except InputError as error:
        error.where = loaded.document.where(("sampler",))
        raise
    _require_fitting(spec, loaded)
    created_at = clock.now()
    placed = _placed(base, site, named, scheduler, settings=settings, clock=clock)
    placed = _with_one_start(placed, base, site, settings=settings, clock=clock)
    sweep = Sweep(
        format=FORMAT,
        sweep_id=sweep_id or make_run_id(spec.name, created_at, os.urandom(8)),
        user=settings.user,
        site=named,
        created_at=created_at,
        sweep_path=str(path.absolute()) if path else None,
        working_dir=str(base.base_dir),
        umask=own_umask(),
        said=loaded.document.data,
        base=with_default_environment(placed, settings.environ),
        provenance=provenance(Path(spec.base), overrides, CodeState()),
    )
    runs = TrialRuns(
        sweep, settings=settings, clock=clock, site=site, scheduler=scheduler, is_new=True
    )
    examples = _examples(spec.space)
    plans = [_built(runs, sweep, params, loaded) for params in examples]
    run = plans[0].run
    git = {key: getattr(run.provenance, key) for key in ("git_commit", "git_dirty")}
    seen = sweep.provenance.model_copy(update=git)
    sweep = sweep.model_copy(update={"code": run.code, "provenance": seen})
    _require_price(sweep, runs, loaded)
    return SweepPlan(sweep, loaded, plans[0], examples[0])


def start_sweep(
    plan: SweepPlan, settings: Settings, *, files: Mapping[str, bytes] | None = None
) -> SweepDir:
    """Freeze the sweep; the next round asks for its first trials.

    Args:
        files: name -> content: what the sweep's directory holds beside that.

    Raises:
        InputError: a sweep of this name is under way.
        StorageError: the home cannot be written.
    """
    _require_new(plan.sweep, settings)
    code = plan.example.snapshot
    archive = {} if code is None else {archive_name(code): pack(code)}
    return create_sweep(plan.sweep, settings.home, {**(files or {}), **archive})


def _placed(
    base: LoadedSpec,
    site: Site,
    site_reference: str,
    scheduler: Scheduler,
    *,
    settings: Settings,
    clock: Clock,
) -> RunSpec:
    """The base run where `auto` is decided, once for all trials: they are compared."""
    chooser = Chooser(site, site_reference, lambda: scheduler, settings=settings, clock=clock)
    spec, placement = chooser.choose(base.spec, base.document)
    if spec.resources.partition != AUTO:
        return spec
    resources = spec.resources.model_copy(update={"partition": placement.partition})
    return spec.model_copy(update={"resources": resources})


def _with_one_start(
    spec: RunSpec, base: LoadedSpec, site: Site, *, settings: Settings, clock: Clock
) -> RunSpec:
    """The base run where "the newest" of ``start_from`` is decided, once for all trials."""
    if spec.start_from is None:
        return spec
    from hpcflow.launch.start import find_start

    try:
        found = find_start(spec.start_from, site=site, settings=settings, clock=clock)
    except HpcflowError as error:
        error.where = base.document.where(("start_from",))
        raise
    return spec.model_copy(update={"start_from": found.pinned})


def _require_new(sweep: Sweep, settings: Settings) -> None:
    """Two of one name at once are a mistake: mostly a space that was changed half-way."""
    name = sweep.spec.name
    for other in list_sweeps(settings.home):
        if other.sweep_id.rsplit("-", 2)[0] != name:
            continue
        try:
            theirs = read_sweep(other)
        except DamagedSweepError:
            continue  # nobody makes rounds of it, and each one that is tried says so
        progress = fold(theirs.spec, theirs.created_at, read_journal(other))
        if progress.is_at_rest:
            continue
        is_same = theirs.said == sweep.said
        changed = "" if is_same else ", and another file: what it was started with stays as it is"
        raise InputError(
            f"sweep {other.sweep_id} has this name and is under way{changed}",
            where=Where(file=sweep.sweep_path, key="name"),
            next_action=f"look: hpcflow sweep status {other.sweep_id}; to go on with another "
            f"space: hpcflow sweep stop {other.sweep_id}, then start again, with what `hpcflow "
            f"sweep export {other.sweep_id} --start-from` prints below `start_from`",
        )


def _require_plain_name(path: Path) -> None:
    """It is written down, in JSON."""
    full = str(path.absolute())
    if full.encode("utf-8", "replace").decode() != full:
        raise InputError(
            f"the name of this file is no UTF-8 text: {full!r}",
            next_action="rename it, or the folder that it is in",
        )


def _require_fitting(spec: SweepSpec, loaded: LoadedSweep) -> None:
    """What sweep and base run say together."""
    if spec.repeats == 1:
        return
    if "seed" in {each.name for each in spec.space.parameters}:
        raise SpecError(
            "`seed` varies, and would not mean the same in all repeats",
            where=loaded.document.where(("space", "seed")),
            next_action="take it out of the space, or `repeats`",
        )
    is_ours = "seed" in spec.space.constants
    params = spec.space.constants if is_ours else loaded.base.spec.params
    if type(params.get("seed", 0)) is not int:
        document = loaded.document if is_ours else loaded.base.document
        raise SpecError(
            "`seed` is no whole number, and each repeat has one of its own",
            where=document.where(("space" if is_ours else "params", "seed")),
            next_action="write it like: seed: 0",
        )


def _built(runs: TrialRuns, sweep: Sweep, params: dict[str, Scalar], loaded: LoadedSweep) -> Plan:
    """A trial with these values, rendered; what is wrong with it is said where it stands."""
    try:
        return runs.plan(0, params, 0, make_run_id(sweep.spec.name, sweep.created_at, bytes(8)))
    except SpecError as error:
        values = ", ".join(f"{name} {value}" for name, value in params.items())
        error.where = loaded.base.document.located(
            Where(key=error.where.key) if error.where else None
        )
        error.summary += f", in a trial with {printable(values)}"
        raise


def _require_price(sweep: Sweep, runs: TrialRuns, loaded: LoadedSweep) -> None:
    said = complaint(sweep.spec.budget, runs.rate())
    if said is not None:
        raise SpecError(
            said.message,
            where=loaded.document.where(("budget", said.key)),
            next_action=said.next_action,
        )


def _examples(space: Space) -> list[dict[str, Scalar]]:
    """Trials as they may be: one; with conditions, also those that have or lack what others do."""
    forms: list[dict[str, Scalar]] = [{}]
    for parameter in space.parameters:
        if parameter.when:
            forms.append(_needs(space, parameter))
            forms += _without(space, parameter)
    found: dict[tuple[str, ...], dict[str, Scalar]] = {}
    for form in forms:
        params = _with(space, form)
        found.setdefault(tuple(params), params)
    return list(found.values())


def _with(space: Space, wanted: Mapping[str, Scalar]) -> dict[str, Scalar]:
    """A trial with these values of some parameters, as far as they are there."""
    chosen: dict[str, Scalar] = {}
    for each in space.parameters:
        if each.is_there(chosen):
            chosen[each.name] = wanted.get(each.name, _first(each))
    return chosen


def _needs(space: Space, parameter: Parameter) -> dict[str, Scalar]:
    """Values of others with which ``parameter`` is there."""
    by_name = {each.name: each for each in space.parameters}
    wanted: dict[str, Scalar] = {}
    left = [parameter]
    while left:
        for other, values in left.pop().when.items():
            if other not in wanted:
                wanted[other] = values[0]
                left.append(by_name[other])
    return wanted


def _without(space: Space, parameter: Parameter) -> Iterator[dict[str, Scalar]]:
    """For each of its conditions, values of others with which that one does not hold."""
    by_name = {each.name: each for each in space.parameters}
    for other, values in parameter.when.items():
        points = by_name[other].points() or ()
        refused = (each for each in points if not is_one_of(each, values))
        for value in islice(refused, 1):  # none, where it has no other
            yield {**_needs(space, by_name[other]), other: value}


def _first(parameter: Parameter) -> Scalar:
    values = parameter.values
    if isinstance(values, Choice):
        return values.choices[0]
    return int(values.low) if values.is_int else float(values.low)
