"""``hpcflow checkpoint export``."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from hpcflow.cli.arguments import json_option, run_argument
from hpcflow.cli.output import picked, print_json, progress_bar
from hpcflow.cli.session import Session
from hpcflow.errors import InputError, NotFoundError
from hpcflow.model.units import counted, format_bytes
from hpcflow.runtime.rule import COMPLETE, Found
from hpcflow.storage.export import FolderSource, export
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.retention.checkpoints import Survey


class ExportedCheckpoint(TypedDict):
    """A copy of a checkpoint; `files` is the number of its files."""

    run_id: str
    train_step: int
    target: Path
    files: int
    size_bytes: int


@click.command("export")
@run_argument
@click.argument("target", type=click.Path(path_type=Path))
@click.option(
    "--train-step", type=click.IntRange(min=0), metavar="N", help="The checkpoint of this train "
    "step. Default: the newest complete one.",
)  # fmt: skip
@click.option("--best", is_flag=True, help="The best one, by `checkpoint.keep_best` of the config.")
@json_option(ExportedCheckpoint)
def command(run: str, target: Path, train_step: int | None, best: bool, as_json: bool) -> int:
    """Copy a checkpoint of RUN to TARGET, a folder that does not exist yet.

    It compares every file with its checksum. TARGET appears when the copy is complete. It is also
    a checkpoint, with its manifest.
    """
    from hpcflow.retention.checkpoints import survey

    if best and train_step is not None:
        raise InputError(
            "--best and --train-step exclude each other",
            next_action="give one of them",
        )
    seen = survey(Session().run_dir(run, newest=True))
    found = _chosen(seen, train_step, best=best)
    with progress_bar(
        *("DownloadColumn", "TransferSpeedColumn", "TimeRemainingColumn"),
        description=f"copying train step {found.train_step}",
        total=found.size_bytes,
    ) as bar:
        files = export(
            FolderSource(found.path), target, lambda size_bytes: bar.update(advance=size_bytes)
        )
    size_bytes = sum(file.size_bytes for file in files.values())
    if as_json:
        values = {"target": target.absolute(), "files": len(files), "size_bytes": size_bytes}
        print_json(picked(ExportedCheckpoint, found, run_id=seen.run_id, **values))
    else:
        echo(
            f"train step {found.train_step} of {seen.run_id}: {counted(len(files), 'file')}, "
            f"{format_bytes(size_bytes)}, copied to {target!s}"
        )
    return 0


def _chosen(seen: Survey, train_step: int | None, *, best: bool) -> Found:
    if train_step is not None:
        return seen.one(train_step)
    if best:
        return seen.best()
    whole = [each for each in seen.found if each.state == COMPLETE]
    if not whole:
        raise NotFoundError(
            f"run {seen.run_id} has no complete checkpoint",
            next_action=f"list its checkpoints: hpcflow checkpoint ls {seen.run_id}",
        )
    return whole[-1]
