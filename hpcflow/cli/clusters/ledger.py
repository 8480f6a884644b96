"""``hpcflow ledger``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from os.path import lexists
from typing import TypedDict

import click

from hpcflow.cli.arguments import endpoint_option, json_option, plain_text
from hpcflow.cli.output import print_json, progress_bar
from hpcflow.cli.session import Session, warn
from hpcflow.errors import InputError, SiteError
from hpcflow.ledger.url import parse_url
from hpcflow.model.units import counted
from hpcflow.storage.runs import is_gone, list_runs, run_ids
from hpcflow.terminal import echo


class CheckedLedger(TypedDict):
    """The differences of the ledger from the runs' files; `runs` is the number of runs."""

    runs: int
    differences: list[str]


class UpgradedLedger(TypedDict):
    """The version of the tables of a ledger."""

    ledger: str
    version: str


@click.group("ledger", short_help="Rebuild, check or upgrade the ledger.")
def command() -> None:
    """Rebuild, check or upgrade the ledger: the database that indexes the runs' files."""


@command.command("rebuild")
@click.option(
    "--from",
    "url",
    metavar="URL",
    callback=plain_text,
    help="Read your runs from this store, such as s3://bucket/prefix, if scratch is gone.",
)
@endpoint_option
@json_option("hpcflow.projection:Summary", "hpcflow.restore.ledger:FromStore")
def rebuild_command(url: str | None, endpoint_url: str | None, as_json: bool) -> int:
    """Rebuild the rows of your runs from their files."""
    from hpcflow.projection import forget_unsent, rebuild

    session = Session()
    if url is not None:
        return _rebuild_from(session, url, endpoint_url, as_json=as_json)
    if endpoint_url is not None:
        raise InputError(
            "--endpoint-url needs --from",
            next_action="name the folder of all runs in the store: --from s3://BUCKET/PREFIX",
        )
    home, user = session.settings.home, session.settings.user
    run_dirs = list_runs(home, warn)
    summary = rebuild(session.ledger, run_dirs)
    strangers = session.ledger.run_ids(user=user) - set(run_ids(home))
    forget_unsent(session.ledger, strangers, user=user)
    for problem in summary.problems:
        warn(problem)
    for run_id in sorted(set(summary.gone)):
        warn(f"{run_id}: its run directory or journal is gone; its rows in the ledger were kept")
    if as_json:
        print_json(summary)
    else:
        echo(f"{counted(summary.runs, 'run')}, {counted(summary.lines, 'line')}")
    return 1 if summary.problems else 0


def _rebuild_from(session: Session, url: str, endpoint_url: str | None, *, as_json: bool) -> int:
    """Rebuild the rows of runs whose directory is gone from a store."""
    from hpcflow.mirror.stores import open_store
    from hpcflow.model.run import Mirror
    from hpcflow.placement.run_paths import endpoint_of
    from hpcflow.restore.ledger import rebuild_from

    try:
        site = session.site(None)
    except SiteError:  # a store can be read anywhere
        site = None
    endpoint_url = endpoint_url or endpoint_of(url, site, session.settings)
    remote = open_store(Mirror(url=url, endpoint_url=endpoint_url), clock=session.clock)
    with count_runs(shown=not as_json) as on_run:
        found = rebuild_from(session.ledger, remote, session.settings, site=site, on_run=on_run)
    for problem in found.problems:
        warn(problem)
    if as_json:
        print_json(found)
        return 1 if found.problems else 0
    echo(f"{counted(len(found.runs), 'run')}, {counted(found.lines, 'line')}")
    for ids, what in (
        (found.ahead, "kept: the ledger has read more than the store has"),
        (found.others, "skipped: of other users"),
    ):
        if ids:
            echo(f"{counted(len(ids), 'run')} {what}")
    return 1 if found.problems else 0


@contextmanager
def count_runs(*, shown: bool) -> Iterator[Callable[[int, int], object]]:
    """Yield a function that shows how many runs are done, of how many."""
    with progress_bar("MofNCompleteColumn", shown=shown, description="runs", total=None) as bar:
        yield lambda done, number: bar.update(completed=done, total=number)


@command.command("check")
@json_option(CheckedLedger)
def check_command(as_json: bool) -> int:
    """Compare the ledger with the runs' files; exit 1 if they differ."""
    from hpcflow.projection import catch_up_home, check, unlinked

    session = Session()
    home, user = session.settings.home, session.settings.user
    catch_up_home(session.ledger, home, user=user)
    run_dirs = list_runs(home, warn)
    purged = [each for each in run_dirs if is_gone(each) or not lexists(each.journal)]
    found = {
        "rebuild it from the files: hpcflow ledger rebuild": check(
            session.ledger, [run_dir for run_dir in run_dirs if run_dir not in purged]
        ),
        "these were purged, or their scratch is not mounted here; if they were mirrored: hpcflow "
        "restore RUN": check(session.ledger, purged),
        f"put their folders in {home.runs} back from a backup; if they were mirrored: hpcflow "
        "restore --from URL": unlinked(session.ledger, home, user=user),
    }
    differences = [text for texts in found.values() for text in texts]
    if as_json:
        print_json(CheckedLedger(runs=len(run_dirs), differences=differences))
        return 1 if differences else 0
    for next_action, texts in found.items():
        for text in texts:
            echo(text)
        if texts:
            echo(f"  → {next_action}", err=True)
    if not differences:
        echo(f"{counted(len(run_dirs), 'run')}: the ledger agrees with the files")
    return 1 if differences else 0


@command.command("upgrade")
@json_option(UpgradedLedger)
def upgrade_command(as_json: bool) -> int:
    """Upgrade the tables of an older hpcflow to those of this version."""
    from hpcflow.ledger.upgrade import HEAD, upgrade

    url = parse_url(Session().settings.ledger_url)
    upgrade(url)
    if as_json:
        print_json(UpgradedLedger(ledger=str(url), version=HEAD))
    else:
        echo(f"the ledger {url} has the tables of version {HEAD}")
        # A newer hpcflow may read more from the files.
        echo("  → update the rows of your runs: hpcflow ledger rebuild")
    return 0
