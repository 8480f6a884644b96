"""Parse ``scontrol show reservation --oneliner``. Pure."""

from __future__ import annotations

import re
from typing import Final

from hpcflow.schedulers.slurm.hostlist import expand
from hpcflow.schedulers.slurm.times import parse_time
from hpcflow.sites.standing import Reservation

_WORD: Final = re.compile(r"(?:^|\s)([A-Za-z]\w*)=(\S*)")
_NO_TEXT: Final = frozenset({"", "(null)", "n/a"})


def parse_reservations(text: str) -> list[Reservation]:
    """Return the reservations, sorted by start.

    Other lines, such as "No reservations in the system", are skipped.
    """
    found = []
    for line in text.splitlines():
        words = dict(_WORD.findall(line))
        start, end = (parse_time(words.get(f"{name}Time", "")) for name in ("Start", "End"))
        if "ReservationName" not in words or start is None or end is None:
            continue
        found.append(
            Reservation(
                name=words["ReservationName"],
                start=start,
                end=end,
                nodes=_nodes(words.get("Nodes", "")),
                flags=_list(words.get("Flags", "")),
                users=_list(words.get("Users", "")),
                accounts=_list(words.get("Accounts", "")),
                partition=next(iter(_list(words.get("PartitionName", ""))), None),
            )
        )
    return sorted(found, key=lambda each: (each.start, each.name))


def _list(text: str) -> tuple[str, ...]:
    return () if text.lower() in _NO_TEXT else tuple(text.split(","))


def _nodes(text: str) -> tuple[str, ...]:
    try:
        return expand(text)
    except ValueError:
        return (text,)
