"""The development cluster does what a site's Slurm does, and comes up and goes down from any state.

All of it against real daemons, in a folder of its own: these tests kill what others would use.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.errors import InputError
from hpcflow.testing.cluster import (
    Cluster,
    CommandFailed,
    Size,
    User,
    machine,
    packages,
    poll,
    releases,
)
from hpcflow.testing.cluster.processes import Identity, arguments, environment, pids
from hpcflow.testing.cluster.settings import purge_mark, require_own_folder
from tests.cluster_fixture import TREE, need

pytestmark = [pytest.mark.cluster, pytest.mark.xdist_group("own-cluster")]


@pytest.fixture(scope="module")
def own() -> Iterator[Cluster]:
    """A cluster that nobody else uses."""
    need(packages.require)
    cluster = Cluster(f"/var/tmp/hpcflow-selftest-{os.getpid()}")
    try:
        yield cluster.up()
    finally:
        cluster.down(purge=True)


@pytest.fixture
def ada(own: Cluster) -> Iterator[User]:
    """A physicist. Her jobs are gone when a test is over."""
    yield own.user("hpcf-ada")
    own.run("scancel", "--user=hpcf-ada", check=False)


@pytest.fixture
def grace(own: Cluster) -> Iterator[User]:
    """A biologist."""
    yield own.user("hpcf-grace")
    own.run("scancel", "--user=hpcf-grace", check=False)


def submit(user: User, script: str, *options: str) -> str:
    """Submit a batch script; returns the job id."""
    text = f"#!/bin/bash\n{script}\n"
    return user.run(["sbatch", "--parsable", *options], input=text).stdout.strip()


def state_of(cluster: Cluster, job: str) -> str:
    """The job's state as slurmctld knows it; empty when slurmctld does not answer."""
    shown = cluster.run("scontrol", "show", "job", job, check=False)
    return shown.partition("JobState=")[2].partition(" ")[0]


def wait_state(cluster: Cluster, job: str, wanted: str, deadline_s: float = 60) -> None:
    """Wait until the job is in this state."""
    poll(
        lambda: state_of(cluster, job) == wanted,
        deadline_s,
        lambda: f"job {job} is {state_of(cluster, job)}, not {wanted}",
    )


# --- what a user finds ---------------------------------------------------------------------------


def test_a_job_runs_as_its_user_on_two_nodes_and_sees_its_gpus(ada: User) -> None:
    """Two nodes with two GPUs each: both tasks see GPU 0 and 1, and neither is root."""
    script = "echo $SLURMD_NODENAME $CUDA_VISIBLE_DEVICES $(id -un)"
    shown = ada.run(["srun", "-N2", "--gpus-per-node=2", "bash", "-c", script]).stdout
    assert sorted(shown.splitlines()) == ["n1 0,1 hpcf-ada", "n2 0,1 hpcf-ada"]


def test_node_names_resolve(ada: User) -> None:
    """torchrun's rendezvous needs that."""
    assert ada.run(["getent", "hosts", "n4"]).stdout.split()[0] == "127.0.0.1"


