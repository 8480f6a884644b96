"""From a run's file, the files it extends and ``--set`` to one spec."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from hpcflow.config import LoadedSpec, load_spec
from hpcflow.errors import SpecError

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Write:
    """Write a file below the current folder and give its path as a user would type it."""
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, text: str = "") -> Path:
        path = Path(name)
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path

    return write_file


def refusal(path: Path, *overrides: str) -> str:
    with pytest.raises(SpecError) as caught:
        load_spec(path, overrides)
    assert caught.value.exit_code == 2
    assert caught.value.next_action
    return str(caught.value)


def test_a_first_run(write: Write, tmp_path: Path) -> None:
    write("exp/train.py")
    loaded = load_spec(write("exp/run.yaml", "name: digits\nscript: train.py\n"))
    assert loaded.spec.name == "digits"
    assert loaded.spec.script == str(tmp_path / "exp/train.py")
    assert loaded.base_dir == tmp_path / "exp"
    assert loaded.document.path == Path("exp/run.yaml")
    assert str(loaded.document.where(("script",))) == "exp/run.yaml:2, script"


def test_the_folder_of_a_file_in_the_current_folder(write: Write, tmp_path: Path) -> None:
    assert load_spec(write("run.yaml", "name: a\ncommand: [x]")).base_dir == tmp_path


# --- extends ------------------------------------------------------------------------------------


def chain(write: Write) -> Path:
    write("train.py")
    write(
        "base.yaml",
        "script: train.py\n"
        "args: [--a, --b]\n"
        "params: {lr: 0.1, seed: 1}\n"
        "resources:\n"
        "  nodes: 4\n"
        "  constraint: hbm80g\n"
        "environment:\n"
        "  venv: envs/torch\n"
        "  variables: {A: 1, B: 2}\n",
    )
    write("lab/lab.yaml", "extends: ../base.yaml\nresources: {account: vision}\n")
    return write(
        "exp/run.yaml",
        "# yaml-language-server: $schema=run.schema.json\n"
        "$schema: run.schema.json\n"
        "extends: ../lab/lab.yaml\n"
        "name: digits\n"
        "args: [--c]\n"
        "params: {lr: null}\n"
        "resources:\n"
        "  nodes: 8\n"
        "  constraint: null\n"
        "environment: {variables: {B: null, C: 3}}\n",
    )


def test_sections_are_merged_lists_are_replaced_and_null_is_the_default(write: Write) -> None:
    spec = load_spec(chain(write)).spec
    assert spec.args == ["--c"]
    assert spec.params == {"lr": None, "seed": 1}
    assert spec.resources.nodes == 8
    assert spec.resources.account == "vision"
    assert spec.resources.constraint is None
    assert spec.environment.variables == {"A": "1", "C": "3"}


def test_paths_are_relative_to_the_file_they_stand_in(write: Write, tmp_path: Path) -> None:
    loaded = load_spec(chain(write))
    assert loaded.spec.script == str(tmp_path / "train.py")
    assert loaded.spec.environment.venv == str(tmp_path / "envs/torch")
    assert loaded.base_dir == tmp_path / "exp"


def test_every_key_knows_its_own_file(write: Write) -> None:
    document = load_spec(chain(write)).document
    assert str(document.where(("resources", "nodes"))) == "exp/run.yaml:8, resources.nodes"
    account = document.where(("resources", "account"))
    assert str(account) == "exp/../lab/lab.yaml:2, resources.account"
    assert document.where(("script",)).file == "exp/../lab/../base.yaml"
    assert document.where(("params", "seed")).line == 3


def test_what_is_wrong_in_a_base_is_told_of_the_base(write: Write) -> None:
    write("base.yaml", "command: [x]\nresources:\n  nods: 4\n")
    path = write("run.yaml", "extends: base.yaml\nname: a\n")
    assert "base.yaml:3, resources.nods: unknown key 'nods'" in refusal(path)


def test_null_brings_back_the_default_of_a_whole_section(write: Write) -> None:
    write("base.yaml", "command: [x]\nresources: {nodes: 4}\ncheckpoint: {interval: never}\n")
    spec = load_spec(
        write("run.yaml", "extends: base.yaml\nname: a\nresources:\ncheckpoint: {interval: null}")
    ).spec
    assert spec.resources.nodes == 1
    assert spec.checkpoint.interval_s == 600


def test_a_command_can_take_the_place_of_a_script(write: Write) -> None:
    write("base.yaml", "script: missing.py\n")
    path = write("run.yaml", "extends: base.yaml\nname: a\nscript: null\ncommand: [x]\n")
    assert load_spec(path).spec.program == ["x"]


def test_a_value_can_take_the_place_of_a_section_and_back(write: Write) -> None:
    write("base.yaml", "command: [x]\nparams: {a: {b: 1}, c: 2}\n")
    path = write("run.yaml", "extends: base.yaml\nname: a\nparams: {a: 1, c: {d: 1}}\n")
    assert load_spec(path).spec.params == {"a": 1, "c": {"d": 1}}


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("extends: run.yaml", "run.yaml:1, extends: these files extend each other in a circle"),
        ("extends: ./x/../run.yaml", "in a circle"),
        ("extends: nope.yaml", "run.yaml:1, extends: there is no file nope.yaml"),
        ("extends: ~nobody-at-all/x", "there is no file ~nobody-at-all/x"),
        ("extends: .", "run.yaml:1, extends: there is no file ."),
        ("extends: 3", "expected the path of a YAML file, got the number 3"),
        ("extends: [a]", "expected the path of a YAML file, got a list"),
        ("extends: ''", "got an empty text"),
        ('extends: "a\\0b"', r"there is no file 'a\x00b'"),
    ],
)
def test_an_extends_that_leads_nowhere(write: Write, text: str, told: str) -> None:
    write("x/y")
    assert told in refusal(write("run.yaml", text + "\nname: a\ncommand: [x]\n"))


def test_a_circle_of_several_files(write: Write) -> None:
    write("b.yaml", "extends: c.yaml")
    write("c.yaml", "extends: a.yaml")
    message = refusal(write("a.yaml", "extends: b.yaml"))
    assert "c.yaml:1, extends: these files extend each other in a circle" in message
    assert "a.yaml → b.yaml → c.yaml → a.yaml" in message


def test_a_chain_without_end(write: Write) -> None:
    for number in range(20):
        write(f"{number}.yaml", f"extends: {number + 1}.yaml")
    assert "a chain of more than 16 files" in refusal(Path("0.yaml"))


# --- paths and files ----------------------------------------------------------------------------


def load_environment(write: Write, text: str) -> LoadedSpec:
    return load_spec(write("exp/run.yaml", f"name: a\ncommand: [x]\nenvironment: {text}\n"))


def test_home_and_parents(write: Write, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path / "home"))
    environment = load_environment(write, "{venv: ~/envs/a}").spec.environment
    assert environment.venv == str(tmp_path / "home/envs/a")
    environment = load_environment(write, "{conda: ../envs/a}").spec.environment
    assert environment.conda == str(tmp_path.resolve() / "envs/a")
    assert load_environment(write, "{conda: torch}").spec.environment.conda == "torch"


def test_a_parent_folder_is_the_one_that_the_kernel_finds(write: Write, tmp_path: Path) -> None:
    write("store/train.py")
    write("store/exp/run.yaml", "name: a\nscript: ../train.py\n")
    Path("exp").symlink_to("store/exp")
    script = load_spec(Path("exp/run.yaml")).spec.script
    assert script == str(tmp_path.resolve() / "store/train.py")


@pytest.mark.parametrize(
    ("image", "is_file"),
    [
        ("train.sif", True),
        ("./train", True),
        ("images/train.sqsh", True),
        ("images/train", False),
        ("docker://ubuntu:24.04", False),
        ("docker://x/train.sif", False),
        ("nvcr.io#nvidia/pytorch:25.01-py3", False),
    ],
)
def test_an_image_is_a_file_or_a_reference(
    write: Write, tmp_path: Path, image: str, is_file: bool
) -> None:
    spec = load_environment(write, f"{{container: {{image: '{image}'}}}}").spec
    assert spec.environment.container is not None
    expected = str(tmp_path / "exp" / image) if is_file else image
    assert spec.environment.container.image == expected


def test_sources_of_mounts(write: Write, tmp_path: Path) -> None:
    text = "{container: {image: a, mounts: ['data:/data:ro', '/scratch:/scratch']}}"
    container = load_environment(write, text).spec.environment.container
    assert container is not None
    assert container.mounts == [f"{tmp_path}/exp/data:/data:ro", "/scratch:/scratch"]


def test_a_missing_script(write: Write, tmp_path: Path) -> None:
    message = refusal(write("exp/run.yaml", "name: a\nproject: b\nscript: train.py\n"))
    missing = tmp_path / "exp/train.py"
    assert message.startswith(f"exp/run.yaml:3, script: {missing}: No such file or directory\n")


def test_a_script_that_is_a_folder(write: Write) -> None:
    write("train/a.py")
    assert "is not a file" in refusal(write("run.yaml", "name: a\nscript: train\n"))


def test_a_secret_that_only_its_owner_can_read(write: Write, tmp_path: Path) -> None:
    secret = write("exp/key", "hunter2")
    path = write(
        "exp/run.yaml", "name: a\ncommand: [x]\nenvironment:\n  secrets:\n    WANDB_API_KEY: key\n"
    )
    secret.chmod(0o640)
    message = refusal(path)
    assert message.startswith("exp/run.yaml:5, environment.secrets.WANDB_API_KEY: other users have")
    assert message.endswith(f"chmod 600 {tmp_path}/exp/key")
    secret.chmod(0o600)
    secrets = load_spec(path).spec.environment.secrets
    assert secrets == {"WANDB_API_KEY": str(tmp_path / "exp/key")}
    secret.unlink()
    assert "No such file" in refusal(path)


# --- --set --------------------------------------------------------------------------------------

RUN = "name: a\ncommand: [x]\nargs: [--a]\nresources: {nodes: 4, mem: 1G}\nparams: {lr: 0.1}\n"


@pytest.mark.parametrize(
    ("override", "section", "key", "value"),
    [
        ("resources.nodes=2", "resources", "nodes", 2),
        ("resources.nodes = 2", "resources", "nodes", 2),
        ("resources.mem=null", "resources", "mem_mb", None),
        ("resources.time_limit=1:30:00", "resources", "time_limit_min", 90),
        ("resources.account=no", "resources", "account", "no"),
        ("checkpoint.interval=never", "checkpoint", "interval_s", None),
        ("checkpoint.interval=auto", "checkpoint", "interval_s", "auto"),
        ("environment.variables={A: 1, B: 'x'}", "environment", "variables", {"A": "1", "B": "x"}),
        ("environment.variables.A=a=b", "environment", "variables", {"A": "a=b"}),
        ("environment.variables.A=", "environment", "variables", {"A": ""}),
        ("environment.variables.A=3.10", "environment", "variables", {"A": "3.10"}),
        ("environment.variables.A=@x: #y", "environment", "variables", {"A": "@x: #y"}),
        ("environment.variables.A=*x", "environment", "variables", {"A": "*x"}),
        ("retry.resubmit_exit_codes=[75, 3]", "retry", "resubmit_exit_codes", [75, 3]),
    ],
)
def test_an_override(write: Write, override: str, section: str, key: str, value: object) -> None:
    spec = load_spec(write("run.yaml", RUN), [override]).spec
    assert getattr(getattr(spec, section), key) == value


def test_overrides_of_keys_at_the_top(write: Write) -> None:
    overrides = ["name=b", "args=[--c, 1e-3]", "params.new=true", "params.lr=null", "name=c"]
    spec = load_spec(write("run.yaml", RUN), overrides).spec
    assert spec.name == "c"
    assert spec.args == ["--c", "1e-3"]
    assert spec.params == {"lr": None, "new": True}


def test_a_path_in_an_override_is_seen_from_here(write: Write, tmp_path: Path) -> None:
    write("other.py")
    path = write("exp/run.yaml", RUN)
    spec = load_spec(path, ["command=null", "script=other.py"]).spec
    assert spec.script == str(tmp_path / "other.py")


def test_a_missing_script_in_an_override(write: Write, tmp_path: Path) -> None:
    message = refusal(write("run.yaml", RUN), "command=null", "script=nope.py")
    assert message.startswith(f"--set script: {tmp_path / 'nope.py'}: No such file")


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("resources.nodse=3", "--set resources.nodse: unknown key 'nodse'; did you mean 'nodes'?"),
        ("nodes=3", "--set nodes: unknown key 'nodes' here; 'nodes' belongs under 'resources'"),
        ("resources={nodse: 3}", "--set resources.nodse: unknown key"),
        ("resources.nodes=x", "--set resources.nodes: expected a whole number, got the text 'x'"),
        ("resources.mem=3", "--set resources.mem: a number without a unit"),
        ("name=", "--set name: not a name"),
        ("name=null", "run.yaml, name: is missing"),
        ("name.x=1", "--set name: expected a text, got a mapping"),
        ("args.0=1", "--set args: expected a list, got a mapping"),
        ("resources=", "--set resources: expected keys with values"),
        ("nodes", "--set: expected KEY=VALUE, got 'nodes'"),
        ("=3", "--set: expected KEY=VALUE"),
        ("", "--set: expected KEY=VALUE"),
        ("a..b=3", "--set: expected KEY=VALUE"),
        ("args=[a", "--set args: not YAML"),
        ("args='a", "--set args: not YAML"),
        ("args=[!!python/name:os.system x]", "--set args: the tag"),
        ("params.x=" + "1" * 200, "--set params.x: a number of 200 characters"),
        ("params.x=a\0b", "--set params.x: a NUL byte"),
        ("params.x=\udcff", "--set: not UTF-8 text"),
        ("params.\udcff=1", "--set: not UTF-8 text"),
        ("params.x=.nan", "--set params.x: not finite, so JSON cannot hold it"),
        ("extends=other.yaml", "--set extends: unknown key 'extends'"),
        ("environment.variables.MY_TOKEN=hunter2", "MY_TOKEN: looks like a secret"),
        ("environment.container.runtime=pyxis", "environment.container.image: is missing"),
    ],
)
def test_an_override_that_is_wrong(write: Write, override: str, told: str) -> None:
    message = refusal(write("run.yaml", RUN), override)
    assert told in message
    assert "hunter2" not in message
    assert all(char.isprintable() or char == "\n" for char in message)
