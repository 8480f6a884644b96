"""A cluster that hpcflow does not know yet: its site file is written, found, held against it."""

from __future__ import annotations

import pytest

from tests.e2e.conftest import Hpcflow

pytestmark = pytest.mark.cluster

QUICK = """
name: quick
command: [hostname]
launch: {framework: none, launcher: none}
resources: {time_limit: 1m}
"""


def test_a_site_file_that_was_written_is_found_by_itself(hpcflow: Hpcflow) -> None:
    written = hpcflow.json("site", "detect", "--write")["path"]
    assert written == str(hpcflow.home / "sites" / "devcluster.yaml")
    assert written in hpcflow("site", "show").stdout
    assert hpcflow("site", "check").returncode == 0
    assert hpcflow("run", hpcflow.write_config("quick.yaml", QUICK), "--wait").returncode == 0


def test_a_site_file_of_another_name_works_by_its_path(hpcflow: Hpcflow) -> None:
    config = hpcflow.write_config("quick.yaml", QUICK)
    path = hpcflow.write_config("mycluster.yaml", hpcflow("site", "detect").stdout)
    run = hpcflow.json("run", config, "--site", path)
    assert hpcflow.json("wait", run["run_id"])["state"] == "completed"


def test_a_file_of_another_cluster_does_not_pass_for_this_one(hpcflow: Hpcflow) -> None:
    text = hpcflow("site", "detect").stdout
    assert "cluster_name: devcluster" in text
    other = text.replace("cluster_name: devcluster", "cluster_name: alps")
    done = hpcflow("site", "check", hpcflow.write_config("alps.yaml", other), check=False)
    assert done.returncode == 1
    assert "cluster_name: alps in the file, and Slurm says devcluster" in done.stdout
