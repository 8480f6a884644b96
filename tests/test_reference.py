"""The reference pages and the JSON Schemas say what the models and the commands say."""

from __future__ import annotations

import dataclasses
import inspect
import re
from importlib import import_module
from pathlib import Path
from typing import Any

import click
import jsonschema
import pytest
from pydantic import Field

from hpcflow import settings
from hpcflow.cli.main import COMMANDS
from hpcflow.config import load_spec
from hpcflow.documents import parse_document, read_document
from hpcflow.errors import SpecError
from hpcflow.launch.run import Launched
from hpcflow.model.kinds import Megabytes, Minutes, Seconds, Section
from hpcflow.model.spec import RunSpec
from hpcflow.reference.__main__ import made
from hpcflow.reference.fields import human_default
from hpcflow.reference.pages import EXAMPLE
from hpcflow.reference.schemas import run_schema, site_schema
from hpcflow.reference.tables import sections
from hpcflow.sites.schema import Site

ROOT = Path(__file__).resolve().parent.parent
RUN_CHECKER = jsonschema.Draft202012Validator(run_schema())
SITE_CHECKER = jsonschema.Draft202012Validator(site_schema())


@pytest.mark.parametrize("name", list(made()))
def test_the_files_in_docs_are_up_to_date(name: str) -> None:
    on_disk = (ROOT / "docs" / name).read_text(encoding="utf-8")
    assert on_disk == made()[name], "run: python -m hpcflow.reference"


