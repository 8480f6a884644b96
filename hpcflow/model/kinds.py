"""The kinds of values in a run's file and in a site's file.

Each kind defines the accepted values, the error message, the JSON Schema for editors, and the name
in the reference (:class:`Kind`).
"""

from __future__ import annotations

import math
import re
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from typing import Annotated, Any, Final, Literal

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    GetCoreSchemaHandler,
    StringConstraints,
    WithJsonSchema,
)
from pydantic.json_schema import JsonSchemaValue
from pydantic_core.core_schema import no_info_after_validator_function

from hpcflow.model.ids import NAME_PATTERN, check_name
from hpcflow.model.scalars import number_as_text
from hpcflow.model.units import (
    DURATION_PATTERN,
    MEMORY_PATTERN,
    parse_duration_min,
    parse_duration_s,
    parse_memory_mb,
)

AUTO: Final = "auto"
MAX_NODES: Final = 100_000
MAX_KEPT: Final = 1_000_000
MAX_TEXT_CHARS: Final = 100_000
_MAX_PARAM_DEPTH: Final = 32
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_RESERVED: Final = re.compile(r"(SLURM|SBATCH|SRUN|PMI|PMIX|HPCFLOW)_", re.ASCII)


@dataclass(frozen=True, slots=True)
class Kind:
    """The name of a kind of value in the reference."""

    words: str


class WrongKey(ValueError):
    """An error of one key below the validated value."""

    def __init__(self, message: str, *keys: str | int) -> None:
        super().__init__(message)
        self.keys = keys


class Section(BaseModel):
    """A mapping of the YAML: unknown keys are errors; values are immutable."""

    model_config = ConfigDict(extra="forbid", frozen=True, populate_by_name=True, defer_build=True)


@dataclass(frozen=True, slots=True)
class Matching:
    """A text that matches ``pattern`` as a whole; ``told`` is the error message."""

    pattern: str
    told: str
    max_chars: int = 256

    def __get_pydantic_core_schema__(self, source: Any, handler: GetCoreSchemaHandler) -> Any:
        return no_info_after_validator_function(self.check, handler(source))

    def __get_pydantic_json_schema__(self, *_: Any) -> JsonSchemaValue:
        pattern = f"^(?:{self.pattern})$"
        return {"type": "string", "pattern": pattern, "maxLength": self.max_chars}

    def check(self, text: str) -> str:
        """Return ``text``, or raise ValueError if it does not match."""
        # Compiled on first use: most commands need few of these patterns.
        if len(text) <= self.max_chars and re.fullmatch(self.pattern, text, re.ASCII):
            return text
        raise ValueError(self.told)


class _Parsed(int):
    """An integer that is already in the unit of its field: from run.json, not from a person."""


def parsed(value: int) -> int:
    """Mark ``value`` as already in the unit of its field, so that it is accepted."""
    return _Parsed(value)


def _with_unit(
    parse: Callable[[str], int],
    kind: str,
    examples: str,
    *,
    never: bool = False,
    auto: bool = False,
) -> BeforeValidator:
    """Return a validator that parses text, passes parsed values, and refuses all others."""
    words = "".join(f", or `{word}`" for word, is_one in ((AUTO, auto), ("never", never)) if is_one)

    def convert(value: object) -> object:
        if isinstance(value, _Parsed):
            return int(value)
        if value is None and never:
            return None
        if isinstance(value, str):
            if auto and value == AUTO:
                return value
            if never and value == "never":
                return None
            try:
                return parse(value)
            except ValueError as problem:
                raise ValueError(f"{problem}{words}") from None
        if isinstance(value, (int, float)) and not isinstance(value, bool):
            raise ValueError(f"a number without a unit; write {kind} like {examples}{words}")
        raise ValueError(f"expected {kind} like {examples}{words}")

    return BeforeValidator(convert)


def _parse_interval_s(text: str) -> int:
    seconds = parse_duration_s(text)
    if seconds == 0:
        raise ValueError("must be longer than zero")
    return seconds


def _text(value: object) -> object:
    """Return a number as it was written. Booleans are refused: their text form is unclear."""
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        return number_as_text(value)
    return value


def without_nul(text: str) -> str:
    """Return ``text``, or raise ValueError if it contains a NUL byte."""
    if "\0" in text:
        raise ValueError("a NUL byte cannot be passed to a program")
    return text


#: One quoted word of a shell; characters that a shell interprets outside quotes, and in double
#: quotes; escapes in double quotes; and names that hpcflow fills in.
_QUOTED: Final = re.compile(r"'[^']*'|\"(?:\\.|[^\"\\])*\"|\\.", re.DOTALL)
_SHELL_SYNTAX: Final = re.compile(r"[|&;<>()`\n]|\$[A-Za-z_{(]")
_SHELL_SYNTAX_IN_QUOTES: Final = re.compile(r"`|\$[A-Za-z_{(]")
_ESCAPE: Final = re.compile(r"\\([$`])|\\.", re.DOTALL)
_FILLED_IN: Final = re.compile(r"\{\{\s*([A-Za-z0-9_.]+)\s*\}\}")


