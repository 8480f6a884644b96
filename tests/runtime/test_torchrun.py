"""Under the real torchrun: it gets TERM, hands it to its ranks, and makes 1 of their exit code.

That it hands on a 0 is shown where a job script starts it, in tests/rendering/test_ranks.py.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

from tests.runtime import program
from tests.runtime.conftest import Undisturbed
from tests.runtime.harness import RunFolder, differing, run, weights

ROOT = Path(program.__file__).resolve().parents[2]


def torchrun(folder: RunFolder, **variables: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "torch.distributed.run", "--nproc-per-node=2"]
    command += ["--rdzv-backend=c10d", "--rdzv-endpoint=127.0.0.1:0", "--max-restarts=0"]
    environ = {**os.environ, **folder.environ(), "PYTHONPATH": str(ROOT), **variables}
    return subprocess.run(
        [*command, program.__file__],
        env=environ,
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_term_to_torchrun_saves_on_all_ranks_and_asks_to_be_sent_again(
    undisturbed: Undisturbed, folder: RunFolder
) -> None:
    hurt = "0:15:TERM_PARENT 0:15:wait_for_notice 1:15:wait_for_notice"

    left = torchrun(folder, HURT=hurt)

    assert left.returncode not in (0, 75), left.stderr
    assert folder.resubmit.exists(), left.stderr
    assert len(folder.complete()) == 1
    assert [event["signal"] for event in folder.events("notice")] == ["TERM"]

    folder.attempt = 2
    assert run(folder, 2) == [0, 0]

    assert not folder.resubmit.exists()
    last = program.EPOCHS * program.BATCHES
    assert differing(weights(folder, last), undisturbed(2)) == []
