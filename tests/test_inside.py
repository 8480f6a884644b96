"""A run from inside an allocation: what Slurm has granted is taken as it is, on every site."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import InputError, SpecError
from hpcflow.inside import batch_job_id, prepare
from hpcflow.model.journal import Intended, Restored
from hpcflow.model.run import Run
from hpcflow.storage import journal
from hpcflow.storage.rundir import read_run
from tests.run_dirs import run_dir_at

CONFIG = """\
name: small
script: train.py
resources:
  time_limit: 10m
"""


class Job:
    """A batch job on some site, as far as its environment tells."""

    def __init__(self, folder: Path, site: str, **variables: str | None) -> None:
        self.folder, self.site = folder, site
        (folder / "train.py").touch()
        known = {
            "HPCFLOW_HOME": str(folder / "home"),
            "PATH": str(folder),
            "SCRATCH": str(folder / "scratch"),
            "PSCRATCH": str(folder / "scratch"),
            "SLURM_JOB_ACCOUNT": "physics",
            "SLURM_JOB_CPUS_PER_NODE": "8",
            "SLURM_JOB_ID": "123",
            "SLURM_JOB_NUM_NODES": "1",
            "SLURM_JOB_PARTITION": "gpu",
            "SLURM_JOB_QOS": "normal",
            "SLURM_PROCID": "0",
            "SLURM_JOB_START_TIME": "1700000000",
            "SLURM_JOB_END_TIME": "1700000120",
            **variables,
        }
        self.environ = {name: value for name, value in known.items() if value is not None}

    def run(self, config: str = CONFIG, *overrides: str) -> Run:
        """The run that it becomes."""
        path = self.folder / "config.yaml"
        path.write_text(config)
        script = prepare(path, list(overrides), self.site, self.environ)
        return read_run(run_dir_at(script.parents[2]))


@pytest.fixture(autouse=True)
def _no_slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on a compute node without scontrol."""
    monkeypatch.setenv("PATH", str(tmp_path))


def test_what_the_allocation_has_wins_over_the_config(tmp_path: Path) -> None:
    text = CONFIG + "  nodes: 3\n  partition: gpu\n  account: biology\n  qos: high\n"
    job = Job(tmp_path, "devcluster", SLURM_JOB_PARTITION="short", SLURM_JOB_NUM_NODES="2")
    run = job.run(text)
    resources = run.spec.resources
    assert (resources.nodes, resources.partition, resources.account) == (2, "short", "physics")
    intent = journal.read(run_dir_at(Path(run.run_dir)))[0]
    assert isinstance(intent, Intended)
    assert (intent.partition, intent.account) == ("short", "physics")
    assert (resources.qos, resources.time_limit_min) == ("normal", 2)
    assert resources.cpus_per_task == 8


def test_a_limit_that_nobody_tells_is_the_configs_and_is_not_refused(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        "devcluster",
        SLURM_JOB_PARTITION="short",
        SLURM_JOB_START_TIME=None,
        SLURM_JOB_END_TIME=None,
    )
    assert job.run().spec.resources.time_limit_min == 10  # and `short` allows two


def test_set_wins_over_the_allocation(tmp_path: Path) -> None:
    job = Job(tmp_path, "devcluster", SLURM_JOB_NUM_NODES="2")
    resources = job.run(CONFIG, "resources.nodes=1", "resources.account=biology").spec.resources
    assert (resources.nodes, resources.account) == (1, "biology")


def test_what_slurm_granted_breaks_no_limit_of_the_site_file(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        "devcluster",
        SLURM_JOB_NUM_NODES="99",
        SLURM_JOB_ACCOUNT="chemistry",
        SLURM_GPUS_ON_NODE="8",
        SLURM_JOB_CPUS_PER_NODE="512(x99)",
        SLURM_JOB_END_TIME="1709999999",
    )
    run = job.run(CONFIG + "  mem: 999G\n")
    assert (run.partition, run.spec.resources.nodes, run.gpu_type) == ("gpu", 99, "a100")
    assert run.spec.resources.cpus_per_task == 64


def test_perlmutter_names_partitions_that_its_users_never_see(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        "perlmutter",
        SLURM_JOB_PARTITION="gpu_ss11",
        SLURM_JOB_QOS="debug",
        SLURM_JOB_NUM_NODES="2",
        SLURM_GPUS_ON_NODE="4",
        SLURM_JOB_CPUS_PER_NODE="128(x2)",
    )
    run = job.run()
    assert (run.partition, run.spec.resources.partition) == ("debug", "debug")
    job.environ["SLURM_JOB_QOS"] = "gpu_regular"
    run = job.run()
    assert (run.partition, run.spec.resources.qos) == ("regular", "gpu_regular")
    job.environ |= {"SLURM_JOB_QOS": "unheard-of", "SLURM_GPUS_ON_NODE": "9"}
    assert job.run().gpu_type == "a100", "what fits nowhere is no error either"


def test_leonardo_tells_its_large_jobs_by_the_qos(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        "leonardo",
        SLURM_JOB_PARTITION="boost_usr_prod",
        SLURM_JOB_QOS="boost_qos_bprod",
        SLURM_JOB_NUM_NODES="100",
        SLURM_GPUS_ON_NODE="4",
        SLURM_JOB_CPUS_PER_NODE="32(x100)",
    )
    assert job.run().partition == "boost_qos_bprod"
    job.environ["SLURM_JOB_QOS"] = "normal"
    assert job.run().partition == "boost_usr_prod", "which has no more than 64, says its file"


