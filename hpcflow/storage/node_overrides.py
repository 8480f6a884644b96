"""Nodes whose failures a user has forgiven: ``HPCFLOW_HOME/forgiven.jsonl``, one line each time.

The ledger does not have this data, so a rebuild does not change it.

The functions raise StorageError if the file cannot be read or written.
"""

from __future__ import annotations

import json
from contextlib import suppress
from datetime import datetime

from hpcflow.clock import from_text, to_text
from hpcflow.runtime.reading import parse_object, read_lines
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import append_line_durably, make_folders
from hpcflow.storage.layout import Home


def forgive(home: Home, site: str, node: str, now: datetime) -> None:
    """Record that the failures of ``node`` up to ``now`` no longer count."""
    with storage_errors("make", home.path):
        make_folders(home.path)
    line = json.dumps({"at": to_text(now), "site": site, "node": node})
    append_line_durably(home.forgiven, line)


def read_overrides(home: Home) -> dict[tuple[str, str], datetime]:
    """Return (site, node) -> when it was last forgiven; skip damaged lines."""
    lines: list[bytes] = []
    with storage_errors("read", home.forgiven), suppress(FileNotFoundError):
        lines = list(read_lines(home.forgiven))
    found: dict[tuple[str, str], datetime] = {}
    for line in lines:
        try:
            content = parse_object(line)
            key, moment = (str(content["site"]), str(content["node"])), from_text(content["at"])
        except (ValueError, TypeError, KeyError, AttributeError, OverflowError):
            continue
        found[key] = max(moment, found.get(key, moment))
    return found
