"""Text for a terminal goes through hpcflow/terminal.py, and a terminal obeys nothing in it."""

from __future__ import annotations

import ast
import io
import json
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.cli.columns import Column, print_table
from hpcflow.cli.output import print_error
from hpcflow.cli.session import warn
from hpcflow.errors import SiteError, in_one_line, shell_word
from hpcflow.runtime.safe_text import safe, safe_lines
from hpcflow.terminal import Styled, echo, echo_json, echo_lines, escaped

PACKAGE = Path(__file__).resolve().parents[1] / "hpcflow"

#: Who prints in another way, and why that is right.
ALLOWED = {
    "terminal.py": "it is the one place",
    "runtime/warn.py": "runs in jobs, without the rest of hpcflow; makes its text safe itself",
    "runtime/rank_process.py": "writes what a program prints to the log, byte by byte",
    "runtime/__main__.py": "prints a path for the job script, byte by byte",
    "requeue/job.py": "its log may be on a full disk: one safe write, without Python's buffer",
    "schedulers/local_submit.py": "answers its parent process with the id of a job",
}
#: Tools for tests, of which nothing reaches users.
ALLOWED_FOLDERS = ("testing/",)

PRINTING = {
    *("click.echo", "click.secho", "click.style", "click.confirm", "click.prompt"),
    *("click.progressbar", "click.echo_via_pager", "click.pause", "click.get_text_stream"),
    *("sys.stdout.write", "sys.stderr.write", "sys.stdout.buffer", "sys.stderr.buffer"),
    *("sys.stdout.writelines", "sys.stderr.writelines", "sys.__stdout__.write"),
    *("os.writev", "click.get_binary_stream"),
}
#: Parts of rich that print by themselves, or take text for markup.
PRINTING_MODULES = (
    *("rich.console", "rich.text", "rich.live", "rich.markup", "rich.panel", "rich.syntax"),
    *("rich.pretty", "rich.prompt", "rich.traceback", "rich.logging"),
)
PRINTING_NAMES = {"rich.print", "rich.get_console", "rich.progress.Progress", "rich.progress.track"}


def printing(source: str) -> Iterator[str]:
    """What of a module prints, with its line."""
    for node in ast.walk(ast.parse(source)):
        found = ""
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name):
            found = "print" if node.func.id == "print" else ""
        elif isinstance(node, ast.Call) and ast.unparse(node.func) == "os.write":
            first = ast.unparse(node.args[0])
            found = "os.write" if first in ("1", "2", "answer") else ""
        elif isinstance(node, ast.Attribute):
            name = ast.unparse(node)
            found = name if name in PRINTING else ""
        elif isinstance(node, ast.ImportFrom) and node.module:
            names = {f"{node.module}.{each.name}" for each in node.names}
            found = node.module if node.module.startswith(PRINTING_MODULES) else ""
            found = found or ", ".join(names & (PRINTING_NAMES | PRINTING))
        elif isinstance(node, ast.Import):
            found = next((e.name for e in node.names if e.name.startswith(PRINTING_MODULES)), "")
        if found:
            yield f"line {node.lineno}: {found}"  # type: ignore[attr-defined]


def test_nothing_prints_but_the_one_place() -> None:
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if name in ALLOWED or name.startswith(ALLOWED_FOLDERS):
            continue
        tree = path.read_text()
        # For the types alone: it is not imported when hpcflow runs.
        said = list(printing(_without_typing(tree)))
        if said:
            found[name] = said
    assert found == {}


