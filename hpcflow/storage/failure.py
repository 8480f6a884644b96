"""Read why an attempt failed from its log: the error of the first rank that failed, and the last
lines.

All ranks write to one log. Only lines that begin with their rank can be assigned to one.
"""

from __future__ import annotations

import hashlib
import os
import re
from bisect import bisect_left, bisect_right
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.runtime.reading import open_file
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rank_lines import LABEL

#: How much of a log's end is read. It holds the errors of a thousand ranks.
_MAX_BYTES: Final = 1 << 20
_MAX_CHARS: Final = 500
_LAST_LINES: Final = 10

_FRAME: Final = re.compile(r'\s+File "(.+)", line ([0-9]+)(?:, in .*)?')
_ERROR: Final = re.compile(r"[A-Za-z_][\w.<>]*(?:: .*|:)?")
#: Python writes these between the tracebacks of one failure.
_CHAINED: Final = (
    "During handling of the above exception",
    "The above exception was the direct cause",
)
_RANK: Final = re.compile(LABEL)
#: A progress bar ends with ``]`` and without a newline.
_HEADER: Final = re.compile(rf"(?P<rank>{LABEL})?(?:.*\])?Traceback \(most recent call last\):")
#: srun names the tasks that failed; torchrun, the rank that failed first.
_SRUN_TASK: Final = re.compile(r"srun: error: \S+: tasks? ([0-9]+)[0-9,-]*: Exited with .*")
_ROOT_CAUSE: Final = re.compile(r"  rank +: ([0-9]+) \(local_rank: [0-9]+\)")
_OF_TORCHRUN: Final = "torch.distributed.elastic."
#: Lines that launchers write about a failure: they differ in each attempt, and give no reason.
_OF_LAUNCHERS: Final = re.compile(
    r"Terminated|[EWI][0-9]{4} [0-9:.]+ .*|srun: (?:error: .*: tasks? [][0-9,-]+: |[^e]).*"
    r"|slurmstepd\S*: error: \*\*\* .*|=+|-+|\*+|Setting OMP_NUM_THREADS .*|\S+ FAILED|Failures:"
    r"|  <NO_OTHER_FAILURES>|Root Cause .*|\[[0-9]+\]:"
    r"|  (?:time|host|rank|exitcode|error_file|traceback) *: .*"
)
#: Text that differs between two attempts with the same error: addresses, random names, numbers.
_CHANGES: Final = re.compile(r"0x[0-9a-fA-F]+|\b[0-9a-fA-F-]{16,}\b|\btmp[a-z0-9_]{8}\b|[0-9]+")


@dataclass(frozen=True)
class Failure:
    """The failure of an attempt, as its log describes it.

    Attributes:
        error: the last line of the first traceback; None without one.
        at: the file and line that raised it.
        rank: the rank that failed first; None if the log does not name it.
        lines: the last lines, without those of launchers.
    """

    attempt: int
    log: Path
    error: str | None
    at: str | None
    rank: int | None
    lines: tuple[str, ...]

    @property
    def digest(self) -> str | None:
        """Return a digest that is the same for equal failures; None if the log has no lines."""
        facts = [f"{Path(self.at or '').name} {self.error}"] if self.error else self.lines
        if not facts:
            return None
        alike = sorted({_CHANGES.sub("0", line) for line in facts})  # ranks write in any order
        return hashlib.sha256("\n".join(alike).encode()).hexdigest()[:16]


def read_failure(run_dir: RunDir, attempt: int) -> Failure | None:
    """Return the failure that the log of an attempt describes; None if it cannot be read."""
    log = run_dir.attempt(attempt).log
    with suppress(OSError), open_file(log) as file:
        begin = max(0, file.seek(0, os.SEEK_END) - _MAX_BYTES)
        file.seek(begin)
        text = file.read(_MAX_BYTES).decode(errors="replace")
        lines = text.split("\n")[1 if begin else 0 :]
        return explain(attempt, log, [_shown(line) for line in lines])
    return None


