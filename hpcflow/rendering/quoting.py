"""Quote a value for a script: through :func:`sh` or :func:`directive`, or not at all.

Templates are rendered with :func:`only_quoted` as Jinja's ``finalize``. It lets whole numbers and
what came out of one of the two filters pass; any other value is an error, so that nobody can
forget to quote.
"""

from __future__ import annotations

import re
from pathlib import PurePath
from typing import Final

from jinja2 import TemplateRuntimeError
from jinja2.runtime import Undefined

#: What means nothing to bash wherever a word may stand.
_PLAIN: Final = re.compile(r"[A-Za-z0-9_@%+:./-][A-Za-z0-9_@%+=:./-]*", re.ASCII)
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f]")
#: Printable ASCII except what would end the value, quote it, or begin a comment in a directive.
_DIRECTIVE: Final = re.compile(r"""[!-~]+""", re.ASCII)
_DIRECTIVE_REFUSED: Final = frozenset("#'\"\\`$")


class UnquotedError(TemplateRuntimeError):
    """A template puts a value into the script that went through no quoting filter."""


class Quoted(str):
    """Text that can stand in a script as it is."""

    __slots__ = ()


def sh(value: object) -> Quoted:
    """``value`` as one word of bash, on one line, whatever it holds; a list as so many words.

    A control character is written as an escape in ``$'…'``, since a script is read by people, line
    by line. A leading dash is the business of the command that gets the word.

    Raises:
        UnquotedError: not a text, path or whole number, or a text that no argument can hold.
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
    """``value`` as (part of) an option on an ``#SBATCH`` line; also fit for a comment.

    The model has checked it before; this is the second lock on the same door.

    Raises:
        UnquotedError: it holds white space, ``#``, a quote, ``$`` or a backslash, is not ASCII, or
            is empty.
    """
    text = _text(value)
    if not _DIRECTIVE.fullmatch(text) or not _DIRECTIVE_REFUSED.isdisjoint(text):
        raise UnquotedError(f"{text!r} cannot stand on an #SBATCH line")
    return Quoted(text)


def only_quoted(value: object) -> object:
    """Jinja's ``finalize``: ``value`` itself when it may be put out.

    Raises:
        UnquotedError: it may not.
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
