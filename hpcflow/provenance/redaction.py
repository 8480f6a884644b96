"""Redact secrets in the recorded diff of a user's code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from hpcflow.model.secret import REDACTED, secrets_in

#: Names of files that hold only secrets; not `.env.example` and `id_rsa.pub`.
_PRIVATE_FILES: Final = (
    r"(?i)\.env(?:rc)?|\.env\.(?!example|sample|template|dist)[\w.-]+|[\w.-]+\.env"
    r"|id_(?:rsa|dsa|ecdsa|ed25519)(?:_sk)?|[\w.-]+\.(?:pem|key|p12|pfx|jks|keystore|kdbx|ppk)"
    r"|\.(?:netrc|pgpass|npmrc|pypirc|git-credentials|htpasswd|my\.cnf|s3cfg|dockercfg|boto)"
    r"|credentials(?:\.(?:json|ya?ml|toml|ini|csv|txt|cfg))?|secrets?\.(?:json|ya?ml|toml|ini|env|txt|cfg)|kubeconfig|rclone\.conf"
    r"|service[_-]?account[\w.-]*\.json|client_secret[\w.-]*\.json|kaggle\.json"
    r"|(?:[\w.-]+[_.-])?(?:token|api_?key|password|passwd)\.txt|_netrc|\.(?:[\w-]+[_-])?token|hf_token"
    r"|\.(?:vault_pass|cdsapirc|mylogin\.cnf|curlrc|wgetrc)"
    # Folders.
    r"|\.(?:aws|docker|kube|gnupg|secrets?)"
)
#: In these files a value without quotes is an expression.
SOURCES: Final = re.compile(
    r".*\.(?:py|pyi|pyx|ipynb|js|jsx|ts|tsx|c|cc|cpp|cu|cuh|h|hpp|rs|go|java|kt|scala|jl|r|rb|pl"
    r"|lua|swift|m|md|rst|html|tex)",
    re.IGNORECASE,
)
_SECTION: Final = r"(?m)^diff --git .*$"
_NEW_NAME: Final = r'diff --git .* "?b/(.*?)"?'
_MARK: Final = r"(?m)^[+-]"
_HUNK: Final = r"@@ -[0-9,]+ \+([0-9]+)(?:,[0-9]+)? @@"
_LEFT_OUT: Final = "# hpcflow omits the changes of this file: its name is that of a secret file\n"
_MAX_NAMED: Final = 5


def is_secret_file(path: str) -> bool:
    """Return whether a file, or a folder on its path, has the name of a secret file."""
    return any(re.fullmatch(_PRIVATE_FILES, part) for part in path.split("/"))


@dataclass(frozen=True)
class Redacted:
    """A redacted diff.

    Attributes:
        places: file and line of each secret.
    """

    diff: bytes
    places: tuple[str, ...]

    @property
    def warning(self) -> str | None:
        if not self.places:
            return None
        named = ", ".join(self.places[:_MAX_NAMED])
        more = len(self.places) - _MAX_NAMED
        return (
            "secrets in your uncommitted changes are not recorded: "
            f"{named}{f' and {more} more' if more > 0 else ''}; "
            "the program should read them from environment.secrets"
        )


def without_secrets(diff: bytes) -> Redacted:
    """Return ``diff`` with every secret replaced, and the changes to secret files left out."""
    text = diff.decode("latin-1")  # each byte is one character, in any encoding
    starts = [found.start() for found in re.finditer(_SECTION, text)]
    if not starts:
        return Redacted(diff, ())
    parts: list[str] = []
    places: list[str] = []
    for start, end in pairwise([*starts, len(text)]):
        section, found = _section(text[start:end])
        parts.append(section)
        places.extend(found)
    if not places:
        return Redacted(diff, ())
    head = f"# hpcflow has replaced or left out {len(places)} secrets in this difference.\n"
    return Redacted((head + "".join(parts)).encode("latin-1"), tuple(places))


def _section(text: str) -> tuple[str, list[str]]:
    """Redact the diff of one file; return it with the places of its secrets."""
    head, _, _ = text.partition("\n")
    found = re.fullmatch(_NEW_NAME, head)
    name = found[1] if found else head
    shown = name.encode("latin-1").decode("utf-8", "replace")
    first = text.find("\n@@ ")
    if any(re.fullmatch(_PRIVATE_FILES, part) for part in re.split(r'[/ "]', head)):
        return (text[: first + 1] + _LEFT_OUT, [shown]) if first >= 0 else (text, [])
    if first < 0:
        return text, []
    # A line's mark is not part of its text: `-hf_…` is a token that was removed.
    spans = secrets_in(re.sub(_MARK, " ", text), bare=SOURCES.fullmatch(name) is None)
    return _replaced(text, [span for span in spans if span[0] > first], shown)


def _replaced(text: str, spans: list[tuple[int, int]], name: str) -> tuple[str, list[str]]:
    if not spans:
        return text, []
    parts, places = [], []
    waiting = iter(spans)
    span = next(waiting, None)
    for line, number, start in _lines(text):
        end = start + len(line)
        kept, position = [], start
        while span is not None and span[0] < end:
            begin = max(span[0], position, start + (span[0] < start))  # after the line's mark
            if begin < min(span[1], end):
                kept += [text[position:begin], REDACTED]
                position = min(span[1], end)
            if span[1] > end:
                break  # the secret continues in the next line
            span = next(waiting, None)
        parts.append("".join((*kept, text[position:end])))
        if kept:
            places.append(f"{name}:{number}")
    return "\n".join(parts), places


def _lines(text: str) -> Iterator[tuple[str, int, int]]:
    """Yield each line of a diff, its number in the new file, and its offset in ``text``."""
    number = position = 0
    for line in text.split("\n"):
        if (hunk := re.match(_HUNK, line)) is not None:
            number = int(hunk[1]) - 1
        elif not line.startswith("-"):
            number += 1
        yield line, number + line.startswith("-"), position
        position += len(line) + 1
