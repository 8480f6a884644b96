"""``hpcflow logs``."""

from __future__ import annotations

import os
from pathlib import Path
from typing import BinaryIO, TypedDict

import click

from hpcflow.cli.arguments import json_option, run_argument
from hpcflow.cli.follow import is_still
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session
from hpcflow.errors import NotFoundError
from hpcflow.model.state import AttemptState
from hpcflow.runtime.reading import open_file
from hpcflow.storage.files import storage_error
from hpcflow.storage.layout import RunDir
from hpcflow.terminal import Passage, echo

#: A log is looked at every second, the scheduler every tenth time.
_POLL_S = 1.0
_POLLS_PER_REFRESH = 10
_BLOCK_BYTES = 1 << 16


class Log(TypedDict):
    """The log of an attempt."""

    attempt: int
    path: Path


class Logs(TypedDict):
    """The logs of a run; a log that does not exist yet is among them."""

    run_id: str
    logs: list[Log]


@click.command("logs", short_help="Print the log of a run.")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Print until the attempt has ended.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option("--attempt", type=click.IntRange(min=1), help="Which attempt. Default: the last.")
@json_option(Logs, help_text="Print the paths of the logs as JSON.")
def command(run: str, follow: bool, tail: int | None, attempt: int | None, as_json: bool) -> int:
    """Print the log of the last attempt of RUN, to which all ranks write.

    On a terminal, colours and control characters are removed. A pipe or a file gets every byte.
    """
    session = Session()
    run_dir = session.run_dir(run, newest=True)
    numbers = run_dir.attempt_numbers()
    if as_json:
        logs: list[Log] = [{"attempt": n, "path": run_dir.attempt(n).log} for n in numbers]
        print_json(Logs(run_id=run_dir.path.name, logs=logs))
        return 0
    if not numbers or (attempt is not None and attempt not in numbers):
        raise NotFoundError(
            f"run {run_dir.path.name} has no attempt {attempt or 1}",
            next_action=f"hpcflow show {run_dir.path.name}",
        )
    number = attempt or _last(run_dir, numbers)
    log = run_dir.attempt(number).log
    if follow:
        _follow(session, run_dir.path.name, number, log, tail)
    elif (file := _opened(log, tail)) is not None:
        with file:
            passage = Passage()
            _copy(file, passage)
            passage.close()
    else:
        _say_nothing(number)
    return 0


def _opened(log: Path, tail: int | None) -> BinaryIO | None:
    """Open the log, where its last ``tail`` lines begin; None if it does not exist yet.

    Raises:
        StorageError: the log cannot be read, or is not a regular file of this user.
    """
    try:
        file = open_file(log)
        if tail is not None:
            file.seek(_begin_of_last(file, tail))
        return file
    except FileNotFoundError:
        return None
    except OSError as error:
        raise storage_error("read", log, error) from error


def _begin_of_last(file: BinaryIO, lines: int) -> int:
    """Return the offset at which the last ``lines`` lines of a file begin."""
    begin = end = file.seek(0, os.SEEK_END)
    if not lines:
        return end
    while begin:
        size = min(_BLOCK_BYTES, begin)
        begin -= size
        file.seek(begin)
        block = file.read(size)
        # The end of the last line begins no line.
        position = len(block) - (begin + size == end and block.endswith(b"\n"))
        while (position := block.rfind(b"\n", 0, position)) >= 0:
            lines -= 1
            if not lines:
                return begin + position + 1
    return 0


def _last(run_dir: RunDir, numbers: list[int]) -> int:
    """The last attempt; a standby that has not begun is none yet."""
    if run_dir.attempt(numbers[-1]).events.exists():
        return numbers[-1]
    from hpcflow.launch.submission import last_attempt  # pydantic
    from hpcflow.storage import journal

    last = last_attempt(journal.read(run_dir))
    return last.number if last.standby is not None and last.number in numbers else numbers[-1]


def _follow(session: Session, run_id: str, number: int, log: Path, tail: int | None) -> None:
    """Print the log as it grows; the end is looked for first, so that nothing is missed."""
    file: BinaryIO | None = None
    passage, polls = Passage(), 0
    try:
        while True:
            if polls % _POLLS_PER_REFRESH == 0:
                session.refresh()
            over = _is_over(session, run_id, number)
            file = file or _opened(log, tail)
            if file is not None:
                _copy(file, passage)
            if over:
                break
            polls += 1
            session.clock.sleep(_POLL_S)
        passage.close()
        if file is None:
            _say_nothing(number)
    finally:
        if file is not None:
            file.close()


def _say_nothing(number: int) -> None:
    echo(f"attempt {number} has printed nothing yet", err=True)


def _is_over(session: Session, run_id: str, number: int) -> bool:
    """Whether the attempt prints nothing more; one that never became a job never did."""
    detail = session.detail(run_id)
    for view in detail.attempts:
        if view.attempt == number:
            return view.state in (AttemptState.ENDED, AttemptState.WITHDRAWN)
    return is_still(detail.run)


def _copy(file: BinaryIO, passage: Passage) -> None:
    while chunk := file.read(1 << 16):
        passage.write(chunk)
