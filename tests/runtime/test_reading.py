"""Untrusted files are opened safely: regular, not followed, owned, limited in size."""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path

import pytest

from hpcflow.runtime.reading import (
    MAX_LINE_BYTES,
    JsonError,
    UnsafeFileError,
    open_file,
    parse_json,
    parse_object,
    read_file,
    read_json,
    read_lines,
    read_object,
)


def test_a_link_is_refused_unless_the_user_named_it(tmp_path: Path) -> None:
    secret, link = tmp_path / "secret", tmp_path / "link"
    secret.write_text("secret")
    link.symlink_to(secret)

    with pytest.raises(UnsafeFileError, match="symbolic link"):
        read_file(link)
    assert read_file(link, follow=True) == b"secret"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_a_file_of_another_user_is_refused_unless_several_share_it(tmp_path: Path) -> None:
    path = tmp_path / "theirs"
    path.write_text("theirs")
    os.chown(path, 4711, 4711)

    with pytest.raises(UnsafeFileError, match="another user"):
        read_file(path)
    assert read_file(path, any_owner=True) == b"theirs"


def test_a_sparse_file_of_gigabytes_costs_no_memory(tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    with path.open("wb") as file:
        file.truncate(4 << 30)

    tracemalloc.start()
    try:
        with pytest.raises(UnsafeFileError, match="4294967296 bytes"):
            read_file(path)
        with pytest.raises(UnsafeFileError):
            list(read_lines(path))
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


def test_a_file_that_grows_past_the_limit_while_it_is_read_is_refused() -> None:
    """What /proc shows has size 0, and more to read: like a file that grows after it was opened."""
    with pytest.raises(UnsafeFileError, match="more than 3 bytes"):
        read_file("/proc/self/status", 3)


def test_lines_come_whole_and_those_too_long_come_cut(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    long = b"x" * (5 * MAX_LINE_BYTES)
    just = b"y" * MAX_LINE_BYTES
    path.write_bytes(b"\n".join([b"first", b"", long, just, just + b"z", b"last", b"torn"]))

    lines = list(read_lines(path))

    assert [line[:5] for line in lines] == [b"first", b"", b"xxxxx", b"yyyyy", b"yyyyy", b"last"]
    assert [len(line) > MAX_LINE_BYTES for line in lines] == [
        False,
        False,
        True,
        False,
        True,
        False,
    ]


def test_a_long_line_costs_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "journal.jsonl"
    with path.open("wb") as file:
        file.truncate(200 << 20)  # one line of 200 MiB, without an end
    tracemalloc.start()
    try:
        assert list(read_lines(path)) == []
        assert tracemalloc.get_traced_memory()[1] < 8 << 20
    finally:
        tracemalloc.stop()


def test_what_is_opened_closes_with_a_program_that_replaces_this_one(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"")
    with open_file(path) as file:
        assert not os.get_inheritable(file.fileno())


NO_JSON = {
    "nothing": b"",
    "text": b"{]",
    "noughts": bytes(100),
    "no utf-8": b'{"a": "\xff"}',
    "utf-16": '{"a": 1}'.encode("utf-16"),
    "cut": b'{"a": [1, 2',
    "two": b'{"a": 1}{"b": 2}',
    "deep lists": b"[" * 200_000 + b"]" * 200_000,
    "deep objects": b'{"a":' * 200_000 + b"1" + b"}" * 200_000,
    "a number of a million digits": b"1" * 1_000_000,
}


@pytest.mark.parametrize("data", NO_JSON.values(), ids=NO_JSON.keys())
def test_whatever_is_no_json_is_one_error(data: bytes, tmp_path: Path) -> None:
    path = tmp_path / "run.json"
    path.write_bytes(data)

    for read in (read_json, read_object):
        with pytest.raises(JsonError):
            read(path)
    with pytest.raises(JsonError):
        parse_json(data)


def test_json_is_read_with_the_checks_of_every_file(tmp_path: Path) -> None:
    path, link = tmp_path / "run.json", tmp_path / "link"
    path.write_bytes(b'{"a": [1, NaN]}')
    link.symlink_to(path)

    assert read_json(path)["a"][0] == read_object(path)["a"][0] == 1
    with pytest.raises(UnsafeFileError):
        read_json(link)
    with pytest.raises(UnsafeFileError):
        read_json(path, 3)
    with pytest.raises(FileNotFoundError):
        read_json(tmp_path / "nothing")


def test_a_list_is_no_object() -> None:
    assert parse_json(b"[1]") == [1]
    with pytest.raises(JsonError, match="not a JSON object"):
        parse_object(b"[1]")
