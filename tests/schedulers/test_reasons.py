"""Every reason of slurm.h is known, and says what a person can do about it."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from hpcflow.schedulers.slurm.reason_limits import named_limit
from hpcflow.schedulers.slurm.reasons import Kind, explain
from hpcflow.sites.standing import Limit

CARRIED = Path(__file__).parents[1] / "recorded" / "job_state_reasons.txt"
HEADER = Path("/usr/include/slurm/slurm.h")
#: Constants that have no spelling: places that are free again, and the end of older enums.
_FREE = re.compile(r"DEFUNCT_\w+|\w+_DEFUNCT\w*")


def _reasons() -> dict[str, str]:
    lines = CARRIED.read_text().splitlines()
    rows = [line.split() for line in lines if not line.startswith("#")]
    return {row[0]: row[1] for row in rows}


REASONS = _reasons()


@pytest.mark.parametrize("code", sorted(set(REASONS.values())))
def test_every_reason_is_known_in_plain_words_with_something_to_try(code: str) -> None:
    reason = explain(code)
    assert reason.kind is not Kind.UNKNOWN
    assert reason.code == code
    assert reason.words
    assert code not in reason.words or code == "Reservation"
    assert reason.advice.format(run="RUN", job="7", partition="gpu")


def test_the_reasons_of_the_installed_slurm_are_carried() -> None:
    assert len(REASONS) > 200
    if not HEADER.exists():
        return  # the list that the test carries stands for it
    body = re.search(r"enum job_state_reason \{(.*?)\};", HEADER.read_text(), re.DOTALL)
    assert body is not None
    constants = re.findall(r"^\s+([A-Z]\w+)", body[1], re.MULTILINE)
    assert {each for each in constants if not _FREE.fullmatch(each)} <= REASONS.keys()


def test_every_reason_that_has_a_limit_in_its_name_names_one() -> None:
    """What is not a limit although it is called so, is in the table."""
    called_so = re.compile(r"WAIT_(QOS|ASSOC)_(GRP|MAX|MIN)_\w+")
    for constant, code in REASONS.items():
        assert bool(called_so.fullmatch(constant)) is (named_limit(code) is not None), code


@pytest.mark.parametrize(
    ("code", "level", "name", "resource", "passes"),
    [
        ("AssocGrpGRES", "association", "GrpTRES", "gres/", True),
        ("AssocGrpCpuLimit", "association", "GrpTRES", "cpu", True),
        ("AssocGrpCPUMinutesLimit", "association", "GrpTRESMins", "cpu", True),
        ("AssocGrpCPURunMinutesLimit", "association", "GrpTRESRunMins", "cpu", True),
        ("AssocGrpJobsLimit", "association", "GrpJobs", "jobs", True),
        ("AssocGrpWallLimit", "association", "GrpWall", "minutes", True),
        ("AssocMaxJobsLimit", "association", "MaxJobs", "jobs", True),
        ("AssocMaxSubmitJobLimit", "association", "MaxSubmitJobs", "jobs", True),
        ("AssocMaxNodePerJobLimit", "association", "MaxTRESPerJob", "node", False),
        ("AssocMaxWallDurationPerJobLimit", "association", "MaxWall", "minutes", False),
        ("AssocMaxGRESMinutesPerJob", "association", "MaxTRESMinsPerJob", "gres/", False),
        ("QOSMaxGRESPerUser", "QOS", "MaxTRESPerUser", "gres/", True),
        ("QOSMaxMemoryPerNode", "QOS", "MaxTRESPerNode", "mem", False),
        ("QOSMaxJobsPerUserLimit", "QOS", "MaxJobsPerUser", "jobs", True),
        ("QOSMaxSubmitJobPerUserLimit", "QOS", "MaxSubmitJobsPerUser", "jobs", True),
        ("MaxSubmitJobsPerAccount", "QOS", "MaxSubmitJobsPerAccount", "jobs", True),
        ("MaxCpuPerAccount", "QOS", "MaxTRESPerAccount", "cpu", True),
        ("MaxGRESRunMinsPerUser", "QOS", "MaxTRESRunMinsPerUser", "gres/", True),
        ("QOSGrpUnknownMinutes", "QOS", "GrpTRESMins", "", True),
        ("QOSMinCpuNotSatisfied", "QOS", "MinTRESPerJob", "cpu", False),
    ],
)
def test_a_limit_is_read_from_its_name(
    code: str, level: str, name: str, resource: str, passes: bool
) -> None:
    limit = named_limit(code)
    assert limit is not None
    assert (limit.level, limit.name, limit.resource, limit.passes) == (
        level, name, resource, passes,
    )  # fmt: skip
    assert explain(code).can_start is passes


def test_what_may_be_otherwise_tomorrow_is_not_said_never_to_start() -> None:
    """Slurm's page of reasons: "cannot be satisfied at this time"; "can also indicate that required
    nodes are DOWN or DRAINED"."""
    for code in ("Constraints", "PartitionNodeLimit"):
        assert explain(code).can_start
    assert "not up" in explain("PartitionNodeLimit").words
    assert not explain("BadConstraints").can_start


