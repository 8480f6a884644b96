"""``hpcflow history``."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from hpcflow.cli.arguments import json_option, run_argument
from hpcflow.cli.output import print_json, safe
from hpcflow.cli.session import Session
from hpcflow.model.units import format_duration

if TYPE_CHECKING:
    from rich.table import Table

    from hpcflow.requeue.history import Chapter, Story


@click.command("history", short_help="Tell the story of a run, attempt by attempt.")
@run_argument
@json_option
def command(run: str, as_json: bool) -> int:
    """Tell what each attempt of RUN waited for, did and lost, and what was decided after it.

    With --json, "decided" of an attempt lists all that was decided after it, oldest first, and
    "decided_first" what was decided before there was any job.
    """
    from hpcflow.errors import StorageError
    from hpcflow.requeue.history import history
    from hpcflow.storage import journal

    session = Session()
    run_dir = session.run_dir(run, newest=True)
    run_id = run_dir.path.name
    session.refresh()
    detail = session.detail(run_id)
    known = session.ledger.known([run_id])[run_id]
    try:
        records = journal.read(run_dir)
    except StorageError:
        records = []  # scratch was purged; the ledger still has the attempts
    story = history(known.attempts, records)
    if as_json:
        view = detail.run
        print_json(
            {
                "run_id": run_id,
                "state": view.state,
                "next_action": view.next_action,
                "next_at": view.next_at,
                "decided_first": story.decided_first,
                "attempts": story.chapters,
            }
        )
        return 0
    _print(run_id, story)
    if detail.run.next_action:
        at = detail.run.next_at
        is_ahead = at is not None and at > session.clock.now()
        until = f", not before {at:%Y-%m-%d %H:%M:%S} UTC" if is_ahead else ""
        click.echo(f"next: {detail.run.next_action}{until}")
    return 0


def _print(run_id: str, story: Story) -> None:
    from rich.console import Console

    chapters = story.chapters
    click.secho(run_id, bold=True)
    if not chapters:
        click.echo("  nothing was sent yet")
    else:
        console = Console(highlight=False)
        if not console.is_terminal:
            console.width = 1000  # what a pipe reads is searched, not looked at
        console.print(_table(chapters))
    for told in story.decided_first:
        click.echo(f"before the first job: {safe(told)}")
    for chapter in chapters:
        if chapter.stall:
            click.echo(f"in attempt {chapter.attempt}: {safe(chapter.stall)}")
        for told in chapter.decided:
            click.echo(f"after attempt {chapter.attempt}: {safe(told)}")
    if chapters:
        lost = sum(chapter.lost_train_steps or 0 for chapter in chapters)
        ran_s = sum(chapter.ran_s or 0 for chapter in chapters)
        waited_s = sum(chapter.waited_s or 0 for chapter in chapters)
        click.echo(
            f"ran {format_duration(ran_s)}, waited {format_duration(waited_s)}, "
            f"lost {lost} train steps"
        )


def _table(chapters: list[Chapter]) -> Table:
    from rich.table import Table
    from rich.text import Text

    titles = (
        "attempt",
        "job",
        "nodes",
        "waited",
        "ran",
        "train steps",
        "lost",
        "recovered in",
        "end",
    )
    table = Table(*titles)
    for chapter in chapters:
        table.add_row(
            str(chapter.attempt),
            chapter.job_id or "",
            Text(safe(",".join(chapter.nodes))),
            _duration(chapter.waited_s),
            _duration(chapter.ran_s),
            _steps(chapter),
            "" if chapter.lost_train_steps is None else str(chapter.lost_train_steps),
            _duration(chapter.recovery_s),
            chapter.cause.value if chapter.cause else "",
        )
    return table


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else format_duration(seconds)


def _steps(chapter: Chapter) -> str:
    if chapter.reached_train_step is None:
        return ""
    saved = (
        "" if chapter.checkpoint_train_step is None else f" ({chapter.checkpoint_train_step} saved)"
    )
    return f"{chapter.began_at_train_step or 0} to {chapter.reached_train_step}{saved}"
