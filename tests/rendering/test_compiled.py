"""Compiled templates: kept for the next process, believed only if they are what they should be."""

from __future__ import annotations

import hashlib
import marshal
from pathlib import Path

import pytest

from hpcflow.rendering import templates
from hpcflow.rendering.templates import keep_compiled, render


@pytest.fixture(autouse=True)
def new_process() -> None:
    """Nothing is remembered from another test."""
    forget()


def forget() -> None:
    templates._environment.cache_clear()
    templates._compiled.cache_clear()


def rendered(folder: Path, text: str) -> str:
    (folder / "own.j2").write_text(text)
    forget()
    said = render("own.j2", {}, [folder], folder / "compiled")
    keep_compiled(folder / "compiled")
    return said


def with_checksum(data: bytes) -> bytes:
    return hashlib.sha256(data).digest() + data


def test_what_was_compiled_is_kept_for_the_next_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert rendered(tmp_path, "{{ 1 }}") == "1"
    assert (tmp_path / "compiled").stat().st_mode & 0o777 == 0o600
    forget()
    monkeypatch.setattr(templates._OnlyQuoted, "visit_Template", None)  # it cannot compile
    assert render("own.j2", {}, [tmp_path], tmp_path / "compiled") == "1"


def test_a_template_that_changed_is_compiled_again(tmp_path: Path) -> None:
    assert rendered(tmp_path, "{{ 1 }}") == "1"
    assert rendered(tmp_path, "{{ 2 }}") == "2"


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"nonsense",
        *map(with_checksum, (b"", b"x", marshal.dumps(("o", {})), marshal.dumps(7))),
    ],
)
def test_a_file_that_is_none_of_ours_is_written_again(tmp_path: Path, data: bytes) -> None:
    (tmp_path / "compiled").write_bytes(data)
    assert rendered(tmp_path, "{{ 1 }}") == "1"
    assert (tmp_path / "compiled").read_bytes() != data


def test_not_one_damaged_byte_of_it_is_executed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered(tmp_path, "{{ 1 }}")
    whole = (tmp_path / "compiled").read_bytes()
    monkeypatch.setattr("marshal.loads", None)
    for at in range(0, len(whole), 97):
        (tmp_path / "compiled").write_bytes(whole[:at] + bytes([whole[at] ^ 1]) + whole[at + 1 :])
        forget()
        assert render("own.j2", {}, [tmp_path], tmp_path / "compiled") == "1"


def test_a_file_that_others_can_write_is_not_believed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rendered(tmp_path, "{{ 1 }}")
    (tmp_path / "compiled").chmod(0o666)
    forget()
    monkeypatch.setattr("marshal.loads", None)
    assert render("own.j2", {}, [tmp_path], tmp_path / "compiled") == "1"


def test_where_nothing_can_be_kept_nothing_is(tmp_path: Path) -> None:
    (tmp_path / "own.j2").write_text("{{ 1 }}")
    path = tmp_path / "no such folder" / "compiled"
    assert render("own.j2", {}, [tmp_path], path) == "1"
    keep_compiled(path)
    assert not path.parent.exists()
