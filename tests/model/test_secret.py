"""What is refused because it is a secret, and what is everyday in a training."""

from __future__ import annotations

import json
import re
from functools import partial
from importlib.resources import files
from typing import Any

import pytest

from hpcflow.model.secret import (
    REDACTED,
    holds_secret,
    is_secret,
    looks_random,
    names_secret,
    redact,
    secret_keys,
    secret_words,
    secrets_in,
)
from hpcflow.model.secret_forms import forms
from tests.growth import require_no_square
from tests.model import corpus
from tests.model.corpus import some

KEY = "hf_" + "a1B2" * 9


@pytest.mark.parametrize("kind", corpus.FORMS)
@pytest.mark.parametrize(
    "around", ["{}", "run {}", "x={},y", "https://x.org/?a={}&b=1", '"{}"', "({})"]
)
def test_a_secret_is_known_by_its_form(kind: str, around: str) -> None:
    text = around.format(corpus.FORMS[kind])
    assert is_secret(text)
    redacted = redact(text)
    assert REDACTED in redacted
    assert corpus.FORMS[kind][-12:] not in redacted or "://" in corpus.FORMS[kind]


@pytest.mark.parametrize("name", corpus.VARIABLES)
def test_a_variable_whose_value_is_a_secret(name: str) -> None:
    assert holds_secret(name, "hunter2", variable=True)
    assert names_secret(name)
    for reference in ("", "$X", "${X}", "/home/ada/key", "~/key", "env:X", "true", "changeme"):
        assert not holds_secret(name, reference, variable=True)


@pytest.mark.parametrize(
    "name",
    [
        *("TOKENIZERS_PARALLELISM", "MAX_TOKENS", "PATH", "API_KEY_FILE", "HF_TOKEN_PATH", "PWD"),
        *("GOOGLE_APPLICATION_CREDENTIALS", "OMP_NUM_THREADS", "OLDPWD", "COMPASS", "BYPASS_CACHE"),
        *(
            "PASSENGERS",
            "SINGLE_PASS",
            "SORT_KEY",
            "MONITOR_KEY",
            "KEYBOARD",
            "NCCL_DEBUG",
            "AUTHOR",
        ),
    ],
)
def test_a_variable_whose_value_is_none(name: str) -> None:
    assert not holds_secret(name, "hunter2", variable=True)


@pytest.mark.parametrize(("words", "position"), corpus.COMMAND_LINES)
def test_a_command_line_that_gives_a_secret_away(words: list[str], position: int) -> None:
    assert list(secret_words(words)) == [position]


@pytest.mark.parametrize("words", corpus.PLAIN_LINES)
def test_a_command_line_as_people_write_it(words: list[str]) -> None:
    assert list(secret_words(words)) == []


@pytest.mark.parametrize("text", corpus.LOOK_ALIKES)
def test_what_looks_like_a_secret(text: str) -> None:
    assert secrets_in(text) == []
    assert list(secret_words(["x", "--name", text, f"--run={text}", "--key", text])) == []
    assert list(secret_keys({"params": {"x": text, "key": text}, "tags": [text]})) == []
    assert not looks_random(text)


@pytest.mark.parametrize(("line", "secret"), corpus.LINES)
def test_a_secret_in_a_file(line: str, secret: str) -> None:
    assert redact(line) == line.replace(secret, REDACTED)
    assert secret not in redact(f"one\n  {line}\ntwo")


@pytest.mark.parametrize("line", corpus.PLAIN_SOURCE)
def test_a_file_without_a_secret(line: str) -> None:
    assert redact(line) == line


def test_what_could_be_a_secret() -> None:
    found = [looks_random(corpus.some(length)) for length in (24, 32, 40, 64) for _ in range(50)]
    assert sum(found) > 0.9 * len(found)


