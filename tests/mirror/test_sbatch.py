"""``sbatch/mirror.sbatch``: pass after pass, until Slurm tells it that its time is up."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from hpcflow.resources import resource_dir
from tests.cluster_fixture import poll
from tests.mirror.runs import desk_in, save


def test_it_sends_what_is_due_and_ends_when_it_is_told(tmp_path: Path) -> None:
    desk = desk_in(tmp_path, str(tmp_path / "store"))
    run_dir = desk.make()
    desk.home.path.chmod(0o700)
    save(run_dir, 400)
    environ = {
        **os.environ,
        "HPCFLOW_HOME": str(desk.home.path),
        "HPCFLOW_PYTHON": sys.executable,
    }
    script = resource_dir("sbatch") / "mirror.sbatch"
    job = subprocess.Popen(["bash", str(script)], env=environ)
    poll(lambda: "manifest.json" in " ".join(desk.there(run_dir)), 120, "it was sent")
    job.send_signal(signal.SIGTERM)
    assert job.wait(120) == 0
