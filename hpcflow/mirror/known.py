"""What a home remembers of its stores, in ``$HPCFLOW_HOME/mirror``. Whoever loses it loses no run.

- ``problems.json``: why the last pass could not send, by run id, or by URL where a store refused.
  What is about one checkpoint stands in its run's ``mirror.jsonl``; here is the rest.
- ``folders.jsonl``: the URLs of plain folders that were sent to. One of these that is not there is
  not mounted, and not new.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Final

from hpcflow.errors import StorageError
from hpcflow.storage.files import FOLDER_MODE, append_line_durably, read_file, write_durably
from hpcflow.storage.layout import Home

_PROBLEMS: Final = "problems.json"
_FOLDERS: Final = "folders.jsonl"


def read_problems(home: Home) -> dict[str, str]:
    """Run id, or URL of a store -> why the last pass could not send."""
    try:
        said = json.loads(read_file(home.mirror / _PROBLEMS))
    except (OSError, ValueError, RecursionError):
        return {}
    if not isinstance(said, dict):
        return {}
    return {what: why for what, why in said.items() if isinstance(why, str)}


def write_problems(home: Home, problems: Mapping[str, str]) -> None:
    """Keep these from now on. A home that cannot be written keeps no mirror from its work."""
    if problems == read_problems(home):
        return
    with suppress(OSError, StorageError):
        home.mirror.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        write_durably(home.mirror / _PROBLEMS, json.dumps(problems))


def read_folders(home: Home) -> set[str]:
    """URLs of the plain folders that were sent to from this home.

    Raises:
        OSError: nobody knows.
    """
    try:
        lines = read_file(home.mirror / _FOLDERS).split(b"\n")[:-1]
    except FileNotFoundError:
        return set()
    return {url for line in lines if isinstance(url := _parsed(line), str)}


def add_folder(home: Home, url: str) -> None:
    """The plain folder ``url`` is there, and is not to be made again."""
    with suppress(OSError, StorageError):
        if url not in read_folders(home):
            home.mirror.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            append_line_durably(home.mirror / _FOLDERS, json.dumps(url))


def _parsed(line: bytes) -> Any:
    try:
        return json.loads(line)
    except (ValueError, RecursionError):  # torn
        return None
