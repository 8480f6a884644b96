"""What is refused because it looks like a secret, and what is everyday in a training."""

from __future__ import annotations

from typing import Any

import pytest

from hpcflow.model.secret import names_secret, secret_params, secret_words

KEY = "hf_" + "a1B2" * 9


@pytest.mark.parametrize(
    "name",
    ["HF_TOKEN", "token", "WANDB_API_KEY", "AWS_SECRET_ACCESS_KEY", "PGPASSWORD", "my_passphrase"],
)
def test_names_of_secrets(name: str) -> None:
    assert names_secret(name)


@pytest.mark.parametrize(
    "name",
    [
        "TOKENIZERS_PARALLELISM",
        "MAX_TOKENS",
        "PATH",
        "API_KEY_FILE",
        "HF_TOKEN_PATH",
        "GOOGLE_APPLICATION_CREDENTIALS",
        "OMP_NUM_THREADS",
    ],
)
def test_names_of_things_that_are_no_secrets(name: str) -> None:
    assert not names_secret(name)


@pytest.mark.parametrize(
    ("words", "position"),
    [
        (["--api-key=0123"], 0),
        (["--wandb.api_key=0123"], 0),
        (["-x", "--hub_token", "0123"], 2),
        (["wandb.api_key=0123"], 0),
        (["--password", "hunter2"], 1),
        ([KEY], 0),
        (["sk-proj-" + "aB3" * 15], 0),
        (["--headers", f"Bearer {KEY}"], 1),
        (["--db", "postgresql://ada:hunter2@db/x"], 1),
    ],
)
def test_a_command_line_that_gives_a_secret_away(words: list[str], position: int) -> None:
    assert list(secret_words(words)) == [position]


@pytest.mark.parametrize(
    "words",
    [
        ["--pad_token", "<pad>", "--max-tokens=512", "--use_auth_token"],
        ["--api-key-file=/home/ada/key", "--private-key", "~/.ssh/id_ed25519"],
        ["--password={{ params.password }}", "--hub_token="],
        ["git@github.com:ada/x", "http://localhost:8000/a@b", "sk-learn", "hf_hub", "--sha=a1b2c3"],
        ["secret", "token"],
        ["--use_auth_token", "--fp16"],
        ["--use_auth_token", "model"],
        ["--api-key", "EMPTY"],
        ["+wandb.api_key=${oc.env:WANDB_API_KEY}", "--hub_token", "$HF_TOKEN"],
        ["--name", "sk-image-segmentation-baseline-with-augmentation-v2"],
    ],
)
def test_a_command_line_as_people_write_it(words: list[str]) -> None:
    assert list(secret_words(words)) == []


@pytest.mark.parametrize(
    ("params", "path"),
    [
        ({"wandb": {"api_key": "0123"}}, ("wandb", "api_key")),
        ({"callbacks": [{"url": KEY}]}, ("callbacks", 0, "url")),
        ({"access_token": "0123"}, ("access_token",)),
    ],
)
def test_parameters_that_give_a_secret_away(params: dict[str, Any], path: tuple[Any, ...]) -> None:
    assert list(secret_params(params)) == [path]


def test_parameters_as_people_write_them() -> None:
    params = {"mask_token": "[MASK]", "api_key": None, "password": False, "key": 5, "tokens": ["a"]}
    assert list(secret_params(params)) == []
