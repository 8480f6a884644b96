"""Many wrong, broken and hostile run files: each is a spec or one clear error.

Never a traceback, never another exception, never a control character on the terminal.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import example
from hypothesis import strategies as st

from hpcflow.config import LoadedSpec, load_spec
from hpcflow.errors import SpecError
from hpcflow.model.spec import frozen, thaw
from tests.sampled import sampled
from tests.valid_specs import CONFIGS, JSON


class Dumper(yaml.SafeDumper if not yaml.__with_libyaml__ else yaml.CSafeDumper):  # type: ignore[misc]
    """Puts all text into quotes: PyYAML takes `0E0` for a word, YAML 1.2 takes it for a number."""


Dumper.add_representer(
    str, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style='"')
)


def dumped(value: Any) -> str:
    """``value`` in YAML."""
    return str(yaml.dump(value, Dumper=Dumper))


PLAIN = """\
name: digits
project: vision
command: [python, train.py, "{{ params.lr }}"]
params: {lr: 1e-3, layers: [1, 2], more: &m {a: b}, again: *m}
resources:
  nodes: 2
  gpus_per_node: 4
  mem: 200G
  time_limit: 1-12:00:00
  exclude: "n[1-3]"
environment:
  modules: [cuda/12.4]
  variables:
    A: "x y"
    B: |
      several
      lines
checkpoint: {interval: 10m, notice: 90s}
retry:
  resubmit_exit_codes:
    - 75
tags: [a, b]
"""

#: What a fuzzer would not find by itself.
NASTY = st.sampled_from(
    [
        "\x00",
        "\t",
        "\n",
        "\r",
        "\x1b[31m",
        "\u2028",
        "\u202e",
        "\ufeff",
        "\x85",
        "💩",
        "é",
        "'",
        '"',
        "`",
        "$(reboot)",
        "${HOME}",
        "{{",
        "}}",
        "{%",
        "#",
        "---",
        "...",
        "<<: *m",
        "? ",
        "&a",
        "*m",
        "*nope",
        "!!python/object:os.system",
        "!!binary ",
        "%",
        "@",
        "|",
        ">",
        "-",
        ":",
        "[" * 100,
        "{a: " * 100,
        "9" * 400,
        ".nan",
        "1e999",
        "null",
        "~",
        "no",
        "0x",
        "1:30",
        "../..",
        "name: ",
        "command:\n",
        "resources: 3\n",
        "script: /\n",
        "extends: run.yaml\n",
        "- ",
    ]
)


@pytest.fixture(scope="module")
def run_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("hostile") / "run.yaml"


def check(path: Path, overrides: Sequence[str] = ()) -> LoadedSpec | None:
    """Load ``path`` and hold the outcome against what is promised of every outcome."""
    try:
        loaded = load_spec(path, overrides)
    except SpecError as error:
        message = str(error)
        assert error.exit_code == 2
        assert error.next_action
        assert any(name in message for name in (path.name, "base.yaml", "--set"))
        assert all(char.isprintable() or char == "\n" for char in message), ascii(message)
        assert len(message) < 6000
        return None
    spec = loaded.spec
    assert thaw(json.loads(json.dumps(frozen(spec), allow_nan=False))) == spec
    for word in (*spec.program, *spec.args, *spec.environment.variables.values()):
        word.encode()
        assert "\0" not in word
    assert ".." not in spec.name
    assert spec.name.replace("-", "a").replace(".", "a").replace("_", "a").isalnum()
    return loaded


@sampled(80, 800, data=st.binary(max_size=200))
@example(data=b"\xff\xfen\x00a\x00")
@example(data=b"\xef\xbb\xbf")
def test_any_bytes(run_file: Path, data: bytes) -> None:
    run_file.write_bytes(data)
    check(run_file)


@sampled(
    80,
    800,
    text=st.lists(NASTY | st.sampled_from(PLAIN.splitlines(True)), max_size=12).map("".join),
)
def test_any_heap_of_pieces(run_file: Path, text: str) -> None:
    run_file.write_text(text, newline="")
    check(run_file)


@sampled(80, 800, value=JSON | st.dictionaries(st.sampled_from(list(yaml.safe_load(PLAIN))), JSON))
def test_any_values(run_file: Path, value: Any) -> None:
    run_file.write_text(dumped(value))
    check(run_file)


@st.composite
def damaged(draw: st.DrawFn) -> str:
    """A good file with a few pieces cut out, doubled or put in."""
    text = PLAIN
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, len(text)))
        end = min(len(text), start + draw(st.integers(0, 12)))
        piece = draw(NASTY | st.just("") | st.just(text[start:end] * 2) | st.text(max_size=4))
        text = text[:start] + piece + text[end:]
    return text.encode("utf-8", "replace").decode()


@sampled(160, 1600, text=damaged())
def test_a_good_file_damaged(run_file: Path, text: str) -> None:
    run_file.write_text(text, newline="")
    check(run_file)


@st.composite
def one_wrong_value(draw: st.DrawFn) -> Any:
    """A good config in which one value, at any depth, is something else."""
    config = draw(CONFIGS)
    at: Any = config
    while True:
        key = draw(st.sampled_from(sorted(at)))
        if isinstance(at[key], dict) and at[key] and draw(st.booleans()):
            at = at[key]
            continue
        at[key] = draw(JSON | NASTY | st.just(at[key]).map(lambda value: [value]))
        return config


@sampled(120, 1200, config=one_wrong_value())
def test_one_value_that_is_something_else(run_file: Path, config: Any) -> None:
    run_file.write_text(dumped(config), newline="")
    check(run_file)


@sampled(80, 800, config=CONFIGS)
def test_every_valid_config_is_loaded_as_it_is_meant(run_file: Path, config: Any) -> None:
    run_file.write_text(dumped(config))
    loaded = check(run_file)
    assert loaded is not None
    assert loaded.spec.name == config["name"]
    assert loaded.spec.params == config.get("params", {})
    assert loaded.spec.args == config.get("args", [])


KEYS = st.sampled_from(
    [
        "name",
        "resources.nodes",
        "resources",
        "params.x",
        "params",
        "args",
        "environment.variables.A",
        "environment.container.image",
        "script",
        "extends",
        "resources.nodse",
        "",
        ".",
        "a.b.c.d",
    ]
)


@sampled(
    160,
    1600,
    overrides=st.lists(
        st.text(max_size=20)
        | st.tuples(KEYS, NASTY | st.text(max_size=20) | JSON.map(json.dumps)).map("=".join),
        max_size=3,
    ),
)
def test_any_overrides(run_file: Path, overrides: list[str]) -> None:
    run_file.write_text(PLAIN)
    check(run_file, overrides)


@sampled(80, 800, name=st.text(max_size=30) | NASTY, text=damaged())
def test_any_file_name_and_any_file_to_extend(run_file: Path, name: str, text: str) -> None:
    run_file.write_text(json.dumps({"extends": name, "name": "a"}), encoding="utf-8")
    (run_file.parent / "base.yaml").write_text(text, newline="")
    check(run_file)
    run_file.write_text("name: a\nextends: base.yaml\n")
    check(run_file)