@pytest.mark.parametrize(
    ("data", "path"),
    [
        ({"params": {"wandb": {"api_key": "0123"}}}, ("params", "wandb", "api_key")),
        ({"params": {"callbacks": [{"url": KEY}]}}, ("params", "callbacks", 0, "url")),
        ({"params": {"access_token": "0123"}}, ("params", "access_token")),
        ({"name": KEY}, ("name",)),
        ({"name": f"run-{KEY}"}, ("name",)),
        ({"tags": ["a", KEY]}, ("tags", 1)),
        ({"resources": {"account": KEY}}, ("resources", "account")),
        ({"params": {KEY: 1}}, ("params", KEY)),
        (
            {"environment": {"variables": {"DB_PASS": 123456}}},
            ("environment", "variables", "DB_PASS"),
        ),
        ({"environment": {"secrets": {"HF_TOKEN": KEY}}}, ("environment", "secrets", "HF_TOKEN")),
        ({"args": ["--password", 123456]}, ("args", 1)),
        ({"space": {"token": {"choices": ["$X", "hunter2"]}}}, ("space", "token", "choices", 1)),
        (
            {"space": {"x": {"low": 0, "when": {"token": "hunter2"}}}},
            ("space", "x", "when", "token"),
        ),
    ],
)
def test_values_that_give_a_secret_away(data: dict[str, Any], path: tuple[Any, ...]) -> None:
    assert list(secret_keys(data)) == [path]


def test_values_as_people_write_them() -> None:
    params = {
        **{"mask_token": "[MASK]", "api_key": None, "password": False, "key": 5, "tokens": ["a"]},
        **{"eos_token": 50256, "pad_token": "eos", "sort_key": "length", "author": "ada"},
    }
    secrets = {"WANDB_API_KEY": "~/.secrets/wandb", "HF_TOKEN": "key"}
    assert list(secret_keys({"params": params, "environment": {"secrets": secrets}})) == []


def test_the_rules_of_others_are_whole_and_say_whose_they_are() -> None:
    data = json.loads(files("hpcflow.model").joinpath("secret_rules.json").read_text())
    assert "Copyright" in data["license"]
    assert re.match(r"v8\.", data["version"])
    assert len(data["rules"]) > 100
    for rule in data["rules"]:
        re.compile(rule["regex"])
        assert all(keyword == keyword.lower() for keyword in rule["keywords"])


PIECES = [
    *(
        "key",
        "--token ",
        "eyJ",
        "a=",
        "://a:",
        "curl ",
        "mysql -",
        "-----BEGIN PRIVATE KEY-----",
        '"key',
        "wandb ",
    ),
    *(
        "pass=",
        "key=",
        "key: ",
        "key:v,",
        '"key":1,',
        "key='x",
        "key=\\",
        "_",
        "a_",
        "PASS_",
        "x.y.",
    ),
    *("authorization: ", "password = ", 'secret="', "a.", "-", " ", "\\", "&sig=", "ey.", "token:"),
]


@pytest.mark.parametrize("most", [20_000, pytest.param(100_000, marks=pytest.mark.soak)])
@pytest.mark.parametrize("piece", PIECES)
def test_no_text_takes_long(piece: str, most: int) -> None:
    def search(size: int) -> None:
        text = (piece * size)[:size]
        secrets_in(text)
        list(secret_words([text[: size // 4], text, f"--{text}=x"]))
        looks_random(text)
        for variable in (False, True):
            holds_secret(text, "hunter2", variable=variable)
        names_secret(text)

    require_no_square(search, most)


def test_a_long_secret_is_redacted_whole() -> None:
    secret = some(9_000)
    assert redact(f"DB_PASS={secret} x") == f"DB_PASS={REDACTED} x"


def test_many_secrets_take_no_long_time() -> None:
    def search(count: int) -> None:
        assert len(list(secret_words([KEY] * count))) == count

    require_no_square(search, 20_000)


def test_no_form_takes_long() -> None:
    def search(text: str, size: int) -> None:
        is_secret(text[:size])

    for keyword in {keyword for rule in forms() for keyword in rule.keywords}:
        for piece in (
            keyword,
            f"{keyword}a",
            f"{keyword.upper()}1",
            f"{keyword} -",
            f"{keyword}_A.b",
        ):
            require_no_square(partial(search, piece * 20_000), 20_000)
