"""Quote values for a script with :func:`sh` or :func:`directive`.

Templates are rendered with :func:`only_quoted` as Jinja's ``finalize``. It accepts integers and the
results of these two filters; any other value is an error, so that quoting cannot be forgotten.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

from jinja2 import TemplateRuntimeError
from jinja2.runtime import Undefined

#: Text without special meaning to bash in any position of a word.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+:./-][A-Za-z0-9_@%+=:./-]*", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: Printable ASCII; what would end the value, quote it, or begin a comment is refused below.
_DIRECTIVE: Final = re.compile(r"""[!-~]+""", re.ASCII)
_DIRECTIVE_REFUSED: Final = frozenset("#'\"\\`$")


class UnquotedError(TemplateRuntimeError):
    """A template puts an unquoted value into the script."""


class Quoted(str):
    """Text that needs no more quoting in a script."""

    __slots__ = ()


def sh(value: object) -> Quoted:
    """Quote ``value`` as one word of bash on one line; a list as several words.

    Control characters become escapes in ``$'…'``, so that scripts stay readable. A leading dash is
    not treated: the command must handle it.

    Raises:
        UnquotedError: not a text, path or integer, or a text with a NUL byte.
    """
    if isinstance(value, (list, tuple)):
        return Quoted(" ".join(sh(item) for item in value))
    text = _text(value)
    if "\0" in text:
        raise UnquotedError("a NUL byte cannot be passed to a program")
    if _PLAIN.fullmatch(text):
        return Quoted(text)
    if not _CONTROL.search(text):
        return Quoted("'" + text.replace("'", "'\\''") + "'")
    escaped = text.replace("\\", "\\\\").replace("'", "\\'")
    return Quoted("$'" + _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", escaped) + "'")


def directive(value: object) -> Quoted:
    """Return ``value`` for (a part of) an option on an ``#SBATCH`` line, or for a comment.

    The model has checked it before; this is a second check.

    Raises:
        UnquotedError: it contains white space, ``#``, a quote, ``$`` or a backslash, is not ASCII,
            or is empty.
    """
    text = _text(value)
    if not _DIRECTIVE.fullmatch(text) or not _DIRECTIVE_REFUSED.isdisjoint(text):
        raise UnquotedError(f"{text!r} cannot be on an #SBATCH line")
    return Quoted(text)


def only_quoted(value: object) -> object:
    """Return ``value``, if it is quoted or an integer; Jinja's ``finalize``.

    Raises:
        UnquotedError: it is not.
        jinja2.UndefinedError: there is no such value.
    """
    if isinstance(value, Quoted) or type(value) is int:
        return value
    if isinstance(value, Undefined):
        str(value)  # StrictUndefined raises, and names the variable
    raise UnquotedError(
        f"a value of type {type(value).__name__} is put into the script unquoted; "
        "write {{ … | sh }}, or {{ … | directive }} on an #SBATCH line"
    )


def _text(value: object) -> str:
    if isinstance(value, Undefined):
        str(value)
    if type(value) is int or isinstance(value, PurePath):
        return str(value)
    if isinstance(value, str):
        return str.__str__(value)
    raise UnquotedError(f"a {type(value).__name__} cannot be quoted: only text, paths, numbers")