def test_a_user_sees_nothing_of_the_caller_and_has_a_private_scratch(
    ada: User, grace: User, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The environment is a login's; the scratch opens to its owner only."""
    monkeypatch.setenv("SLURM_CPU_BIND", "quiet,mask_cpu:0x1")
    shown = ada.run(["env"]).stdout
    assert "SLURM_CPU_BIND" not in shown
    assert f"SCRATCH={ada.scratch}\n" in shown
    (ada.scratch / "secret").write_text("42")
    assert grace.run(["cat", ada.scratch / "secret"], check=False).returncode != 0


def test_a_timeout_kills_all_that_a_command_started(ada: User) -> None:
    """Also the grandchild that holds the pipe."""
    with pytest.raises(subprocess.TimeoutExpired):
        ada.run(["bash", "-c", "sleep 987 & wait"], timeout=0.5)
    assert ada.run(["pgrep", "-f", "^sleep 987$"], check=False).stdout == ""


def test_the_wrong_account_is_refused(ada: User) -> None:
    """Associations are enforced, as at real sites."""
    with pytest.raises(CommandFailed, match="Invalid account"):
        submit(ada, "true", "--account=biology")


def test_the_short_partition_refuses_five_minutes(ada: User) -> None:
    """Its limit is two."""
    with pytest.raises(CommandFailed, match="time limit"):
        submit(ada, "true", "--partition=short", "--time=5")
    assert submit(ada, "true", "--partition=short", "--time=2").isdigit()


def test_the_accounts_have_unequal_shares(own: Cluster) -> None:
    """70 for physics, 30 for biology."""
    lines = own.run("sshare", "-a", "-n", "-P", "-o", "account,user,rawshares").splitlines()
    shares = dict(line.strip().rsplit("|", 1) for line in lines)
    assert (shares["physics|"], shares["biology|"]) == ("70", "30")
    assert "physics|hpcf-ada" in {line.strip().rsplit("|", 1)[0].lstrip() for line in lines}


@pytest.mark.soak
def test_spot_is_preempted_by_gpu_after_the_grace_time(
    own: Cluster, ada: User, grace: User
) -> None:
    """SIGTERM reaches the step first, the end comes after five seconds, the cause is kept."""
    trap = "trap 'date +%s >> term; sleep 60' TERM; touch running; while true; do sleep 0.1; done"
    (ada.scratch / "step.sh").write_text(trap)
    low = submit(ada, "srun bash step.sh", "-N4", "--exclusive", "-pspot", "--no-requeue")
    poll((ada.scratch / "running").exists, 120, "the spot job's step runs")
    high = submit(grace, "true", "-N4", "--exclusive", "-pgpu")
    # On a busy machine a node's last word can get lost: slurmctld asks again only after minutes.
    wait_state(own, low, "PREEMPTED", deadline_s=240)
    shown = own.run("scontrol", "show", "job", low)
    assert "PreemptTime" in shown
    told = float((ada.scratch / "term").read_text().split()[0])
    ended = own.run("date", "+%s", "-d", shown.partition("EndTime=")[2].split()[0])
    assert float(ended) - told >= 4
    wait_state(own, high, "COMPLETED")


# --- what an operator (and a test) may do to it --------------------------------------------------


def test_users_run_hpcflow_from_this_tree_though_they_cannot_read_it(
    own: Cluster, ada: User
) -> None:
    """Installed as at a site, and not again when nothing changed."""
    software = own.software(TREE)
    where = ada.run(["python", "-c", "import hpcflow; print(hpcflow.__file__)"]).stdout
    assert where.startswith(str(software.venv))
    assert ada.run(["which", "hpcflow"]).stdout.strip() == str(software.bin / "hpcflow")
    assert own.directory in software.examples.parents
    state = software.venv.with_name("state.json")
    written = state.stat()
    assert own.software(TREE) == software
    assert os.path.samestat(state.stat(), written)
    assert state.stat().st_mtime_ns == written.st_mtime_ns


def test_up_again_changes_nothing(own: Cluster) -> None:
    """Idempotent: every daemon is the same process as before."""
    before = {name: daemon.pid for name, daemon in own.daemons().items()}
    own.up()
    assert {name: daemon.pid for name, daemon in own.daemons().items()} == before
    assert None not in before.values()
    assert own.healthy()


@pytest.mark.soak
def test_a_killed_controller_comes_back_with_its_jobs(own: Cluster, ada: User) -> None:
    """A job ends while nobody looks, another still waits."""
    running = submit(ada, "sleep 7")
    waiting = submit(ada, "true", "--begin=now+1hour")
    wait_state(own, running, "RUNNING")
    own.wait_saved()
    with own.without("slurmctld", kill=True):
        assert ada.run(["squeue"], check=False).returncode != 0
    wait_state(own, running, "COMPLETED")
    assert state_of(own, waiting) == "PENDING"


@pytest.mark.soak
def test_jobs_run_without_accounting_which_catches_up(own: Cluster, ada: User) -> None:
    """slurmdbd and its database are away; what ended meanwhile is in sacct later."""
    with own.without("mariadb", "slurmdbd"):
        job = submit(ada, "true", "--job-name=unaccounted")
        wait_state(own, job, "COMPLETED")
        assert ada.run(["sacct"], check=False).returncode != 0

    def accounted() -> bool:
        shown = ada.run(["sacct", "-nXPj", job, "-o", "jobname,state"], check=False).stdout
        return shown.strip() == "unaccounted|COMPLETED"

    poll(accounted, 120, "sacct knows the job")


def test_a_crashed_node_ends_its_job_and_comes_back(own: Cluster, ada: User) -> None:
    """The processes of the job are gone with the node, not only its record."""
    job = submit(ada, "sleep 986", "--nodelist=n2", "--no-requeue")
    poll(lambda: _running("sleep", "986"), 120, "the job sleeps")
    own.crash_node("n2")
    wait_state(own, job, "NODE_FAIL")
    assert not _running("sleep", "986")
    own.revive_node("n2")
    assert own.node_states()["n2"] == "idle"


@pytest.mark.soak
def test_up_resumes_a_drained_node_and_replaces_a_hung_daemon(own: Cluster) -> None:
    """Whatever someone left behind, `up` makes it right."""
    own.run("scontrol", "update", "nodename=n3", "state=drain", "reason=test")
    before = own.munge.pid
    assert before is not None
    os.kill(before, signal.SIGSTOP)
    own.up()
    assert own.node_states()["n3"] == "idle"
    assert own.munge.pid not in (None, before)


def test_down_ends_every_process_and_up_remembers(own: Cluster, ada: User) -> None:
    """A job's daemonized child does not survive; pending jobs and accounting do."""
    submit(ada, "setsid sleep 985 & disown; sleep 985")
    waiting = submit(ada, "true", "--begin=now+1hour")
    poll(lambda: len(_running("sleep", "985")) == 2, 120, "the job and its child sleep")
    own.down()
    assert own.processes() == []
    assert not _running("sleep", "985")
    assert str(own.directory) not in machine.clusters()
    own.up()
    assert state_of(own, waiting) == "PENDING"
    assert "985" not in own.run("ps", "-eo", "args")


@pytest.mark.soak
def test_another_size_takes_effect_and_nodes_claim_what_the_machine_lacks(
    own: Cluster, ada: User
) -> None:
    """For scale tests: 512 CPUs a node on whatever this is."""
    own.up(Size(nodes=6, cpus=512, gpus=8))
    shown = own.run("sinfo", "-h", "-p", "gpu", "-o", "%D %c %G").split()
    assert shown == ["6", "512", "gpu:a100:8"]
    assert ada.run(["srun", "-N6", "--cpus-per-task=512", "true"]).returncode == 0
    own.up(Size())
    assert len(own.node_states()) == 4


# --- two of them, half of one, none --------------------------------------------------------------


@pytest.mark.soak
def test_two_clusters_live_side_by_side_also_when_one_was_killed_half_way(own: Cluster) -> None:
    """kill -9 of `up` at several moments; the next one finishes, the neighbour notices nothing."""
    other = Cluster(f"{own.directory}-b")
    before = {name: daemon.pid for name, daemon in own.daemons().items()}
    try:
        for daemon in ("mariadb", "slurmctld", "slurmd.n2"):
            _kill_up_when_it_starts(other, daemon)
        other.up(Size(nodes=2))
        assert other.user("hpcf-grace").run(["srun", "-N2", "echo", "hi"]).stdout == "hi\nhi\n"
        running = {process.split()[1] for process in other.processes()}
        assert running == {"munged", "mariadbd", "slurmdbd", "slurmctld", "slurmd"}
    finally:
        other.down(purge=True)
    assert other.processes() == []
    assert not other.directory.exists()
    assert {name: daemon.pid for name, daemon in own.daemons().items()} == before
    assert own.user("hpcf-ada").run(["srun", "-N2", "true"]).returncode == 0


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")
def test_a_folder_that_another_user_made_first_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, 65534, 65534)
    with pytest.raises(InputError, match="belongs to another user"):
        require_own_folder(tmp_path)


