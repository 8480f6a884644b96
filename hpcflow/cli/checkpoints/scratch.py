"""``hpcflow scratch``."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, TypedDict

import click

from hpcflow.cli.arguments import json_option
from hpcflow.cli.columns import Cell, Column, print_table
from hpcflow.cli.output import picked, print_json, progress_bar
from hpcflow.cli.session import Session, warn
from hpcflow.model.units import counted, format_bytes, format_duration
from hpcflow.terminal import Styled, echo

if TYPE_CHECKING:
    from pathlib import Path

    from hpcflow.retention.scratch import Disk, InHome, OnScratch, Scratch
    from hpcflow.runtime.disk_quota import Quota
    from hpcflow.storage.layout import RunDir


class FileSystem(TypedDict):
    """A file system with runs; `left_bytes` is the least that space and quotas leave."""

    path: Path
    kind: str
    total_bytes: int
    free_bytes: int
    left_bytes: int
    quotas: Sequence[Quota]
    purge_days: int | None
    runs: int
    size_bytes: int


class HomeJson(TypedDict):
    """HPCFLOW_HOME, with the records of all runs; `left_bytes` is null if unknown."""

    path: Path
    kind: str
    left_bytes: int | None
    runs: int
    files: int
    size_bytes: int


class RunOnScratch(TypedDict):
    """A run on scratch; checkpoints are named by their train steps."""

    run_id: str
    run_dir: Path
    size_bytes: int
    newest_checkpoint: int | None
    checkpoints: list[int]
    not_mirrored: list[int] | None
    purge_days: int | None
    checkpoint_purged_at: dict[str, datetime]
    purged_at: datetime | None


class OnScratchJson(TypedDict):
    """The runs on scratch; `gone` are those that were there."""

    home: HomeJson
    file_systems: list[FileSystem]
    runs: list[RunOnScratch]
    gone: list[str]


_LISTED = 5


@click.command("scratch", short_help="Show the space of your runs, and what is purged when.")
@json_option(OnScratchJson)
def command(as_json: bool) -> int:
    """Show the space of your runs, what is purged when, and what is not mirrored yet.

    The first lines are about HPCFLOW_HOME, which has the records of all runs. Nothing there is
    purged.

    PURGED is the earliest time at which the site may purge a file of the run's newest complete
    checkpoint, or of one that is not mirrored: the last access plus `scratch.purge_days` of the
    site file. The run that is purged first comes first.
    """
    from hpcflow.retention.scratch import survey_scratch
    from hpcflow.sites.schema import Site

    session = Session()
    sites: dict[str, Site] = {}

    def site_of(name: str) -> Site:
        if name not in sites:
            sites[name] = session.site(name)
        return sites[name]

    seen = survey_scratch(session.settings, site_of, _progress, warn)
    if as_json:
        print_json(_json(seen))
    else:
        _print(seen, session.clock.now())
    return 0


def _json(seen: Scratch) -> dict[str, Any]:
    """Return the values of an :class:`OnScratchJson`."""
    space = seen.home.space
    kind, left_bytes = ("", None) if space is None else (space.kind, space.left_bytes)
    return {
        "home": picked(HomeJson, seen.home, kind=kind, left_bytes=left_bytes),
        "file_systems": [
            picked(
                FileSystem,
                disk.space,
                purge_days=disk.purge_days,
                runs=disk.runs,
                size_bytes=disk.size_bytes,
            )
            for disk in seen.disks
        ],
        "runs": [
            picked(RunOnScratch, run, run_dir=run.run_dir.path, newest_checkpoint=run.newest)
            for run in seen.runs
        ],
        "gone": seen.gone,
    }


def _print(seen: Scratch, now: datetime) -> None:
    _print_home(seen.home)
    for disk in seen.disks:
        _print_disk(disk)
    if not seen.runs:
        echo("no runs on scratch")
    else:
        _print_runs(seen.runs, now)
    if seen.gone:
        some = ", ".join(seen.gone[:_LISTED])
        more = f" and {len(seen.gone) - _LISTED} more" if len(seen.gone) > _LISTED else ""
        echo(f"gone from scratch: {some}{more}")


def _print_home(home: InHome) -> None:
    space = home.space
    echo(f"{home.path!s}{f'  {space.kind}' if space is not None and space.kind else ''}", bold=True)
    left = "" if space is None else f"{format_bytes(space.left_bytes)} left; "
    echo(
        f"  {left}hpcflow uses {format_bytes(home.size_bytes)} in {counted(home.files, 'file')}, "
        f"with the records of {counted(home.runs, 'run')}"
    )
    for quota in () if space is None else space.quotas:
        echo(f"  quota of {quota.whose}: {_quota(quota)}")


def _print_disk(disk: Disk) -> None:
    space = disk.space
    kind = f"  {space.kind}" if space.kind else ""
    echo(f"{space.path!s}{kind}", bold=True)
    takes = "1 run of yours takes" if disk.runs == 1 else f"{disk.runs} runs of yours take"
    echo(
        f"  {format_bytes(space.free_bytes)} of {format_bytes(space.total_bytes)} free; "
        f"{takes} {format_bytes(disk.size_bytes)}"
    )
    for quota in space.quotas:
        echo(f"  quota of {quota.whose}: {_quota(quota)}")
    if disk.purge_days is not None:
        echo(f"  purged after {counted(disk.purge_days, 'day')} without access")


def _quota(quota: Quota) -> str:
    text = f"{format_bytes(quota.used_bytes)} used"
    limits = [limit for limit in (quota.soft_bytes, quota.limit_bytes) if limit is not None]
    if limits and quota.left_bytes is not None:
        text += f" of {format_bytes(min(limits))}, {format_bytes(quota.left_bytes)} left"
    if quota.limit_files is not None:
        text += f"; {quota.used_files} of {counted(quota.limit_files, 'file')}"
    return text


def _print_runs(runs: list[OnScratch], now: datetime) -> None:
    columns = (
        *Column.plain("RUN"),
        *Column.numbers("SIZE, CHECKPOINTS 3, NEWEST 2"),
        *Column.plain("NOT MIRRORED 1, PURGED"),
    )
    rows = [
        [
            run.run_id,
            format_bytes(run.size_bytes),
            str(len(run.checkpoints)),
            "" if run.newest is None else str(run.newest),
            _not_mirrored(run),
            _purged(run.purged_at, now),
        ]
        for run in runs
    ]
    print_table(columns, rows)


def _not_mirrored(run: OnScratch) -> str:
    if not run.not_mirrored:
        return ""
    text = f"{len(run.not_mirrored)} of them"
    return f"{text}, the newest too" if run.newest in run.not_mirrored else text


def _purged(at: datetime | None, now: datetime) -> Cell:
    if at is None:
        return ""
    left_s = (at - now).total_seconds()
    if left_s <= 0:
        return Styled(f"any moment (since {at:%Y-%m-%d})", fg="red")
    words = f"in {format_duration(left_s)} ({at:%Y-%m-%d})"
    return Styled(words, fg="yellow") if left_s < 3 * 86400 else words


def _progress(run_dirs: Iterable[RunDir]) -> Iterator[RunDir]:
    todo = list(run_dirs)
    with progress_bar("MofNCompleteColumn", description="reading the runs", total=len(todo)) as bar:
        for run_dir in todo:
            yield run_dir
            bar.update(advance=1)
