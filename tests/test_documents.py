"""YAML files: what is read, where it stands, and what is refused in which words."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest
import yaml
from pydantic import BaseModel, Field

from hpcflow.documents import Document, parse_document, read_document, validate
from hpcflow.documents import reader as reader_module
from hpcflow.documents.writer import on_one_line, written
from hpcflow.errors import InputError, SiteError, SpecError
from hpcflow.model.spec import RunSpec
from tests.growth import require_no_square

FILE = Path("run.yaml")


def parse(text: str) -> Document:
    return parse_document(text, FILE, SpecError)


def refusal(text: str) -> SpecError:
    with pytest.raises(SpecError) as caught:
        parse(text)
    assert caught.value.exit_code == 2
    assert caught.value.next_action
    return caught.value


@pytest.fixture(params=["with libyaml", "without libyaml"])
def any_parser(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    if request.param == "without libyaml":
        monkeypatch.setattr(reader_module, "_Parser", yaml.SafeLoader)


# --- what is read -----------------------------------------------------------------------------


@pytest.mark.usefixtures("any_parser")
def test_values_and_lines() -> None:
    document = parse(
        """\
# a comment
name: digits
args:
  - --lr
  - "{{ params.lr }}"
resources:
  nodes: 2
  gpu_type:
    a100
environment: {variables: {A: no,
  B: 1:30:00}}
