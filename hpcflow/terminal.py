"""The one place through which text for a terminal goes.

Whatever hpcflow prints comes from here: lines, tables, progress, questions, errors. Text is made
safe first (:mod:`hpcflow.runtime.safe_text`) and styled afterwards, so the only escape sequences in
the output are our own. A character that the output's encoding lacks becomes ``?``.
``tests/test_terminal.py`` holds that nothing else prints.
"""

from __future__ import annotations

import codecs
import io
import json
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING, Any, Final, TypeAlias

import click

from hpcflow.runtime.safe_text import safe, safe_lines

if TYPE_CHECKING:
    import threading
    from types import TracebackType

    from rich.console import Console
    from rich.progress import Progress, ProgressColumn
    from rich.text import Text

__all__ = [
    "Line",
    "Passage",
    "Styled",
    "ask",
    "cell",
    "echo",
    "echo_as_is",
    "echo_json",
    "echo_lines",
    "echo_message",
    "escaped",
    "guard_stderr",
    "live_lines",
    "make_console",
    "progress",
    "safe",
    "safe_lines",
]


@dataclass(frozen=True)
class Styled:
    """A part of a line that has a colour."""

    text: str
    fg: str | None = None
    bold: bool | None = None
    dim: bool | None = None


#: The parts of a line.
Line: TypeAlias = Sequence[str | Styled]


def echo(
    *parts: str | Styled,
    fg: str | None = None,
    bold: bool | None = None,
    dim: bool | None = None,
    nl: bool = True,
    err: bool = False,
) -> None:
    """Print one line: whatever is in its parts, no second one comes of it.

    Args:
        fg, bold, dim: how those parts look that are plain text.
    """
    said = ""
    for part in parts:
        if isinstance(part, Styled):
            text, style = part.text, (part.fg, part.bold, part.dim)
        else:
            text, style = part, (fg, bold, dim)
        text = safe(text)
        said += text if style == (None, None, None) else _style(text, *style)
    _print(said, nl=nl, err=err)


