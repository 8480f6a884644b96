"""A run with 100,000 checkpoints: what `hpcflow checkpoint ls` takes, and finding the newest.

Beside each stands what looking at the same files takes at the least, in Python: a list of each
folder, the size of each file, and each manifest as JSON. To see it alone:
``python -m tests.benchmarks checkpoints``.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sys
import tempfile
from pathlib import Path
from typing import Final

from hpcflow.runtime.manifest import manifest_bytes
from hpcflow.storage.layout import Home, RunDir
from tests.benchmarks.bench_ledger import make_completed
from tests.benchmarks.timing import Row, in_turn, quiet, ratio, wall
from tests.ledger import lines as say

_CHECKPOINTS: Final = 100_000
_ROUNDS: Final = 3
_PAYLOAD: Final = b"weights " * 10
_LEAST: Final = """
import json, os, sys
with os.scandir(sys.argv[1]) as folders:
    for folder in folders:
        with os.scandir(folder.path) as files:
            for file in files:
                file.stat(follow_symlinks=False)
        with open(f"{folder.path}/manifest.json", "rb") as file:
            json.loads(file.read())
"""


def rows() -> list[Row]:
    """Measure all, in a folder of its own on the disk of this machine."""
    root = Path(tempfile.mkdtemp(prefix="hpcflow-bench-", dir="/var/tmp"))
    try:
        run_dir = _make(root)
        return _measure(run_dir, Home(root / "home"))
    finally:
        shutil.rmtree(root)


def _measure(run_dir: RunDir, home: Home) -> list[Row]:
    python, run_id = sys.executable, run_dir.path.name
    listing = [str(Path(python).with_name("hpcflow")), "checkpoint", "ls", run_id]
    environ = {**os.environ, "HPCFLOW_HOME": str(home.path)}
    inside = {**environ, "HPCFLOW_RUN_ID": run_id}
    inside["HPCFLOW_CHECKPOINT_DIR"] = str(run_dir.checkpoints)
    resuming = [python, "-m", "hpcflow.runtime", "resume-path"]
    times = in_turn(
        {
            "least": quiet([python, "-S", "-c", _LEAST, str(run_dir.checkpoints)]),
            "`hpcflow checkpoint ls`": quiet(listing, env=environ),
            "`hpcflow checkpoint ls --json`": quiet([*listing, "--json"], env=environ),
            "the newest, by the job's `resume-path`": quiet(resuming, env=inside),
        },
        _ROUNDS,
    )
    least = times.pop("least")
    found = []
    for name, usages in times.items():
        peak_mb = max(usage.peak_mb for usage in usages) * 1.048576
        times_least = ratio(usages, least)
        most = 0.5 if "newest" in name else 3.0
        found.append(
            Row(
                f"{name} among {_CHECKPOINTS:,} checkpoints, whole process",
                f"{times_least:.2f} × listing the same files and reading the manifests "
                f"({wall(usages):.2f} s, {wall(least):.2f} s), {peak_mb:.0f} MB",
                f"at most {most:g} × and 150 MB",
                times_least <= most and peak_mb <= 150,
            )
        )
    return found


def _make(root: Path) -> RunDir:
    """The files of a run that is over, written without fsync."""
    run_dir = make_completed(root, 0, 10)
    sha256 = hashlib.sha256(_PAYLOAD).hexdigest()
    steps = range(10, 10 * (_CHECKPOINTS + 1), 10)
    for step in steps:
        folder = run_dir.checkpoints / f"{step:09d}"
        folder.mkdir(parents=step == steps[0])
        facts = {"format": 1, "train_step": step, "epoch": 0.5, "metrics": {"loss": 1 / step}}
        facts |= {"world_size": 1, "run_id": run_dir.path.name, "attempt": 1}
        facts |= {"created_at": "2026-03-01T12:00:30.000Z"}
        files = {"model.pt": {"size_bytes": len(_PAYLOAD), "sha256": sha256}}
        (folder / "manifest.json").write_bytes(manifest_bytes({**facts, "files": files}))
        (folder / "model.pt").write_bytes(_PAYLOAD)
    with run_dir.attempt(1).events.open("ab") as events:
        events.writelines(say.checkpoint(step, 30) for step in steps)
    assert json.loads((run_dir.checkpoints / "000000010/manifest.json").read_bytes())
    return run_dir
