"""What real clusters of several Slurm versions printed, against what really became of their jobs.

See tests/recorded/README.md. A new folder there is tested without a line here.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Sequence
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
#: The others were recorded before these were asked for.
ASKED_LATER = {"PreemptTime", "QOS", "ElapsedRaw", "AllocTRES", "DBIndex"}
ASKED_FOR_ALL = {"22.05.8", "24.11.5", "26.05.5"}
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
    """An array's tasks and a heterogeneous job's components each have a row of their own."""
    return [job for job in jobs if re.split("[_+]", job.job_id)[0] == job_id]


def _asked(version: str, fields: Sequence[str]) -> list[str]:
    return [name for name in fields if version in ASKED_FOR_ALL or name not in ASKED_LATER]


def _queue(version: str) -> list[JobInfo]:
    return parse_queue(_text(version, "squeue.txt"), _asked(version, QUEUE_FIELDS))


def _accounting(version: str) -> list[JobInfo]:
    return parse_accounting(_text(version, "sacct.txt"), _asked(version, ACCOUNTING_FIELDS))


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
    assert preempted == (["preempted-while-starting"] if version in ASKED_FOR_ALL else [])


def test_accounting_says_the_same_except_for_codes_above_127(version: str) -> None:
    jobs = _accounting(version)
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


def test_each_record_of_accounting_has_a_number_of_its_own(version: str) -> None:
    """Those of lives and of parts of one job differ; components of a heterogeneous job, too."""
    if version not in ASKED_FOR_ALL:
        return
    jobs = _accounting(version)
    assert len({job.record_id for job in jobs} - {None}) == len(jobs)
    assert max(Counter(job.job_id for job in jobs).values()) == 2


def test_a_job_that_shrank_is_told_in_parts_that_do_not_overlap(version: str) -> None:
    """On 22.05, later records keep the start of the whole job; only their submission tells."""
    if version not in ASKED_FOR_ALL:
        return
    first, second = (job for job in _accounting(version) if job.job_name == "shrunk")
    assert [len(job.nodes) for job in (first, second)] == [2, 1]
    assert [job.usage.nodes for job in (first, second) if job.usage] == [2, 1]
    assert first.ended_at == second.started_at == second.submitted_at
    assert first.started_at is not None
    assert first.ended_at is not None
    assert first.elapsed_s == (first.ended_at - first.started_at).total_seconds()
    (running,) = (job for job in _accounting(version) if job.job_name == "running")
    assert running.elapsed_s is not None
    assert second.elapsed_s is not None
    whole_s = float(first.elapsed_s) + float(second.elapsed_s)
    assert whole_s == pytest.approx(float(running.elapsed_s), abs=2), "it began with that one"


def test_each_component_of_a_heterogeneous_job_has_its_row(version: str) -> None:
    if version not in ASKED_FOR_ALL:
        return
    for jobs in (_queue(version), _accounting(version)):
        parts = [job for job in jobs if job.job_name == "heterogeneous"]
        assert parts[1].job_id == f"{parts[0].job_id}+1"
        assert [job.nodes for job in parts] == [("n1",), ("n2",)]


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
