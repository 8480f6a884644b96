"""Another user replaces the run directory of a pending job; the job executes none of it."""

from __future__ import annotations

import os
import shlex
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.testing.cluster import Cluster, User, poll
from tests.e2e.conftest import TWO_NODES, Hpcflow

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600)]

SMALL = """
name: small
command: ["true"]
launch: {framework: none, launcher: none}
resources: {time_limit: 5m}
"""
_LIVES = ("PENDING", "CONFIGURING", "RUNNING", "COMPLETING")


@pytest.fixture
def shared(cluster: Cluster, hpcflow: Hpcflow) -> Iterator[Path]:
    """A folder as a site's /shared, in which everybody can make their own, and ada's in it."""
    folder = cluster.directory / f"shared-{uuid.uuid4().hex[:8]}"
    folder.mkdir(mode=0o755)
    folder.chmod(0o1777)
    hpcflow.env["SCRATCH"] = str(folder / "ada")
    yield folder
    shutil.rmtree(folder)


def test_a_folder_that_another_user_has_made_first_is_refused(
    hpcflow: Hpcflow, shared: Path, grace: User
) -> None:
    theirs = shared / "ada"
    grace.run(["mkdir", "-m", "777", str(theirs)])
    refused = hpcflow("run", hpcflow.digits, *TWO_NODES, check=False)
    assert refused.returncode == 2, refused.stderr
    said = " ".join(refused.stderr.split())
    assert f"{theirs} belongs to user {grace.name}" in said
    assert f"scratch: {{trusted_users: [{grace.name}]}}" in said
    assert not list(theirs.iterdir())


def test_a_link_in_the_place_of_a_purged_folder_is_not_followed(
    hpcflow: Hpcflow, shared: Path, grace: User
) -> None:
    ours = shared / "ada"
    hpcflow.user.run(["mkdir", "-m", "755", str(ours)])
    small = hpcflow.write_config("small.yaml", SMALL)
    sent = hpcflow.json("run", small, "--site", "devcluster", "--wait")
    hpcflow.user.run(["mv", str(ours), str(shared / "old")])  # as a purge would take it away
    grace.run(["ln", "-s", "old", str(ours)])
    hpcflow.env["SCRATCH"] = str(shared / "new")
    other = hpcflow.json("run", small, "--site", "devcluster", "--wait")
    for words in (("ls", "--all"), ("daemon", "--once"), ("ledger", "rebuild")):
        told = hpcflow(*words, check=False)
        said = " ".join(told.stderr.split())
        assert said.count(f"{ours} belongs to user {grace.name}, so hpcflow uses no run in") <= 1
        assert "Traceback" not in said
    assert f"scratch: {{trusted_users: [{grace.name}]}}" in said
    assert "completed" in hpcflow("show", other["run_id"]).stdout
    for command in ("resume", "show", "logs"):
        refused = hpcflow(command, sent["run_id"], check=False)
        assert refused.returncode != 0
        assert f"{ours} belongs to user {grace.name}" in " ".join(refused.stderr.split())
    grace.run(["rm", str(ours)])
    hpcflow.user.run(["mv", str(shared / "old"), str(ours)])
    assert "completed" in hpcflow("show", sent["run_id"]).stdout


def test_a_tree_that_was_put_there_while_the_job_waits_is_not_executed(
    hpcflow: Hpcflow, shared: Path, grace: User, cluster: Cluster
) -> None:
    """It was sent while the folder was closed: as if nobody had looked at submission."""
    ours = shared / "ada"
    hpcflow.user.run(["mkdir", "-m", "755", str(ours)])
    cluster.run("scontrol", "update", "partitionname=gpu", "state=down")
    try:
        sent = hpcflow.json("run", hpcflow.digits, "--site", "devcluster")
        ours.chmod(0o777)
        os.chown(ours, grace.entry.pw_uid, -1)
        run_dir, owned = Path(sent["run_dir"]), shared / "owned"
        code = f"import os; open({str(owned)!r} + str(os.getuid()), 'w').close()"
        script = f"""
        set -e
        mv {shlex.quote(str(ours / "hpcflow"))} {shlex.quote(str(ours / "aside"))}
        mkdir -p {run_dir}/attempts/0001 {run_dir}/checkpoints {run_dir}/runtime/hpcflow/runtime
        for each in __init__ runtime/__init__ runtime/__main__; do
          echo {shlex.quote(code)} > {run_dir}/runtime/hpcflow/$each.py
        done
        chmod -R a+rwX {shlex.quote(str(ours / "hpcflow"))}
        """
        grace.run(["bash", "-c", script])
    finally:
        cluster.run("scontrol", "update", "partitionname=gpu", "state=up")

    def ended() -> str:
        told = cluster.run("scontrol", "show", "job", "--oneliner", sent["job_id"])
        return "" if any(f" JobState={state} " in told for state in _LIVES) else told

    told = poll(ended, 300, "the job never ended", every_s=0.5)
    assert " ExitCode=77:0 " in told
    assert not list(shared.glob("owned*"))
    assert not list((run_dir / "attempts/0001").iterdir()), "Slurm has opened no log there"
    again = hpcflow("resume", sent["run_id"], check=False)
    assert again.returncode != 0
    assert "Traceback" not in again.stderr
