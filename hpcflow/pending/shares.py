"""Describe the fair share of an account. Pure."""

from __future__ import annotations

from hpcflow.sites.standing import FairShare, Standing


def share_words(standing: Standing, account: str) -> str:
    """Compare an account's share with its usage; empty if unknown."""
    whole, own = standing.account_share(account), standing.share(account)
    if whole is None or whole.norm_shares is None or whole.effective_usage is None:
        return ""
    due, had = whole.norm_shares, whole.effective_usage
    verdict = "more than its share: others come first" if had > due else "less than its share"
    if not standing.is_fair_tree:
        # Usage of its siblings counts in part, so no part of the usage is the user's.
        usage = f"is due {due:.0%} of the cluster, and counts as having used {had:.0%}"
        return f"{account} {usage}: {verdict}"
    words = f"{account} is due {due:.0%} of what it and its siblings use, and has used {had:.0%}"
    if not had:
        return f"{words}: jobs in it come before those of its siblings"
    mine = "" if own is None or own.effective_usage is None else f"; {_part(own)} of that is yours"
    return f"{words}: {verdict}{mine}"


def _part(own: FairShare) -> str:
    assert own.effective_usage is not None
    return f"{own.effective_usage:.0%}"
