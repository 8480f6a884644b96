"""Detect secrets by their name, their format, or the program that takes them.

Scripts, journals and the ledger are kept for long and shown to many, so hpcflow refuses secrets in
them. Names and formats are certain; a text that only looks random is not, so it gets a warning.
"""

from __future__ import annotations

import re
import string
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from functools import lru_cache
from itertools import accumulate
from typing import Any, Final

from hpcflow.model.secret_forms import Span, entropy, forms_in

#: The replacement for a secret in messages and records.
REDACTED: Final = "[redacted]"

# Patterns are compiled on first use: most commands need few of them.

#: Services that issue keys and tokens.
_SERVICES: Final = (
    "HF|HUB|HUGGING_?FACE|WANDB|OPENAI|ANTHROPIC|COMET|NEPTUNE|COHERE|MISTRAL|GROQ|GEMINI|AZURE|AWS"
    "|GCP|GOOGLE|SENTRY|SLACK|STRIPE|SENDGRID|TWILIO|DATADOG|DD|NEW_?RELIC|CLEARML|MLFLOW|KAGGLE"
    "|REPLICATE|TOGETHER|NGC|NVIDIA|PINECONE|LANGCHAIN|LANGSMITH|GITHUB|GH|GITLAB|GL|NPM|PYPI"
    "|DISCORD|TELEGRAM|VAULT|DATABRICKS|JUPYTER|INFLUX|GRAFANA|DOCKER|REGISTRY|ROBOFLOW|SLURM"
)
_LOGINS: Final = (
    "DB|DATABASE|SQL|MYSQL|MARIADB|PG|POSTGRES|POSTGRESQL|REDIS|MONGO|MONGODB|SMTP|MAIL|EMAIL|IMAP"
    "|FTP|SFTP|SSH|USER|ROOT|ADMIN|SUDO|LDAP|HTTPS?|PROXY|AUTH|LOGIN|KEY|API|ELASTIC|VNC|BASIC"
)
#: A value with this name is always a secret. `pad_token` and `sort_key` are everyday words.
_ANYWHERE: Final = (
    r"(?!(?:.*_)?(?:USE|HAS|NO|IS)_)(?:.*_)?(?:"
    r"PASSWORDS?|PASSWD|PASSPHRASE|PASSCODE|\w+_PWD|MYSQLPWD|JWT"
    rf"|(?:{_LOGINS})_?PASS"
    r"|SECRET(?:_(?:ACCESS_)?KEY|_TOKEN)?|SECRETKEY"
    r"|(?:API|ACCESS|PRIVATE|AUTH|ENCRYPTION|SIGNING|MASTER|LICENSE|DEPLOY|HMAC|ACCOUNT|SUBSCRIPTION"
    rf"|{_SERVICES})_?KEY"
    rf"|(?:API|ACCESS|AUTH|BEARER|REFRESH|OAUTH|DEPLOY|PERSONAL|SECURITY|REGISTRATION|{_SERVICES})"
    r"_?TOKEN"
    r")(?:_?[0-9]{1,2}|_PROD|_DEV|_TEST)?"
    r"|TOKEN"
)
#: In the name of an environment variable every TOKEN and PASS means a secret, except MAX_TOKENS,
#: TOKENIZERS_PARALLELISM, and names of files.
_VARIABLE: Final = (
    r"(?s)(?!.*_(?:FILE|PATH|DIR|NAME|URL|TYPE|LENGTH|SIZE|TTL)$)(?:"
    r".*(?:TOKEN(?![A-Z])|SECRET|PASSWORD|PASSWD|PASSPHRASE|(?:API|ACCESS|PRIVATE)_?KEY"
    r"|CREDENTIAL(?!S))"
    r"|(?:.+_)?(?<!SINGLE_)(?<!FIRST_)(?<!MULTI_)(?<!TWO_)(?<!ONE_)(?<!FORWARD_)(?<!BACKWARD_)PASS(?![A-Z])"
    r").*"
)
#: Ambiguous names: only a value that looks random is a secret.
_PERHAPS: Final = r"(?:.*_)?(?:TOKEN|KEY|PASS|AUTH|PAT|CREDENTIALS?|CREDS|COOKIE)"