"""
    )
    assert document.data == {
        "name": "digits",
        "args": ["--lr", "{{ params.lr }}"],
        "resources": {"nodes": 2, "gpu_type": "a100"},
        "environment": {"variables": {"A": "no", "B": "1:30:00"}},
    }
    assert document.line(("name",)) == 2
    assert document.line(("args", 1)) == 5
    assert document.line(("resources", "gpu_type")) == 8
    assert document.line(("environment", "variables", "B")) == 11
    assert str(document.where(("args", 1))) == "run.yaml:5, args[1]"


def test_what_is_not_there_is_looked_for_at_its_section() -> None:
    document = parse("name: a\nresources:\n  nodes: 1\n")
    assert document.line(("resources", "mem")) == 2
    assert document.line(("launch", "framework")) is None
    assert str(document.where(("launch", "framework"))) == "run.yaml, launch.framework"


@pytest.mark.usefixtures("any_parser")
def test_quotes_make_text_and_so_does_the_tag_str() -> None:
    assert parse("a: '1'\nb: \"null\"\nc: !!str 5\nd: ! 6\n").data == {
        "a": "1",
        "b": "null",
        "c": "5",
        "d": "6",
    }


@pytest.mark.usefixtures("any_parser")
def test_an_alias_is_a_copy_and_stands_where_it_is_used() -> None:
    document = parse("a: &x\n  b: [1]\nc: *x\n")
    assert document.data["c"] == {"b": [1]}
    assert document.data["c"] is not document.data["a"]
    assert document.line(("c", "b", 0)) == 3


def test_a_byte_order_mark_and_windows_line_ends_are_harmless(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"\xef\xbb\xbfname: a\r\nproject: b\r\n")
    document = read_document(path, SpecError)
    assert document.data == {"name": "a", "project": "b"}
    assert document.line(("project",)) == 2


# --- what is not YAML, or not YAML for us -------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "line", "told"),
    [
        ("", None, "empty"),
        ("# nothing\n", None, "empty"),
        ("---\n", 2, "got nothing (null)"),
        ("just text\n", 1, "got the text 'just text'"),
        ("- a\n- b\n", 1, "got a list"),
        ("a: 1\n---\nb: 2\n", 2, "a second document"),
        ("a:\n\tb: 1\n", 2, "a tab"),
        ("a: @x\n", 1, "begins with '@'"),
        ("a: 'x\n", 1, "quoted scalar"),
        ("a: [1,\n", 2, "flow node"),
        ("a: b: c\n", 1, "': ' a second time"),
        ("a: 1\n b: 2\n", 2, "indented deeper than line 1"),
        ("a: x\nb: {{ x }}\n", 2, "braces within braces"),
        ("a: 1\nb:\n  c: 1\n  d: 2\n  c: 3\n", 5, "a second time, first on line 3"),
        ("a: 1\n2: 3\n", 2, "a key must be a text, got the number 2"),
        ("true: 3\n", 1, "a key must be a text, got true"),
        ("~: 3\n", 1, "a key must be a text, got nothing"),
        ("? [a]\n: 3\n", 1, "a key must be a text"),
        ("a: &x {b: 1}\nc:\n  <<: *x\n", 3, "merge keys"),
        ("a: !!python/object/apply:os.system [ls]\n", 1, "the tag"),
        ("a: !!binary aGk=\n", 1, "the tag"),
        ("a: *nothing\n", 1, "has no anchor before it"),
        ("a: &a [*a]\n", 1, "has no anchor before it"),
        ("a: 1\nb: x\0y\n", 2, "a control character ('\\x00')"),
        ("a: 1\nb: \x1b[31m\n", 2, "a control character ('\\x1b')"),
        ("a: " + "1" * 200, 1, "a number of 200 characters"),
        ("a:\n  " + "[" * 40 + "]" * 40, 2, "nested more than 32 deep"),
        ("%YAML 3.0\n---\na: 1\n", 1, "not YAML"),
    ],
)
def test_a_refusal_names_the_line_and_what_to_do(text: str, line: int | None, told: str) -> None:
    error = refusal(text)
    assert error.where is not None
    assert (error.where.file, error.where.line) == ("run.yaml", line)
    assert told in error.message


def test_the_deepest_nesting_that_is_allowed() -> None:
    assert parse("a: " + "[" * 31 + "]" * 31).data


@pytest.mark.usefixtures("any_parser")
def test_a_thousand_laughs_are_cut_short() -> None:
    lines = ["a0: &a0 [lol, lol, lol, lol, lol, lol, lol, lol, lol, lol]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 10)]
    assert "too large after its aliases are expanded" in refusal("\n".join(lines)).message


@pytest.mark.usefixtures("any_parser")
@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('a: "C:\\data"\n', "single quotes"),
        ('a: "C:\\users"\n', "single quotes"),
        ("a: {b: 1 c: 2}\n", "separate the items with commas"),
        ('a: ["b" "c"]\n', "separate the items with commas"),
        ("a: {b: 1\nc: 2\n", "close the mapping"),
        ("a: [b\n", "close the list"),
        ("a: [b", "close the list"),
        ('"a": "b",\n"c": 1\n', "remove the comma"),
        ("a: [b],\nc: 1\n", "remove the comma"),
        ('a:\n- "b",\n- c\n', "remove the comma"),
    ],
)
def test_habits_of_json_and_of_windows(text: str, told: str) -> None:
    error = refusal(text)
    assert told in str(error.next_action)
    assert error.where
    assert error.where.line in (1, 2)


@pytest.mark.parametrize(
    "text",
    ["1e3", "1.e5", "0o7", "0x1f", "0755", "1_000", "12:30", "2026-01-01", "no", "null", "~", "",
     "true", ".5e3", "+1", ".inf", "9" * 200, "a: b", "- a", "it's", "\n"],
)  # fmt: skip
def test_a_text_that_is_written_is_read_as_the_same_text(text: str) -> None:
    data = {"a": text, "b": [text], "c": {f"k{text}": text}}
    assert parse(written(data)).data == data
    assert parse(f"a: {on_one_line([data])}").data["a"] == data


def test_nesting_cannot_be_hidden_in_aliases() -> None:
    lines = ["a0: &a0 [1]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 60)]
    error = refusal("\n".join(lines))
    assert "nested more than 32 deep" in error.message


def test_a_megabyte_of_brackets_is_refused_at_once() -> None:
    assert refusal("a: " + "[" * 1_000_000)
    assert refusal("a: " + "{b: " * 200_000)


# --- what is no file ----------------------------------------------------------------------------


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="No such file"):
        read_document(tmp_path / "nope.yaml", SpecError)


def test_the_error_is_of_the_class_that_was_asked_for(tmp_path: Path) -> None:
    with pytest.raises(SiteError):
        read_document(tmp_path / "nope.yaml", SiteError)


def test_a_folder(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="this is a folder"):
        read_document(tmp_path, SpecError)


def test_a_fifo_or_a_device_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    for path in (tmp_path / "fifo", Path("/dev/zero"), Path("/dev/stdin")):
        if not path.is_file():
            with pytest.raises(SpecError, match=r"neither a file nor a folder|cannot be read"):
                read_document(path, SpecError)


def test_a_fifo_that_takes_the_place_of_a_file_is_not_waited_for_either(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    os.mkfifo(tmp_path / "fifo")
    before = Path(__file__).stat()
    monkeypatch.setattr(Path, "stat", lambda _: before)
    with pytest.raises(SpecError, match="cannot be read: it is not a regular file"):
        read_document(tmp_path / "fifo", SpecError)


def test_a_file_that_this_user_may_not_read(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("name: a")
    path.chmod(0)
    user = os.geteuid()
    if user == 0:
        os.seteuid(65534)
    try:
        with pytest.raises(SpecError, match="cannot be read: Permission denied"):
            read_document(path, SpecError)
    finally:
        os.seteuid(user)


def test_a_file_that_cannot_be_read_to_its_end() -> None:
    # A regular file by its type, which answers the first read with an I/O error.
    with pytest.raises(SpecError, match="cannot be read"):
        read_document(Path("/proc/self/mem"), SpecError)


def test_a_path_that_no_file_can_have() -> None:
    for text in ("a\0b", "x" * 5000):
        with pytest.raises(SpecError, match="cannot be read"):
            read_document(Path(text), SpecError)


def test_a_file_that_is_no_text(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_bytes(b"name: a\nproject: \xff\xfe\n")
    with pytest.raises(SpecError) as caught:
        read_document(path, SpecError)
    assert str(caught.value).startswith(f"{path}:2: not UTF-8 text")


def test_a_file_that_is_too_large(tmp_path: Path) -> None:
    path = tmp_path / "run.yaml"
    path.write_text("name: a\n" + "#" * (1 << 20))
    with pytest.raises(SpecError, match="larger than 1 MiB"):
        read_document(path, SpecError)


def test_a_file_name_cannot_write_on_the_terminal(tmp_path: Path) -> None:
    path = tmp_path / "\x1b[2J\nrun.yaml"
    path.write_text("name: [\n")
    with pytest.raises(SpecError) as caught:
        read_document(path, SpecError)
    assert "\x1b" not in str(caught.value)
    assert r"\x1b[2J\nrun.yaml" in str(caught.value)


# --- held against a model -----------------------------------------------------------------------

BASE = "name: a\ncommand: [x]\n"


def problems(text: str, error: type[InputError] = SpecError) -> str:
    with pytest.raises(error) as caught:
        validate(RunSpec, parse(text), error)
    assert caught.value.exit_code == 2
    assert caught.value.next_action
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("resources:\n  nodes: 4x", ":4, resources.nodes: expected a whole number, got the text"),
        ("resources:\n  nodes: 2.0", ":4, resources.nodes: expected a whole number, got the num"),
        ("resources:\n  nodes: true", ":4, resources.nodes: expected a whole number, got true"),
        ("resources:\n  nodes: 0", ":4, resources.nodes: must be 1 or more, got the number 0"),
        ("resources:\n  nodes: 10000000", ":4, resources.nodes: must be 100000 or less"),
        ("resources: 3", ":3, resources: expected keys with values (key: value), got the number"),
        ("resources: [nodes]", ":3, resources: expected keys with values (key: value), got a list"),
        ("resources: {mem: 90}", ":3, resources.mem: a number without a unit; write an amount of"),
        ("resources: {mem: [1G]}", ":3, resources.mem: expected an amount of memory like 500M"),
        ("resources: {mem: 4Q}", ":3, resources.mem: not an amount of memory; write it like 500M"),
        ("resources: {time_limit: 90}", "a number without a unit; write a duration like 30m"),
        ("resources: {time_limit: '90'}", "not a duration; the unit is missing: write it like"),
        ("resources: {time_limit: 1:30}", "not a duration; write it like 30m, 4h or 1d12h; got "),
        ("resources: {partition: a b}", "resources.partition: not one word: use letters, digits"),
        (
            "resources: {account: 12}",
            "expected a text, got the number 12; write it like `account: '12'`",
        ),
        ("resources: {account: ''}", "resources.account: not one word"),
        ("resources: {constraint: a;b}", "resources.constraint: not a constraint for sbatch"),
        ("resources: {exclude: n1 n2}", "resources.exclude: not a Slurm host list"),
        ("launch: {launcher: torchrum}", "launch.launcher: expected 'torchrun', 'srun' or 'none'"),
        (
            "tags: baseline",
            ":3, tags: expected a list, got the text 'baseline'; write it like `tags: [baseline]`",
        ),
        (
            "args: 1e-3",
            ":3, args: expected a list, got the number 1e-3; write it like `args: [",
        ),
        ("tags: [a, ../b]", ":3, tags[1]: not a name"),
        ("params: {a-b: 1}", "the key 'a-b': use letters, digits and _, like learning_rate"),
        ("params: {a: .inf}", "params.a: not finite, so JSON cannot hold it"),
        ("params: {a: [1, {b: .nan}]}", "params.a[1].b: not finite, so JSON cannot hold it"),
        ("environment: {variables: {A B: 1}}", "the key 'A B': not the name of an environment"),
        ("environment: {variables: {SLURM_X: 1}}", "this name is reserved by Slurm or hpcflow"),
        ("environment: {variables: {A: yes, B: true}}", "variables.B: expected a text, got true"),
        ("environment: {venv: a, conda: b}", "environment.conda: give either `venv` or `conda`"),
        ("environment: {venv: -x}", "environment.venv: begins with '-'"),
        ("environment: {venv: ''}", "environment.venv: must not be empty"),
        ("environment: {modules: [a;b]}", "modules[0]: not the name of an environment module"),
        ("environment: {container: {}}", "environment.container.image: is missing"),
        ("environment: {container: {image: a, mounts: ['a:/b,c:/d']}}", "mounts[0]: not a mount"),
        ("retry: {resubmit_exit_codes: [256]}", "resubmit_exit_codes[0]: must be 255 or less"),
        (
            "checkpoint: {interval: 0s}",
            "interval: must be longer than zero, or `auto`, or",
        ),
        ("script: a.py", ":2, command: give either `script` or `command`, not both"),
    ],
)
def test_what_is_wrong_with_a_value_in_plain_words(text: str, told: str) -> None:
    message = problems(BASE + text + "\n")
    assert told in message
    for jargon in ("Input should", "pydantic", "validation error", "Value error"):
        assert jargon not in message


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "resources: {gpu_per_node: 4}",
            "unknown key 'gpu_per_node'; did you mean 'gpus_per_node'",
        ),
        ("resources: {gpus: 4}", "did you mean 'gpus_per_node'"),
        ("resources: {gpus-per-node: 4}", "did you mean 'gpus_per_node'"),
        ("resources: {Nodes: 4}", "did you mean 'nodes'"),
        ("resources: {time: 4h}", "did you mean 'time_limit'"),
        ("resources: {memory: 4G}", "did you mean 'mem'"),
        ("resources: {time_limit_min: 4}", "did you mean 'time_limit'"),
        ("nodes: 2", "unknown key 'nodes' here; 'nodes' belongs under 'resources'"),
        ("image: x", "'image' belongs under 'environment.container'"),
        ("gpu_per_node: 2", "did you mean 'gpus_per_node'? 'gpus_per_node' belongs under 'resourc"),
        ("resources: {tags: [a]}", "'tags' belongs at the top"),
        ("comand: [x]", "did you mean 'command'"),
        ("env: {}", "did you mean 'variables'"),
        ("launch: {qqq: 1}", "unknown key 'qqq'; known keys: framework, launcher"),
        ("environment: {container: {imag: x, image: y}}", "did you mean 'image'"),
        ("'\\x07': 1", "unknown key '\\\\x07'"),
    ],
)
def test_an_unknown_key_gets_the_right_one(text: str, told: str) -> None:
    assert told in problems(BASE + text + "\n")


def test_all_problems_are_told_at_once_each_with_its_line() -> None:
    assert problems("name: a b\nargs: x\nresources:\n  nodes: many\n  gpu: 1\n").splitlines() == [
        "run.yaml: 4 problems:",
        "  run.yaml:1, name: not a name: use 1 to 63 letters, digits, '.', '_' and '-', "
        "beginning with a letter or digit, without '..'; got the text 'a b'",
        "  run.yaml:2, args: expected a list, got the text 'x'; write it like `args: [x]`",
        "  run.yaml:4, resources.nodes: expected a whole number, got the text 'many'; "
        "write it like `nodes: 4`",
        "  run.yaml:5, resources.gpu: unknown key 'gpu'; did you mean 'gpus_per_node'?",
        "  → correct run.yaml and repeat the command",
    ]


def test_nobody_reads_a_thousand_problems() -> None:
    message = problems(BASE + "".join(f"k{n}: 1\n" for n in range(1000)))
    assert "1000 problems" in message
    assert "and 990 more" in message
    assert len(message.splitlines()) == 13


def test_very_many_problems_take_no_long_time() -> None:
    def tell(count: int) -> None:
        message = problems(BASE + "".join(f"reso{n}: 1\n" for n in range(count)))
        assert f"{count} problems" in message

    require_no_square(tell, 50_000)


def test_a_missing_key() -> None:
    assert problems("command: [x]\n").startswith(
        "run.yaml, name: is missing; write it like `name: "
    )
    assert "nothing to run: give either `script` or `command`" in problems("name: a\n")


def test_the_value_of_a_secret_is_never_shown() -> None:
    for text in (
        "environment: {variables: {MY_TOKEN: hunter2}}",
        "environment: {variables: {MY_TOKEN: [hunter2]}}",
        "params: {api_key: {hunter2: .inf}}",
        "resources: {password: hunter2}",
        "environment: {secrets: {MY_TOKEN: -hunter2}}",
    ):
        message = problems(BASE + text + "\n")
        assert "hunter2" not in message.replace("api_key.hunter2", "")
    assert "environment.variables.MY_TOKEN: looks like a secret" in problems(
        BASE + "environment: {variables: {MY_TOKEN: hunter2}}\n"
    )


@pytest.mark.parametrize(
    "name",
    [
        "a\nb",
        "a'b",
        'a"b',
        "$(reboot)",
        "`reboot`",
        "..",
        "a..b",
        "a/b",
        ".a",
        "-a",
        "a b",
        "é",
        "a" * 64,
        "a" * 5000,
        "a\x1b[31m",
        "a\u202eb",
        "",
        " ",
        "a;b",
        "a\\b",
        "~",
    ],
)
def test_a_name_that_could_do_harm(name: str) -> None:
    quoted: Any = yaml.safe_dump(name, default_style='"').strip()
    message = problems(f"name: {quoted}\ncommand: [x]\n")
    assert message.startswith("run.yaml:1, name: not a name: use 1 to 63 letters")
    assert all(char.isprintable() or char == "\n" for char in message)
    assert len(message) < 400


def test_what_pydantic_says_of_numbers_and_lists_is_said_in_plain_words() -> None:
    class Small(BaseModel):
        above: int = Field(1, gt=0)
        below: int = Field(1, lt=10)
        few: list[int] = Field([], max_length=2)
        part: float = 0.5

    document = parse("above: 0\nbelow: 10\nfew: [1, 2, 3]\npart: []\n")
    with pytest.raises(InputError) as caught:
        validate(Small, document, InputError)
    assert str(caught.value).splitlines()[1:5] == [
        "  run.yaml:1, above: must be more than 0, got the number 0",
        "  run.yaml:2, below: must be less than 10, got the number 10",
        "  run.yaml:3, few: longer than 2 items",
        "  run.yaml:4, part: expected a number, got a list",
    ]
