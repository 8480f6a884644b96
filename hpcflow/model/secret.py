"""What looks like a secret, by its name or by its form.

Scripts, journals and the ledger are kept for long and shown to many, so whatever would put a secret
there is refused (DESIGN: secrets stay out). A guess: it has to be right about what people really
write, not about what they could.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Any, Final

#: Names of environment variables. Not TOKENIZERS_PARALLELISM or MAX_TOKENS, nor what says itself
#: that it is the name of a file.
_VARIABLE: Final = re.compile(
    r"(?!.*_(?:FILE|PATH|DIR)$).*(?:TOKEN(?![A-Z])|SECRET|PASSWORD|PASSWD|PASSPHRASE"
    r"|(?:API|ACCESS|PRIVATE)_?KEY|CREDENTIAL(?!S))",
    re.DOTALL,
)
#: Names of parameters and options. Stricter: `pad_token` and `mask_token` are everyday words here.
_OPTION: Final = re.compile(
    r"(?!(?:.*_)?USE_)(?:.*_)?(?:PASSWORD|PASSWD|PASSPHRASE|(?:API|ACCESS|SECRET|PRIVATE)_?KEY|CLIENT_SECRET"
    r"|(?:API|ACCESS|AUTH|BEARER|HF|HUB|GITHUB|GITLAB|WANDB)_?TOKEN)"
)
#: What the services that researchers use give out; and a password in a URL.
_VALUE: Final = re.compile(
    r"(?<![A-Za-z0-9_-])(?:hf_[A-Za-z0-9]{30,}|gh[opsur]_[A-Za-z0-9]{30,}|github_pat_\w{30,}"
    r"|glpat-[\w-]{20,}|sk-(?=[\w-]*[0-9])(?=[\w-]*[A-Z])[\w-]{40,}|AKIA[0-9A-Z]{16}|xox[abprs]-[\w-]{10,}"
    r"|AIza[\w-]{35})(?![A-Za-z0-9])"
    r"|://[^/\s:@?#]*:[^/\s@?#]+@",
    re.ASCII,
)
#: Paths, what is left to be filled in, and options: no secret begins so.
_HARMLESS: Final = ("/", "~", "./", "../", "{{", "$", "<", "-")
#: What people write where a program insists on a value.
_PLACEHOLDERS: Final = frozenset(
    {"true", "false", "yes", "no", "none", "null", "empty", "dummy", "unused", "xxx"}
)


def names_secret(variable: str) -> bool:
    """Whether an environment variable of this name is better not shown."""
    return _VARIABLE.match(variable.upper()) is not None


def is_secret(text: str) -> bool:
    """Whether ``text`` has the form of a secret, or holds one."""
    return _VALUE.search(text) is not None


def option_holds_secret(name: str, value: object) -> bool:
    """Whether an option or parameter ``name`` with this value gives a secret away.

    ``--wandb.api-key`` and ``wandb_api_key`` are the same name. Only a text can be a secret, and
    none that is the path of a file, or left to be filled in.
    """
    plain = name.lstrip("-+").replace("-", "_").replace(".", "_").upper()
    if not isinstance(value, str) or not value or value.startswith(_HARMLESS):
        return False
    if value.lower() in _PLACEHOLDERS:
        return False
    return _OPTION.fullmatch(plain) is not None


def secret_words(words: Sequence[str]) -> Iterator[int]:
    """Positions in a command line of the words that hold a secret."""
    for position, word in enumerate(words):
        name, has_value, value = word.partition("=")
        before = words[position - 1] if position else ""
        if (
            is_secret(word)
            or (has_value and option_holds_secret(name, value))
            or (before.startswith("-") and "=" not in before and option_holds_secret(before, word))
        ):
            yield position


def secret_params(params: dict[str, Any]) -> Iterator[tuple[str | int, ...]]:
    """Keys, at any depth, of the parameters that hold a secret."""
    yield from _secret_items(params, ())


def _secret_items(value: Any, path: tuple[str | int, ...]) -> Iterator[tuple[str | int, ...]]:
    if isinstance(value, dict):
        for key, item in value.items():
            if option_holds_secret(key, item):
                yield (*path, key)
            else:
                yield from _secret_items(item, (*path, key))
    elif isinstance(value, list):
        for index, item in enumerate(value):
            yield from _secret_items(item, (*path, index))
    elif isinstance(value, str) and is_secret(value):
        yield path