#: References, templates, and options.
_REFERENCE: Final = (
    r"(?:~/|\./|\.\./|\{|<|\[|-|\$(?:[A-Za-z_{(]|$)|%\w*[%(]|\*|@\w+@"
    r"|(?:env|file|secret|secrets|vault|keyring|op|ssm|arn|oc\.env|os\.environ)[:.\[])"
)
_FILE: Final = (
    r"(?s)/.*|[\w./ -]+\.(?:pem|key|crt|json|ya?ml|txt|toml|ini|cfg|env|pt|safetensors|model|csv)"
)
#: An AWS secret key; one in 64 begins like a path.
_AWS_KEY: Final = r"(?=.*[a-z])(?=.*[A-Z])(?=.*[0-9])[A-Za-z0-9+/]{40}"
_SMALL_NUMBER: Final = r"[0-9]{1,3}|[0-9]*\.[0-9]+(?:e-?[0-9]+)?|[0-9.]+e-?[0-9]+"
#: Placeholders and values of examples.
_PLACEHOLDER: Final = (
    r"(?s)true|false|yes|no|on|off|none|null|nil|empty|dummy|unused|optional|required|auto|default|todo"
    r"|undefined|x{3,}|\.{3,}|redacted|change[_-]?(?:me|it|this)|(?:your|my|insert|replace)[_ -].*"
    r"|.*\bexample\b.*"
)

_NAME_WORD: Final = re.compile(r"pass|pwd|secret|token|key|credential|cred|jwt|auth|_pat\b", re.I)
#: A text in quotes, and a word without.
_LITERAL: Final = (
    r"[bfruBFRU]{0,2}\\{0,3}(?P<quote>\"\"\"|\'\'\'|[\"'`])"
    r"(?P<quoted>(?:\\.|(?!(?P=quote))[^\n\\]){1,4000}?)(?P=quote)"
)
_BARE: Final = r"[^\s\"'`,;(){}\[\]<>|&]"
#: A name with a value: ``NAME=``, ``--name VALUE``, ``"name": ``, ``os.environ["NAME"] =``.
_NAMED: Final = (
    r"(?P<dashes>(?<![\w-])--?)?(?P<name>[A-Za-z_](?:[\w-]|\.(?=\w)){0,100})"
    r"(?P<close>[\"'\])\\]{0,5})"
    r"(?P<operator>\s{0,3}(?::\s*[\w.\[\]| ]{1,40}?=|:=|=>|==|!=|=|:|,)\s{0,3}|(?<=\w)[ \t]+)"
    rf"(?:(?:\(\s{{0,20}})?{_LITERAL}|(?P<bare>{_BARE}{{1,256}}))"
)
#: The default of an option or a variable: ``"--token", default="X"``, ``get("TOKEN") or "X"``.
_DEFAULT: Final = (
    r"(?:(?::[^()=\n]{1,60}=\s{0,3}[\w.]{1,40}\(|\()?[^()]{0,200}?\bdefault\s{0,3}=\s{0,3}|[\"'\])]{0,4}\s{1,3}or\s{1,3})"
    + _LITERAL
)
_MORE: Final = f"{_BARE}*"
#: An expression in a settings file.
_ATTRIBUTE: Final = r"[A-Za-z_]+(?:\.[A-Za-z_]+)+"
#: Before a name and its value, in csh, fish, and a Dockerfile.
_SETS: Final = r"(?:\bsetenv|\bset -[gxU]+|(?<![\w-])ENV)\s+$"
_NAME: Final = r"[\w.-]*"
#: Only the end of a longer name counts.
_MAX_NAME: Final = 200
#: Characters that are examined on a line before and after a name and its value.
_MAX_MARGIN: Final = 200
_OF_NAMES: Final = string.ascii_letters + string.digits + "_-."
_BASE62: Final = r"[A-Za-z0-9+]{20,}={0,2}"
_DIGEST: Final = r"[0-9a-f]{32,}|[0-9A-F]{32,}"
_NAME_PARTS: Final = r"[A-Z]?[a-z]{3,}|[0-9]{4,}"


def names_secret(name: str) -> bool:
    """Return whether a value of this name must not be shown."""
    plain = _plain(name)
    return _is_variable(plain) or re.fullmatch(_ANYWHERE, plain) is not None


