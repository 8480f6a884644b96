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

from docs.generator.__main__ import made
from docs.generator.fields import human_default
from docs.generator.pages import EXAMPLE
from docs.generator.schemas import run_schema, site_schema, sweep_schema
from docs.generator.sweeps import SWEEP_EXAMPLE
from docs.generator.tables import sections
from hpcflow import settings
from hpcflow.cli.main import COMMANDS
from hpcflow.config import load_spec
from hpcflow.config.sweep import load_sweep
from hpcflow.documents import parse_document, read_document
from hpcflow.errors import SpecError
from hpcflow.launch.run import Launched
from hpcflow.model.kinds import Megabytes, Minutes, Seconds, Section
from hpcflow.model.pruner import PrunerKind
from hpcflow.model.sampler import SamplerKind
from hpcflow.model.space_section import KEYS
from hpcflow.model.spec import RunSpec
from hpcflow.model.sweep import SweepSpec
from hpcflow.sites.schema import Site

ROOT = Path(__file__).resolve().parent.parent
RUN_CHECKER = jsonschema.Draft202012Validator(run_schema())
SITE_CHECKER = jsonschema.Draft202012Validator(site_schema())
SWEEP_CHECKER = jsonschema.Draft202012Validator(sweep_schema())


def page_text(name: str) -> str:
    return (ROOT / "docs" / name).read_text(encoding="utf-8")


def test_the_files_in_docs_are_up_to_date() -> None:
    files = made()
    missing = [name for name in files if not (ROOT / "docs" / name).exists()]
    assert missing == [], "run: python -m docs.generator"
    outdated = [name for name, text in files.items() if page_text(name) != text]
    assert outdated == [], "run: python -m docs.generator"


@pytest.mark.parametrize("schema", [run_schema(), site_schema(), sweep_schema()])
def test_the_schemas_are_schemas(schema: dict[str, Any]) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)


@pytest.mark.parametrize(
    ("model", "page"),
    [(RunSpec, "configuration"), (Site, "site_reference"), (SweepSpec, "sweep_reference")],
)
def test_every_key_has_a_description_and_a_place(model: Any, page: str) -> None:
    text = page_text(f"{page}.md")
    for path, section, description in sections(model):
        assert description
        assert not path or f"## `{path}`" in text
        for name, field in section.model_fields.items():
            key = field.alias or name
            assert field.description, key
            assert f"| `{key}` |" in text or f"## `{path}.{key}".replace("`.", "`") in text, key


def test_every_command_argument_and_option_is_on_the_page_of_commands() -> None:
    text = page_text("commands.md")
    for name, (module, _) in COMMANDS.items():
        command = import_module(module).command
        below = command.commands if isinstance(command, click.Group) else {"": command}
        for sub, each in below.items():
            full = f"hpcflow {name} {sub}".rstrip()
            section = text.split(f"## `{full}`\n")[1].split("\n## ")[0]
            assert f"    {full} [OPTIONS]" in section
            for option in (param for param in each.params if isinstance(param, click.Option)):
                for word in option.opts:
                    assert (f"`{word}`" in section) is not option.hidden, f"{full} {word}"
    assert "hpcflow run [OPTIONS] CONFIG\n" in text
    assert "hpcflow cancel [OPTIONS] RUN...\n" in text
    assert "hpcflow site show [OPTIONS] [NAME]\n" in text


def test_the_page_of_commands_names_every_setting_and_what_python_gets() -> None:
    text = page_text("commands.md")
    variables = re.findall(r"HPCFLOW_[A-Z]+", inspect.getsource(settings))
    for name in {*settings.KEYS, *variables}:
        assert f"| `{name}` |" in text, name
    for field in dataclasses.fields(Launched):
        assert f"`{field.name}`" in text
    for shell in ("bash", "zsh", "fish"):
        assert f"hpcflow completion {shell}" in text


