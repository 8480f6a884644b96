"""What would start sooner, or cost less, than a run as its config asks for it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

import yaml

from hpcflow.documents import Document
from hpcflow.errors import SpecError, shell_word
from hpcflow.launch.choice import Ranked
from hpcflow.launch.choosing import Chooser
from hpcflow.model.kinds import AUTO
from hpcflow.model.spec import RunSpec
from hpcflow.sites.placement import Placement

#: Sooner by less than this is chance; so is cheaper by less than this part.
_SOONER_S: Final = 300.0
_CHEAPER: Final = Decimal("0.95")
_SHORTEST_MIN: Final = 10


@dataclass(frozen=True)
class Alternative:
    """Another way to ask.

    Attributes:
        change: what to say for it, as for ``--set``.
        ranked: the best place for it.
        sooner_s: how much earlier it would start; None where nobody can say.
        is_cheaper: whether the same work would cost less.
        slower: how many times longer the same work takes at most; 1 for as long.
    """

    change: str
    ranked: Ranked
    sooner_s: float | None
    is_cheaper: bool
    slower: int


@dataclass(frozen=True)
class _Change:
    words: str
    update: dict[str, object]
    slower: int = 1
    is_same_work: bool = True


def alternatives(
    spec: RunSpec, best: Ranked, chooser: Chooser, document: Document | None = None
) -> list[Alternative]:
    """The ways to ask that would start minutes sooner than ``best``, or cost less; the soonest
    first."""
    found = []
    for change in _changes(spec, best.candidate.placement, chooser):
        resources = spec.resources.model_copy(update=change.update)
        try:
            other = chooser.best(spec.model_copy(update={"resources": resources}), document)
        except SpecError:
            continue
        if other is not None and (each := _compared(change, best, other)) is not None:
            found.append(each)
    return sorted(found, key=lambda each: -(each.sooner_s or 0.0))


def _changes(spec: RunSpec, placement: Placement, chooser: Chooser) -> Iterator[_Change]:
    resources = spec.resources
    if resources.partition != AUTO:
        yield _Change("resources.partition=auto", {"partition": AUTO})
    if resources.account != AUTO:
        for account in chooser.forecast.accounts:
            if account != chooser.forecast.account(placement):
                yield _Change(f"resources.account={_as_text(account)}", {"account": account})
    if resources.nodes > 1:
        fewer = resources.nodes // 2
        yield _size("nodes", fewer, resources.nodes)
    elif resources.gpus_per_node > 1:
        yield _size("gpus_per_node", resources.gpus_per_node // 2, resources.gpus_per_node)
    for part in (2, 4):
        shorter = (placement.time_limit_min or 0) // part
        if shorter >= _SHORTEST_MIN:
            words = f"resources.time_limit={shorter}m"
            yield _Change(words, {"time_limit_min": shorter}, is_same_work=False)


def _size(key: str, fewer: int, asked: int) -> _Change:
    return _Change(f"resources.{key}={fewer}", {key: fewer}, -(-asked // fewer), False)


def _compared(change: _Change, best: Ranked, other: Ranked) -> Alternative | None:
    """None where it is no better."""
    now, then = best.candidate.waits_s, other.candidate.waits_s
    sooner_s = None if now is None or then is None else now - then
    is_cheaper = (
        change.is_same_work
        and best.cost is not None
        and other.cost is not None
        and best.unit == other.unit
        and other.cost < best.cost * _CHEAPER
    )
    if not is_cheaper and (sooner_s is None or sooner_s < _SOONER_S):
        return None
    return Alternative(change.words, other, sooner_s, is_cheaper, change.slower)


def _as_text(name: str) -> str:
    """``name`` such that ``--set`` takes it for a text, and a shell for one word."""
    is_text = yaml.safe_load(name) == name
    return shell_word(name if is_text else json.dumps(name))
