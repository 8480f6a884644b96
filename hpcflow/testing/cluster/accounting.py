"""Accounts with unequal fair share, and their users, in slurmdbd."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from hpcflow.testing.cluster.settings import Settings
from hpcflow.testing.cluster.slurm import run

FAIR_SHARES = {"physics": 70, "biology": 30}
USERS = {"hpcf-ada": "physics", "hpcf-grace": "biology"}
"""Unix user -> its only account."""


def ensure_accounts(folder: Path, settings: Settings) -> None:
    """Add what slurmdbd lacks; change nothing that a test has changed."""
    known = _associations(folder, settings.name)
    if not known:
        run(folder, "sacctmgr", "-i", "add", "cluster", settings.name)
    for account, share in FAIR_SHARES.items():
        if (account, "") not in known:
            run(folder, "sacctmgr", "-i", "add", "account", account, f"fairshare={share}",
                f"description={account}", "organization=hpcflow",
                f"cluster={settings.name}")  # fmt: skip
    for user, account in USERS.items():
        if (account, user) not in known:
            run(folder, "sacctmgr", "-i", "add", "user", user, f"account={account}",
                f"cluster={settings.name}")  # fmt: skip
    for record in settings.layout.records:
        run(folder, "sacctmgr", "-i", *record.split(), check=False)  # it may exist


def _associations(folder: Path, name: str) -> Mapping[tuple[str, str], bool]:
    listing = run(folder, "sacctmgr", "-nP", "show", "associations", f"cluster={name}",
                  "format=account,user").stdout  # fmt: skip
    pairs = (line.split("|") for line in listing.splitlines())
    return {(pair[0], pair[1]): True for pair in pairs if len(pair) >= 2}
