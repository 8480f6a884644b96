"""``hpcflow plan``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypedDict

import click

from hpcflow.cli.arguments import config_argument, json_option, set_option, site_option
from hpcflow.cli.columns import Column, painted, print_table
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session, warn
from hpcflow.errors import Where
from hpcflow.model.units import counted, format_duration
from hpcflow.terminal import Styled, echo

if TYPE_CHECKING:
    from datetime import datetime

    from hpcflow.placement.alternatives import Alternative
    from hpcflow.placement.choice import Ranked
    from hpcflow.placement.choosing import Place


class PlaceJson(TypedDict):
    """A place where a run could go; money is text, and unknown values are null."""

    partition: str
    account: str | None
    gpu_type: str | None
    gpus: int
    nodes: int
    time_limit_min: int | None
    is_preemptible: bool
    mtbf_s: float
    expected_s: float
    cost_usd: str | None
    cost_su: str | None
    gpu_hours: str | None
    starts_at: datetime | None
    jobs_ahead: int | None
    full_limit: str | None
    waits_s: float | None
    fair_share: float | None
    score: float


class AlternativeJson(PlaceJson):
    """What another value of a key would change."""

    set: str
    sooner_s: float | None
    is_cheaper: bool
    slower: int


class RefusedPlace(TypedDict):
    """A place where a run cannot go."""

    partition: str
    account: str | None
    reason: str


class PlanJson(TypedDict):
    """Where a run could go, the best place first."""

    site: str
    candidates: list[PlaceJson]
    refused: list[RefusedPlace]
    alternatives: list[AlternativeJson]
    unknown: list[str]


#: Starts within a minute of each other count as equal.
_SAME_S: Final = 60.0


@click.command("plan", short_help="Show where a run could go, at what cost, and when.")
@config_argument
@site_option
@set_option
@json_option(PlanJson)
def command(config: Path, site: str | None, overrides: tuple[str, ...], as_json: bool) -> int:
    """Compare the partitions, accounts and QOS that CONFIG can use; submit nothing.

    `hpcflow run` would choose the first. The exit code is 2 if CONFIG can run nowhere.
    """
    from hpcflow.config import load_spec
    from hpcflow.placement.alternatives import Baseline, alternatives

    session = Session()
    the_site = session.site(site, named_in=Where(key="--site"))
    chooser = session.chooser(the_site, site)
    loaded = load_spec(config, overrides)
    survey = chooser.survey(loaded.spec, loaded.document)
    best = survey.ranked[0] if survey.ranked else None
    others: list[Alternative] = []
    if best:
        as_it_is = Baseline(best.candidate.placement, best.candidate.waits_s, ranked=best)
        others = alternatives(loaded.spec, as_it_is, chooser, loaded.document)
    unknown = list(dict.fromkeys(chooser.forecast.unknown))
    if as_json:
        output: PlanJson = {
            "site": the_site.name,
            "candidates": [_values(each) for each in survey.ranked],
            "refused": [
                {"partition": name, "account": account, "reason": reason}
                for (name, account), reason in survey.refused.items()
            ],
            "alternatives": [_other_values(each) for each in others],
            "unknown": unknown,
        }
        print_json(output)
        return 0 if best else 2
    for message in unknown:
        warn(f"unknown: {message}")
    if best:
        _print(survey.ranked)
    _print_refused(survey.refused)
    _print_others(others)
    if not best:
        echo("no partition fits this run")
    return 0 if best else 2


def _values(ranked: Ranked) -> PlaceJson:
    each, place = ranked.candidate, ranked.candidate.placement
    return {
        "partition": place.partition,
        "account": each.account,
        "gpu_type": place.gpu_type,
        "gpus": place.nodes * place.gpus_per_node,
        "nodes": place.nodes,
        "time_limit_min": place.time_limit_min,
        "is_preemptible": place.options.preemptible,
        "mtbf_s": each.mtbf_s,
        "expected_s": each.runs_s,
        "cost_usd": _text(each.cost_usd),
        "cost_su": _text(each.cost_su),
        "gpu_hours": _text(each.gpu_hours),
        "starts_at": each.start.at if each.start else None,
        "jobs_ahead": each.start.jobs_ahead if each.start else None,
        "full_limit": each.start.limit if each.start else None,
        "waits_s": each.waits_s,
        "fair_share": each.fair_share,
        "score": round(ranked.score, 4),
    }


def _other_values(each: Alternative) -> AlternativeJson:
    return {
        "set": each.change,
        "sooner_s": each.sooner_s,
        "is_cheaper": each.is_cheaper,
        "slower": each.slower,
        **_values(each.ranked),
    }


def _text(amount: object) -> str | None:
    return None if amount is None else f"{amount:.2f}"


def _print(found: Sequence[Ranked]) -> None:
    columns = (
        *Column.plain("PARTITION, ACCOUNT 2, GPUS 1"),
        *Column.numbers(f"{found[0].unit.upper()}, STARTS, DONE 3, FAIR SHARE 6, SCORE 5"),
        *Column.texts("WHY 4"),
    )
    print_table(columns, [_cells(ranked, found) for ranked in found])


def _cells(ranked: Ranked, found: Sequence[Ranked]) -> list[Styled]:
    each, place = ranked.candidate, ranked.candidate.placement
    gpus = place.nodes * place.gpus_per_node
    cells = (
        place.partition,
        each.account or "-",
        f"{gpus} {place.gpu_type or ''}".strip() if gpus else "-",
        "?" if ranked.cost is None else f"{ranked.cost:.2f}",
        _in(each.waits_s),
        _in(None if each.waits_s is None else each.waits_s + each.runs_s),
        "?" if each.fair_share is None else f"{each.fair_share:.2f}",
        f"{ranked.score:.2f}",
        _why(ranked, found),
    )
    return painted(cells, bold=ranked is found[0] or None)


def _in(seconds: float | None) -> str:
    if seconds is None:
        return "?"
    return "now" if seconds < _SAME_S else f"in {format_duration(seconds)}"


def _why(ranked: Ranked, found: Sequence[Ranked]) -> str:
    """Return how a place differs from the others."""
    each = ranked.candidate
    words = []
    costs = [other.cost for other in found if other.cost is not None]
    starts = [o.candidate.waits_s for o in found if o.candidate.waits_s is not None]
    if ranked.cost is None:
        words.append("price unknown, ranked as the most expensive")
    elif len(costs) > 1 and ranked.cost == min(costs) < max(costs):
        words.append("cheapest")
    if each.waits_s is not None and each.waits_s == min(starts) < max(starts) - _SAME_S:
        words.append("starts first")
    if each.start is not None and each.start.jobs_ahead:
        words.append(f"{counted(each.start.jobs_ahead, 'job')} ahead in the queue")
    if each.start is not None and each.start.limit is not None:
        words.append(f"waits for a full limit: {each.start.limit}")
    if each.placement.options.preemptible:
        words.append(f"may be preempted, about every {format_duration(each.mtbf_s)}")
    return ", ".join(words)


def _print_refused(refused: Mapping[Place, str]) -> None:
    for (name, account), reason in refused.items():
        whose = f" with account {account}" if account else ""
        echo(f"not {name}{whose}: {reason}")


def _print_others(others: Sequence[Alternative]) -> None:
    if not others:
        return
    echo()
    echo("alternatives:")
    for each in others:
        where = each.ranked.candidate.placement.partition
        words = []
        if each.sooner_s is not None and each.sooner_s >= _SAME_S:
            words.append(f"would start {format_duration(each.sooner_s)} sooner")
        if each.is_cheaper and each.ranked.cost is not None:
            words.append(f"costs {each.ranked.cost:.2f} {each.ranked.unit}")
        if each.slower > 1:
            words.append(f"the same work takes up to {each.slower} times as long")
        echo(f"  --set {each.change:<32} {', '.join(words)} (in {where})")
