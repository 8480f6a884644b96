"""hpcflow neither records nor shows a secret of a config or of the code beside it."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.provenance.code_state import code_state
from tests.cli.desk import Desk
from tests.model import corpus
from tests.provenance.test_git import git

TOKEN = corpus.FORMS["Hugging Face"]
BASE = "name: small\ncommand: [sh, -c, 'true']\nlaunch: {framework: none, launcher: none}\n"


@pytest.fixture(autouse=True)
def fresh() -> Iterator[None]:
    code_state.cache_clear()
    yield
    code_state.cache_clear()


@pytest.mark.parametrize(
    ("more", "place"),
    [
        ("environment: {variables: {DB_PASS: hunter2}}", ":4, environment.variables.DB_PASS"),
        ("environment: {variables: {MYSQL_PWD: hunter2}}", ":4, environment.variables.MYSQL_PWD"),
        ("environment: {variables: {WANDB_KEY: hunter2}}", ":4, environment.variables.WANDB_KEY"),
        (f"environment: {{variables: {{X: {corpus.jwt()}}}}}", ":4, environment.variables.X"),
        ("args:\n- --token\n- hunter2", ":6, args[1]"),
        ("resume_args: [--password=hunter2]", ":4, resume_args[0]"),
        (f"tags: [quick, {TOKEN}]", ":4, tags[1]"),
        (f"project: {TOKEN}", ":4, project"),
        (f"params: {{deep: [{{x: {TOKEN}}}]}}", ":4, params.deep[0].x"),
        ("params: {api_key: hunter2}", ":4, params.api_key"),
        ("params: {key: '-----BEGIN RSA PRIVATE KEY-----'}", ":4, params.key"),
        (f"resources: {{account: {TOKEN}}}", ":4, resources.account"),
        (f"checkpoint: {{adopt: {{path: 'x/{TOKEN}'}}}}", ":4, checkpoint.adopt.path"),
        (f"environment: {{secrets: {{HF_TOKEN: {TOKEN}}}}}", ":4, environment.secrets.HF_TOKEN"),
    ],
)
@pytest.mark.parametrize("words", [["run"], ["run", "--dry-run"], ["render"]])
def test_a_secret_in_a_config_is_refused(
    desk: Desk, home: Path, more: str, place: str, words: list[str]
) -> None:
    config = desk.folder / "x.yaml"
    config.write_text(BASE + more + "\n")
    said = desk.error(words[0], str(config), *words[1:])
    assert f"x.yaml{place}: looks like a secret" in said
    assert "environment.secrets" in said or "choose another" in said
    assert not any(secret in said for secret in ("hunter2", TOKEN, "eyJ"))
    assert not home.exists() or not any((home / "runs").glob("*"))
    out = desk.say(words[0], str(config), *words[1:], "--json", code=2)
    assert "looks like a secret" in json.loads(out)["error"]["message"]
    assert not any(secret in out for secret in ("hunter2", TOKEN))


def test_a_secret_that_another_override_takes_back_is_not_recorded(desk: Desk) -> None:
    config = desk.config("small", "true")
    run = desk.json(
        "run", config, "--set", "params.api_key=hunter2", "--set", "params.api_key=$X", "--wait"
    )
    assert_nowhere(Path(run["run_dir"]), "hunter2")


def test_what_could_be_a_secret_is_warned_of_and_sent(desk: Desk) -> None:
    config = desk.config("small", "true")
    value = corpus.some(40)
    said = desk.error("run", config, "--set", f"params.salt={value}", "--dry-run", code=0)
    assert "warning: " in said
    assert "params.salt: looks like a random key" in said
    assert "environment.secrets" in said
    assert value not in said


@pytest.mark.parametrize("text", corpus.LOOK_ALIKES)
def test_what_is_everyday_is_neither_refused_nor_warned_of(desk: Desk, text: str) -> None:
    config = desk.config("small", "true")
    words = ("--set", f"params.x={json.dumps(text)}", "--set", f"args={json.dumps([text])}")
    if "{{" in text:
        return
    assert desk.error("render", config, *words, code=0) == ""


def test_the_code_beside_a_config_is_recorded_without_its_secrets(desk: Desk) -> None:
    git(desk.folder, "init", "-q")
    names = ("train.py", ".env", "conf.yaml")
    for name in names:
        (desk.folder / name).write_text("x = 1\n")
    git(desk.folder, "add", "-f", *names)
    git(desk.folder, "commit", "-qm", "first")
    (desk.folder / "train.py").write_text(f'x = 2\nAPI_KEY="hunter2"\ny = "{TOKEN}"\n')
    (desk.folder / ".env").write_text("A=hunter2\n")
    (desk.folder / "conf.yaml").write_text("password: hunter2\n")
    config = desk.config("small", "true")

    said = desk.error("run", config, "--wait", code=0)
    assert "warning: secrets in your uncommitted changes are not recorded" in said
    assert all(place in said for place in (".env", "conf.yaml:1", "train.py:2", "train.py:3"))
    (run,) = desk.json("ls")["runs"]
    run_dir = Path(desk.json("show", run["run_id"])["run_dir"])
    diff = (run_dir / "code/uncommitted.diff").read_text()
    assert "+x = 2" in diff
    assert '+API_KEY="[redacted]"' in diff
    for secret in ("hunter2", TOKEN):
        assert_nowhere(run_dir, secret)


def test_an_error_does_not_repeat_a_secret(desk: Desk) -> None:
    for words in (["show", TOKEN], ["run", f"{TOKEN}.yaml"]):
        assert TOKEN not in desk.error(*words)


def assert_nowhere(folder: Path, secret: str) -> None:
    for path in folder.rglob("*"):
        assert not path.is_file() or secret.encode() not in path.read_bytes(), path