def is_secret(text: str) -> bool:
    """Return whether ``text`` contains the format of a secret."""
    return any(True for _ in forms_in(text))


def holds_secret(name: str, value: object, *, variable: bool = False) -> bool:
    """Return whether an option, a parameter or a variable of this name and value is a secret.

    ``--wandb.api-key``, ``wandb_api_key`` and ``wandbApiKey`` are the same name. References, paths
    of files and placeholders are not secrets.

    Args:
        variable: an environment variable, for which more names mean secrets.
    """
    if variable and isinstance(value, int) and not isinstance(value, bool):
        value = str(value)
    if not isinstance(value, str) or _is_harmless(name, value):
        return False
    plain, last = _plain(name), _plain(name.rpartition(".")[2])
    if (
        re.fullmatch(_ANYWHERE, plain)
        or re.fullmatch(_ANYWHERE, last)
        or (variable and _is_variable(last))
    ):
        return True
    return re.fullmatch(_PERHAPS, plain) is not None and looks_random(value)


def looks_random(text: str) -> bool:
    """Return whether ``text`` contains a possible key: not words, a digest or a path."""
    for found in re.finditer(_BASE62, text):
        part = re.sub(_DIGEST, "", found[0].rstrip("="))
        kinds = ("[a-z]", "[A-Z]", "[0-9]")
        if len(part) < 20 or not all(re.search(kind, part) for kind in kinds):
            continue
        # A CamelCase name with a year leaves few characters.
        if len(re.sub(_NAME_PARTS, "", part)) >= 0.5 * len(part) and entropy(part) >= 3.5:
            return True
    return False


def secrets_in(text: str, *, bare: bool = True) -> list[Span]:
    """Return the spans of secrets in ``text``: by format, or as the literal value of a name.

    Args:
        bare: whether values without quotes are literals, as in a shell but not in program source.
    """
    found = list(forms_in(text))
    if _NAME_WORD.search(text):
        found.extend(_named_in(text, bare=bare))
    return sorted(found)


def redact(text: str) -> str:
    """Return ``text`` with every secret replaced; for messages and logs."""
    parts, position = [], 0
    for start, end in secrets_in(text):
        if end > position:
            parts += [text[position : max(start, position)], REDACTED]
            position = end
    return "".join((*parts, text[position:])) if parts else text


def secret_words(words: Sequence[str]) -> Iterator[int]:
    """Yield the positions of secrets among the words of a command line."""
    found = set()
    for position, word in enumerate(words):
        name, has_value, value = word.partition("=")
        before = words[position - 1] if position else ""
        if (
            secrets_in(word)
            or (has_value and holds_secret(name, value))
            or (before.startswith("-") and "=" not in before and holds_secret(before, word))
        ):
            found.add(position)
    # Some programs take a secret as an option: `mysql -pX`, `curl -u NAME:X`.
    ends = list(accumulate(len(word) + 1 for word in words))
    for start, _ in forms_in(" ".join(words)):
        found.add(bisect_right(ends, start))
    yield from sorted(found)


def _named_in(text: str, *, bare: bool) -> Iterator[Span]:
    """Yield the spans of literal values of secret names in ``text``."""
    position = 0
    while (word := _NAME_WORD.search(text, position)) is not None:
        # Names of more than 100 characters are ignored.
        before = text[max(word.start() - 100, 0) : word.start()]
        start = word.start() - len(before) + len(before.rstrip(_OF_NAMES))
        while start < word.start() and not (text[start].isalpha() or text[start] in "_-"):
            start += 1
        found = re.compile(_NAMED).match(text, start)
        rest = re.compile(_NAME).match(text, word.end())
        position = rest.end() if rest else word.end()
        name = text[start:position]
        is_variable = name.rpartition(".")[2].isupper()
        default = re.compile(_DEFAULT).match(text, position)
        if default and holds_secret(name, default["quoted"], variable=is_variable):
            yield default.span("quoted")
        if found is None:
            continue
        group = "quoted" if found["quoted"] is not None else "bare"
        if group == "bare" and not (bare and _is_literal(found)):
            continue
        if group == "quoted" and found["operator"].isspace() and not found["dashes"]:
            continue
        if "," in found["operator"] and not found["close"]:
            continue
        is_variable = found["name"].rpartition(".")[2].isupper()
        if holds_secret(found["name"], found[group], variable=is_variable):
            end = found.end(group)
            position = end if group == "quoted" else re.compile(_MORE).match(text, end).end()  # type: ignore[union-attr]
            yield found.start(group), position