@pytest.mark.parametrize("model", [RunSpec, SweepSpec])
def test_every_key_of_a_run_or_sweep_has_an_example(model: Any) -> None:
    for _, section, _ in sections(model):
        for name, field in section.model_fields.items():
            if not re.search("Section|Resources|Launch\\b|Environment\\b|Checkpoint|Retry"
                             r"|Objective|Sampler\b|Pruner\b|Budget",
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
        data = read_document(path, SpecError).data
        (SWEEP_CHECKER if "space" in data else RUN_CHECKER).validate(data)
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
        "name: a\ncommand: 3\n",
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


# --- sweeps -------------------------------------------------------------------------------------


def of_sweep(folder: Path, text: str) -> tuple[SweepSpec, Any]:
    """What hpcflow and what an editor reads in the sweep's file ``text``."""
    (folder / "sweep.yaml").write_text(text)
    (folder / "config.yaml").write_text(HEAD)
    spec = load_sweep(folder / "sweep.yaml").spec
    return spec, parse_document(text, Path("sweep.yaml"), SpecError).data


def test_the_complete_example_of_a_sweep_is_complete_and_right(tmp_path: Path) -> None:
    assert SWEEP_EXAMPLE in (ROOT / "docs/sweep_reference.md").read_text(encoding="utf-8")
    spec, data = of_sweep(tmp_path, SWEEP_EXAMPLE)
    assert spec.sampler.kind is SamplerKind.TPE
    assert spec.pruner.kind is PrunerKind.ASHA
    assert spec.budget.deadline_s == 2 * 86400
    assert spec.space.constants == {"epochs": 20}
    SWEEP_CHECKER.validate(data)


def test_the_page_of_sweeps_names_every_key_that_a_parameter_has() -> None:
    section = page_text("sweep_reference.md").split("## `space`\n")[1].split("\n## ")[0]
    for key in KEYS:
        assert f"{key}: " in section, key


def test_what_the_page_says_of_a_parameter_is_so(tmp_path: Path) -> None:
    section = page_text("sweep_reference.md").split("## `space`\n")[1].split("\n## ")[0]
    rows = [line.split(" | ")[0] for line in section.splitlines() if line.startswith("| `")]
    written = [each for row in rows for each in re.findall(r"`(.*?)`", row)]
    assert len(written) == 8
    for each in written:
        others = "" if each.startswith("optimizer") else "  optimizer: {choices: [adam, sgd]}\n"
        space = f"space:\n{others}  {each}\n"
        _, data = of_sweep(tmp_path, NO_SPACE + space)
        SWEEP_CHECKER.validate(data)


NO_SPACE = (
    "name: s\nbase: config.yaml\nbudget: {trials: 3}\n"
    "objective: {metric: loss, direction: minimize}\n"
)
SWEEP = NO_SPACE + "space: {lr: {low: 0.1, high: 1.0}}\n"
TWO = "objectives: [{metric: a, direction: minimize}, {metric: b, direction: maximize}]\n"


def instead(old: str, new: str) -> str:
    assert old in SWEEP
    return SWEEP.replace(old, new)


@pytest.mark.parametrize(
    "text",
    [
        SWEEP,
        "$schema: x\n" + SWEEP,
        SWEEP + "sampler: tpe\npruner: asha\n",
        *(SWEEP + f"sampler: {name}\n" for name in ("random", "tpe", "gp", "qmc", "nsga2")),
        *(SWEEP + f"pruner: {{type: {name}}}\n" for name in ("none", "median", "hyperband")),
        SWEEP + "sampler: {type: gp, seed: 7, startup_trials: 0}\n",
        instead("budget: {trials: 3}\n", "sampler: pbt\n"),
        SWEEP + "sampler: {seed: 7}\npruner: {}\n",
        SWEEP + "pruner: {type: threshold, lower: -1, upper: 1e3, per: epoch}\n",
        SWEEP + "sampler:\npruner: null\nparallel: null\nstart_from:\nrepeats:\n",
        SWEEP + "start_from: [{lr: 0.5}, {}]\nrepeats: 99\nretries: 0\n",
        instead("objective: {metric: loss, direction: minimize}\n", TWO),
        instead("{trials: 3}", "{gpu_hours: 1.5, cost_usd: 10, deadline: 1d12h, target: -1}"),
        instead("{trials: 3}", "{trials: null, deadline: 2d}"),
        NO_SPACE.replace("budget: {trials: 3}\n", "sampler: grid\n")
        + "space: {a: {choices: [2, x, null, true]}}\n",
        NO_SPACE.replace("budget: {trials: 3}\n", "sampler: {type: grid}\n")
        + "space: {a: {low: 1, high: 3}, b: {low: 0.0, high: 1.0, step: 0.5}, c: null, d: x}\n",
        NO_SPACE + "space: {a: {choices: [1, 2]}, b: {choices: [x], when: {a: 1}}}\n",
        NO_SPACE + "space: {a: {low: 1, high: 9, log: true, step: null}, b: {value: null}}\n",
        NO_SPACE + "space: {a: {choices: [1, 2]}, b: {low: 1, high: 2, when: {a: [1, 2]}}}\n",
    ],
)
def test_an_editor_accepts_the_sweeps_that_hpcflow_accepts(tmp_path: Path, text: str) -> None:
    _, data = of_sweep(tmp_path, text)
    SWEEP_CHECKER.validate(data)


@pytest.mark.parametrize(
    "text",
    [
        "name: s\n",
        instead("name: s", "name: " + "a" * 51),
        instead("name: s", "name: a b"),
        instead("base: config.yaml\n", ""),
        instead("base: config.yaml", "base: ''"),
        instead("budget: {trials: 3}\n", ""),
        instead("{trials: 3}", "{target: 3}"),
        instead("{trials: 3}", "{trials: null}"),
        instead("{trials: 3}", "{trials: 0}"),
        instead("{trials: 3}", "{trials: '3'}"),
        instead("{trials: 3}", "{trials: 3, gpu_hours: 0}"),
        instead("{trials: 3}", "{trials: 3, gpu_hours: '3'}"),
        instead("{trials: 3}", "{trials: 3, cost_usd: true}"),
        instead("{trials: 3}", "{trials: 3, deadline: 90}"),
        instead("{trials: 3}", "{trials: 3, deadline: '90'}"),
        instead("{trials: 3}", "{trials: 3, target: 1e301}"),
        instead("{trials: 3}", "{trials: 3, target: good}"),
        instead("minimize", "min"),
        instead("{metric: loss, direction: minimize}", "loss"),
        instead("objective: {metric: loss, direction: minimize}\n", ""),
        instead("objective: {metric: loss, direction: minimize}\n", "objectives: []\n"),
        SWEEP + TWO,
        SWEEP + "more: 1\n",
        SWEEP + "sampler: bayes\n",
        SWEEP + "sampler: {type: bayes}\n",
        SWEEP + "sampler: {seed: -1}\n",
        SWEEP + "sampler: {type: nsga2, population: 1}\n",
        SWEEP + "pruner: sha\n",
        SWEEP + "pruner: {per: epoch}\n",
        SWEEP + "pruner: {type: asha, reduction_factor: 1}\n",
        SWEEP + "pruner: {type: percentile, percentile: 100}\n",
        SWEEP + "pruner: {type: patience, patience: 3, min_delta: -1}\n",
        SWEEP + "parallel: 0\n",
        SWEEP + "repeats: 100\n",
        SWEEP + "start_from: {lr: 0.5}\n",
        SWEEP + "start_from: [0.5]\n",
        NO_SPACE,
        NO_SPACE + "space: {}\n",
        NO_SPACE + "space: [lr]\n",
        NO_SPACE + "space: {l-r: {low: 0.1, high: 1.0}}\n",
        NO_SPACE + "space: {lr: {low: 0.1}}\n",
        NO_SPACE + "space: {lr: {low: 0.1, high: '1'}}\n",
        NO_SPACE + "space: {lr: {low: 0.1, high: 1, lag: true}}\n",
        NO_SPACE + "space: {lr: {low: 0.1, high: 1, log: 'yes'}}\n",
        NO_SPACE + "space: {lr: {low: 0.1, high: 1, log: true, step: 0.1}}\n",
        NO_SPACE + "space: {lr: {low: 0.1, high: 1, step: 0}}\n",
        NO_SPACE + "space: {lr: {low: 0.1, high: 1e301}}\n",
        NO_SPACE + "space: {lr: {choices: []}}\n",
        NO_SPACE + "space: {lr: {choices: [[1]]}}\n",
        NO_SPACE + "space: {lr: {choices: [1], low: 0}}\n",
        NO_SPACE + "space: {lr: {choices: [1, 2]}, x: [1, 2]}\n",
        NO_SPACE + "space: {lr: {choices: [1, 2]}, x: {value: {a: 1}}}\n",
        NO_SPACE + "space: {lr: {choices: [1, 2]}, x: {choices: [1], when: {}}}\n",
        NO_SPACE + "space: {lr: {choices: [1, 2]}, x: {choices: [1], when: {lr: []}}}\n",
        NO_SPACE + f"space: {{lr: {{choices: [x, {'y' * 501}]}}}}\n",
    ],
)
def test_an_editor_refuses_the_sweeps_that_hpcflow_refuses(tmp_path: Path, text: str) -> None:
    with pytest.raises(SpecError):
        of_sweep(tmp_path, text)
    assert not SWEEP_CHECKER.is_valid(parse_document(text, Path("s.yaml"), SpecError).data)