@pytest.mark.soak
def test_a_purge_that_was_killed_half_way_is_finished_by_the_next_up() -> None:
    """Without its settings, what is left would be a stranger's; and half a database starts not."""
    need(packages.require)
    cluster = Cluster(f"/var/tmp/hpcflow-halfgone-{os.getpid()}")
    left = cluster.directory / "mariadb" / "half"
    left.mkdir(parents=True)
    with pytest.raises(InputError, match="is not a cluster's folder: it holds mariadb"):
        cluster.up()
    purge_mark(cluster.directory).touch()
    try:
        cluster.up(Size(nodes=1))
        assert not left.exists()
    finally:
        cluster.down(purge=True)
    assert not cluster.directory.exists()


@pytest.mark.soak
def test_what_a_user_left_running_does_not_outlive_the_cluster() -> None:
    """As a daemon does whose test was killed: it would make its folder anew."""
    need(packages.require)
    cluster = Cluster(f"/var/tmp/hpcflow-outlived-{os.getpid()}")
    try:
        cluster.up(Size(nodes=1))
        with cluster.user("hpcf-ada").popen(["sleep", "986"]) as left:
            cluster.down()
            assert left.wait(120) == -signal.SIGKILL
    finally:
        cluster.down(purge=True)


def _kill_up_when_it_starts(cluster: Cluster, daemon: str) -> None:
    argv = [sys.executable, "-m", "hpcflow.testing.cluster", "up", "--nodes", "2"]
    argv += ["--dir", str(cluster.directory)]
    with subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL) as starter:
        record = cluster.directory / "run" / f"{daemon}.json"
        record.unlink(missing_ok=True)
        poll(lambda: record.exists() or starter.poll() is not None, 120, f"{daemon} starts")
        starter.kill()


