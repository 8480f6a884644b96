"""``hpcflow checkpoint``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any, TypedDict, cast

import click

from hpcflow.cli.arguments import json_option, run_argument
from hpcflow.cli.checkpoints.export import command as export_command
from hpcflow.cli.columns import Column, print_table
from hpcflow.cli.output import metric_text, print_json, print_json_lines, progress_bar
from hpcflow.cli.session import Session
from hpcflow.clock import from_text
from hpcflow.errors import LedgerError, NotFoundError
from hpcflow.model.units import counted, format_bytes
from hpcflow.runtime.manifest import CheckpointError, read_manifest
from hpcflow.runtime.rule import BEING_MIRRORED, COMPLETE, DUE, Found, Rule
from hpcflow.storage.runs import is_gone
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.retention.checkpoints import Hidden, Pruned, Survey
    from hpcflow.storage.layout import RunDir


class CheckpointJson(TypedDict):
    """A checkpoint; `path` is below the run directory, and unknown values are null."""

    path: str
    train_step: int
    state: str
    why: str
    stranger: str
    size_bytes: int
    epoch: float | None
    metrics: dict[str, float]
    attempt: int | None
    world_size: int | None
    created_at: str | None


class KeptCheckpoint(CheckpointJson):
    """A checkpoint, and why it is kept; the next save or prune removes one without a reason."""

    kept: list[str]


class IncompleteCheckpoint(TypedDict):
    """Files of a checkpoint that does not have its name yet, or no longer."""

    path: str
    train_step: int
    state: str
    why: str
    size_bytes: int


class Checkpoints(TypedDict):
    """The checkpoints of a run; `rule` is null if all are kept."""

    run_id: str
    rule: Rule | None
    size_bytes: int
    checkpoints: list[KeptCheckpoint]
    hidden: list[IncompleteCheckpoint]


class CheckpointFiles(KeptCheckpoint):
    """A checkpoint, and the files in its manifest."""

    files: dict[str, Any]


class VerifiedCheckpoint(TypedDict):
    """Whether a checkpoint is whole; `why` if it is not."""

    train_step: int
    is_whole: bool
    why: str | None


class VerifiedCheckpoints(TypedDict):
    """The checkpoints that were verified."""

    run_id: str
    checkpoints: list[VerifiedCheckpoint]


class PrunedCheckpoints(TypedDict):
    """What was removed; the keys of `kept` are train steps."""

    run_id: str
    is_dry_run: bool
    freed_bytes: int
    removed: list[CheckpointJson]
    leftovers: list[IncompleteCheckpoint]
    kept: dict[str, list[str]]


#: The maximum of rows in a table, and of JSON lines written at once.
_SHOWN = 1000


@click.group("checkpoint", short_help="List, verify, prune and export the checkpoints of a run.")
def command() -> None:
    """List, verify, prune and export the checkpoints of a run."""


command.add_command(export_command)


@command.command("ls")
@run_argument
@json_option(Checkpoints)
def ls_command(run: str, as_json: bool) -> int:
    """List the checkpoints of RUN, and why each is kept.

    A checkpoint is "complete" if its manifest and all its files are there, in the right sizes;
    `hpcflow checkpoint verify` also compares checksums. Otherwise it is "torn". It is "foreign" if
    nothing proves that hpcflow made it for this run. Incomplete folders follow: "being written",
    "left behind" by a kill, or "set aside" for another checkpoint of the same train step. The table
    lists the newest 1000 complete checkpoints; --json lists all.
    """
    from hpcflow.retention.checkpoints import survey

    session = Session()
    run_dir = session.run_dir(run, newest=True)
    with suppress(LedgerError):  # then only the end of an attempt may be unknown
        session.refresh()
    seen = survey(run_dir)
    kept = seen.kept(seen.rule)
    if as_json:
        print_json_lines(
            {
                "run_id": seen.run_id,
                "rule": None if seen.rule is None else _plain(seen.rule),
                "size_bytes": _sum(seen.found) + _sum(seen.hidden),
            },
            checkpoints=(
                {**_found_json(each), "kept": kept[each.train_step]} for each in seen.found
            ),
            hidden=(_hidden_json(run_dir, each) for each in seen.hidden),
        )
    elif not seen.found and not seen.hidden:
        echo(f"{seen.run_id} has no checkpoints")
    else:
        _print_table(seen, kept)
    return 0


@command.command("show")
@run_argument
@click.argument("train_step", type=click.IntRange(min=0))
@json_option(CheckpointFiles)
def show_command(run: str, train_step: int, as_json: bool) -> int:
    """Show the checkpoint of RUN at TRAIN_STEP: its attempt, metrics and files."""
    from hpcflow.retention.checkpoints import survey

    run_dir = Session().run_dir(run, newest=True)
    seen = survey(run_dir)
    found = seen.one(train_step)
    try:
        manifest = read_manifest(found.path)
    except CheckpointError:
        manifest = {}  # `found` tells what is wrong with it
    entries = manifest.get("files")
    files: dict[str, Any] = entries if isinstance(entries, dict) else {}
    kept = seen.kept(seen.rule)[train_step]
    if as_json:
        print_json({**_found_json(found), "kept": kept, "files": files})
        return 0
    lines = {
        "run": seen.run_id,
        "path": str(found.path),
        "state": f"{found.state}: {found.why}" if found.why else found.state,
        "kept": "; ".join(kept) or "no: the next save or prune removes it",
        "made by": "" if found.attempt is None else f"attempt {found.attempt}",
        "ranks": "" if found.world_size is None else str(found.world_size),
        "epoch": "" if found.epoch is None else f"{found.epoch:g}",
        "written": _time(found.created_at),
        "metrics": metric_text(dict(found.metrics)),
        "size": format_bytes(found.size_bytes),
    }
    echo(f"train step {found.train_step}", bold=True)
    for key, value in lines.items():
        if value:
            echo(f"  {key:<8} {value}")
    if files:
        _print_files(files)
    return 0


@command.command("verify")
@run_argument
@click.argument("train_step", type=click.IntRange(min=0), required=False)
@json_option(VerifiedCheckpoints)
def verify_command(run: str, train_step: int | None, as_json: bool) -> int:
    """Compare all checkpoints of RUN, or that of TRAIN_STEP, with their checksums.

    If a file is damaged, it names the file, and the exit code is 1.
    """
    from hpcflow.retention.checkpoints import survey, why_not_whole

    seen = survey(Session().run_dir(run, newest=True))
    todo = seen.found if train_step is None else [seen.one(train_step)]
    if not todo:
        raise NotFoundError(
            f"run {seen.run_id} has no checkpoints",
            next_action=f"see the run: hpcflow show {seen.run_id}",
        )
    results: list[VerifiedCheckpoint] = []
    with _progress(_sum(todo)) as look_at:
        for each in todo:
            look_at(each)
            try:
                why = why_not_whole(each)
            except NotFoundError:
                continue  # its job has removed it, by its retention rule
            results.append({"train_step": each.train_step, "is_whole": why is None, "why": why})
            if not as_json:
                state = "whole" if why is None else f"not whole: {why}"
                echo(f"train step {each.train_step}: {state}")
    if as_json:
        print_json(VerifiedCheckpoints(run_id=seen.run_id, checkpoints=results))
    return 0 if all(each["is_whole"] for each in results) else 1


@command.command("prune")
@run_argument
@click.option("--dry-run", is_flag=True, help="List what would be removed; remove nothing.")
@click.option(
    "--keep-last",
    type=click.IntRange(min=1),
    metavar="N",
    help="Keep the newest N instead of `checkpoint.keep_last` of the config.",
)
@json_option(PrunedCheckpoints)
def prune_command(run: str, dry_run: bool, keep_last: int | None, as_json: bool) -> int:
    """Remove the checkpoints of RUN that its config does not keep, and files of killed saves.

    The rule is that of the job: `checkpoint.keep_last`, `keep_best` and `keep_every`. hpcflow
    verifies the newest complete checkpoint first, and keeps it. It also keeps the final model, the
    checkpoint that an active attempt resumes from, and files that it did not create for this run.
    """
    from hpcflow.retention.checkpoints import prune

    session = Session()
    run_dir = session.run_dir(run)
    if not is_gone(run_dir):
        session.refresh_run(run_dir)  # an attempt that has ended needs no checkpoint
    with _progress(None) as look_at:
        pruned = prune(
            run_dir,
            settings=session.settings,
            clock=session.clock,
            keep_last=keep_last,
            is_dry=dry_run,
            look_at=look_at,
        )
    if as_json:
        output: PrunedCheckpoints = {
            "run_id": run_dir.path.name,
            "is_dry_run": dry_run,
            "freed_bytes": pruned.freed_bytes,
            "removed": [_found_json(each) for each in pruned.gone],
            "leftovers": [_hidden_json(run_dir, each) for each in pruned.leftovers],
            "kept": {str(step): why for step, why in sorted(pruned.kept.items())},
        }
        print_json(output)
    else:
        _print_pruned(pruned, is_dry=dry_run)
    if not dry_run:
        session.catch_up_if_shared(run_dir)
    return 0


def _print_table(seen: Survey, kept: dict[int, list[str]]) -> None:
    columns = (
        *Column.numbers("TRAIN STEP, EPOCH 4"),
        *Column.plain("WRITTEN 3"),
        *Column.numbers("ATTEMPT 5, SIZE"),
        *Column.texts("STATE, KEPT 1, METRICS 2"),
    )
    rows = [
        [
            str(each.train_step),
            "" if each.epoch is None else f"{each.epoch:g}",
            _time(each.created_at),
            "" if each.attempt is None else str(each.attempt),
            format_bytes(each.size_bytes),
            f"{each.state}: {each.why}" if each.why else each.state,
            "; ".join(kept[each.train_step]) or "no: the next save or prune removes it",
            metric_text(dict(each.metrics)),
        ]
        for each in _shown(seen.found)
    ]
    for hidden in seen.hidden[-_SHOWN:]:
        state = f"{hidden.state}: {hidden.why}" if hidden.why else hidden.state
        size = format_bytes(hidden.size_bytes)
        rows.append([str(hidden.train_step), "", "", "", size, state, "", ""])
    print_table(columns, rows)
    total = _sum(seen.found) + _sum(seen.hidden)
    echo(f"{counted(len(seen.found), 'checkpoint')}, {format_bytes(total)}")
    if len(seen.found) > _SHOWN or len(seen.hidden) > _SHOWN:
        echo(f"only the newest {_SHOWN} and incomplete ones are shown; list all: --json")


def _shown(found: list[Found]) -> list[Found]:
    """Return the newest checkpoints and the newest incomplete ones, in order."""
    older, newest = found[:-_SHOWN], found[-_SHOWN:]
    return [each for each in older if each.state != COMPLETE][-_SHOWN:] + newest


def _print_files(files: dict[str, Any]) -> None:
    rows = []
    for name, entry in sorted(files.items()):
        facts = entry if isinstance(entry, dict) else {}
        size = facts.get("size_bytes")
        size_text = format_bytes(size) if isinstance(size, int) else ""
        rows.append([name, size_text, str(facts.get("sha256", ""))])
    print_table([Column("FILE"), Column("SIZE", is_number=True), Column("SHA256", 1)], rows)


def _print_pruned(pruned: Pruned, *, is_dry: bool) -> None:
    verb = "would remove" if is_dry else "removed"
    for each in pruned.gone:
        torn = f"  ({each.why})" if each.why else ""
        echo(f"{verb} train step {each.train_step}  {format_bytes(each.size_bytes)}{torn}")
    for hidden in pruned.leftovers:
        size = format_bytes(hidden.size_bytes)
        echo(f"{verb} {hidden.path.name}  {size}  ({hidden.why})")
    for train_step, why in sorted(pruned.kept.items()):
        for reason in (BEING_MIRRORED, DUE):
            if reason in why:
                echo(f"kept train step {train_step}  ({reason})")
    if pruned.gone or pruned.leftovers:
        echo(f"{'would free' if is_dry else 'freed'} {format_bytes(pruned.freed_bytes)}")
    elif pruned.rule is None:
        echo("nothing to remove: the config of the run says keep_last: all")
        echo("  → keep fewer: --keep-last N", err=True)
    else:
        echo("nothing to remove")


def _found_json(found: Found) -> CheckpointJson:
    values = _plain(found)
    path = f"{values.pop('folder').name}/{found.name}"
    return cast("CheckpointJson", {"path": path, **values})


def _hidden_json(run_dir: RunDir, hidden: Hidden) -> IncompleteCheckpoint:
    path = str(hidden.path.relative_to(run_dir.path))
    return cast("IncompleteCheckpoint", {**_plain(hidden), "path": path})


def _plain(value: Found | Hidden | Rule) -> dict[str, Any]:
    return dict(vars(value))


def _sum(found: list[Found] | list[Hidden]) -> int:
    return sum(each.size_bytes for each in found)


def _time(text: str | None) -> str:
    """Return a time in a manifest, which may be invalid, as text."""
    try:
        return f"{from_text(text or ''):%Y-%m-%d %H:%M:%S}"
    except (ValueError, OverflowError):
        return ""


@contextmanager
def _progress(total_bytes: int | None) -> Iterator[Callable[[Found], None]]:
    columns = ("DownloadColumn", "TimeElapsedColumn")
    with progress_bar(*columns, total=total_bytes, visible=False) as bar:
        before = 0

        def look_at(found: Found) -> None:
            nonlocal before
            text = f"reading train step {found.train_step}"
            bar.update(description=text, advance=before, visible=True)
            before = found.size_bytes

        yield look_at
