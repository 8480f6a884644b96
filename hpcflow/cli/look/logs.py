"""``hpcflow logs``."""

from __future__ import annotations

import os
from collections import deque
from collections.abc import Iterator
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, TypedDict

import click

from hpcflow.cli.arguments import json_option, run_argument
from hpcflow.cli.look.follow import is_inactive
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session
from hpcflow.errors import NotFoundError
from hpcflow.model.state import AttemptState
from hpcflow.runtime.reading import open_file
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rank_lines import RankLines, has_labels, has_several_ranks
from hpcflow.terminal import Passage, echo

#: The log is read every second, and the scheduler is asked every tenth time.
_POLL_S = 1.0
_POLLS_PER_REFRESH = 10
_BLOCK_BYTES = 1 << 16


class Log(TypedDict):
    """The log of an attempt."""

    attempt: int
    path: Path


class Logs(TypedDict):
    """The logs of a run, including those that do not exist yet."""

    run_id: str
    logs: list[Log]


@click.command("logs", short_help="Print the log of a run.")
@run_argument
@click.option("-f", "--follow", is_flag=True, help="Print until the attempt has ended.")
@click.option("--tail", type=click.IntRange(min=0), metavar="N", help="Only the last N lines.")
@click.option(
    "--attempt",
    type=click.IntRange(min=1),
    metavar="N",
    help="Attempt to print. Default: the last.",
)
@click.option(
    "--rank", type=click.IntRange(min=0), metavar="N", help="Only the lines of this rank."
)
@json_option(Logs, help_text="Print the paths of the logs as JSON.")
def command(
    run: str, follow: bool, tail: int | None, attempt: int | None, rank: int | None, as_json: bool
) -> int:
    """Print the log of the last attempt of RUN, to which all ranks write.

    If a run has several ranks, each line begins with the rank that printed it, such as `[rank3]: `.
    --rank prints the lines of one rank without this prefix.

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
    lines = None if rank is None else _lines_of_rank(run_dir, number, rank)
    printer = _Printer(lines, tail)
    if follow:
        _follow(session, run_dir.path.name, number, log, printer)
    elif (file := printer.opened(log)) is not None:
        with file:
            printer.print(file, is_end=True)
    if printer.is_empty and tail != 0:
        who = "" if rank is None else f"rank {rank} of "
        echo(f"{who}attempt {number} has printed nothing yet", err=True)
    return 0


def _lines_of_rank(run_dir: RunDir, number: int, rank: int) -> RankLines | None:
    """Return a filter for the lines of a rank; None if there is only one rank."""
    script = _script(run_dir, number)
    if has_labels(script):
        return RankLines(rank)
    if has_several_ranks(script):
        raise NotFoundError(
            f"the log of attempt {number} does not say which rank printed a line",
            next_action=f"hpcflow logs {run_dir.path.name} --attempt {number}",
        )
    if rank:
        raise NotFoundError(
            f"attempt {number} of run {run_dir.path.name} has only rank 0",
            next_action=f"hpcflow logs {run_dir.path.name} --attempt {number}",
        )
    return None


def _script(run_dir: RunDir, number: int) -> str:
    """Return the job script of an attempt; if Slurm restarted its job, of the attempt before."""
    while number > 1 and not run_dir.attempt(number).script.exists():
        number -= 1
    script = run_dir.attempt(number).script
    with storage_errors("read", script), open_file(script) as file:
        return file.read().decode(errors="replace")


class _Printer:
    """Print a log as far as it has been written; ``is_empty`` until it has printed something."""

    def __init__(self, lines: RankLines | None, tail: int | None) -> None:
        self.is_empty = True
        self._lines, self._tail = lines, tail
        self._passage = Passage()

    def opened(self, log: Path) -> BinaryIO | None:
        """Open the log at the first of the requested lines."""
        return _opened(log, None if self._lines else self._tail)

    def print(self, file: BinaryIO, *, is_end: bool) -> None:
        """Print what has been written since the last call."""
        texts = self._texts(file, is_end=is_end)
        if self._lines is not None and self._tail is not None:
            texts, self._tail = iter(deque(texts, maxlen=self._tail)), None
        for text in texts:
            self._passage.write(text)
            self.is_empty = False
        if is_end:
            self._passage.close()

    def _texts(self, file: BinaryIO, *, is_end: bool) -> Iterator[bytes]:
        chunks = iter(partial(file.read, _BLOCK_BYTES), b"")
        if self._lines is None:
            yield from chunks
            return
        for chunk in chunks:
            yield from self._lines.pick(chunk)
        if is_end:
            yield from self._lines.end()


def _opened(log: Path, tail: int | None) -> BinaryIO | None:
    """Open the log at its last ``tail`` lines; return None if it does not exist yet."""
    with storage_errors("read", log), suppress(FileNotFoundError):
        file = open_file(log)
        if tail is not None:
            file.seek(_begin_of_last(file, tail))
        return file
    return None


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
    """Return the last attempt, except a standby that has not begun."""
    if run_dir.attempt(numbers[-1]).events.exists():
        return numbers[-1]
    from hpcflow.storage.journal import Journal  # pydantic

    last = Journal(run_dir).history.last
    return last.number if last.standby is not None and last.number in numbers else numbers[-1]


def _follow(session: Session, run_id: str, number: int, log: Path, printer: _Printer) -> None:
    """Print the log as it grows. Check for the end before each read, so that nothing is missed."""
    file: BinaryIO | None = None
    polls = 0
    try:
        while True:
            if polls % _POLLS_PER_REFRESH == 0:
                session.refresh()
            over = _is_over(session, run_id, number)
            file = file or printer.opened(log)
            if file is not None:
                printer.print(file, is_end=over)
            if over:
                break
            polls += 1
            session.clock.sleep(_POLL_S)
    finally:
        if file is not None:
            file.close()


def _is_over(session: Session, run_id: str, number: int) -> bool:
    """Return whether the attempt prints nothing more: it ended, or never became a job."""
    detail = session.detail(run_id)
    for view in detail.attempts:
        if view.attempt == number:
            return view.state in (AttemptState.ENDED, AttemptState.WITHDRAWN)
    return is_inactive(detail.run)
