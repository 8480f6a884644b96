"""What real clusters of several Slurm versions printed, against what really became of their jobs.

See tests/recorded/README.md. A new folder there is tested without a line here.
"""

from __future__ import annotations

import json
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import SchedulerError, SchedulerUnavailable, SubmissionRefused
from hpcflow.model.state import AttemptState, attempt_state, normalize_raw_state
from hpcflow.schedulers.base import JobInfo
from hpcflow.schedulers.slurm.parse_cluster import (
    cluster_info,
    parse_accounts,
    parse_qos,
    parse_settings,
)
from hpcflow.schedulers.slurm.parse_jobs import (
    ACCOUNTING_FIELDS,
    QUEUE_FIELDS,
    parse_accounting,
    parse_queue,
)
from hpcflow.schedulers.slurm.run_command import Answer
from hpcflow.schedulers.slurm.submit import job_from

RECORDED = Path(__file__).parents[1] / "recorded"
VERSIONS = sorted(path.parent.name for path in RECORDED.glob("*/truth.json"))

pytestmark = pytest.mark.parametrize("version", VERSIONS)

#: Which key of the spec each refused option stands for.
KEYS = {
    "--account=nowhere": "resources.account",
    "--partition=nowhere": "resources.partition",
    "--qos=nowhere": "resources.qos",
    "--constraint=nowhere": "resources.constraint",
    "--nodes=9": "resources.nodes",
    "--mem=9T": "resources.mem",
    "--gres=gpu:9": "resources",
    "--gres=gpu:nowhere:1": "resources",
    "--cpus-per-task=999": "resources.cpus_per_task",
    "--exclude=nowhere": "resources.exclude",
    "--time=99-0": "resources.time_limit",
    "--bogus": None,
}
#: The other versions were recorded before that was asked for.
ASKED_FOR_PREEMPT_TIME = {"22.05.8"}
NOT_ASKED_FOR = {"QOS", "ElapsedRaw", "AllocTRES"}
#: Where a version names the reason more, or less, exactly.
OTHER_KEYS = {
    "--nodes=9": {"resources", "resources.partition"},
    "--mem=9T": {"resources"},
    "--gres=gpu:9": {"resources.gpus_per_node"},
    "--gres=gpu:nowhere:1": {"resources.gpus_per_node", "resources.gpu_type"},
    "--cpus-per-task=999": {"resources"},
}


def _text(version: str, name: str) -> str:
    return (RECORDED / version / name).read_text()


def _truth(version: str) -> list[dict[str, Any]]:
    truth: list[dict[str, Any]] = json.loads(_text(version, "truth.json"))
    assert len(truth) > 10
    return truth


def _of(jobs: list[JobInfo], job_id: str) -> list[JobInfo]:
    """An array's tasks each have a row of their own."""
    return [job for job in jobs if job.job_id.partition("_")[0] == job_id]


def _queue(version: str) -> list[JobInfo]:
    later = () if version in ASKED_FOR_PREEMPT_TIME else ("PreemptTime",)
    fields = [name for name in QUEUE_FIELDS if name not in later]
    return parse_queue(_text(version, "squeue.txt"), fields)


def test_the_queue_says_what_became_of_every_job(version: str) -> None:
    jobs = _queue(version)
    for truth in _truth(version):
        told = _of(jobs, truth["job_id"])
        assert told, truth
        for job in told:
            assert job.job_name == truth["name"]
            assert normalize_raw_state(job.raw_state) == truth["state"]
            assert job.state is attempt_state(truth["state"])
            assert len(job.nodes) == truth["nodes"]
            assert (job.started_at is None) is (truth["nodes"] == 0)
            assert (job.ended_at is None) is (job.state is not AttemptState.ENDED)
            if truth["state"] in ("COMPLETED", "FAILED"):
                assert (job.exit_code, job.signal) == (truth["exit_code"], truth["signal"])
    (requeued,) = [job for job in jobs if job.job_name == "requeued"]
    assert requeued.restarts == 1
    assert requeued.submitted_at is not None
    assert requeued.begins_at == requeued.submitted_at + timedelta(seconds=121)
    assert {job.begins_at for job in jobs if job.reason != "BeginTime"} == {None}
    preempted = [job.job_name for job in jobs if job.preempted_at is not None]
    was_asked = version in ASKED_FOR_PREEMPT_TIME
    assert preempted == (["preempted-while-starting"] if was_asked else [])


def test_accounting_says_the_same_except_for_codes_above_127(version: str) -> None:
    fields = [name for name in ACCOUNTING_FIELDS if name not in NOT_ASKED_FOR]
    jobs = parse_accounting(_text(version, "sacct.txt"), fields)
    for truth in _truth(version):
        if "\n" in truth["name"]:
            continue  # sacct cannot be told where a record ends; hpcflow gives no such names
        *before, job = _of(jobs, truth["job_id"])
        assert normalize_raw_state(job.raw_state) == truth["state"]
        assert job.job_name == truth["name"]
        assert len(job.nodes) == truth["nodes"]
        if truth["state"] in ("COMPLETED", "FAILED"):
            codes = (truth["exit_code"], (truth["exit_code"] or 0) - 128)
            assert job.exit_code in codes
            assert job.signal == truth["signal"]
        if truth["name"] == "requeued":
            (first,) = before
            assert first.nodes
            assert first.started_at is not None
            assert first.ended_at is not None


def test_sbatch_names_the_key_that_it_refused(version: str) -> None:
    for told in json.loads(_text(version, "sbatch.json")):
        answer = Answer("sbatch", told["exit_code"], told["stdout"], told["stderr"], 180)
        option = told["option"]
        if option == "--hold":
            assert job_from(answer).job_id == told["stdout"].strip()
            continue
        with pytest.raises(SchedulerError) as error:
            job_from(answer)
        if option in ("no configuration", "no script"):
            assert type(error.value) is SchedulerUnavailable
            continue
        assert type(error.value) is SubmissionRefused, told
        key = error.value.where.key if error.value.where else None
        assert key in {KEYS[option], *OTHER_KEYS.get(option, ())}, told
        if option == "--constraint=nowhere":
            assert 'sinfo -o "%P %f"' in str(error.value.next_action)


def test_the_cluster_describes_itself(version: str) -> None:
    settings = parse_settings(_text(version, "config.txt"))
    info = cluster_info(settings, _text(version, "partitions.txt"), _text(version, "sinfo.txt"))
    assert info.version.startswith(version.rpartition(".")[0])
    assert [partition.name for partition in info.partitions] == ["gpu", "spot", "short"]
    gpu, spot, short = info.partitions
    assert (gpu.is_default, spot.is_default) == (True, False)
    assert (gpu.nodes, gpu.cpus_per_node, gpu.mem_mb_per_node) == (4, 8, 8192)
    assert (gpu.gpus_per_node, gpu.gpu_types, gpu.features) == (4, ("a100",), ("a100",))
    assert (gpu.time_limit_max_min, short.time_limit_max_min) == (1440, 2)
    assert (spot.grace_s, spot.preempt_mode, gpu.preempt_mode) == (5, "REQUEUE", "OFF")
    assert all(partition.is_up for partition in info.partitions)
    assert info.has_accounting
    assert parse_accounts(_text(version, "accounts.txt"), info.name) == {"physics"}
    if (RECORDED / version / "qos.txt").exists():  # asked later than the rest
        assert parse_qos(_text(version, "qos.txt")) == {"normal"}