def test_a_daemon_that_was_never_recorded_is_found(own: Cluster) -> None:
    """As when the starter was killed between starting it and writing its pid down."""
    before = own.slurmdbd.pid
    (own.directory / "run/slurmdbd.json").unlink()
    assert own.slurmdbd.pid == before


def test_a_reused_pid_is_not_ours(own: Cluster) -> None:
    """The record names a process that started at another time: it is left alone."""
    with subprocess.Popen(["sleep", "60"]) as innocent:
        identity = Identity.of(innocent.pid)
        assert identity is not None
        stale = Identity(identity.pid, identity.started - 1, identity.boot)
        assert identity.alive()
        assert not stale.alive()
        assert not stale.send(signal.SIGKILL)
        assert innocent.poll() is None
        innocent.kill()
    assert not identity.alive()
    assert own.healthy()


def test_the_command_line_tells_and_exports(own: Cluster) -> None:
    """status, env and run-as, as a developer types them."""
    shown = _command_line("status", own)
    assert shown.returncode == 0
    assert "slurmctld" in shown.stdout
    assert _command_line("env", own).stdout == f"export SLURM_CONF={own.directory}/etc/slurm.conf\n"
    done = _command_line("run-as", own, "hpcf-grace", "--", "id", "-un")
    assert (done.returncode, done.stdout) == (0, "hpcf-grace\n")


def _command_line(name: str, cluster: Cluster, *more: str) -> subprocess.CompletedProcess[str]:
    argv = [sys.executable, "-m", "hpcflow.testing.cluster", name]
    argv += ["--dir", str(cluster.directory), *more]
    return subprocess.run(argv, capture_output=True, text=True)