def _split(value: object) -> object:
    """Return the words of a text, split like a shell command; ValueError if it needs a shell."""
    if not isinstance(value, str):
        return value
    text = _FILLED_IN.sub(r"{{\1}}", value.strip())
    in_quotes = " ".join(each for each in _QUOTED.findall(text) if each.startswith('"'))
    found = _SHELL_SYNTAX.search(_QUOTED.sub("", text))
    if found := found or _SHELL_SYNTAX_IN_QUOTES.search(_ESCAPE.sub("", in_quotes)):
        shown = "a line end" if found[0] == "\n" else repr(found[0])
        raise ValueError(
            f"no shell runs this command, but {shown} needs one: put the line into a script, or "
            "put it into single quotes to pass it to the program"
        )
    try:
        words = shlex.split(_QUOTED.sub(_as_shlex_reads, text))
    except ValueError as problem:
        raise ValueError(f"cannot be split into words: {str(problem).lower()}") from None
    name, equals, _ = words[0].partition("=") if words else ("", "", "")
    if equals and _VARIABLE.fullmatch(name):
        raise ValueError(f"no shell runs this command: set {name} in environment.variables")
    return words


def _as_shlex_reads(quoted: re.Match[str]) -> str:
    """Return quoted text without the backslashes that a shell removes but :mod:`shlex` keeps."""
    text = quoted[0]
    return _ESCAPE.sub(lambda each: each[1] or each[0], text) if text.startswith('"') else text


def _check_path(path: str) -> str:
    if path.startswith("-"):
        raise ValueError("begins with '-' and would be taken for an option; write ./ before it")
    return without_nul(path)


def _check_variable(name: str) -> str:
    if not _VARIABLE.fullmatch(name):
        raise ValueError("not the name of an environment variable")
    if _RESERVED.match(name):
        raise ValueError("this name is reserved by Slurm or hpcflow")
    return name


def _check_params(params: dict[str, Any]) -> dict[str, Any]:
    return {name: _as_json(value, (name,)) for name, value in params.items()}


def _as_json(value: Any, path: tuple[str | int, ...]) -> Any:
    """Return ``value`` in plain JSON types, so that run.json restores exactly what was read."""
    if value is None or isinstance(value, bool):
        return value
    if isinstance(value, str):
        try:
            return without_nul(value)
        except ValueError as problem:
            raise WrongKey(str(problem), *path) from None
    if isinstance(value, int):
        return int(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise WrongKey("not finite, so JSON cannot hold it; give it as a text", *path)
        return float(value)
    if len(path) > _MAX_PARAM_DEPTH:
        raise WrongKey("nested too deep", path[0])
    if isinstance(value, (list, tuple)):
        return [_as_json(item, (*path, index)) for index, item in enumerate(value)]
    if isinstance(value, dict) and all(isinstance(key, str) for key in value):
        return {key: _as_json(item, (*path, key)) for key, item in value.items()}
    raise WrongKey(f"a {type(value).__name__} cannot be written as JSON", *path)


def _count_or_all(value: object) -> object:
    if value == "all":
        return None
    if value is None or (type(value) is int and 1 <= value <= MAX_KEPT):
        return value
    raise ValueError(f"expected a whole number from 1 to {MAX_KEPT:,}, or `all`")


#: Supported stores. fsspec has more; some of them fetch from other servers, unpack archives, or
#: execute code from an object.
STORE_PROTOCOLS: Final = ("s3", "s3a", "gs", "gcs", "az", "abfs", "abfss")
_STORE_URL: Final = re.compile(
    rf"(?:{'|'.join(STORE_PROTOCOLS)})://[^\s/?#*\[\]]+(?:/[^\x00-\x20\x7f?#*\[\]]*)?|/[^\x00-\x1f\x7f]*"
)


def check_store_url(url: str) -> str:
    """Return ``url`` of a folder in an object store, or of a plain folder.

    Raises:
        ValueError: no such URL, or credentials in it; the message does not repeat the URL.
    """
    from hpcflow.model.secret import is_secret  # its rules compile slowly

    if is_secret(url) or re.search(r"://[^/]*@", url):
        raise ValueError("credentials do not belong in a URL; they come from the standard chain")
    if "::" in url:
        raise ValueError("not the URL of a store: '::' is not supported")
    kind, is_url, _ = url.partition("://")
    if is_url and not url.startswith("/") and kind not in STORE_PROTOCOLS:
        known = ", ".join(f"{name}://" for name in STORE_PROTOCOLS)
        raise ValueError(f"not a supported store; expected {known}, or an absolute folder")
    if not _STORE_URL.fullmatch(url):
        raise ValueError("not the URL of a store, such as s3://bucket/prefix, nor an absolute path")
    if is_url and not {".", ".."}.isdisjoint(url.split("/")):
        raise ValueError("an object store has no '.' or '..'")
    return url


_ENDPOINT_URL: Final = Matching(
    r"https?://(?:[A-Za-z0-9._-]+|\[[0-9A-Fa-f:.]+\])(?::[0-9]{1,5})?(?:/[A-Za-z0-9._:/-]*)?",
    "not a URL such as https://s3.example.org",
)


def check_endpoint_url(url: str) -> str:
    """Return ``url`` of an S3 endpoint, or raise ValueError without the URL in it."""
    return _ENDPOINT_URL.check(url)


_DURATION: Final = {"type": "string", "pattern": DURATION_PATTERN}
_LIKE: Final = "30m, 4h or 1d12h"

Name = Annotated[
    str,
    AfterValidator(check_name),
    WithJsonSchema({"type": "string", "pattern": rf"^(?!.*\.\.){NAME_PATTERN}$"}),
    Kind("name: 1 to 63 letters, digits, `.`, `_`, `-`"),
]
Text = Annotated[
    str,
    StringConstraints(max_length=MAX_TEXT_CHARS),
    BeforeValidator(_text),
    AfterValidator(without_nul),
    WithJsonSchema({"type": ["string", "number"], "maxLength": MAX_TEXT_CHARS}),
    Kind("text"),
]
Words = list[Text]
#: Program and arguments.
Command = Annotated[
    Words,
    BeforeValidator(_split),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": ["string", "number"]}}]}
    ),
    Kind("command: text or list of text"),
]
_WORD: Final = Matching(
    r"[A-Za-z0-9_][A-Za-z0-9_.@:+-]*",
    "not one word: use letters, digits and _ . @ : + -, beginning with a letter, digit or _",
    128,
)
Word = Annotated[str, _WORD, Kind("word")]