def _is_literal(found: re.Match[str]) -> bool:
    """Return whether a value without quotes is literal.

    ``NAME=X`` and ``--name X`` are; ``name: X`` and ``name = X`` are on a line of their own.
    """
    operator, text = found["operator"], found.string
    if operator == "=" and not found["close"]:
        return True
    if operator.isspace():
        before = text[max(found.start() - 12, 0) : found.start()]
        return bool(found["dashes"] or re.search(_SETS, before))
    if operator.strip() not in (":", "=") or re.fullmatch(_ATTRIBUTE, found["bare"]):
        return False
    margin = text[max(found.start() - _MAX_MARGIN, 0) : found.start()]
    is_begin = "\n" in margin or len(margin) < _MAX_MARGIN
    before = margin.rpartition("\n")[2].strip(" \t\"'-")
    after = text[found.end() : found.end() + _MAX_MARGIN].partition("\n")[0].strip(" \t\r\"'")
    return is_begin and not before and (not after or after.startswith(("#", ";")))


def _plain(name: str) -> str:
    split = re.sub(r"(?<=[a-z0-9])(?=[A-Z])", "_", name[-_MAX_NAME:].lstrip("-+"))
    return split.replace("-", "_").replace(".", "_").upper()


def _is_variable(plain: str) -> bool:
    return re.fullmatch(_VARIABLE, plain) is not None


def _is_harmless(name: str, value: str) -> bool:
    lowered = value.strip().lower()
    return (
        not lowered
        or re.fullmatch(_PLACEHOLDER, lowered) is not None
        or re.fullmatch(_SMALL_NUMBER, lowered) is not None
        or _repeats_name(_plain(name), _plain(value.strip()))
        or re.match(_REFERENCE, value) is not None
        or (re.fullmatch(_FILE, value) is not None and not re.fullmatch(_AWS_KEY, value))
    )


def _repeats_name(name: str, value: str) -> bool:
    """Return whether a value repeats its name: `password=password`, `api_key=settings.api_key`."""
    return f"_{name}".endswith(f"_{value}") or f"_{value}".endswith(f"_{name}")


def secret_keys(data: Any) -> Iterator[tuple[str | int, ...]]:
    """Yield the key path of each secret in the values of a YAML file."""
    yield from _secret_keys(data, (), "")


#: A thousand configs share the same few keys.
_is_secret_key = lru_cache(maxsize=1024)(is_secret)

#: Keys whose values are command lines.
_COMMAND_LINES: Final = frozenset({"command", "args", "resume_args"})
#: Keys of a sweep's parameter that hold its values.
_OF_PARAMETER: Final = frozenset({"value", "choices", "when", "low", "high"})


def _secret_keys(
    value: Any, path: tuple[str | int, ...], name: str
) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            way = (*path, key)
            if isinstance(key, str) and _is_secret_key(key):
                yield way
            else:
                yield from _secret_keys(item, way, name if key in _OF_PARAMETER else str(key))
    elif isinstance(value, list):
        words = [str(item) for item in value] if path and path[-1] in _COMMAND_LINES else []
        found = set(secret_words(words))
        for index, item in enumerate(value):
            if index in found:
                yield (*path, index)
            else:
                yield from _secret_keys(item, (*path, index), name)
    elif path[:2] == ("environment", "secrets"):
        if isinstance(value, str) and is_secret(value):
            yield path
    elif holds_secret(name, value, variable=path[:2] == ("environment", "variables")) or (
        isinstance(value, str) and secrets_in(value)
    ):
        yield path


def random_keys(data: Any, path: tuple[str | int, ...] = ()) -> Iterator[tuple[str | int, ...]]:
    """Yield the key path of each value of a YAML file that could be a secret."""
    if isinstance(data, dict):
        for key, item in data.items():
            yield from random_keys(item, (*path, key))
    elif isinstance(data, list):
        for index, item in enumerate(data):
            yield from random_keys(item, (*path, index))
    elif isinstance(data, str) and looks_random(data):
        yield path