def test_the_run_tells_which_of_the_kinds_of_nodes_of_a_partition_it_has(tmp_path: Path) -> None:
    site = tmp_path / "kinds.yaml"
    site.write_text(
        "name: kinds\nscratch: {path: $SCRATCH}\ngpu_types: {mi250x: {vendor: amd}, h100: {}}\n"
        "partitions:\n"
        "  amd: {partition: gpu, gpu_type: mi250x, gpus_per_node: 8, cpus_per_node: 64}\n"
        "  h100: {partition: gpu, gpu_type: h100, gpus_per_node: 4, cpus_per_node: 64}\n"
    )
    job = Job(tmp_path, str(site), SLURM_GPUS_ON_NODE="4")
    run = job.run(CONFIG + "  gpu_type: h100\n")
    assert (run.partition, run.gpu_type) == ("h100", "h100")


def test_where_gpus_go_with_the_nodes_the_config_counts_them(tmp_path: Path) -> None:
    job = Job(
        tmp_path,
        "lonestar6",
        SLURM_JOB_PARTITION="gpu-a100",
        SLURM_JOB_CPUS_PER_NODE="128",
        SLURM_GPUS_ON_NODE=None,
    )
    resources = job.run(CONFIG + "  gpus_per_node: 3\n").spec.resources
    assert (resources.gpus_per_node, resources.cpus_per_task) == (3, 42)


@pytest.mark.parametrize(
    ("text", "overrides", "cpus"),
    [
        ("  tasks_per_node: 2\n", [], 4),
        ("  tasks_per_node: 2\n", ["resources.tasks_per_node=4"], 2),
        ("launch: {framework: none}\n", [], 8),
        ("", [], 2),
        ("  cpus_per_task: 99\n", [], 2),
        ("  cpus_per_task: 99\n", ["resources.cpus_per_task=1"], 1),
    ],
)
def test_the_ranks_of_the_run_share_the_cores(
    tmp_path: Path, text: str, overrides: list[str], cpus: int
) -> None:
    job = Job(tmp_path, "devcluster", SLURM_GPUS_ON_NODE="4")
    assert job.run(CONFIG + text, *overrides).spec.resources.cpus_per_task == cpus


def test_each_rank_needs_a_core_on_every_node(tmp_path: Path) -> None:
    job = Job(tmp_path, "devcluster", SLURM_JOB_NUM_NODES="2", SLURM_JOB_CPUS_PER_NODE="2,1")
    assert job.run().spec.resources.cpus_per_task == 1
    with pytest.raises(
        InputError, match="2 CPU cores, and the allocation has a node with 1"
    ) as caught:
        job.run(CONFIG + "  tasks_per_node: 2\n")
    assert "--cpus-per-task=2" in str(caught.value.next_action)


def test_what_does_not_go_with_the_allocation_is_blamed_on_it(tmp_path: Path) -> None:
    job = Job(tmp_path, "devcluster", SLURM_JOB_NUM_NODES="2")
    with pytest.raises(SpecError, match="would idle") as caught:
        job.run(CONFIG + "launch: {launcher: none}\n")
    assert str(caught.value.where) == "the allocation, resources.nodes"
    with pytest.raises(SpecError, match="has no GPU type") as caught:
        job.run(CONFIG + "  gpu_type: a1000\n")
    assert str(caught.value.where).endswith("config.yaml:5, resources.gpu_type")


@pytest.mark.parametrize("step", ["0", "interactive"])
def test_a_job_step_is_no_batch_job(tmp_path: Path, step: str) -> None:
    environ = Job(tmp_path, "devcluster").environ
    with pytest.raises(InputError, match="not a Slurm batch job"):
        batch_job_id(environ, step)


def test_a_batch_job_that_was_sent_from_an_interactive_one_is_a_batch_job(tmp_path: Path) -> None:
    environ = {**Job(tmp_path, "devcluster").environ, "SLURM_STEP_ID": "0"}
    assert batch_job_id(environ, "batch") == "123"
    with pytest.raises(InputError, match="not a Slurm batch job"):
        batch_job_id(environ, None)  # only the variables are there to tell
    del environ["SLURM_STEP_ID"]
    assert batch_job_id(environ, None) == "123"
    with pytest.raises(InputError, match="not a Slurm batch job"):
        batch_job_id({}, None)


def test_a_job_that_slurm_restarted_goes_on_with_the_run_that_it_made(tmp_path: Path) -> None:
    first = Job(tmp_path, "devcluster").run()
    Job(tmp_path, "devcluster", SLURM_JOB_ID="124").run()
    again = Job(tmp_path, "devcluster", SLURM_RESTART_COUNT="1")
    assert again.run().run_id == first.run_id
    stranger = Job(tmp_path, "devcluster", SLURM_RESTART_COUNT="1", SLURM_JOB_ID="125")
    with pytest.raises(InputError, match="created before is missing"):
        stranger.run()
    assert len(list((tmp_path / "home/runs").iterdir())) == 2


@pytest.mark.parametrize("is_told", [True, None], ids=["journal", "script alone"])
def test_a_restarted_job_executes_no_script_from_a_store(
    tmp_path: Path, is_told: bool | None
) -> None:
    """The journal of a store can name any job ids, and its script has any content."""
    job = Job(tmp_path, "devcluster")
    run = job.run()
    job.environ["SLURM_RESTART_COUNT"] = "1"
    assert job.run().run_id == run.run_id
    run_dir = run_dir_at(Path(run.run_dir))
    restored = Restored(
        at=SystemClock().now(), by="ada", url="s3://b", journal=is_told, after=1, site="devcluster"
    )
    journal.append(run_dir, restored)
    with pytest.raises(InputError, match="created before is missing"):
        job.run()