def is_word(text: str) -> bool:
    try:
        _WORD.check(text)
    except ValueError:
        return False
    return True


Path = Annotated[
    str,
    StringConstraints(min_length=1, max_length=4096),
    AfterValidator(_check_path),
    Kind("path"),
]
StoreUrl = Annotated[
    str,
    StringConstraints(min_length=1, max_length=1024),
    AfterValidator(check_store_url),
    Kind("URL of a folder in a store"),
]
EndpointUrl = Annotated[str, _ENDPOINT_URL, Kind("URL")]
StoreUrlOrNever = Annotated[
    str,
    StringConstraints(min_length=1, max_length=1024),
    AfterValidator(lambda url: url if url == "never" else check_store_url(url)),
    Kind("URL of a folder in a store, or `never`"),
]
Variable = Annotated[
    str,
    AfterValidator(_check_variable),
    WithJsonSchema({"type": "string", "pattern": rf"^(?!{_RESERVED.pattern}){_VARIABLE.pattern}$"}),
    Kind("variable name"),
]
Variables = dict[Variable, Text]
Module = Annotated[
    str,
    Matching(r"[A-Za-z0-9_][A-Za-z0-9_.+/=-]*", "not the name of an environment module"),
    Kind("module name"),
]
Params = Annotated[
    dict[
        Annotated[
            str,
            Matching(r"[A-Za-z_][A-Za-z0-9_]*", "use letters, digits and _, like learning_rate"),
            Kind("name"),
        ],
        Any,
    ],
    AfterValidator(_check_params),
]
Minutes = Annotated[
    int,
    _with_unit(parse_duration_min, "a duration", _LIKE),
    WithJsonSchema(_DURATION),
    Kind("duration"),
]
Seconds = Annotated[
    int,
    _with_unit(parse_duration_s, "a duration", _LIKE),
    WithJsonSchema(_DURATION),
    Kind("duration"),
]
IntervalAutoOrNever = Annotated[
    int | Literal["auto"] | None,
    _with_unit(_parse_interval_s, "a duration", _LIKE, never=True, auto=True),
    WithJsonSchema({"anyOf": [_DURATION, {"enum": ["never", AUTO]}]}),
    Kind("duration, `never`, or `auto`"),
]
IntervalOrNever = Annotated[
    int | None,
    _with_unit(_parse_interval_s, "a duration", _LIKE, never=True),
    WithJsonSchema({"anyOf": [_DURATION, {"const": "never"}]}),
    Kind("duration, or `never`"),
]
Megabytes = Annotated[
    int,
    Field(ge=0),
    _with_unit(parse_memory_mb, "an amount of memory", "500M, 200G or 1.5T"),
    WithJsonSchema({"type": "string", "pattern": MEMORY_PATTERN}),
    Kind("amount of memory"),
]
Count = Annotated[int, Field(strict=True, ge=1, le=MAX_NODES), Kind("whole number from 1")]
CountOrNone = Annotated[int, Field(strict=True, ge=0, le=MAX_NODES), Kind("whole number from 0")]
CountOrAll = Annotated[
    int | None,
    BeforeValidator(_count_or_all),
    WithJsonSchema(
        {"anyOf": [{"type": "integer", "minimum": 1, "maximum": MAX_KEPT}, {"const": "all"}]}
    ),
    Kind("whole number from 1, or `all`"),
]
Metric = Annotated[
    str,
    Matching(r"[^\x00-\x1f\x7f]+", "not the name of a metric, such as loss", 200),
    Kind("name of a metric"),
]
TrainSteps = Annotated[int, Field(strict=True, ge=1, le=10**12), Kind("whole number from 1")]
