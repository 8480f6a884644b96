"""The record of uncommitted changes contains no secrets."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.model.secret import REDACTED
from hpcflow.provenance.code_state import MAX_DIFF_BYTES, code_state
from hpcflow.provenance.redaction import without_secrets
from tests.growth import require_no_square
from tests.model import corpus
from tests.provenance.test_git import git


@pytest.fixture
def repository(tmp_path: Path) -> Iterator[Path]:
    folder = tmp_path / "code"
    folder.mkdir()
    git(folder, "init", "-q")
    code_state.cache_clear()
    yield folder
    code_state.cache_clear()


def changed(folder: Path, name: str, before: str, after: str) -> str:
    """The difference that is recorded once a file was changed."""
    path = folder / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(before)
    git(folder, "add", "-f", ".")
    git(folder, "commit", "-qm", "first")
    path.write_text(after)
    code_state.cache_clear()
    return (code_state(folder).diff or b"").decode()


@pytest.mark.parametrize("name", ["train.py", "notes.txt"])
def test_a_secret_is_replaced_wherever_it_stands(repository: Path, name: str) -> None:
    # In a program's source, a value without quotes is an expression.
    found = [each for each in corpus.LINES if name != "train.py" or each[0][-1] in "\"'`)]},:"]
    lines, secrets = [line for line, _ in found], [secret for _, secret in found]
    context = 'api_key = "one that stays"'
    before = "\n".join([context, *(f"x{number}" for number in range(len(lines)))]) + "\n"
    diff = changed(repository, name, before, "\n".join([context, *lines]) + "\n")
    assert "one that stays" not in diff
    assert [secret for secret in secrets if secret in diff] == []
    assert "x0" in diff
    told = code_state(repository).warnings
    assert len(told) == 1
    assert f"{name}:1, {name}:2" in told[0]
    assert "environment.secrets" in told[0]


@pytest.mark.parametrize("kind", corpus.FORMS)
def test_every_form_is_replaced(repository: Path, kind: str) -> None:
    secret = corpus.FORMS[kind]
    for text in (f"a\n{secret}\nb\n", f'x = "{secret}"\n', f"x: {secret}, y\n"):
        diff = changed(repository, "a.py", "old\n", text)
        assert all(line not in diff for line in secret.split("\n") if "//" not in line)
        assert REDACTED in diff
        assert "\n+" in diff
        gone = changed(repository, "a.py", text, "new\n")
        assert all(line not in gone for line in secret.split("\n") if "//" not in line)


@pytest.mark.parametrize(
    "name",
    [
        *(
            ".env",
            ".env.local",
            "conf/prod.env",
            "id_rsa",
            "keys/id_ed25519",
            "server.pem",
            "x.key",
        ),
        *(
            "token.txt",
            "api_key.txt",
            ".docker/config.json",
            ".kube/config",
            ".secrets/db",
            "kaggle.json",
        ),
        *("client_secret_1.json", "_netrc", ".hf_token", "password.txt"),
        *(".netrc", ".pgpass", "credentials.json", "secrets.yaml", ".aws/credentials", "ä/.npmrc"),
    ],
)
def test_a_file_of_secrets_is_left_out(repository: Path, name: str) -> None:
    diff = changed(repository, name, "one: hunter1\n", "two: hunter2\n")
    assert "hunter" not in diff
    assert "hpcflow omits the changes of this file" in diff
    assert name in code_state(repository).warnings[0]


@pytest.mark.parametrize(
    "name",
    [".env.example", "id_rsa.pub", "keyboard.py", "environment.yaml", "tokens.txt", "token/x.py"],
)
def test_a_file_that_only_sounds_so_is_recorded(repository: Path, name: str) -> None:
    assert "+two" in changed(repository, name, "one\n", "two\n")


def test_a_difference_without_secrets_is_recorded_as_it_is(repository: Path) -> None:
    source = "\n".join([*corpus.PLAIN_SOURCE, *corpus.LOOK_ALIKES]) + "\n"
    changed(repository, "train.py", "\n", source)
    assert (
        code_state(repository).diff
        == git(repository, "-c", "core.quotePath=false", "diff", "--full-index").encode()
    )
    assert code_state(repository).warnings == ()


def test_any_bytes_are_taken(repository: Path) -> None:
    changed(repository, "a.txt", "a\n", "b\n")
    (repository / "a.txt").write_bytes(b"\xff\xfe latin \xe4\rpassword: hunter2\n")
    code_state.cache_clear()
    assert b"\xff\xfe latin \xe4\r" in (code_state(repository).diff or b"")


def test_a_key_without_an_end_hides_no_other_file() -> None:
    key = "\n+".join(corpus.private_key().split("\n")[:-1])
    diff = (
        "diff --git a/a.txt b/a.txt\n--- a/a.txt\n+++ b/a.txt\n@@ -1 +1,9 @@\n"
        f"+{key}\ndiff --git a/b.txt b/b.txt\n--- a/b.txt\n+++ b/b.txt\n@@ -1 +1 @@\n-old\n+new\n"
    )
    found = without_secrets(diff.encode())
    assert found.diff.endswith(b"@@ -1 +1 @@\n-old\n+new\n")
    assert key.split("\n+")[1].encode() not in found.diff
    assert found.places[:2] == ("a.txt:1", "a.txt:2")


@pytest.mark.parametrize(
    "line",
    [
        '+token = tokenizer.encode(key="image")',
        "+" + "eyJ" * 30,
        "+x",
    ],
)
def test_the_largest_difference_takes_no_time(line: str) -> None:
    head = "diff --git a/a.py b/a.py\n--- a/a.py\n+++ b/a.py\n@@ -1 +1 @@\n"

    def search(size_bytes: int) -> None:
        text = head + (line + "\n") * (size_bytes // (len(line) + 1))
        assert without_secrets(text.encode()).diff == text.encode()

    require_no_square(search, MAX_DIFF_BYTES)
