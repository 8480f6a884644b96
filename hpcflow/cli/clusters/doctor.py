"""``hpcflow doctor``."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Final, TypedDict

import click

from hpcflow.cli.arguments import json_option, site_option
from hpcflow.cli.columns import Cell, Column, print_table
from hpcflow.cli.output import LEVEL_COLOURS, print_json
from hpcflow.terminal import Styled

if TYPE_CHECKING:
    from hpcflow.cli.clusters.doctor_checks import Check


class Checks(TypedDict):
    """The results of all checks."""

    checks: list[Check]


_COLUMNS: Final = (*Column.plain("CHECK, LEVEL"), *Column.texts("FOUND, NEXT"))


@click.command("doctor", short_help="Check this machine: what is wrong, and what to type.")
@site_option
@json_option(Checks)
def command(site: str | None, as_json: bool) -> int:
    """Check what runs need from this machine; exit 1 if a run would fail or stay pending.

    It checks Slurm, the site file, scratch, your accounts, the environment, the ledger, the daemon,
    the mirror and the clock. `sbatch --test-only` checks a job; no job is submitted. A check fails
    if it gets no answer within 30 seconds.
    """
    from hpcflow.cli.clusters.doctor_checks import check_all
    from hpcflow.sites.check import Level

    found = check_all(site)
    if as_json:
        print_json(Checks(checks=found))
    else:
        print_checks(found)
    return 1 if any(each.level is Level.ERROR for each in found) else 0


def print_checks(found: Iterable[Check]) -> None:
    rows: list[list[Cell]] = [
        [
            each.check,
            Styled(each.level.value, fg=LEVEL_COLOURS[each.level.value]),
            each.message,
            each.next_action or "",
        ]
        for each in found
    ]
    print_table(_COLUMNS, rows)
