"""Continue a sweep that was stopped or halted, or whose budget was spent."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import datetime
from typing import Any

from hpcflow.config.merge import merge, parse_override
from hpcflow.documents import Document, Place, validate
from hpcflow.errors import InputError, SpecError, Where
from hpcflow.model.sampler import SamplerKind
from hpcflow.model.sweep import Budget, SweepSpec
from hpcflow.model.sweep_records import GoOn
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage.sweeps import SweepDir, read_journal
from hpcflow.sweeps.budget import LATE, complaint, is_late, room
from hpcflow.sweeps.state import apply
from hpcflow.sweeps.trials import rate_of
from hpcflow.sweeps.view import look


def go_on(
    sweep_dir: SweepDir,
    *,
    by: str,
    now: datetime,
    parallel: int | None,
    overrides: Sequence[str],
    site: Site,
) -> GoOn:
    """Return the record that resumes a sweep.

    Args:
        overrides: as for ``--set``, of ``budget`` alone.

    Raises:
        InputError: an override is wrong or not of ``budget``, or the budget is used up.
    """
    sweep, progress = look(sweep_dir)
    if parallel == 1 and sweep.spec.sampler.kind is SamplerKind.PBT:
        raise SpecError(
            "a population is trained side by side",
            where=Where(key="--parallel"),
            next_action="give 2 or more, or omit it",
        )
    budget = _budget(sweep.said, read_journal(sweep_dir), overrides) if overrides else None
    record = GoOn(at=now, by=by, parallel=parallel, budget=budget)
    apply(progress, record)
    rate = rate_of(sweep, place(sweep.base, site), now)
    if (said := complaint(progress.budget, rate)) is not None:
        key = f"--set budget.{said.key}"
        raise SpecError(said.message, where=Where(key=key), next_action=said.next_action)
    why = LATE if is_late(progress, now) else room(progress, rate, now).why
    if why is not None:
        raise InputError(
            f"{sweep_dir.sweep_id} has nothing left to do: {why}",
            next_action=f"give it more: hpcflow sweep resume {sweep_dir.sweep_id} "
            "--set budget.trials=N (or gpu_hours, cost_usd, deadline, target)",
        )
    return record


def _budget(
    said: dict[str, Any], records: Iterable[object], overrides: Sequence[str]
) -> dict[str, Any]:
    """Return the current budget with ``overrides``, as it would stand in the YAML."""
    changes = [r.budget for r in records if isinstance(r, GoOn) and r.budget is not None]
    document = Document(
        None, dict(changes[-1] if changes else said.get("budget") or {}), Place(None, None)
    )
    for override in overrides:
        key = override.partition("=")[0].strip()
        if not key.startswith("budget."):
            raise SpecError(
                "only the budget of a sweep can change; another space, objective or base run "
                "needs another sweep",
                where=Where(key=f"--set {key[:80]}"),
                next_action="start it under another name, with what `hpcflow sweep export SWEEP "
                "--start-from` prints, below `start_from`; here: --set budget.trials=120",
            )
        document = merge(document, parse_override(override.strip().removeprefix("budget.")))
    again = "correct the values of --set"
    validate(Budget, document, SpecError, next_action=again)
    # Rules of the whole sweep: the budget must end it, a target needs one objective.
    whole = Document(None, {**said, "budget": document.data}, Place(None, None))
    validate(SweepSpec, whole, SpecError, next_action=again)
    return document.data