def test_of_several_limits_that_it_may_be_the_full_ones_are_meant() -> None:
    limits = [
        Limit("GrpTRES", "gres/gpu", 16, 16, "account physics"),
        Limit("GrpTRES", "gres/gpu:a100", 64, 16, "account science"),
        Limit("GrpTRES", "node", 4, 4, "account physics"),
        Limit("MaxJobs", "jobs", 4, 4, "user ada in account physics"),
    ]
    gpus, jobs = named_limit("AssocGrpGRES"), named_limit("AssocMaxJobsLimit")
    unknown, wall = named_limit("AssocGrpUnknown"), named_limit("AssocGrpWallLimit")
    assert gpus is not None
    assert jobs is not None
    assert unknown is not None
    assert wall is not None
    assert gpus.among(limits) == limits[:1]
    assert gpus.among(limits[1:]) == limits[1:2]
    assert jobs.among(limits) == limits[3:]
    assert unknown.among(limits) == [limits[0], limits[2]]
    assert wall.among(limits) == []


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        (
            "Job's account not permitted to use this partition (gpu allows art not physics)",
            Kind.NEVER,
        ),
        (
            "Job's QOS not permitted to use this partition (gpu denies low including low)",
            Kind.NEVER,
        ),
        ("launch failure limit exceeded requeued held", Kind.HELD),
        ("user_env_retrieval_failed_requeued_held", Kind.HELD),
        ("ReqNodeNotAvail, UnavailableNodes:n[3-4]", Kind.NODES),
        ("ReqNodeNotAvail,_Reserved_for_maintenance", Kind.RESERVATION),
        ("(ReqNodeNotAvail, May be reserved for other job)", Kind.RESERVATION),
        (
            "Nodes required for job are DOWN, DRAINED or reserved for jobs in higher priority"
            " partitions",
            Kind.NODES,
        ),
        ("launch_failed_requeued_held", Kind.HELD),
        ("job requeued in held state", Kind.HELD),
        ("RaisedSignal:9(Killed)", Kind.ENDED),
        ("BurstBufferOperation: teardown: failed", Kind.HELD),
        ("Reservation lab was deleted", Kind.NEVER),
        ("uid 7 not in group permitted to use this partition (x). groups allowed: y", Kind.NEVER),
        (None, Kind.SYSTEM),
        ("", Kind.SYSTEM),
    ],
)
def test_a_reason_may_be_a_sentence_or_have_more_words(text: str | None, kind: Kind) -> None:
    assert explain(text).kind is kind


def test_an_unknown_reason_is_shown_as_it_is() -> None:
    reason = explain("FullMoon")
    assert (reason.kind, reason.words) == (Kind.UNKNOWN, "Slurm says: FullMoon")
    assert reason.can_start
