"""What an account is due and has had, in words: of its level of the tree, or of the cluster."""

from __future__ import annotations

from dataclasses import replace

from hpcflow.pending.limits import share_words
from hpcflow.sites.standing import FairShare, Standing
from tests.pending.waiting import STANDING


def test_within_a_tree_shares_are_those_among_siblings() -> None:
    assert share_words(STANDING, "biology") == (
        "biology is due 30% of what it and its siblings use, and has used 3%: less than its share; "
        "0% of that is yours"
    )
    unused = replace(STANDING, shares=(FairShare("art", None, None, 1, 0.5, 0, 0.0, 0.0),))
    assert share_words(unused, "art") == (
        "art is due 50% of what it and its siblings use, and has used 0%: jobs in it come before "
        "those of its siblings"
    ), "what is above them may put all of them behind others"
    assert share_words(STANDING, "art") == ""


def test_without_a_tree_they_are_of_the_cluster_and_use_is_not_only_ones_own() -> None:
    """An account of 20 of 100 shares below one of a half: it is due a tenth of the cluster."""
    flat = Standing(
        "ada",
        shares=(
            FairShare("lab", None, None, 20, 0.1, 900, 0.2, 0.24),
            FairShare("lab", "ada", None, 1, 0.05, 90, 0.02, 0.13, 0.165),
        ),
        is_fair_tree=False,
    )
    assert share_words(flat, "lab") == (
        "lab is due 10% of the cluster, and counts as having used 24%: more than its share: others "
        "come first"
    )
