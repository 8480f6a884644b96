"""Detect secrets by format alone: tokens of services, private keys, URLs with a password.

Most rules come from gitleaks, as data in ``secret_rules.json``, because token formats change over
the years and gitleaks follows them. hpcflow's own rules cover tools of researchers.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final

Span = tuple[int, int]

#: The shortest secret of these formats.
_SHORTEST: Final = 8

#: The first line of a private key of any kind.
_KEY_BEGINS: Final = re.compile(r"-----BEGIN[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----")
_KEY_ENDS: Final = re.compile(r"-----END[ A-Z0-9_-]{0,100}PRIVATE KEY(?: BLOCK)?-----")
#: The longest key without an end line; the start of another file ends it earlier.
_LONGEST_KEY: Final = 10_000
_NEXT_FILE: Final = "\ndiff --git "

#: Keyword, regular expression. The group ``v``, or else the whole match, is the secret.
_OURS: Final = (
    ("hf_", r"(?<![A-Za-z0-9])hf_[A-Za-z0-9]{30,}(?![A-Za-z0-9])"),
    ("gh", r"(?<![A-Za-z0-9])gh[opsur]_[A-Za-z0-9]{30,}(?![A-Za-z0-9])"),
    ("github_pat_", r"(?<![A-Za-z0-9])github_pat_[A-Za-z0-9_]{30,}"),
    # OpenAI's, Anthropic's, OpenRouter's; not sk-image-segmentation-with-a-long-name-v2.
    ("sk-", r"(?<![A-Za-z0-9])sk-(?=[\w-]{0,300}?[0-9])(?=[\w-]{0,300}?[A-Z])[\w-]{40,}"),
    ("sk-or-v1-", r"sk-or-v1-[0-9a-f]{60,}"),
    ("xox", r"(?<![A-Za-z0-9])xox[abeoprs]-[\w-]{10,}"),
    ("nvapi-", r"(?<![A-Za-z0-9])nvapi-[\w-]{60,}"),
    ("gsk_", r"(?<![A-Za-z0-9])gsk_[A-Za-z0-9]{50,}"),
    ("r8_", r"(?<![A-Za-z0-9])r8_[A-Za-z0-9]{37,}"),
    ("wandb_v1_", r"wandb_v1_[A-Za-z0-9_-]{40,}"),
    ("wandb", r"(?i:wandb)[\w.\s-]{0,30}[\"']?[\s=:(,]{1,5}(?:key\s*=\s*)?[\"']?"
     r"(?P<v>[0-9a-f]{40})\b"),
    ("sig=", r"[?&;]sig=(?P<v>[\w%+/=-]{30,})"),
    ("x-amz-signature=", r"(?i:x-amz-signature)=(?P<v>[0-9a-f]{64})"),
    ("authorization", r"(?i:authorization)[\"']?\s{0,3}[:=]\s{0,3}[\"']?(?i:bearer|basic|token)\s+"
     r"(?P<v>[\w.~+/=-]{8,})"),
    ("bearer", r"(?i:bearer)\s+(?P<v>(?=[\w.~+/=-]{0,100}?[0-9])[\w.~+/=-]{20,})"),
    (";pwd=", r"(?i:;\s?pwd)=(?P<v>[^;\s]+)"),
    ("://", r"://[^/\s:@?#]*:(?P<v>(?!\$\{|\$[A-Z_]+@|[{<*])[^/\s@?#]+)@"),
    ("mysql", r"\b(?:mysql|mysqldump|mysqladmin)\b[^\n|;&]{0,200}?\s-p(?P<v>[^\s'\"|;&$]+)"),
    ("mariadb", r"\bmariadb(?:-\w+)?\b[^\n|;&]{0,200}?\s-p(?P<v>[^\s'\"|;&$]+)"),
    ("sshpass", r"\bsshpass\s+-p\s*[\"']?(?P<v>[^\s'\"$]+)"),
    ("docker", r"\b(?:docker|podman|helm registry|oras) login\b[^\n|;&]{0,200}?\s-p[= ]?"
     r"(?P<v>[^\s'\"|;&$]+)"),
    ("curl", r"\bcurl\b[^\n|;&]{0,200}?\s(?:-u|--user)[= ]?\s*[\"']?[^\s:'\"$]{1,64}:"
     r"(?P<v>[^\s'\"|;&$]+)"),
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class Form:
    """One format. It is searched only in text that contains one of its lower-case keywords."""

    name: str
    keywords: tuple[str, ...]
    regex: str
    entropy: float = 0.0
    allowed: tuple[str, ...] = ()

    def find(self, text: str) -> Iterator[Span]:
        for found in re.finditer(self.regex, text, re.ASCII):
            group = "v" if "v" in found.re.groupindex else 0
            secret = found[group]
            if self.entropy and entropy(secret) < self.entropy:
                continue
            if any(re.search(each, secret) for each in self.allowed):
                continue
            yield found.span(group)


def forms_in(text: str) -> Iterator[Span]:
    """Yield the spans in ``text`` that have the format of a secret."""
    if len(text) >= _SHORTEST:
        lowered = text.lower()
        # Most texts contain no keyword: test for any first.
        if any(map(lowered.__contains__, _keywords())):
            for form in forms():
                if any(map(lowered.__contains__, form.keywords)):
                    yield from form.find(text)
        if "-----BEGIN" in text:
            yield from _keys_in(text)


def entropy(text: str) -> float:
    """Return the Shannon entropy in bits per character."""
    return -sum(n / len(text) * math.log2(n / len(text)) for n in Counter(text).values())


def _keys_in(text: str) -> Iterator[Span]:
    for found in _KEY_BEGINS.finditer(text):
        limit = found.end() + _LONGEST_KEY
        end = _KEY_ENDS.search(text, found.end(), limit)
        next_file = text.find(_NEXT_FILE, found.end(), limit)
        if end is not None and not 0 <= next_file < end.start():
            yield found.start(), end.end()
        else:
            yield found.start(), next_file if next_file >= 0 else min(limit, len(text))


@lru_cache(maxsize=1)
def forms() -> tuple[Form, ...]:
    data = json.loads(Path(__file__).with_name("secret_rules.json").read_text("utf-8"))
    ours = [Form(keyword, (keyword,), regex) for keyword, regex in _OURS]
    theirs = [
        Form(
            each["id"],
            tuple(each["keywords"]),
            each["regex"],
            each.get("entropy", 0.0),
            tuple(each.get("allowed", ())),
        )
        for each in data["rules"]
    ]
    return (*ours, *theirs)


@lru_cache(maxsize=1)
def _keywords() -> tuple[str, ...]:
    return tuple(dict.fromkeys(keyword for form in forms() for keyword in form.keywords))
