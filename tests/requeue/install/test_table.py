"""A block of ours in a table that is somebody else's."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.errors import InputError
from hpcflow.requeue.install.table import (
    block_names,
    find_block,
    make_block,
    with_block,
    without_block,
)

HERE, THERE = "daemon here", "daemon there"
LINES = ["# one", "* * * * * two"]

#: Whatever others write, with or without a newline at the end, in any order of odd characters.
foreign_texts = st.text(
    st.sampled_from("a#%* \t\r\n\x0b\x0c\x1c\x85\u2028é") | st.characters(exclude_categories=["Cs"])
) | st.lists(
    st.sampled_from(
        [
            "# BEGIN hpcflow daemon other",
            "# END hpcflow daemon other",
            "# BEGIN hpcflow sweeps other",
            "SHELL=/bin/tcsh",
            "",
            "x",
            " # BEGIN hpcflow daemon here",
            "# BEGIN hpcflow daemon here-2",
            "# END hpcflow daemon",
        ]
    )
).map("\n".join)


@given(foreign_texts)
def test_what_others_wrote_is_the_same_after_install_and_uninstall(text: str) -> None:
    installed = with_block(text, HERE, LINES)
    assert installed.endswith(text)
    assert find_block(installed, HERE) == make_block(HERE, LINES)
    assert without_block(installed, HERE) == text


@given(foreign_texts)
def test_installed_twice_it_is_there_once_with_the_newer_lines(text: str) -> None:
    twice = with_block(with_block(text, HERE, LINES), HERE, ["newer"])
    assert twice == with_block(text, HERE, ["newer"])


@given(foreign_texts, foreign_texts)
def test_it_stays_where_somebody_has_moved_it(before: str, after: str) -> None:
    before = before if not before or before.endswith("\n") else f"{before}\n"
    moved = before + make_block(HERE, LINES) + after
    assert with_block(moved, HERE, ["newer"]) == before + make_block(HERE, ["newer"]) + after
    assert without_block(moved, HERE) == before + after


@pytest.mark.parametrize("other", [THERE, "sweeps here"])
@given(text=foreign_texts)
def test_two_that_share_a_table_do_not_disturb_each_other(other: str, text: str) -> None:
    both = with_block(with_block(text, HERE, LINES), other, ["theirs"])
    assert without_block(both, HERE) == with_block(text, other, ["theirs"])
    assert find_block(both, other) == make_block(other, ["theirs"])


def test_blocks_are_listed_by_what_they_are_for() -> None:
    text = make_block(HERE, LINES) + make_block("sweeps here", LINES) + make_block(THERE, LINES)
    assert block_names(text, "daemon") == ["here", "there"]
    assert block_names(text, "sweeps") == ["here"]


def test_a_block_at_the_end_without_a_newline_is_found() -> None:
    text = "mine\n" + make_block(HERE, LINES).removesuffix("\n")
    assert without_block(text, HERE) == "mine\n"


@pytest.mark.parametrize(
    "text",
    [
        "# BEGIN hpcflow daemon here\n* * * * * two\n",
        "* * * * * two\n# END hpcflow daemon here\n",
        "# END hpcflow daemon here\nmine\n# BEGIN hpcflow daemon here\n",
    ],
)
def test_a_block_that_somebody_has_cut_is_refused_rather_than_guessed(text: str) -> None:
    for change in (find_block, without_block):
        with pytest.raises(InputError, match="was edited"):
            change(text, HERE)


def test_of_two_beginnings_the_nearer_one_counts_and_no_foreign_line_is_lost() -> None:
    text = "# BEGIN hpcflow daemon here\nmine\n" + make_block(HERE, LINES)
    with pytest.raises(InputError, match="was edited"):
        without_block(text, HERE)
