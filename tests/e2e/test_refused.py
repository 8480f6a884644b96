"""What Slurm itself refuses is told of the line in the config that asked for it."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Hpcflow

pytestmark = pytest.mark.cluster


@pytest.mark.parametrize(
    ("key", "value"), [("qos", "nosuch"), ("constraint", "nosuch"), ("exclude", "nosuch")]
)
def test_slurms_own_refusal_points_into_the_config(hpcflow: Hpcflow, key: str, value: str) -> None:
    text = f'name: small\ncommand: ["true"]\nresources:\n  time_limit: 5m\n  {key}: {value}\n'
    config = hpcflow.write_config("refused.yaml", text)
    done = hpcflow("run", config, "--site", "devcluster", check=False)
    assert done.returncode == 2
    assert f"{config}:5, resources.{key}: Slurm refused the job" in done.stderr
    text = text.replace(f"  {key}: {value}\n", "")
    config = hpcflow.write_config("override.yaml", text)
    override = f"resources.{key}={value}"
    done = hpcflow("run", config, "--site", "devcluster", "--set", override, check=False)
    assert f"--set resources.{key}: Slurm refused the job" in done.stderr
    assert hpcflow.json("ls")["runs"] == []
