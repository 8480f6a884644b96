"""What an unquoted word of a YAML file means, and how values are shown."""

from __future__ import annotations

import pytest

from hpcflow.model.scalars import number_as_text, printable, read_plain, shown


@pytest.mark.parametrize("text", ["", "~", "null", "Null", "NULL"])
def test_nothing(text: str) -> None:
    assert read_plain(text) is None


@pytest.mark.parametrize(
    ("text", "value"), [("true", True), ("True", True), ("false", False), ("FALSE", False)]
)
def test_the_only_booleans(text: str, value: bool) -> None:
    assert read_plain(text) is value


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("0", 0),
        ("12", 12),
        ("-7", -7),
        ("+7", 7),
        ("0x1F", 31),
        ("0o17", 15),
        ("1.5", 1.5),
        ("1e-3", 0.001),
        ("1E5", 100_000.0),
        (".5", 0.5),
        ("3.", 3.0),
        ("-.inf", float("-inf")),
    ],
)
def test_numbers(text: str, value: float) -> None:
    read = read_plain(text)
    assert read == value
    assert isinstance(read, type(value))
    assert number_as_text(read) == text


@pytest.mark.parametrize(
    "text",
    [
        "no",
        "yes",
        "on",
        "off",
        "y",
        "n",
        "1:30:00",
        "1_000",
        "0755",
        "00.5",
        "2026-01-31",
        "=",
        "1e",
        "e3",
        "-",
        "+",
        ".",
        "-.",
        "0x",
        "0xg",
        "0o8",
        "inf",
        "1.2.3",
    ],
)
def test_what_other_readers_take_for_something_else_stays_text(text: str) -> None:
    assert read_plain(text) == text


def test_a_number_of_a_thousand_digits_is_no_number() -> None:
    for text in ("1" * 5000, "0." + "1" * 5000):
        with pytest.raises(ValueError, match=r"a number of 500. characters"):
            read_plain(text)


def test_a_value_is_shown_on_one_harmless_line() -> None:
    shown_text = shown("\x1b[31m\n" + "x" * 5000 + "\u202e")
    assert shown_text.isprintable()
    assert len(shown_text) < 100
    assert "5007 characters" in shown_text
    assert printable("/tmp/a\nb") == r"'/tmp/a\nb'"
