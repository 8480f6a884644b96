"""Start a sweep: check it completely, then freeze it. Nothing is submitted yet."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path

from hpcflow.config import LoadedSpec
from hpcflow.config.sweep import LoadedSweep, load_sweep
from hpcflow.errors import HpcflowError, InputError, SpecError, Where
from hpcflow.launch.connecting import reference
from hpcflow.launch.context import LaunchContext
from hpcflow.launch.plan import Plan, own_umask, with_default_environment
from hpcflow.model.ids import make_run_id
from hpcflow.model.kinds import AUTO
from hpcflow.model.run import FORMAT
from hpcflow.model.scalars import printable
from hpcflow.model.space import Choice, Parameter, Scalar, Space, is_one_of
from hpcflow.model.spec import RunSpec
from hpcflow.model.sweep import SweepSpec
from hpcflow.model.sweep_records import Sweep
from hpcflow.placement.choosing import Chooser
from hpcflow.provenance.code_state import CodeState, provenance
from hpcflow.settings import Settings
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
    """A checked sweep, with its first trial as an example."""

    sweep: Sweep
    loaded: LoadedSweep
    example: Plan
    example_params: dict[str, Scalar]


def plan_sweep(
    path: Path | None,
    context: LaunchContext,
    *,
    site_name: str | None = None,
    overrides: Sequence[str] = (),
    loaded: LoadedSweep | None = None,
    sweep_id: str | None = None,
) -> SweepPlan:
    """Check the sweep in ``path`` completely; nothing is written or submitted.

    Args:
        loaded: the sweep, if it has no file of its own; ``path`` is then the file of its program,
            if there is one.
        sweep_id: the id, if the caller needed it before.

    Raises:
        InputError: the sweep or its base run is wrong, or the two do not fit together.
    """
    if path is not None:
        _require_plain_name(path)
    if loaded is None:
        assert path is not None
        loaded = load_sweep(path, overrides)
    spec, base = loaded.spec, loaded.base
    settings = context.settings
    named = reference(context.site, site_name or settings.site)
    try:
        require_sampler(spec)
    except InputError as error:
        error.where = loaded.document.where(("sampler",))
        raise
    _require_fitting(spec, loaded)
    created_at = context.clock.now()
    placed = _with_one_start(_placed(base, named, context), base, context)
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
    runs = TrialRuns(sweep, context, is_new=True)
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
        files: name -> content of more files in the sweep's directory.

    Raises:
        InputError: a sweep of this name is active.
    """
    _require_new(plan.sweep, settings)
    code = plan.example.snapshot
    archive = {} if code is None else {archive_name(code): pack(code)}
    return create_sweep(plan.sweep, settings.home, {**(files or {}), **archive})


def _placed(base: LoadedSpec, site_reference: str, context: LaunchContext) -> RunSpec:
    """Return the base run with ``auto`` decided once, so that all trials are comparable."""
    chooser = Chooser(
        context.site,
        site_reference,
        lambda: context.scheduler,
        settings=context.settings,
        clock=context.clock,
    )
    spec, placement = chooser.choose(base.spec, base.document)
    if spec.resources.partition != AUTO:
        return spec
    resources = spec.resources.model_copy(update={"partition": placement.partition})
    return spec.model_copy(update={"resources": resources})


def _with_one_start(spec: RunSpec, base: LoadedSpec, context: LaunchContext) -> RunSpec:
    """Return the base run with the newest checkpoint of ``start_from`` decided once for all."""
    if spec.start_from is None:
        return spec
    from hpcflow.launch.start import find_start

    try:
        found = find_start(
            spec.start_from, site=context.site, settings=context.settings, clock=context.clock
        )
    except HpcflowError as error:
        error.where = base.document.where(("start_from",))
        raise
    return spec.model_copy(update={"start_from": found.pinned})


def _require_new(sweep: Sweep, settings: Settings) -> None:
    """Refuse a second active sweep of the same name: mostly its space was changed."""
    name = sweep.spec.name
    for other in list_sweeps(settings.home):
        if other.sweep_id.rsplit("-", 2)[0] != name:
            continue
        try:
            theirs = read_sweep(other)
        except DamagedSweepError:
            continue  # it has no rounds any more: each try reports the damage
        progress = fold(theirs.spec, theirs.created_at, read_journal(other))
        if progress.is_at_rest:
            continue
        is_same = theirs.said == sweep.said
        changed = "" if is_same else ", started from a file with other content"
        raise InputError(
            f"sweep {other.sweep_id} has this name and is active{changed}",
            where=Where(file=sweep.sweep_path, key="name"),
            next_action=f"see it: hpcflow sweep status {other.sweep_id}; to change the space: "
            f"hpcflow sweep stop {other.sweep_id}, then start again with what `hpcflow sweep "
            f"export {other.sweep_id} --start-from` prints, below `start_from`",
        )


def _require_plain_name(path: Path) -> None:
    """Refuse a path that is not UTF-8: the sweep's JSON file holds it."""
    full = str(path.absolute())
    if full.encode("utf-8", "replace").decode() != full:
        raise InputError(
            f"the path of this file is not UTF-8: {full!r}",
            next_action="rename the file or its directory",
        )


def _require_fitting(spec: SweepSpec, loaded: LoadedSweep) -> None:
    """Check that repeats can have different seeds."""
    if spec.repeats == 1:
        return
    if "seed" in {each.name for each in spec.space.parameters}:
        raise SpecError(
            "`seed` is in the space, but each repeat sets its own seed",
            where=loaded.document.where(("space", "seed")),
            next_action="remove `seed` from the space, or remove `repeats`",
        )
    is_ours = "seed" in spec.space.constants
    params = spec.space.constants if is_ours else loaded.base.spec.params
    if type(params.get("seed", 0)) is not int:
        document = loaded.document if is_ours else loaded.base.document
        raise SpecError(
            "`seed` is not an integer; each repeat adds its number to it",
            where=document.where(("space" if is_ours else "params", "seed")),
            next_action="write an integer, such as: seed: 0",
        )


def _built(runs: TrialRuns, sweep: Sweep, params: dict[str, Scalar], loaded: LoadedSweep) -> Plan:
    """Plan a trial with these values; an error points into the file of the base run."""
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
    """Return values of example trials: one, and one for each set of parameters of conditions."""
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
    """Return a full set of values: those ``wanted`` where they apply, else the first value."""
    chosen: dict[str, Scalar] = {}
    for each in space.parameters:
        if each.is_there(chosen):
            chosen[each.name] = wanted.get(each.name, _first(each))
    return chosen


def _needs(space: Space, parameter: Parameter) -> dict[str, Scalar]:
    """Return values of other parameters that meet the conditions of ``parameter``."""
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
    """Yield for each condition of ``parameter`` values that do not meet it."""
    by_name = {each.name: each for each in space.parameters}
    for other, values in parameter.when.items():
        points = by_name[other].points() or ()
        refused = (each for each in points if not is_one_of(each, values))
        for value in islice(refused, 1):  # none if every value meets the condition
            yield {**_needs(space, by_name[other]), other: value}


def _first(parameter: Parameter) -> Scalar:
    values = parameter.values
    if isinstance(values, Choice):
        return values.choices[0]
    return int(values.low) if values.is_int else float(values.low)
