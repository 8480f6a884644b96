"""The exceptions of hpcflow, and what each means to a caller.

An error says what is wrong, where (file, line, key), and ends with the next thing to type.
``retryable`` tells whether the same call may succeed later.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePath

from hpcflow.runtime.safe_text import safe


@dataclass(frozen=True)
class Where:
    """The file, line and key that an error is about; each may be missing."""

    file: str | None = None
    line: int | None = None
    key: str | None = None

    def __str__(self) -> str:
        place = ":".join(str(part) for part in (self.file, self.line) if part is not None)
        return ", ".join(part for part in (place, self.key) if part)


class HpcflowError(Exception):
    """Base of all errors that hpcflow raises on purpose."""

    exit_code = 1
    retryable = False

    def __init__(
        self,
        message: str,
        *,
        where: Where | None = None,
        next_action: str | None = None,
        lines: Sequence[str] = (),
    ) -> None:
        """``lines`` is a list to print below the message, such as the problems of a file."""
        super().__init__(message)
        self.summary, self.lines = message, tuple(lines)
        self.where = where
        self.next_action = next_action
        #: More values for scripts: `problems`, `run_id`, `run_dir`.
        self.details: dict[str, object] = {}

    @property
    def message(self) -> str:
        """Return the summary, and the list below it."""
        return listed(self.summary, self.lines) if self.lines else self.summary

    def __str__(self) -> str:
        """Return :meth:`parts` as text of several lines.

        A line end within a part comes from untrusted input, and is escaped.
        """
        message, *below = self.parts()
        return listed(message, below)

    def parts(self) -> tuple[str, ...]:
        """Return ``file:line, key: message``, then the lines below it, the next action last."""
        head = f"{self.where}: " if self.where and str(self.where) else ""
        action = (f"→ {self.next_action}",) if self.next_action else ()
        return (f"{head}{self.summary}", *self.lines, *action)


def listed(message: str, lines: Iterable[str]) -> str:
    """Return ``message`` with a list below it, each part escaped and on a line of its own."""
    return "\n  ".join(map(safe, (message, *lines)))


def words_for(error: Exception) -> str | None:
    """Return a line about an error of one run among many; None if another process works on it.

    ``error`` may also come from a bug, or from an unforeseen file.
    """
    if not isinstance(error, HpcflowError):
        return f"{type(error).__name__}: {error}"
    is_busy = isinstance(error, StorageError) and error.retryable
    return None if is_busy else " ".join((error.summary, *error.lines)) + next_step(error)


def in_one_line(error: Exception) -> str:
    """Return the parts of an error on one line, for a list of problems or a log."""
    if not isinstance(error, HpcflowError):
        return f"{type(error).__name__}: {error}"
    return " ".join(error.parts())


def next_step(error: HpcflowError) -> str:
    """Return the next action, to append to a line of a log.

    It is empty if a retry may help: the writer of the log retries by itself.
    """
    return f" → {error.next_action}" if error.next_action and not error.retryable else ""


class InputError(HpcflowError):
    """The user's input is wrong. Nothing was created."""

    exit_code = 2


class UsageError(InputError):
    """A command, its options or its arguments are wrong."""


class SpecError(InputError):
    """A run's YAML or an override is wrong."""


class SiteError(InputError):
    """A site file is wrong, or no site has that name."""


class NotFoundError(InputError):
    """No run, attempt or checkpoint has the given name."""


class ScratchError(InputError):
    """No run directory can be created on this scratch. Nothing was created."""


class BudgetError(HpcflowError):
    """A hard budget has no room for an attempt. Nothing was submitted.

    The request was too large, hence the exit code. But a higher budget, or a job that ends, makes
    room, so this is no :class:`InputError`.

    Attributes:
        fits: how many of several attempts have room.
        short: the budget, in a few words.
    """

    exit_code = 2

    def __init__(
        self,
        message: str,
        *,
        next_action: str | None = None,
        fits: int = 0,
        short: str | None = None,
    ) -> None:
        super().__init__(message, next_action=next_action)
        self.fits = fits
        self.short = short or message


class StorageError(HpcflowError):
    """The run directory, the journal or the scratch below them cannot be used."""


class MirrorError(HpcflowError):
    """The object store refused, or holds unexpected data."""


class MirrorUnavailable(MirrorError):
    """The object store does not answer or fails; the result is unknown."""

    retryable = True


class MissingObjectError(MirrorError):
    """The object store has no object of that name."""


class DamagedError(MirrorError):
    """Bytes differ from the checksum that was taken when they were written."""


class LedgerError(HpcflowError):
    """The database cannot be used. The files are authoritative; it catches up later."""

    retryable = True


class LedgerVersionError(LedgerError):
    """The database has the tables of an older or newer hpcflow, or of another program."""

    retryable = False


class LedgerValueError(LedgerError):
    """A run holds a value that the database does not store; other runs are not affected."""

    retryable = False


class SchedulerError(HpcflowError):
    """The scheduler, or the communication with it, failed."""


class SchedulerUnavailable(SchedulerError):
    """The scheduler does not answer. Nothing was done."""

    retryable = True


class SubmissionRefused(SchedulerError):
    """The scheduler refuses this job for good: the user's input is wrong, hence the exit code."""

    exit_code = 2


class SubmissionDelayed(SchedulerError):
    """A limit (jobs per user, per account, per QOS) is full for now."""

    retryable = True


class SubmissionLost(SchedulerError):
    """The submission failed for an unknown reason, and a lookup found no job."""

    retryable = True


class SubmissionInDoubt(SchedulerError):
    """The job may or may not exist. Look its name up before submitting again."""

    retryable = True


def shell_word(name: object) -> str:
    """Quote a name, a path or a URL for a command that a person types into bash or zsh.

    Control and invisible characters become ``$'\\x1b'``: the word names the same file, and can be
    copied from the screen.
    """
    text = str(name)
    if isinstance(name, PurePath) and text.startswith("-"):  # it would be taken for an option
        text = f"./{text}"
    if safe(text) == text:
        # zsh takes `=ls` for the path of the program ls.
        return (
            f"'{text}'" if shlex.quote(text) == text and text.startswith("=") else shlex.quote(text)
        )
    shown = "".join(_shell_char(char) for char in text)
    return f"$'{shown}'"


def _shell_char(char: str) -> str:
    if char in "\\'":
        return f"\\{char}"
    if safe(char) == char:
        return char
    return "".join(f"\\x{byte:02x}" for byte in char.encode(errors="surrogateescape"))