def explain(attempt: int, log: Path, lines: Sequence[str]) -> Failure:
    """Return the failure that ``lines``, the end of ``log``, describe."""
    found = _tracebacks(lines)
    dropped: set[int] = set()
    for each in found:
        if each.error.startswith(_OF_TORCHRUN):
            dropped.update(each.numbers)
    own = [number for number, line in enumerate(lines) if number not in dropped and _is_own(line)]
    first = _first([each for each in found if not each.error.startswith(_OF_TORCHRUN)], own)
    if first is None:
        rank = _named_rank(lines)
        of_rank = [lines[number] for number in own if _rank_of(lines[number]) == rank]
        if rank is not None and of_rank:
            last = [_unlabelled(line) for line in of_rank[-_LAST_LINES:]]
        else:
            last = [lines[number] for number in own[-_LAST_LINES:]]
        return Failure(attempt, log, None, None, rank, tuple(last))
    rank = _rank_of(first.prefix)
    if rank is not None:
        own = [number for number in own if lines[number].startswith(first.prefix)]
    elif first.end not in own[-_LAST_LINES:]:  # the later lines are of the other ranks
        own = [number for number in own if number <= first.end]
    last = [lines[number].removeprefix(first.prefix) for number in own[-_LAST_LINES:]]
    rank = _named_rank(lines) if rank is None else rank
    return Failure(attempt, log, first.error, first.at, rank, tuple(last))


@dataclass
class _Traceback:
    """One traceback, whose lines have the same prefix."""

    prefix: str
    numbers: list[int]
    error: str
    at: str | None

    @property
    def end(self) -> int:
        return self.numbers[-1]


def _tracebacks(lines: Sequence[str]) -> list[_Traceback]:
    """Return the tracebacks in the order of their errors; only the last one of a chain."""
    found: list[_Traceback] = []
    open_: dict[str, _Traceback] = {}
    for number, line in enumerate(lines):
        if header := _HEADER.fullmatch(line):
            prefix = header["rank"] or ""
            open_[prefix] = _Traceback(prefix, [number], "", None)
            continue
        match = _RANK.match(line)
        prefix = match[0] if match and match[0] in open_ else ""
        traceback = open_.get(prefix)
        if traceback is None:
            continue
        rest = line.removeprefix(prefix)
        if rest.startswith((" ", "\t")):
            traceback.numbers.append(number)
            if frame := _FRAME.fullmatch(rest):
                traceback.at = f"{frame[1]}:{frame[2]}"
        elif _ERROR.fullmatch(rest) and not _OF_LAUNCHERS.fullmatch(rest):
            traceback.numbers.append(number)
            traceback.error = rest.strip()
            del open_[prefix]
            if found and _is_chain(lines, found[-1], traceback):
                found.pop()
            found.append(traceback)
    return found


def _is_chain(lines: Sequence[str], before: _Traceback, after: _Traceback) -> bool:
    between = lines[before.end + 1 : after.numbers[0]]
    return before.prefix == after.prefix and any(
        line.removeprefix(after.prefix).startswith(_CHAINED) for line in between
    )


def _first(found: list[_Traceback], own: Sequence[int]) -> _Traceback | None:
    """Return the traceback of the rank that failed first.

    Programs also print tracebacks of errors that they handle. So only the last one of each rank
    counts. If lines have no ranks, only those at the end count, with no other output in between.
    """
    if not found:
        return None
    marked = {each.prefix: each for each in found if each.prefix}
    if marked:
        return min(marked.values(), key=lambda each: each.end)
    of_errors = {number for each in found for number in each.numbers}
    first = found[-1]
    for each in reversed(found[:-1]):
        between = own[bisect_right(own, each.end) : bisect_left(own, first.numbers[0])]
        if not of_errors.issuperset(between):
            break
        first = each
    return first


def _rank_of(line: str) -> int | None:
    """Return the rank of a line, or of a label alone; None without a label."""
    match = _RANK.match(line)
    return int(match[1] or match[2]) if match else None


def _unlabelled(line: str) -> str:
    match = _RANK.match(line)
    return line[match.end() :] if match else line


def _is_own(line: str) -> bool:
    """Return whether the program, not a launcher, wrote a line; a label alone is not a line."""
    text = _unlabelled(line)
    return bool(text) and not _OF_LAUNCHERS.fullmatch(text)


def _named_rank(lines: Sequence[str]) -> int | None:
    """Return the first failed rank that the launcher names. With torchrun, srun tasks are not
    ranks.
    """
    is_torchrun = is_root = False
    for line in lines:
        is_torchrun = is_torchrun or line.startswith(_OF_TORCHRUN)
        is_root = is_root or line.startswith("Root Cause")
        if is_root and (match := _ROOT_CAUSE.fullmatch(line)):
            return int(match[1])
    tasks = (match[1] for line in lines if (match := _SRUN_TASK.fullmatch(line)))
    return None if is_torchrun else next(map(int, tasks), None)


def _shown(line: str) -> str:
    """Return a line as a terminal shows it, where a progress bar overwrites itself."""
    if not line:
        return line
    text = _unlabelled(line)
    label = line[: len(line) - len(text)]
    return (label + text.rstrip("\r ").rpartition("\r")[2])[:_MAX_CHARS]
