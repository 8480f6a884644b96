"""The recorded checksums of run.json."""

from __future__ import annotations

import os
from pathlib import Path

from hpcflow.storage.frozen import matches_frozen, record_frozen
from hpcflow.storage.layout import Home
from hpcflow.storage.rundir import create_run
from tests.hostile import bounded
from tests.storage.runs import make_run


def test_a_pipe_in_the_place_of_a_checksum_holds_up_nothing(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    run_dir = create_run(make_run(tmp_path), home)
    recorded = home.frozen / run_dir.path.name
    recorded.unlink()
    os.mkfifo(recorded)
    with bounded():
        record_frozen(home, run_dir)
        assert not matches_frozen(home, run_dir.path.name, run_dir.run_json.read_bytes())
