"""Print text safely: every line, table, progress bar, question and error of hpcflow.

Text is escaped first (:mod:`hpcflow.runtime.safe_text`) and styled afterwards. So all escape
sequences in the output are hpcflow's own. A character that the output's encoding lacks becomes
``?``. ``tests/test_terminal.py`` checks that no other module prints. Callers escape nothing, unless
text is wrapped.
"""

from __future__ import annotations

import codecs
import io
import json
import os
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
    "echo",
    "echo_as_is",
    "echo_block",
    "echo_json",
    "echo_lines",
    "echo_message",
    "escape_stderr",
    "escaped",
    "live_lines",
    "make_console",
    "progress",
    "safe",
    "safe_lines",
    "terminal_width",
]


@dataclass(frozen=True)
class Styled:
    """A part of a line with its own style."""

    text: str
    fg: str | None = None
    bold: bool | None = None
    dim: bool | None = None


#: Only these characters can be unsafe. Megabytes of JSON have none of them.
_MAYBE_UNSAFE: Final = re.compile("[^\n -~]")

#: For a terminal that does not report its width.
_DEFAULT_WIDTH: Final = 80

Line: TypeAlias = Sequence[str | Styled]


def echo(
    *parts: str | Styled,
    fg: str | None = None,
    bold: bool | None = None,
    dim: bool | None = None,
    nl: bool = True,
    err: bool = False,
) -> None:
    """Print one line; line ends within its parts are escaped.

    Args:
        fg, bold, dim: the style of the parts that are plain text.
    """
    line = ""
    for part in parts:
        line += _styled(part if isinstance(part, Styled) else Styled(part, fg, bold, dim))
    _print(line, nl=nl, err=err)


def echo_block(lines: Iterable[Line]) -> None:
    """Print lines, each of parts with their own style, at once."""
    text = "\n".join("".join(map(_styled, line)) for line in lines)
    if text:
        _print(text, nl=True, err=False)


def echo_lines(text: str, *, nl: bool = True, err: bool = False) -> None:
    """Print text of several lines; keep its line ends and tabs."""
    _print(safe_lines(text), nl=nl, err=err)


def echo_message(text: str, *below: str, fg: str | None = None, err: bool = False) -> None:
    """Print a message on one line, and each line of ``below`` indented under it."""
    message = "\n  ".join(map(safe, (text, *below)))
    _print(_style(message, fg, None, None), nl=True, err=err)


def echo_as_is(text: str) -> None:
    """Print text unchanged to a file or a pipe, and escaped to a terminal."""
    passage = Passage()
    passage.write(text.encode(errors="backslashreplace"))
    passage.close()


def echo_json(value: object, *, indent: int | None = None) -> None:
    """Print a JSON document in ASCII, without control characters."""
    _print(escaped(json.dumps(value, indent=indent)), nl=True, err=False)


def escaped(text: str) -> str:
    """Write each unsafe character of JSON or YAML as ``\\uXXXX``."""
    return _MAYBE_UNSAFE.sub(lambda char: _escape(char[0]), text)


def ask(question: str) -> bool:
    """Ask a yes-or-no question; the default is no."""
    return click.confirm(_encodable(safe(question), sys.stdout))


class Passage:
    """Copy bytes to stdout: unchanged to a file or a pipe, escaped to a terminal.

    On a terminal, sequences that set colours or move the cursor are removed. A bare carriage
    return, as progress bars print it, ends the line.
    """

    def __init__(self) -> None:
        self._is_terminal = sys.stdout.isatty()
        text = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._decoder = io.IncrementalNewlineDecoder(text, translate=True)

    def write(self, chunk: bytes) -> None:
        if self._is_terminal:
            self._show(self._decoder.decode(chunk))
            return
        sys.stdout.flush()
        sys.stdout.buffer.write(chunk)
        sys.stdout.buffer.flush()

    def close(self) -> None:
        """Show the rest, such as an incomplete character."""
        if self._is_terminal:
            self._show(self._decoder.decode(b"", final=True))

    def _show(self, text: str) -> None:
        _print(safe_lines(_SEQUENCE.sub("", text)), nl=False, err=False)


