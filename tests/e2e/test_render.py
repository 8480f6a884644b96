"""Everything between the user and sbatch can be seen first, as Slurm itself can tell."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.e2e.conftest import Hpcflow

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    "options",
    [
        (),
        ("--set", "resources.nodes=2", "--set", "launch.launcher=srun", "--set", "params.lr=1e-3"),
    ],
    ids=["torchrun", "srun"],
)
def test_what_render_prints_is_what_slurm_was_given(
    hpcflow: Hpcflow, options: tuple[str, ...]
) -> None:
    arguments: tuple[str | Path, ...] = (hpcflow.digits, "--site", "devcluster", *options)
    printed = hpcflow("render", *arguments).stdout
    (rendered_id,) = {
        line.removeprefix("#SBATCH --job-name=").removesuffix(":1")
        for line in printed.splitlines()
        if line.startswith("#SBATCH --job-name=")
    }
    run = hpcflow.json("run", *arguments)
    told = hpcflow.user.run(["scontrol", "write", "batch_script", run["job_id"], "-"]).stdout
    hpcflow("cancel", run["run_id"])
    submitted = (Path(run["run_dir"]) / "attempts/0001/job.sbatch").read_text()
    assert submitted == printed.replace(rendered_id, run["run_id"])
    assert told == submitted
