"""``hpcflow nodes``."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from hpcflow.cli.arguments import json_option, plain_text, site_option
from hpcflow.cli.columns import Cell, Column, print_table
from hpcflow.cli.output import picked, print_json, site_text
from hpcflow.cli.session import Session
from hpcflow.errors import HpcflowError, InputError, NotFoundError, Where, shell_word
from hpcflow.model.units import format_duration
from hpcflow.terminal import Styled, echo

if TYPE_CHECKING:
    from hpcflow.model.state import Cause
    from hpcflow.requeue.nodes import Standing
    from hpcflow.sites.schema import Site


@dataclass(frozen=True)
class NodeLine:
    """A node that has failed runs.

    Attributes:
        excluded_in: partitions in which a job on one node excludes it now.
    """

    site: str
    node: str
    score: float
    is_bad: bool
    excluded_in: list[str]
    failures: int
    runs: tuple[str, ...]
    causes: tuple[Cause, ...]
    last_failure: datetime
    ran_well: int
    why: str


class Nodes(TypedDict):
    """The nodes that have failed runs, by site, the worst first."""

    nodes: list[NodeLine]


class ForgivenNode(TypedDict):
    """The node that was forgiven."""

    site: str
    node: str


@click.group(
    "nodes",
    invoke_without_command=True,
    short_help="Show which nodes failed runs, and which are excluded.",
)
@site_option
@json_option(Nodes)
@click.pass_context
def command(ctx: click.Context, site: str | None, as_json: bool) -> int:
    """Show which nodes failed runs lately, which of them are excluded, and why.

    Resubmitted attempts exclude these nodes, unless the config has
    `retry: {avoid_bad_nodes: false}`.
    """
    if ctx.invoked_subcommand is not None:
        return 0
    session = Session()
    names = _names(session, site)
    session.refresh()
    lines = [line for line in _lines(session) if names is None or line.site in names]
    if as_json:
        print_json(Nodes(nodes=lines))
    elif not lines:
        echo("no node has failed a run lately")
    else:
        _print(lines, session.clock.now())
    return 0


@command.command("forgive")
@click.argument("node", callback=plain_text)
@site_option
@json_option(ForgivenNode)
@click.pass_context
def forgive_command(ctx: click.Context, node: str, site: str | None, as_json: bool) -> int:
    """Ignore past failures on NODE for your runs. Use it after a repair."""
    from hpcflow.storage.node_overrides import forgive

    # `nodes --site X forgive N` means the same as `nodes forgive N --site X`.
    before = ctx.parent.params if ctx.parent is not None else {}
    site, as_json = site or before.get("site"), as_json or before.get("as_json", False)
    session = Session()
    names = _names(session, site)
    session.refresh()
    sites = [
        line.site
        for line in _lines(session)
        if line.node == node and (names is None or line.site in names)
    ]
    if not sites:
        raise NotFoundError(
            f"no node {node[:80]!r} has failed a run lately",
            next_action="see those that have: hpcflow nodes",
        )
    if len(sites) > 1:
        raise InputError(
            f"there is a node {node} on each of {', '.join(sorted(map(site_text, sites)))}",
            where=Where(key="--site"),
            next_action=f"name one: hpcflow nodes forgive {shell_word(node)} "
            f"--site {shell_word(site_text(sites[0]))}",
        )
    forgive(session.settings.home, sites[0], node, session.clock.now())
    if as_json:
        print_json(ForgivenNode(site=sites[0], node=node))
    else:
        echo(f"{node} of {site_text(sites[0])} is forgiven")
    return 0


def _lines(session: Session) -> Iterator[NodeLine]:
    """Yield all nodes that have failed a run, by site, the worst first."""
    from hpcflow.requeue.exclusion import excluded_in, excludes
    from hpcflow.requeue.nodes import read_evidence

    evidence = read_evidence(session.ledger, session.settings.home, session.clock.now())
    for name, standings in sorted(evidence.standings.items()):
        site = _site(session, name)
        excluded = excluded_in(evidence, name, site)
        spared = "not excluded, because the partition would lose too many nodes"
        if site is not None and not excludes(site):
            spared = "hpcflow excludes no nodes on this site"
        for each in standings:
            if each.node in excluded:
                yield _line(name, each, excluded[each.node], spared)
            else:
                yield _line(name, each, [], "not excluded, because most nodes there look as bad")


def _line(site: str, standing: Standing, excluded: list[str], spared: str) -> NodeLine:
    why = standing.why
    if standing.is_bad and not excluded:
        why += f"; {spared}"
    values = picked(
        NodeLine,
        standing,
        site=site,
        score=round(standing.score, 3),
        excluded_in=excluded,
        why=why,
    )
    return NodeLine(**values)


def _site(session: Session, name: str) -> Site | None:
    """Return the site that a run names; None if it is another user's file, or gone."""
    try:
        return session.site_in_report(name)
    except HpcflowError:
        return None


def _names(session: Session, asked: str | None) -> set[str] | None:
    """Return the names that runs may have for a site, a name or a path; None for all sites."""
    if asked is None:
        return None
    named = session.site(asked, named_in=Where(key="--site"))
    return {asked, named.name, str(Path(asked).absolute())}


def _print(lines: list[NodeLine], now: datetime) -> None:
    columns = Column.plain("SITE 3, NODE") + Column.numbers("SCORE 2") + Column.plain("EXCLUDED")
    columns += Column.numbers("LAST 1") + Column.texts("WHY")
    rows: list[list[Cell]] = [
        [
            site_text(line.site),
            line.node,
            f"{line.score:.2f}",
            Styled(_excluded(line), fg="red" if line.excluded_in else None),
            format_duration(max(0.0, (now - line.last_failure).total_seconds())),
            line.why,
        ]
        for line in lines
    ]
    print_table(columns, rows)


def _excluded(line: NodeLine) -> str:
    if line.excluded_in:
        return f"from {', '.join(line.excluded_in)}"
    return "suspicious" if line.is_bad else "no"
