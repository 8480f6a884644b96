"""Find and render template files; an error names the line in the template.

A user's own file overrides the shipped one of the same name. Templates use Jinja's sandbox without
extensions; an undefined name or an unquoted value is an error. Compiled templates are kept in the
home, because compiling takes longer than all else.
"""

from __future__ import annotations

import hashlib
import marshal
import os
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from functools import lru_cache
from importlib.metadata import version
from pathlib import Path
from traceback import walk_tb
from typing import Any, Final

from jinja2 import (
    BytecodeCache,
    FileSystemLoader,
    StrictUndefined,
    TemplateError,
    TemplateNotFound,
    TemplateSyntaxError,
)
from jinja2 import nodes as jinja_nodes
from jinja2.bccache import Bucket
from jinja2.compiler import CodeGenerator, Frame
from jinja2.sandbox import ImmutableSandboxedEnvironment

import hpcflow
from hpcflow.errors import InputError, Where
from hpcflow.rendering.quoting import directive, only_quoted, sh
from hpcflow.resources import resource_dir
from hpcflow.runtime.reading import open_file

SUFFIX: Final = ".j2"

#: Errors that an expression in a template can raise.
_IN_TEMPLATES: Final = (
    TemplateError,
    ArithmeticError,
    AttributeError,
    LookupError,
    RuntimeError,  # RecursionError is one: a template that includes itself
    TypeError,
    ValueError,
)
_CHECKSUM_BYTES = hashlib.sha256().digest_size


class CompiledTemplates(BytecodeCache):
    """Jinja's interface to the file; :meth:`save` writes it if a template was compiled.

    The file begins with the checksum of its rest, because damaged bytecode crashes Python. Like
    ``__pycache__``, it is trusted code, in a home that is only its user's
    (:mod:`hpcflow.settings`). Entries for another template text, Python or Jinja are compiled
    again.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._made_by = f"{sys.version} jinja {version('jinja2')} hpcflow {hpcflow.__version__}"
        self._entries: dict[str, tuple[str, bytes]] = {}
        self._is_new = False
        with suppress(OSError, ValueError, EOFError, TypeError):
            made_by, entries = marshal.loads(_own_file(path))  # noqa: S302 - as Python's own .pyc
            if made_by == self._made_by:
                self._entries = dict(entries)

    def load_bytecode(self, bucket: Bucket) -> None:
        checksum, code = self._entries.get(bucket.key, ("", b""))
        if checksum == bucket.checksum:
            bucket.code = marshal.loads(code)  # noqa: S302 - from the same private file

    def dump_bytecode(self, bucket: Bucket) -> None:
        self._entries[bucket.key] = (bucket.checksum, marshal.dumps(bucket.code))
        self._is_new = True

    def save(self) -> None:
        """Write the templates compiled since the last call. Errors are ignored."""
        if not self._is_new:
            return
        self._is_new = False
        half = self._path.with_name(f".{self._path.name}.{os.urandom(8).hex()}.tmp")
        with suppress(OSError):
            descriptor = os.open(half, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(descriptor, "wb") as file:
                data = marshal.dumps((self._made_by, self._entries))
                file.write(hashlib.sha256(data).digest() + data)
            half.replace(self._path)


def _own_file(path: Path) -> bytes:
    """Return the content after the checksum, if only this user can write it and it is intact."""
    with open_file(path) as file:
        if os.fstat(file.fileno()).st_mode & 0o022:
            raise PermissionError(path)
        checksum, data = file.read(_CHECKSUM_BYTES), file.read()
    if hashlib.sha256(data).digest() != checksum:
        raise ValueError(path)
    return data


def render(
    name: str,
    context: Mapping[str, Any],
    template_dirs: Sequence[Path] = (),
    compiled: Path | None = None,
) -> str:
    """Render the template ``name`` with ``context``.

    Args:
        template_dirs: folders that are searched before the shipped templates, in this order.
        compiled: the file with compiled templates, which :func:`keep_compiled` writes.

    Raises:
        InputError: a template is missing, cannot be read, or is wrong; with its file and line.
    """
    environment = _environment(tuple(str(folder) for folder in template_dirs), compiled)
    try:
        return environment.get_template(name).render(context)
    except TemplateNotFound as error:
        raise InputError(
            f"there is no template {error.message}",
            next_action="the shipped ones are in " + str(resource_dir("templates")),
        ) from error
    except TemplateSyntaxError as error:
        raise _in_template(error, error.filename, error.lineno) from error
    except (OSError, UnicodeDecodeError) as error:
        raise InputError(f"a template cannot be read: {error}") from error
    except _IN_TEMPLATES as error:
        raise _in_template(error, *_place(error)) from error


class _OnlyQuoted(CodeGenerator):
    """Refuses the two blocks whose result Jinja writes without ``finalize``."""

    def visit_FilterBlock(self, node: jinja_nodes.FilterBlock, frame: Frame) -> None:  # noqa: ARG002, N802 - Jinja's names
        self.fail("a filter block could change what was quoted; write {{ … | sh }}", node.lineno)

    def visit_CallBlock(self, node: jinja_nodes.CallBlock, frame: Frame) -> None:  # noqa: ARG002, N802 - Jinja's names
        self.fail("a call block could write an unquoted value", node.lineno)


class _Environment(ImmutableSandboxedEnvironment):
    code_generator_class = _OnlyQuoted

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self._are_safe: dict[tuple[type, str], bool] = {}

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        """Return Jinja's own answer. It depends only on class and name, so it is cached."""
        key = type(obj), attr
        if key not in self._are_safe:
            self._are_safe[key] = super().is_safe_attribute(obj, attr, value)
        return self._are_safe[key]


@lru_cache(maxsize=8)
def _compiled(path: Path) -> CompiledTemplates:
    return CompiledTemplates(path)


def keep_compiled(path: Path) -> None:
    """Write the templates compiled in this process to ``path``. Its folder must exist."""
    _compiled(path).save()


@lru_cache(maxsize=8)
def _environment(folders: tuple[str, ...], compiled: Path | None) -> _Environment:
    environment = _Environment(
        bytecode_cache=_compiled(compiled) if compiled else None,
        loader=FileSystemLoader([*folders, str(resource_dir("templates"))]),
        undefined=StrictUndefined,
        finalize=only_quoted,
        autoescape=False,  # not HTML; `finalize` refuses what is not quoted for bash
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
        comment_start_string="{##",  # `{#` is a part of bash's ${#array[@]}
        comment_end_string="##}",
    )
    environment.filters["sh"] = sh
    environment.filters["directive"] = directive
    return environment


def _place(error: BaseException) -> tuple[str | None, int | None]:
    """Return file and line of the innermost template in the traceback of ``error``."""
    place: tuple[str | None, int | None] = (None, None)
    for frame, line in walk_tb(error.__traceback__):
        if frame.f_code.co_filename.endswith(SUFFIX):
            place = (frame.f_code.co_filename, line)
    return place


def _in_template(error: Exception, file: str | None, line: int | None) -> InputError:
    return InputError(
        f"the template is wrong: {error}",
        where=Where(file=file, line=line),
        next_action="correct it, then check the script: hpcflow render CONFIG",
    )
