"""``hpcflow history``."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeAlias, TypedDict

import click

from hpcflow.cli.arguments import json_option, run_argument
from hpcflow.cli.output import STATE_COLOURS, next_words, picked, print_json, state_text, state_word
from hpcflow.cli.session import Session
from hpcflow.model.units import counted, format_duration
from hpcflow.terminal import echo, safe, terminal_width

if TYPE_CHECKING:
    from hpcflow.history.entries import Entry
    from hpcflow.model.state import Cause, RunState
    from hpcflow.requeue.history import Chapter, Story


class History(TypedDict):
    """The attempts and records of a run."""

    run_id: str
    state: RunState
    cause: Cause | None
    next_action: str | None
    next_rule: str | None
    next_why: str | None
    next_at: datetime | None
    attempts: list[Chapter]
    entries: list[Entry]


#: Texts with their times; None if a time is unknown.
_TimedTexts: TypeAlias = list[tuple[datetime | None, str]]

_TIME: Final = "%Y-%m-%d %H:%M:%S"
_MARGIN: Final = len("2026-03-01 12:00:00  ")
#: Indentation below the head of an attempt, and of the further lines of a long text.
_INSIDE: Final = "  "
_HOW: Final = {
    "inside": "job {}, submitted by hand",
    "restarted": "job {}, restarted by Slurm",
    "standby": "job {}, submitted as a standby",
}
_WISHES: Final = {
    "held": "held by {}",
    "released": "released by {}",
    "resumed": "resumed by {}",
    "cancel_requested": "cancel requested by {}",
}


@click.command("history", short_help="Show the attempts and decisions of a run, in order.")
@run_argument
@json_option(History)
def command(run: str, as_json: bool) -> int:
    """Show the attempts of RUN, in order: times pending and running, lost work, and each decision.

    All times are UTC. With --json, "attempts" has the attempts, and "entries" the other records of
    the journal. Each entry has "at" (its time), "attempt" (0 before the first job) and "kind".
    Decisions and stalls also have "action", "rule" and "why", a wait "not_before", and requests
    (held, released, resumed, cancel_requested) "by".
    """
    from hpcflow.requeue.history import history
    from hpcflow.storage.journal import read

    session = Session()
    run_dir = session.run_dir(run, newest=True)
    run_id = run_dir.path.name
    session.refresh()
    view = session.detail(run_id).run
    known = session.ledger.known([run_id]).get(run_id)
    if known is None:
        raise session.ledger.damaged(f"its rows of {run_id} cannot be read")
    story = history(known.attempts, read(run_dir))
    if as_json:
        output = picked(History, view, attempts=story.chapters, entries=story.entries)
        print_json(output)
        return 0
    now = session.clock.now()
    echo(run_id, bold=True, nl=False)
    echo(f"  {state_text(view)}", fg=STATE_COLOURS[state_word(view)])
    if view.next_action:
        is_ahead = view.next_at is not None and view.next_at > now
        until = f", not before {view.next_at:{_TIME}}" if is_ahead else ""
        echo(f"next: {next_words(view)}{until}")
    for line in timeline(story, now, terminal_width()):
        echo(line)
    return 0


def timeline(story: Story, now: datetime, width: int | None) -> list[str]:
    """Return the lines of a story; ``width`` in characters, None for no limit.

    Lines of one attempt stay together, its beginning first. The clocks of Slurm, the nodes and this
    machine differ by seconds, so times alone define no order.
    """
    texts = _entry_texts([entry for entry in story.entries if entry.attempt == 0])
    jobs = [chapter for chapter in story.chapters if chapter.job_id is not None]
    for chapter in jobs:
        own = [entry for entry in story.entries if entry.attempt == chapter.attempt]
        texts += _chapter(chapter, own, now)
    lines = [line for at, text in texts for line in _wrapped(at, safe(text), width)]
    return [*lines, _sum(jobs) if jobs else "no job was submitted yet"]


def _wrapped(at: datetime | None, text: str, width: int | None) -> Iterator[str]:
    indent = text[: len(text) - len(text.lstrip())] + _INSIDE
    lines = [text]
    if width is not None:
        room = max(20, width - _MARGIN)
        lines = textwrap.wrap(
            text,
            room,
            subsequent_indent=indent,
            break_on_hyphens=False,
            break_long_words=False,
        )
    time = f"{at:{_TIME}}" if at is not None else ""
    for line in lines:
        yield f"{time:<{_MARGIN}}{line}"
        time = ""


def _chapter(chapter: Chapter, entries: Sequence[Entry], now: datetime) -> _TimedTexts:
    job = _HOW.get(chapter.how or "", "job {} submitted").format(chapter.job_id)
    ended_at = chapter.ended_at
    after = [each for each in entries if _is_after(each, ended_at)]
    during: _TimedTexts = []
    if chapter.started_at is not None:
        during.append((chapter.started_at, _started(chapter)))
    if chapter.trained_at is not None and chapter.recovery_s is not None:
        recovery = format_duration(chapter.recovery_s)
        during.append((chapter.trained_at, f"training again, {recovery} after the previous end"))
    during += _entry_texts([each for each in entries if each not in after])
    during.sort(key=lambda timed: timed[0] or now)
    if ended_at is not None:
        during.append((ended_at, f"{_end(chapter)}{_steps(chapter)}"))
    elif chapter.started_at is not None:
        ran = format_duration((now - chapter.started_at).total_seconds())
        during.append((now, f"running for {ran}{_steps(chapter)}"))
    return [
        (chapter.submitted_at, f"attempt {chapter.attempt}: {job}"),
        *((at, _INSIDE + text) for at, text in during),
        *_entry_texts(after),
    ]


def _is_after(entry: Entry, ended_at: datetime | None) -> bool:
    """Return whether an entry is about the end of its attempt, or later."""
    if entry.kind in ("stall", "overspent", "begin_lifted") or ended_at is None:
        return False
    return entry.kind == "decided" or entry.at >= ended_at


def _started(chapter: Chapter) -> str:
    nodes = f" on {', '.join(chapter.nodes)}" if chapter.nodes else ""
    waited = "" if chapter.waited_s is None else f", waited {format_duration(chapter.waited_s)}"
    step = chapter.resumed_from_train_step
    resumed = "" if step is None else f", from the checkpoint of train step {step}"
    return f"started{nodes}{waited}{resumed}"


def _end(chapter: Chapter) -> str:
    cause = chapter.cause.value if chapter.cause else "left"
    code = f" (exit code {chapter.exit_code})" if chapter.exit_code else ""
    ran = "" if chapter.ran_s is None else f", ran {format_duration(chapter.ran_s)}"
    return f"{cause}{code}{ran}"


def _steps(chapter: Chapter) -> str:
    if chapter.reached_train_step is None:
        return ""
    saved, lost = chapter.checkpoint_train_step, chapter.lost_train_steps
    known = [] if saved is None else [f"{saved} saved"]
    known += [] if lost is None else [f"{lost} lost"]
    more = f" ({', '.join(known)})" if known else ""
    return f", train steps {chapter.began_at_train_step or 0} to {chapter.reached_train_step}{more}"


def _entry_texts(entries: Sequence[Entry]) -> _TimedTexts:
    """Return entries as texts, and a repeated one once with its number.

    A limit that is full for a night is tried a hundred times.
    """
    same: dict[object, list[Entry]] = {}
    for number, each in enumerate(entries):
        is_wait = each.action == "wait" or each.kind in ("refused", "withdrawn")
        key = (each.kind, each.rule, each.why) if is_wait else number
        same.setdefault(key, []).append(each)
    return [(every[0].at, _words(every)) for every in same.values()]


def _words(every: Sequence[Entry]) -> str:
    """Return the text of an entry, or of several that are alike."""
    last = every[-1]
    if last.by is not None and last.why is not None:
        words = f"{last.kind} by {last.by}: {last.why}"
    elif last.by is not None:
        words = _WISHES[last.kind].format(last.by)
    elif last.kind == "begin_lifted":
        words = f"start now: Slurm refused: {last.why}" if last.why else "start now"
    else:
        head = f"{last.action} ({last.rule})" if last.rule else last.kind
        words = f"{head}: {last.why}"
    if last.not_before is not None:
        words += f", not before {last.not_before:{_TIME}}"
    return words if len(every) == 1 else f"{words} ({len(every)} times until {last.at:{_TIME}})"


def _sum(jobs: Sequence[Chapter]) -> str:
    ran_s = sum(chapter.ran_s or 0 for chapter in jobs)
    waited_s = sum(chapter.waited_s or 0 for chapter in jobs)
    lost = [each.lost_train_steps for each in jobs if each.lost_train_steps is not None]
    return (
        f"total: ran {format_duration(ran_s)}, waited {format_duration(waited_s)}"
        + (f", lost {counted(sum(lost), 'train step')}" if lost else "")
        + "; times are UTC"
    )