def _running(*argv: str) -> list[int]:
    """The processes with exactly these arguments."""
    return [pid for pid in pids() if arguments(pid) == list(argv)]


# --- without root, without packages --------------------------------------------------------------


def test_without_root_it_says_what_it_needs_root_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exit code 2, and nothing is created."""
    need(packages.require)
    monkeypatch.setattr(os, "geteuid", lambda: 1000)
    with pytest.raises(InputError, match="needs root") as caught:
        Cluster("/var/tmp/hpcflow-never").up()
    assert caught.value.exit_code == 2
    assert not Path("/var/tmp/hpcflow-never").exists()


def test_missing_packages_are_named_with_the_line_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """Exactly those that are missing."""
    found = packages.find_program
    lost = {"munged", "slurmd"}
    monkeypatch.setattr(packages, "find_program", lambda n: None if n in lost else found(n))
    monkeypatch.setattr(packages, "_FILES", {})
    lacking = packages.missing()
    assert lacking == [name for name in lacking if name in ("slurmd", "munge")]
    with pytest.raises(InputError, match="apt-get install -y --no-install-recommends slurmd munge"):
        packages.require()


@pytest.mark.parametrize("folder", ["/var/tmp/" + "x" * 80, "/var/tmp/a b", "/var/tmp/a;b"])
def test_an_unusable_folder_is_refused(folder: str) -> None:
    """A socket's path must fit into 107 bytes, and Slurm's files know no quoting."""
    with pytest.raises(InputError, match="folder"):
        Cluster(folder)


@pytest.fixture
def private() -> Iterator[Path]:
    """Someone's private folder, with a path short enough for a cluster."""
    need(packages.require)
    with tempfile.TemporaryDirectory(prefix="hpcf-", dir="/tmp") as folder:
        yield Path(folder)


def test_a_folder_that_is_not_a_clusters_is_left_alone(private: Path) -> None:
    """Neither its mode is changed nor is it deleted, whatever --dir says."""
    (private / "thesis.tex").write_text("ten years")
    for act in (Cluster(private).up, lambda: Cluster(private).down(purge=True)):
        with pytest.raises(InputError, match=r"not a cluster's folder: it holds thesis\.tex"):
            act()
    assert private.stat().st_mode & 0o777 == 0o700
    assert (private / "thesis.tex").exists()


def test_a_folder_that_users_cannot_reach_is_refused(private: Path) -> None:
    """As below /root."""
    with pytest.raises(InputError, match="closed to ordinary users"):
        Cluster(private / "cluster").up()
    assert not (private / "cluster").exists()


def test_a_cluster_keeps_its_version_of_slurm(own: Cluster) -> None:
    """Another one cannot read its database, and a daemon must not be downgraded unseen."""
    with pytest.raises(InputError, match="runs Slurm as installed here; version"):
        own.up(version="26.05")
    assert own.healthy()


def test_a_version_that_no_debian_has_is_refused_before_anything_is_made(private: Path) -> None:
    private.chmod(0o755)
    with pytest.raises(InputError, match=r"has Slurm 3\.2; they have \d+\.\d+ and \d+\.\d+"):
        Cluster(private).up(version="3.2")
    assert not (private / "cluster.json").exists()


def test_programs_that_another_user_put_there_are_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(releases, "_FOLDER", tmp_path)
    monkeypatch.setattr(os, "geteuid", lambda: tmp_path.stat().st_uid + 1)
    with pytest.raises(InputError, match="belongs to another user"):
        releases.tree_of("26.05")


def test_the_environment_marker_is_inherited(own: Cluster) -> None:
    """By it, orphans are recognised."""
    pid = own.slurmd["n1"].pid
    assert pid is not None
    assert environment(pid)["HPCFLOW_CLUSTER_DAEMON"] == f"{own.directory}:slurmd.n1"