@pytest.mark.parametrize("schema", [run_schema(), site_schema()])
def test_the_schemas_are_schemas(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(("model", "page"), [(RunSpec, "configuration"), (Site, "site_reference")])
def test_every_key_has_a_description_and_a_place(model: Any, page: str) -> None:
    text = made()[f"{page}.md"]
    for path, section, description in sections(model):
        assert description
        assert not path or f"## `{path}`" in text
        for name, field in section.model_fields.items():
            key = field.alias or name
            assert field.description, key
            assert f"| `{key}` |" in text or f"## `{path}.{key}".replace("`.", "`") in text, key


def test_every_command_argument_and_option_is_on_the_page_of_commands() -> None:
    text = made()["commands.md"]
    for name, (module, _) in COMMANDS.items():
        command = import_module(module).command
        below = command.commands if isinstance(command, click.Group) else {"": command}
        for word, each in below.items():
            full = f"hpcflow {name} {word}".rstrip()
            section = text.split(f"## `{full}`\n")[1].split("\n## ")[0]
            assert f"    {full} [OPTIONS]" in section
            for option in (o for param in each.params for o in param.opts if o.startswith("-")):
                assert f"`{option}`" in section, f"{full} {option}"
    assert "hpcflow run [OPTIONS] CONFIG\n" in text
    assert "hpcflow cancel [OPTIONS] RUN...\n" in text
    assert "hpcflow site show [OPTIONS] [NAME]\n" in text


def test_the_page_of_commands_names_every_setting_and_what_python_gets() -> None:
    text = made()["commands.md"]
    variables = re.findall(r"HPCFLOW_[A-Z]+", inspect.getsource(settings))
    for name in {*settings.KEYS, *variables}:
        assert f"| `{name}` |" in text, name
    for field in dataclasses.fields(Launched):
        assert f"`{field.name}`" in text
    for shell in ("bash", "zsh", "fish"):
        assert f"hpcflow completion {shell}" in text


def test_every_key_of_a_run_has_an_example_that_is_right() -> None:
    for _, section, _ in sections(RunSpec):
        for name, field in section.model_fields.items():
            if not re.search("Section|Resources|Launch\\b|Environment\\b|Checkpoint|Retry",
                             str(field.annotation)):  # fmt: skip
                assert field.examples, name


def test_a_default_is_written_as_a_user_would_write_it() -> None:
    class Some(Section):
        limit_min: Minutes = Field(90, alias="limit")
        grace_s: Seconds = Field(120, alias="grace")
        size_mb: Megabytes = Field(2048, alias="size")
        nodes_min: int = 3

    defaults = [human_default(name, field) for name, field in Some.model_fields.items()]
    assert defaults == ["90m", "2m", "2G", 3]


def test_the_complete_example_is_complete_and_right(tmp_path: Path) -> None:
    assert EXAMPLE in (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    (tmp_path / "run.yaml").write_text(EXAMPLE)
    (tmp_path / "train.py").touch()
    spec = load_spec(tmp_path / "run.yaml").spec
    assert spec.resources.time_limit_min == 240
    assert spec.args[3] == "{{ params.lr }}"


def test_the_examples_and_the_site_files_please_an_editor() -> None:
    configs = list((ROOT / "examples").glob("**/*.yaml"))
    sites = list((ROOT / "site_configs").glob("*.yaml"))
    assert configs and sites
    for path in configs:
        RUN_CHECKER.validate(read_document(path, SpecError).data)
    for path in sites:
        SITE_CHECKER.validate(read_document(path, SpecError).data)


HEAD = "name: a\ncommand: [x]\n"


@pytest.mark.parametrize(
    "text",
    [
        HEAD,
        EXAMPLE.replace("train.py", "/dev/../etc/hostname"),
        "$schema: x\n" + HEAD,
        HEAD + "args: [--lr, 0.1, 3]\n",
        HEAD + "params: {a: null, b: [1, {c: x}]}\n",
        HEAD + "resources: null\n",
        HEAD + "resources: {nodes: null, mem: 1.5T, time_limit: 1-12:00:00}\n",
        HEAD + "resources: {time_limit: 1d 12h, exclude: 'n[1-3]', constraint: a&b}\n",
        HEAD + "checkpoint: {interval: never, notice: 90s, every_train_steps: 100}\n",
        HEAD + "checkpoint: {interval: auto}\n",
        HEAD + "environment: {variables: {A: 1, B: null}, container: {image: a.sif}}\n",
        HEAD + "launch: {framework: jax, launcher: srun}\nretry: {resubmit_exit_codes: [3]}\n",
        HEAD + "tags: [a, b.c]\n",
    ],
)
def test_an_editor_accepts_what_hpcflow_accepts(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    load_spec(tmp_path / "run.yaml")
    RUN_CHECKER.validate(parse_document(text, Path("run.yaml"), SpecError).data)


@pytest.mark.parametrize(
    "text",
    [
        "name: a\n",
        "command: [x]\n",
        HEAD + "script: train.py\n",
        "name: a b\ncommand: [x]\n",
        "name: a..b\ncommand: [x]\n",
        "name: 3\ncommand: [x]\n",
        "name: a\ncommand: x\n",
        "name: a\ncommand: []\n",
        HEAD + "comand: [x]\n",
        HEAD + "nodes: 3\n",
        HEAD + "args: [true]\n",
        HEAD + "resources: {gpu_per_node: 1}\n",
        HEAD + "resources: {mem_mb: 1G}\n",
        HEAD + "resources: {nodes: 0}\n",
        HEAD + "resources: {nodes: 4x}\n",
        HEAD + "resources: {nodes: 1.5}\n",
        HEAD + "resources: {mem: 200}\n",
        HEAD + "resources: {mem: 200X}\n",
        HEAD + "resources: {time_limit: 90}\n",
        HEAD + "resources: {time_limit: 1:30}\n",
        HEAD + "resources: {partition: a b}\n",
        HEAD + "resources: {constraint: a;b}\n",
        HEAD + "launch: {launcher: ssh}\n",
        HEAD + "environment: {variables: {A B: 1}}\n",
        HEAD + "environment: {variables: {SLURM_X: 1}}\n",
        HEAD + "environment: {modules: [a;b]}\n",
        HEAD + "environment: {container: {}}\n",
        HEAD + "params: {a-b: 1}\n",
        HEAD + "params: [1]\n",
        HEAD + "retry: {resubmit_exit_codes: [0]}\n",
        HEAD + "checkpoint: {interval: always}\n",
        HEAD + "checkpoint: {notice: auto}\n",
        HEAD + "tags: [a b]\n",
        HEAD + "extends: 3\n",
    ],
)
def test_an_editor_refuses_what_hpcflow_refuses(tmp_path: Path, text: str) -> None:
    (tmp_path / "run.yaml").write_text(text)
    with pytest.raises(SpecError):
        load_spec(tmp_path / "run.yaml")
    assert not RUN_CHECKER.is_valid(parse_document(text, Path("run.yaml"), SpecError).data)


def test_a_file_that_extends_another_may_be_incomplete() -> None:
    assert RUN_CHECKER.is_valid({"extends": "base.yaml", "resources": {"nodes": 2}})
    assert not RUN_CHECKER.is_valid({"extends": "base.yaml", "resources": {"nods": 2}})
