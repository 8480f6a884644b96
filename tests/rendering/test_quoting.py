"""A value gets into a script through a quoting filter, or not at all."""

from __future__ import annotations

import re
import subprocess
from pathlib import Path

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from jinja2 import TemplateRuntimeError

from hpcflow.errors import InputError
from hpcflow.rendering.quoting import directive, sh
from hpcflow.rendering.templates import render
from hpcflow.resources import resource_dir
from tests.valid_specs import TEXTS

HOSTILE = [
    "",
    " ",
    "-n",
    "--",
    "~",
    "it's",
    '"',
    "$(touch owned)",
    "`touch owned`",
    "${HOME}",
    "a\nb",
    "a\r\n#SBATCH --nodes=100",
    "\\",
    "\\'",
    "'\\''",
    "\t\x01\x1b[31m\x7f",
    "ümlaut 漢字 🎉",
    "{a,b}",
    "*",
    "[0]=x",
    "!!",
    "#",
    "a;b|c&d>e<f",
    "=x",
    "x\\x41\n",
]


@settings(max_examples=20, deadline=None)
@given(words=st.lists(TEXTS, min_size=1, max_size=30))
@example(words=HOSTILE)
def test_bash_reads_back_exactly_what_was_quoted(words: list[str]) -> None:
    script = "words=(" + sh(words) + ")\nprintf '%s\\0' \"${words[@]}\""
    for locale in ("C", "C.UTF-8"):
        output = subprocess.run(
            ["bash", "-u"],
            input=script.encode(),
            capture_output=True,
            check=True,
            env={"LC_ALL": locale, "HOME": "/nowhere"},
        ).stdout
        assert output.decode().split("\0")[:-1] == words


@given(word=TEXTS)
def test_a_quoted_value_never_leaves_its_line(word: str) -> None:
    assert "\n" not in sh(word)
    assert "\r" not in sh(word)


def test_what_cannot_be_an_argument_is_refused() -> None:
    for value in ("a\0b", None, True, 1.5, {"a": 1}, b"bytes"):
        with pytest.raises(TemplateRuntimeError):
            sh(value)


@pytest.mark.parametrize(
    "value",
    [
        "",
        " ",
        "a b",
        "a\nb",
        "a\r",
        "a#b",
        "a'b",
        'a"b',
        "a\\b",
        "$(x)",
        "`x`",
        "ü",
        "\u2028",
        "a\0",
    ],
)
def test_a_directive_takes_no_value_that_could_end_it(value: str) -> None:
    with pytest.raises(TemplateRuntimeError, match="#SBATCH"):
        directive(value)


@pytest.mark.parametrize("value", ["--constraint=[a*2&(b|c)]", "--gres=gpu:a100:4", "n[1-3],n7"])
def test_a_directive_takes_what_sbatch_needs(value: str) -> None:
    assert directive(value) == value


def _template(folder: Path, text: str) -> Path:
    (folder / "own.j2").write_text(text)
    return folder


@pytest.mark.parametrize(
    "text",
    [
        "{{ name }}",
        "{{ 'constant' }}",
        "{{ name | upper }}",
        "{{ (name | sh) ~ name }}",
        "{{ name | sh | upper }}",
        "{{ 1.5 }}",
        "{{ none }}",
        "{{ [name] }}",
        "{% set copy = name %}{{ copy }}",
        "{% set copy %}{{ name | sh }}{% endset %}{{ copy }}",
        "{% macro put(x) %}{{ x }}{% endmacro %}{{ put(name) }}",
    ],
)
def test_a_template_that_forgets_to_quote_is_an_error(tmp_path: Path, text: str) -> None:
    with pytest.raises(InputError, match=r"own\.j2:2.*sh \}\}") as caught:
        render("own.j2", {"name": "x"}, [_template(tmp_path, "\n" + text)])
    assert caught.value.exit_code == 2


def test_a_quoted_value_and_a_number_are_put_out(tmp_path: Path) -> None:
    folder = _template(tmp_path, "{{ name | sh }} {{ 3 }} {{ name | directive }}")
    assert render("own.j2", {"name": "x"}, [folder]) == "x 3 x"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("{{ nome | sh }}", "nome"),
        ("{{ nome }}", "nome"),
        ("{% if nome %}{% endif %}", "nome"),
        ("{{ name.there_is_none | sh }}", "there_is_none"),
        ("{% if %}", "Expected an expression"),
        ("{{ name | quote }}", "quote"),
        ("{{ ''.__class__.__mro__ | sh }}", "unsafe"),
        ("{% include 'parts/nothing.j2' %}", r"parts/nothing\.j2"),
        ("{{ 1 // 0 }}", "zero"),
        ("{% filter replace('x', '$(id)') %}{{ name | sh }}{% endfilter %}", "filter block"),
        ("{% call '{}'.format(name) %}{% endcall %}", "call block"),
    ],
)
def test_what_is_wrong_in_a_template_is_said_with_its_place(
    tmp_path: Path, text: str, message: str
) -> None:
    with pytest.raises(InputError, match=message):
        render("own.j2", {"name": "x"}, [_template(tmp_path, text)])


def test_a_template_that_cannot_be_read_is_an_error_for_people(tmp_path: Path) -> None:
    (tmp_path / "own.j2").write_bytes(b"\xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        render("own.j2", {}, [tmp_path])


def test_the_length_of_an_array_is_no_comment(tmp_path: Path) -> None:
    folder = _template(tmp_path, "${#array[@]} {## gone ##}${x##*/}")
    assert render("own.j2", {}, [folder]) == "${#array[@]} ${x##*/}"


def test_no_shipped_template_puts_a_quoted_value_between_quotes() -> None:
    """Between quotes of the template, those of the value would end them."""
    for path in resource_dir("templates").rglob("*.j2"):
        for number, line in enumerate(path.read_text().splitlines(), 1):
            for found in re.finditer(r"\{\{[^}]*\|\s*sh\s*\}\}", line):
                before = re.sub(r"\{\{.*?\}\}", "", line[: found.start()]).replace("'\\''", "")
                for quote in "\"'":
                    assert before.count(quote) % 2 == 0, f"{path}:{number}: {line}"