def echo_lines(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print text of several lines; its line ends and tabs are meant."""
    _print(safe_lines(text), nl=nl, err=err)


def echo_message(text: str, *, fg: str | None = None, err: bool = False) -> None:
    """Print a message, maybe with a list or a next step below it, which is set in by two spaces."""
    said = "\n  ".join(map(safe, text.split("\n  ")))
    _print(said if fg is None else _style(said, fg, None, None), nl=True, err=err)


def echo_as_is(text: str) -> None:
    """Print text that a file or a program is to get byte by byte; only a terminal gets it safe."""
    passage = Passage()
    passage.write(text.encode(errors="backslashreplace"))
    passage.close()


def echo_json(value: object, *, indent: int | None = None) -> None:
    """Print a JSON document in ASCII, without anything that a terminal obeys."""
    _print(escaped(json.dumps(value, indent=indent)), nl=True, err=False)


def escaped(text: str) -> str:
    """JSON or YAML that shows, as ``\\uXXXX``, each character of its strings that is not safe."""
    if text.isascii() and text.isprintable():
        return text
    shown = (char if char == "\n" or safe(char) == char else _escape(char) for char in text)
    return "".join(shown)


def ask(question: str) -> bool:
    """Ask a person; no answer is a no."""
    return click.confirm(_encodable(safe(question), sys.stdout))


class Passage:
    """Bytes on their way to stdout: as they are into a file or a pipe, safe onto a terminal.

    On a terminal, what sets colours or moves the cursor is left out, and a bare carriage return, as
    progress bars print it, ends the line.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._decoder = io.IncrementalNewlineDecoder(text, translate=True)

    def write(self, chunk: bytes) -> None:
        """Pass a part on; it is out when this returns."""
        if self._is_terminal:
            self._show(self._decoder.decode(chunk))
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Show what was held back: a character of which only a part has come."""
        if self._is_terminal:
            self._show(self._decoder.decode(b"", final=True))

    def _show(self, text: str) -> None:
        _print(safe_lines(_SEQUENCE.sub("", text)), nl=False, err=False)


def make_console(*, err: bool = False, **options: Any) -> Console:
    """A console of rich for tables: what it prints is safe, and no text is taken for markup."""
    return _console_class()(stderr=err, markup=False, emoji=False, highlight=False, **options)


def cell(text: str, style: str = "") -> Text:
    """A cell of a table, on one line."""
    from rich.text import Text

    return Text(safe(text), style=style)


def progress(*columns: ProgressColumn, err: bool = False, transient: bool = False) -> Progress:
    """A progress bar of rich on a console of ours."""
    from rich.progress import Progress

    return Progress(*columns, console=make_console(err=err), transient=transient)


@contextmanager
def live_lines() -> Iterator[LiveLines]:
    """Lines on a terminal that are shown anew, in their place."""
    from rich.live import Live

    with Live(console=make_console(), auto_refresh=False) as live:
        yield LiveLines(live)


class LiveLines:
    """What :func:`live_lines` yields."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def show(self, lines: Iterable[Line]) -> None:
        """Show these instead of those before."""
        from rich.text import Text

        shown = [
            Text.assemble(*((safe(p), "") if isinstance(p, str) else _rich(p) for p in line))
            for line in lines
        ]
        self._live.update(Text("\n").join(shown), refresh=True)


def guard_stderr() -> None:
    """Let what Python and its libraries say by themselves go through here, too.

    These are log records that no handler takes, warnings, and the tracebacks of bugs: their texts
    hold the names and answers that the code was at work with.
    """
    import logging
    import threading
    import warnings

    class SafeHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            echo_message(self.format(record), err=True)

    logging.lastResort = SafeHandler(logging.WARNING)
    warnings.showwarning = _show_warning
    sys.excepthook = _show_traceback
    threading.excepthook = _show_of_thread


def _show_warning(
    message: Warning | str, category: type[Warning], *_where: object, **_more: object
) -> None:
    echo_message(f"{category.__name__}: {message}", err=True)


def _show_of_thread(of: threading.ExceptHookArgs) -> None:
    if of.exc_type is not SystemExit:  # as Python does
        _show_traceback(of.exc_type, of.exc_value, of.exc_traceback)


def _show_traceback(
    kind: type[BaseException], error: BaseException | None, trace: TracebackType | None
) -> None:
    import traceback

    echo_lines("".join(traceback.format_exception(kind, error, trace)), nl=False, err=True)


#: A whole control sequence, as colours and cursor movements are.
_SEQUENCE: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def _style(text: str, fg: str | None, bold: bool | None, dim: bool | None) -> str:
    return click.style(text, fg=fg, bold=bold, dim=dim)


def _rich(part: Styled) -> tuple[str, str]:
    words = [part.fg or "", "bold" if part.bold else "", "dim" if part.dim else ""]
    return safe(part.text), " ".join(filter(None, words))


def _print(text: str, *, nl: bool, err: bool) -> None:
    click.echo(_encodable(text, sys.stderr if err else sys.stdout), nl=nl, err=err)


def _encodable(text: str, stream: Any) -> str:
    """``text`` with ``?`` for what the encoding of ``stream`` lacks."""
    if text.isascii():
        return text
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, errors="replace").decode(encoding)


def _escape(char: str) -> str:
    number = ord(char)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


@cache
def _console_class() -> type[Console]:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        """Text is made safe where it becomes a renderable, and once more where it is printed."""

        def render_str(self, text: str, *args: Any, **options: Any) -> Text:
            return super().render_str(safe_lines(text), *args, **options)

        def render(
            self, renderable: RenderableType, options: ConsoleOptions | None = None
        ) -> Iterable[Segment]:
            for segment in super().render(renderable, options):
                if segment.control or (segment.text.isascii() and segment.text.isprintable()):
                    yield segment
                else:
                    text = _encodable(safe_lines(segment.text), self.file)
                    yield Segment(text, segment.style)

    return SafeConsole