def terminal_width() -> int | None:
    """Return the width of the terminal in characters; None if stdout is not a terminal."""
    if not sys.stdout.isatty():
        return None
    columns = os.environ.get("COLUMNS", "")
    if columns.isdecimal() and int(columns[:6]) > 0:
        return int(columns[:6])
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _DEFAULT_WIDTH
    except (OSError, ValueError):
        return _DEFAULT_WIDTH


def make_console(*, err: bool = False, **options: Any) -> Console:
    """Return a rich console that escapes text and interprets no markup."""
    return _console_class()(stderr=err, markup=False, emoji=False, highlight=False, **options)


def progress(*columns: ProgressColumn, err: bool = False, transient: bool = False) -> Progress:
    """Return a rich progress bar on such a console."""
    from rich.progress import Progress

    return Progress(*columns, console=make_console(err=err), transient=transient)


@contextmanager
def live_lines() -> Iterator[LiveLines]:
    """Show lines on a terminal that can be replaced in place."""
    from rich.live import Live

    with Live(console=make_console(), auto_refresh=False) as live:
        yield LiveLines(live)


class LiveLines:
    """Lines on a terminal; :func:`live_lines` yields one."""

    def __init__(self, live: Any) -> None:
        self._live = live

    def show(self, lines: Iterable[Line]) -> None:
        from rich.text import Text

        shown = [
            Text.assemble(*((safe(p), "") if isinstance(p, str) else _rich(p) for p in line))
            for line in lines
        ]
        self._live.update(Text("\n").join(shown), refresh=True)


def escape_stderr() -> None:
    """Escape what Python and its libraries print themselves.

    These are unhandled log records, warnings, and tracebacks. Their texts may contain names and
    answers that other users wrote.
    """
    import logging
    import threading
    import warnings

    class SafeHandler(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            echo_message(record.getMessage(), err=True)
            if record.exc_info and record.exc_info[0] is not None:
                _show_traceback(*record.exc_info)

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


#: A complete control sequence, such as a colour or a cursor movement.
_SEQUENCE: Final = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]")


def _styled(part: str | Styled) -> str:
    if isinstance(part, str):
        return safe(part)
    return _style(safe(part.text), part.fg, part.bold, part.dim)


def _style(text: str, fg: str | None, bold: bool | None, dim: bool | None) -> str:
    if fg is not None and os.environ.get("NO_COLOR"):
        fg = None
    if fg is None and bold is None and dim is None:
        return text
    return click.style(text, fg=fg, bold=bold, dim=dim)


def _rich(part: Styled) -> tuple[str, str]:
    words = [part.fg or "", "bold" if part.bold else "", "dim" if part.dim else ""]
    return safe(part.text), " ".join(filter(None, words))


def _print(text: str, *, nl: bool, err: bool) -> None:
    click.echo(_encodable(text, sys.stderr if err else sys.stdout), nl=nl, err=err)


def _encodable(text: str, stream: Any) -> str:
    """Return ``text`` with ``?`` for characters that the encoding of ``stream`` lacks."""
    if text.isascii():
        return text
    encoding = getattr(stream, "encoding", None) or "utf-8"
    return text.encode(encoding, errors="replace").decode(encoding)


def _escape(char: str) -> str:
    if safe(char) == char:
        return char
    number = ord(char)
    return f"\\u{number:04x}" if number <= 0xFFFF else f"\\U{number:08x}"


@cache
def _console_class() -> type[Console]:
    from rich.console import Console, ConsoleOptions, RenderableType
    from rich.segment import Segment

    class SafeConsole(Console):
        """Escape text when it becomes a renderable, and again when it is printed."""

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
