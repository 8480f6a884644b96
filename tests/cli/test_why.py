"""``hpcflow why`` and ``hpcflow limits`` at the terminal, over a cluster in memory."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import SchedulerUnavailable
from hpcflow.schedulers.waiting import IdleNode
from hpcflow.settings import load_settings
from hpcflow.sites.live import ClusterInfo
from tests.cli.cluster import ClusterDesk
from tests.cli.desk import Desk
from tests.pending.waiting import STANDING


@pytest.fixture
def there(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> ClusterDesk:
    return ClusterDesk.at(desk, monkeypatch)


def send(there: ClusterDesk, name: str = "digits", *, gpus: int = 0) -> Any:
    config = there.config(name, "true")
    account = ("--set", "resources.account=physics", "--set", f"resources.gpus_per_node={gpus}")
    return there.json("run", config, *account, "--set", "resources.time_limit=8h")


def test_a_waiting_run_is_explained_for_people_and_for_scripts(there: ClusterDesk) -> None:
    run = send(there, gpus=1)
    user = load_settings().user
    there.slurm.standings[user] = replace(STANDING, user=user, missing=("shares: sshare is ill",))
    there.slurm.wait_for(run["job_id"], "AssocGrpGRES")
    has = {"cpu": 8, "mem": 8192, "gres/gpu": 4, "gres/gpu:a100": 4}
    there.slurm.idle = [IdleNode("n1", ("gpu",), has, is_empty=True)]
    start = SystemClock().now() + timedelta(hours=3)
    there.slurm.tell_waiting(
        run["job_id"], user=user, expected_start=start, wants={"gres/gpu": 1}, time_limit_min=480
    )
    said = there.say("why", "digits")
    assert said.startswith(f"{run['run_id']}  queued\n")
    assert "GPUs (or other GRES) in use as allowed  [AssocGrpGRES]" in said
    assert "GrpTRES of account physics: 16 of 16 gres/gpu used, full" in said
    assert "next         with account biology it would start now, " in said
    assert "sooner: hpcflow cancel " in said
    assert "or           wait until other jobs under this limit end; see its use: " in said
    assert "warning: unknown: shares: sshare is ill" in there.error("why", "digits", code=0)

    told = there.json("why", "digits")
    assert (told["run_id"], told["job_id"], told["attempt"]) == (run["run_id"], run["job_id"], 1)
    assert (told["waits_in"], told["kind"], told["reason"]) == ("slurm", "limit", "AssocGrpGRES")
    assert (told["position"], told["of"], told["starts_by_itself"]) == (1, 1, True)
    assert told["expected_start"].startswith(f"{start:%Y-%m-%dT%H:%M}")
    assert [(each["name"], each["used"]) for each in told["limits"]] == [("GrpTRES", 16)]
    assert [each["name"] for each in told["accounts"]] == ["biology", "physics"]


def test_what_slurms_programs_say_of_an_error_does_not_steer_the_terminal(
    there: ClusterDesk,
) -> None:
    user = load_settings().user
    ill = ("shares: \x1b]0;mine\x07 is \x1b[31mill",)
    there.slurm.standings[user] = replace(STANDING, user=user, missing=ill)
    said = there.error("limits", code=0)
    assert "warning: unknown: shares: " in said
    assert "\x1b]0" not in said
    assert "\x1b[31mill" not in said


def test_a_run_whose_job_has_just_left_the_queue_is_no_riddle(
    there: ClusterDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    send(there)
    monkeypatch.setattr(there.slurm, "waiting", lambda _: [])
    assert "is no longer pending" in there.say("why", "digits")
    assert there.json("why", "digits")["waits_in"] is None


def test_a_run_that_runs_or_waits_for_hpcflow_says_so(there: ClusterDesk) -> None:
    run = send(there)
    there.slurm.start(run["job_id"])
    assert "it runs since " in there.say("why", "digits")
    assert there.json("why", "digits")["waits_in"] is None
    there.slurm.preempt(run["job_id"])
    told = there.json("why", "digits")
    assert told["waits_in"] == "hpcflow"
    assert "the next is not submitted yet" in told["words"]
    there.say("hold", "digits")
    assert "it is held by " in there.say("why", "digits")


def test_a_silent_controller_is_an_error_and_no_traceback(there: ClusterDesk) -> None:
    run = send(there)
    there.slurm.wait_for(run["job_id"], "Priority")
    there.say("why", "digits")
    there.slurm.is_controller_down = True
    assert "connect failure" in there.error("why", "digits", code=1)
    assert "error" in there.json("why", "digits", code=1)
    assert "no run" in there.error("why", "nobody", code=2)


def test_limits_are_shown_with_what_is_used_and_what_it_means(there: ClusterDesk) -> None:
    user = load_settings().user
    there.slurm.standings[user] = replace(STANDING, user=user)
    said = there.say("limits")
    lines = [" ".join(line.split()) for line in said.splitlines()]
    assert "physics (default) 0.250 normal, tight 4 jobs" in lines
    assert "biology 0.750 normal, tight nothing" in lines
    assert (
        "physics is due 69% of what it and its siblings use, and has used 97%: more than its "
        "share: others come first; 100% of that is yours"
    ) in lines
    assert "account biology: no limits" in lines
    assert "GrpTRES 16 of 16 gres/gpu used (account physics) full" in lines
    assert lines.index("biology 0.750 normal, tight nothing") < lines.index(
        "physics (default) 0.250 normal, tight 4 jobs"
    ), "the best fair share first"
    told = there.json("limits")
    assert [each["account"] for each in told["accounts"]] == ["biology", "physics"]
    assert [each["name"] for each in told["qos"]] == ["tight", "normal"]
    assert told["qos"][0]["limits"] == [
        {
            "name": "MaxTRESPerUser",
            "resource": "gres/gpu",
            "allowed": 4,
            "used": 4,
            "holder": "user ada in QOS tight",
        }
    ]


def test_limits_of_partitions_that_nobody_tells_of_are_not_none(
    there: ClusterDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    user = load_settings().user
    there.slurm.standings[user] = replace(STANDING, user=user)
    assert there.json("limits")["partitions"] == []

    def silent() -> ClusterInfo:
        raise SchedulerUnavailable("slurmctld does not answer")

    monkeypatch.setattr(there.slurm, "cluster_info", silent)
    assert there.json("limits")["partitions"] is None
    assert "unknown: the limits of partitions: slurmctld" in there.error("limits", code=0)


def test_limits_that_are_only_notes_are_told_as_such(there: ClusterDesk) -> None:
    user = load_settings().user
    there.slurm.standings[user] = replace(STANDING, user=user, are_limits_enforced=False)
    note = "this cluster does not enforce limits: they do not delay jobs"
    assert note in there.say("limits")
    assert there.json("limits")["limits_enforced"] is False
    there.slurm.standings[user] = replace(STANDING, user=user)
    assert note not in there.say("limits")
    assert there.json("limits")["limits_enforced"] is True


def test_where_there_is_no_accounting_limits_says_so_plainly(there: ClusterDesk) -> None:
    there.slurm.is_accounting_down = True
    assert "devcluster has no accounting, or it does not answer" in there.say("limits")
    told = there.json("limits")
    assert (told["has_accounting"], told["accounts"]) == (False, [])


def test_this_machine_has_no_limits_of_that_kind(desk: Desk) -> None:
    assert "local has no accounting, or it does not answer" in desk.say("limits")
    assert desk.json("limits")["has_accounting"] is False
    desk.json("run", desk.config("digits", "true"), "--wait")
    assert "it is completed" in desk.say("why", "digits")
    assert desk.error("limits", "--site", "nowhere")