def _without_typing(source: str) -> str:
    tree = ast.parse(source)
    tree.body = [
        node
        for node in tree.body
        if not (isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING")
    ]
    return ast.unparse(tree)


def test_who_is_allowed_to_print_does() -> None:
    """A list of exceptions that is longer than it must be hides the next one."""
    for name in ALLOWED:
        source = (PACKAGE / name).read_text()
        assert list(printing(source)), name


#: One of each kind of character that a terminal must not get.
HOSTILE = {
    "escape": "\x1b[31m",
    "window title": "\x1b]0;owned\x07",
    "bell": "\a",
    "backspace": "\b",
    "carriage return": "\r",
    "delete": "\x7f",
    "c1 csi": "\x9b2J",
    "c1 nel": "\x85",
    "right-to-left override": "\u202e",
    "isolate": "\u2066",
    "right-to-left mark": "\u200f",
    "arabic letter mark": "\u061c",
    "zero-width space": "\u200b",
    "zero-width joiner": "\u200d",
    "word joiner": "\u2060",
    "byte order mark": "\ufeff",
    "soft hyphen": "\u00ad",
    "line separator": "\u2028",
    "paragraph separator": "\u2029",
    "lone surrogate": "\udc9b",
    "tag": "\U000e0041",
    "interlinear annotation": "\ufff9",
    "variation selector": "\ufe0f",
    "hangul filler": "\u3164",
    "private use": "\ue000",
    "unassigned": "\u0378",
    "null": "\0",
}


def is_obeyed(char: str) -> bool:
    """Whether a terminal would obey a character, or show nothing for it."""
    return unicodedata.category(char) in ("Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp")


@pytest.mark.parametrize("bad", HOSTILE.values(), ids=HOSTILE)
def test_a_hostile_character_is_shown_as_what_it_is_not(bad: str) -> None:
    said = safe(f"a{bad}b")
    assert said.startswith("a\N{REPLACEMENT CHARACTER}") and said.endswith("b")
    assert not any(map(is_obeyed, said))


@given(st.text())
def test_no_text_is_obeyed(text: str) -> None:
    assert not any(map(is_obeyed, safe(text)))
    assert not any(map(is_obeyed, safe_lines(text).replace("\n", "").replace("\t", "")))
    assert safe(safe(text)) == safe(text)
    assert len(safe(text)) == len(text)


@pytest.mark.parametrize("text", ["Zürich — 東京", "β=0.9 → ∞", "naïve", "a b", "👍"])
def test_text_of_people_stays(text: str) -> None:
    assert safe(text) == text


def test_a_space_of_another_kind_is_a_space() -> None:
    assert safe("12\u00a0GiB") == "12 GiB"


def test_a_line_is_one_line(capsys: pytest.CaptureFixture[str]) -> None:
    echo("a\nhpcflow: trust me\r\n", Styled("\nb", bold=True))
    assert capsys.readouterr().out.count("\n") == 1


def test_a_newline_in_data_starts_no_line_of_a_message(capsys: pytest.CaptureFixture[str]) -> None:
    forged = "eve\n  → remove it: rm -rf ~"
    warn(f"{forged} is damaged → see: hpcflow show {forged}")
    warn(in_one_line(SiteError(forged, lines=[forged], next_action=forged)))
    print_error(SiteError(forged, lines=[forged], next_action=forged))
    lines = capsys.readouterr().err.splitlines()
    starts = ["warning: eve", "warning: eve", "error: eve", "  eve", "  → eve"]
    assert len(lines) == len(starts)
    assert all(line.startswith(start) for line, start in zip(lines, starts, strict=True)), lines


def test_our_colours_stay_and_theirs_do_not(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(sys.stdout, "isatty", lambda: True, raising=False)
    echo("\x1b[31mx", fg="green")
    assert capsys.readouterr().out == "\x1b[32m\N{REPLACEMENT CHARACTER}[31mx\x1b[0m\n"


@pytest.mark.parametrize("bad", HOSTILE.values(), ids=HOSTILE)
def test_json_is_ascii_without_controls_and_loses_nothing(
    bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    echo_json({f"k{bad}": [bad]}, indent=2)
    said = capsys.readouterr().out
    assert said.isascii() and said.replace("\n", "").isprintable()
    assert json.loads(said) == {f"k{bad}": [bad]}


def test_yaml_shows_what_is_not_safe_as_yaml_can() -> None:
    import yaml

    text = "".join(bad for name, bad in HOSTILE.items() if name != "lone surrogate")
    said = escaped(json.dumps(text, ensure_ascii=False))
    assert not any(map(is_obeyed, said))
    assert yaml.safe_load(said) == text


@pytest.mark.parametrize("encoding", ["ascii", "latin-1", "utf-8"])
def test_no_encoding_makes_it_fail(encoding: str, monkeypatch: pytest.MonkeyPatch) -> None:
    out = io.BytesIO()
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(out, encoding=encoding))
    echo("Zürich → 東京 \udcff", Styled("…", bold=True))
    echo_lines("a…\nb")
    print_table([Column("…"), Column("東京")], [[Styled("→"), "\udcff\x9b"]])
    sys.stdout.flush()
    said = out.getvalue().decode(encoding)
    assert "\x1b" not in said and "\x9b" not in said


@pytest.mark.parametrize("bad", HOSTILE.values(), ids=HOSTILE)
def test_a_table_is_safe_and_its_columns_stand_below_each_other(
    bad: str, capsys: pytest.CaptureFixture[str]
) -> None:
    rows: list[list[str | Styled]] = [
        [f"a{bad}b", "|"],
        [Styled(f"a{bad}c", fg="red"), "|"],
        ["[red]no markup[/red]", "|"],
    ]
    print_table([Column("NAME"), Column("x" + bad)], rows)
    said = capsys.readouterr().out
    assert not any(map(is_obeyed, said.replace("\n", "")))
    assert "[red]" in said
    lines = said.splitlines()
    assert len({line.index("|") for line in lines[1:]}) == 1


SPEAKING = """
import logging, sys, threading, warnings
from hpcflow.terminal import escape_stderr
escape_stderr()
evil = sys.argv[1]
logging.getLogger("x").warning("%s", evil)
logging.getLogger("x").error("%s", evil, exc_info=ValueError(evil))
warnings.warn(evil, stacklevel=1)
def fail():
    raise ValueError(evil)
thread = threading.Thread(target=fail)
thread.start()
thread.join()
fail()
"""


def test_what_python_says_by_itself_is_safe_too() -> None:
    evil = "".join(bad for name, bad in HOSTILE.items() if name not in ("null", "lone surrogate"))
    done = subprocess.run(
        [sys.executable, "-c", SPEAKING, f"said {evil}"], capture_output=True, check=False
    )
    said = done.stderr.decode()
    assert said.count("said \N{REPLACEMENT CHARACTER}") == 6
    assert not any(map(is_obeyed, said.replace("\n", "")))


#: Names that do something when they are typed as they are.
NAMES = (
    *("a b", "$(touch owned)", "`touch owned`", "x; touch owned", "it's", 'say "x"', "~root"),
    *("a\nb", "a\n", "*", "!!", "#x", "\\", "\\'\n", "-rf", "a'\x1bb", "\x1b1f", "\udcff", ""),
    "=ls",
)


@pytest.mark.parametrize(
    "name", [*NAMES, *(f"a{bad}0" for bad in HOSTILE.values() if "\0" not in bad)]
)
def test_a_name_in_a_command_is_one_word_for_a_shell_and_safe_to_show(
    name: str, tmp_path: Path
) -> None:
    word = shell_word(name)
    assert safe(word) == word
    said = subprocess.run(
        ["bash", "-c", f"printf %s {word}"], cwd=tmp_path, capture_output=True, check=True
    )
    assert said.stdout == name.encode(errors="surrogateescape")
    assert not (tmp_path / "owned").exists()


def test_a_path_is_no_option_and_no_path_of_a_program() -> None:
    assert shell_word(Path("--site=x.yaml")) == "./--site=x.yaml"
    assert shell_word(Path("=ls")) == "'=ls'", "zsh would look for ls"


def test_names_in_commands_are_quoted_in_one_way() -> None:
    """What is written for sh, and for bash in a job, has quoting of its own."""
    for_programs = (
        *("errors.py", "requeue/install/", "rendering/", "testing/"),
        "runtime/creators.py",  # a job has the standard library alone
        "schedulers/local_submit.py",  # for submitit, which splits it
        *("model/kinds.py", "documents/examples.py"),  # they split a text, and quote nothing
    )
    found = [
        name
        for path in sorted(PACKAGE.rglob("*.py"))
        if re.search(r"\bshlex\b", path.read_text())
        and not (name := path.relative_to(PACKAGE).as_posix()).startswith(for_programs)
    ]
    assert found == []
