"""Runs as their files would be, written without fsync."""

from __future__ import annotations

import json

from hpcflow.model.run import Run
from hpcflow.storage.layout import Home, RunDir


def make_files(home: Home, run: Run) -> RunDir:
    """Make the record and the run directory of ``run``; the caller writes the journal."""
    run_dir = home.run_dir(run.run_dir)
    link = home.scratch_link(run.run_id)
    link.parent.mkdir(parents=True)
    link.symlink_to(run_dir.path)
    run_dir.run_json.write_text(json.dumps(run.model_dump(mode="json")))
    run_dir.attempt(1).path.mkdir(parents=True)
    run_dir.params_json.touch()
    return run_dir
