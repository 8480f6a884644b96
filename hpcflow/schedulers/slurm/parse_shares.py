"""Parse sshare into :class:`FairShare`. Pure.

The columns are the same in Slurm 20.11 to 25.11. ``LevelFS`` is only valid with Fair Tree.
"""

from __future__ import annotations

from typing import Final

from hpcflow.sites.standing import FairShare

#: For ``sshare --noheader --parsable2 --format``.
SHARE_FIELDS: Final = (
    "Account", "User", "Partition", "RawShares", "NormShares", "RawUsage", "NormUsage",
    "EffectvUsage", "FairShare", "LevelFS",
)  # fmt: skip


def parse_shares(text: str) -> tuple[FairShare, ...]:
    """Parse sshare's output; keep its order, which is that of the account tree."""
    found = []
    for line in text.splitlines():
        values = [value.strip() for value in line.split("|")]
        if len(values) != len(SHARE_FIELDS) or not values[0]:
            continue
        row = dict(zip(SHARE_FIELDS, values, strict=True))
        user = row["User"] or None
        found.append(
            FairShare(
                account=row["Account"],
                user=user,
                partition=row["Partition"] or None,
                raw_shares=_count(row["RawShares"]),
                norm_shares=_number(row["NormShares"]),
                raw_usage=_count(row["RawUsage"]),
                norm_usage=_number(row["NormUsage"]),
                effective_usage=_number(row["EffectvUsage"]),
                # For accounts, 22.05 prints nothing, and other versions 0.
                factor=_number(row["FairShare"]) if user else None,
                level_fs=_number(row["LevelFS"]),
            )
        )
    return tuple(found)


def _count(text: str) -> int | None:
    return int(text) if text.isdecimal() else None


def _number(text: str) -> float | None:
    try:
        number = float(text)
    except ValueError:
        return None
    return None if number != number else number
