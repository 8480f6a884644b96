"""Only runtime/reading.py opens and parses untrusted files."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Final

PACKAGE: Final = Path(__file__).resolve().parents[1] / "hpcflow"

#: Methods of a path, or of the module json, that open or parse.
METHODS: Final = {"read_text", "read_bytes"}
JSON: Final = {"load", "loads"}

_HERE = "this is the place"
_MADE = "a file that is made, locked or written here, with flags that follow no link"
_KERNEL = "what the kernel says of processes and mounts"
_OWN_TEXT = "text that this process has just made, or got from a program that it trusts"
_SHIPPED = "a file of this package"
_OTHER_METHOD = "a method of that name that opens no file"

#: (file, what) -> (how often, why that is no file that others may have put there).
ALLOWED: Final[dict[tuple[str, str], tuple[int, str]]] = {
    ("budgets/compaction.py", "json.loads"): (4, _OWN_TEXT),
    ("cli/main.py", ".open"): (1, "/dev/null"),
    ("cli/main.py", "os.open"): (1, "/dev/null"),
    ("filesystem.py", ".read_bytes"): (2, _KERNEL),
    ("inside.py", ".open"): (1, _MADE),
    ("provenance/snapshot.py", "os.open"): (1, "a folder"),
    ("ledger/connection.py", "os.open"): (1, _MADE),
    ("ledger/migrations/versions/0005_gpu_types.py", "json.loads"): (1, _OWN_TEXT),
    ("ledger/upgrade.py", ".read_text"): (1, _SHIPPED),
    ("model/secret_forms.py", ".read_text"): (1, _SHIPPED),
    ("model/secret_forms.py", "json.loads"): (1, _SHIPPED),
    ("rendering/templates.py", "os.open"): (1, _MADE),
    ("requeue/install/place.py", "os.open"): (1, _MADE),
    ("requeue/install/slurm_job.py", ".read_text"): (1, _SHIPPED),
    ("requeue/install/table.py", "os.open"): (1, _MADE),
    ("runtime/reading.py", "json.loads"): (1, _HERE),
    ("runtime/reading.py", "os.open"): (5, _HERE),
    ("runtime/adoption/rule.py", "json.loads"): (1, _OWN_TEXT),
    ("runtime/events.py", "os.open"): (1, _MADE),
    ("runtime/files.py", ".open"): (2, _MADE),
    ("runtime/files.py", "os.open"): (
        5,
        "to make a file (empty ones, too), to sync what was just written, and a folder of its own",
    ),
    ("runtime/rank_process.py", "open"): (2, _KERNEL),
    ("runtime/rank_process.py", "os.open"): (
        1,
        "a few bytes, without waiting, through no link; it cannot import the runtime",
    ),
    ("runtime/objects.py", "json.loads"): (1, _OWN_TEXT),
    ("runtime/rule.py", "json.loads"): (1, _OWN_TEXT),
    ("runtime/run.py", ".open"): (1, _OTHER_METHOD),
    ("runtime/sampling/processes.py", ".read_text"): (3, _KERNEL),
    ("runtime/sampling/command.py", ".open"): (1, _MADE),
    ("runtime/sampling/processes.py", ".read_bytes"): (1, _KERNEL),
    ("runtime/sampling/processes.py", "os.open"): (1, _KERNEL),
    ("runtime/shards.py", "json.loads"): (1, _OWN_TEXT),
    ("schedulers/local_jobs.py", ".open"): (1, _MADE),
    ("schedulers/local_jobs.py", ".read_bytes"): (3, _KERNEL),
    ("schedulers/local_jobs.py", ".read_text"): (1, _KERNEL),
    ("schedulers/local_runner.py", ".open"): (1, _MADE),
    ("schedulers/local_runner.py", "json.loads"): (1, _OWN_TEXT),
    ("schedulers/local_submit.py", "os.open"): (1, "/dev/null"),
    ("schedulers/slurm/allocation.py", ".read_bytes"): (1, _KERNEL),
    ("schedulers/slurm/allocation.py", ".read_text"): (1, _KERNEL),
    ("storage/code_snapshot.py", ".open"): (2, "an archive in memory"),
    ("storage/export.py", ".open"): (1, _OTHER_METHOD),
    ("storage/files.py", "os.open"): (8, _MADE),
    ("storage/locks.py", "os.open"): (2, _MADE),
    ("storage/restoring.py", "os.open"): (3, _MADE),
    ("storage/runtime_copy.py", ".read_bytes"): (1, _SHIPPED),
    ("storage/shared.py", "os.open"): (2, _MADE),
    ("storage/dirty_marks.py", "os.open"): (1, _MADE),
    ("sweeps/study.py", ".read_bytes"): (1, _MADE),
    ("working_dir.py", "os.open"): (1, "a folder"),
}

#: The same of what handles stores: it checks in its own way what it reads from one.
OF_STORES: Final[dict[tuple[str, str], int]] = {
    ("mirror/download.py", ".open"): 2,
    ("mirror/download.py", "os.open"): 2,
    ("mirror/folder_remote.py", "os.open"): 2,
    ("mirror/fsspec_remote.py", ".open"): 1,
    ("mirror/status.py", "os.open"): 1,
    ("restore/local.py", ".open"): 1,
    ("restore/staging.py", ".open"): 1,
    ("restore/staging.py", "os.open"): 1,
}


def openings(tree: ast.AST) -> Iterator[str]:
    """What opens or parses: ``open``, ``os.open``, ``.open``, ``.read_text``, ``json.loads`` …"""
    for node in ast.walk(tree):
        if not isinstance(node, ast.Call):
            continue
        called = node.func
        if isinstance(called, ast.Name) and called.id == "open":
            yield "open"
        elif isinstance(called, ast.Attribute):
            owner = called.value.id if isinstance(called.value, ast.Name) else ""
            if called.attr == "open":
                yield "os.open" if owner == "os" else ".open"
            elif called.attr in METHODS:
                yield f".{called.attr}"
            elif called.attr in JSON and owner == "json":
                yield f"json.{called.attr}"


def found() -> Counter[tuple[str, str]]:
    counted: Counter[tuple[str, str]] = Counter()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        if not name.startswith("testing/"):
            counted.update((name, what) for what in openings(ast.parse(path.read_text())))
    return counted


def test_files_of_others_are_opened_in_one_place() -> None:
    """And a list of exceptions that is longer than it must be hides the next one."""
    allowed = {**{key: times for key, (times, _) in ALLOWED.items()}, **OF_STORES}
    assert found() == allowed, "use hpcflow.runtime.reading"


def test_the_search_finds_each_way_to_open() -> None:
    text = (
        "open(x); os.open(x, 0); path.open(); path.read_text(); Path(x).read_bytes(); json.loads(x)"
    )
    assert list(openings(ast.parse(text))) == [
        "open",
        "os.open",
        ".open",
        ".read_text",
        ".read_bytes",
        "json.loads",
    ]
