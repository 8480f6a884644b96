"""What is sent again keeps away from nodes that failed others, and goes all the same."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import (
    LedgerError,
)
from hpcflow.launch.run import Launched
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.journal import Decided, Intended
from hpcflow.model.state import Cause
from hpcflow.requeue.nodes import Evidence, read_evidence
from hpcflow.storage import journal
from hpcflow.testing.fake_scheduler import Fault
from tests.requeue.watched import Watched
from tests.run_dirs import run_dir_at


@pytest.fixture
def desk(tmp_path: Path) -> Watched:
    return Watched(tmp_path)


def _failed_on(desk: Watched, node: str, count: int) -> list[Launched]:
    """Runs that a node took down with it, a minute ago."""
    runs = [desk.launch() for _ in range(count)]
    for launched in runs:
        desk.slurm.start(launched.job_id, [node])
        desk.end(launched.job_id, "NODE_FAIL", checkpoint=100)
    desk.tick()
    desk.clock.advance(60)
    return runs


def _intents(launched: Launched) -> list[Intended]:
    return [
        each for each in journal.read(run_dir_at(launched.run_dir)) if isinstance(each, Intended)
    ]


def _script(launched: Launched, attempt: int) -> str:
    return run_dir_at(launched.run_dir).attempt(attempt).script.read_text()


def test_a_node_that_failed_two_runs_is_excluded_from_what_is_sent_again(desk: Watched) -> None:
    third = desk.launch()
    runs = _failed_on(desk, "n2", 2)
    desk.end(third.job_id, "PREEMPTED", checkpoint=100)
    report = desk.tick()
    assert len(report.sent) == 3
    for launched in (*runs, third):
        assert "#SBATCH --exclude=n2\n" in _script(launched, 2)
        assert [each.excluded for each in _intents(launched)] == [None, ["n2"]]
        assert "excluding n2" in report.decisions[launched.run_id].why
    decided = [each for each in journal.read(desk.dir_of(third)) if isinstance(each, Decided)]
    assert decided[-1].why == "attempt 1 ended as preempted; excluding n2"
    fresh = desk.launch()
    assert "--exclude" not in _script(fresh, 1), "a first attempt needs no ledger"


def test_the_evidence_is_read_once_however_many_runs_there_are(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    _failed_on(desk, "n2", 5)
    asked = []
    ends = Ledger.ends

    def counted(*args: Any, **options: Any) -> Any:
        asked.append(args)
        return ends(*args, **options)

    monkeypatch.setattr(Ledger, "ends", counted)
    assert len(desk.tick().sent) == 5
    assert len(asked) == 2, "what speaks against nodes, and what for them"
    asked.clear()
    desk.tick()
    assert asked == [], "nothing is sent, and nobody needs to know"


def test_where_the_evidence_cannot_be_had_the_run_is_sent_all_the_same(
    desk: Watched, monkeypatch: pytest.MonkeyPatch
) -> None:
    runs = _failed_on(desk, "n2", 2)

    def damaged(*_: Any, **__: Any) -> Any:
        raise LedgerError("the ledger is damaged")

    monkeypatch.setattr(Ledger, "ends", damaged)
    report = desk.tick()
    assert set(report.sent) == {launched.run_id for launched in runs}
    assert report.warnings == ["the ledger is damaged; no node is excluded for now"]
    assert "--exclude" not in _script(runs[0], 2)


def test_a_node_that_left_the_cluster_stops_no_run(desk: Watched) -> None:
    """sbatch: Invalid node name specified."""
    runs = _failed_on(desk, "n2", 2)
    desk.slurm.nodes = ("n1", "n3", "n4")
    report = desk.tick()
    assert set(report.sent) == {launched.run_id for launched in runs}
    for launched in runs:
        assert "--exclude" not in _script(launched, 2)
        assert [each.excluded for each in _intents(launched)] == [None, ["n2"], None]
        assert [view.attempt for view in desk.seen(launched.run_id).attempts] == [1, 2]
    assert len(desk.alive()) == 2
    assert desk.tick().sent == {}


def test_a_refusal_that_has_nothing_to_do_with_nodes_is_a_refusal(desk: Watched) -> None:
    run, _ = _failed_on(desk, "n2", 2)
    desk.slurm.partitions = ("of", "others")
    desk.slurm.calls.clear()
    report = desk.tick()
    assert report.decisions[run.run_id].rule == "refused"
    assert desk.slurm.calls.count("submit") == 2 * 2
    assert desk.tick().looked_at == 0


def test_an_answer_that_is_lost_when_it_is_sent_without_doubles_nothing(desk: Watched) -> None:
    runs = _failed_on(desk, "n2", 2)
    desk.slurm.faults += [Fault.REFUSED, Fault.LOST_ANSWER]
    assert len(desk.tick().sent) == 2
    assert len(desk.alive()) == 2
    assert sorted(len(_intents(launched)) for launched in runs) == [2, 3]
    assert desk.tick().sent == {}


def test_what_the_run_excludes_itself_stays_excluded(desk: Watched) -> None:
    desk.config.write_text(desk.config.read_text().replace("10m,", "10m, exclude: n4,"))
    run, _ = _failed_on(desk, "n2", 2)
    assert "#SBATCH --exclude=n4\n" in _script(run, 1)
    desk.tick()
    assert "#SBATCH --exclude=n4,n2\n" in _script(run, 2)


def test_a_run_may_go_where_it_wants(desk: Watched) -> None:
    desk.config.write_text(desk.config.read_text() + "retry: {avoid_bad_nodes: false}\n")
    run, _ = _failed_on(desk, "n2", 2)
    assert len(desk.tick().sent) == 2
    assert "--exclude" not in _script(run, 2)


def test_a_resume_by_hand_keeps_away_too_and_goes_without_where_it_must(desk: Watched) -> None:
    launched = desk.launch()
    desk.end(launched.job_id, "PREEMPTED", checkpoint=100)
    desk.look()
    again = desk.resume(desk.dir_of(launched), avoid=["n2"])
    assert "#SBATCH --exclude=n2\n" in _script(launched, 2)
    desk.end(again.job_id, "PREEMPTED", checkpoint=200)
    desk.look()
    third = desk.resume(desk.dir_of(launched), avoid=["gone"])
    assert third.attempt == 3
    assert "--exclude" not in _script(launched, 3)
    assert [each.excluded for each in _intents(launched)] == [None, ["n2"], ["gone"], None]
    assert [view.attempt for view in desk.seen(launched.run_id).attempts] == [1, 2, 3]


@pytest.mark.parametrize(
    "reason", ["ReqNodeNotAvail, UnavailableNodes:n[1,3-4]", "Nodes required for job are DOWN"]
)
def test_a_job_that_waits_for_nodes_that_it_is_kept_away_from_is_named(
    desk: Watched, reason: str
) -> None:
    launched, _ = _failed_on(desk, "n2", 2)
    sent = desk.tick().sent
    job_id = sent[launched.run_id]
    for each in sent.values():
        desk.slurm.set_raw_state(each, "PENDING")
        desk.slurm.wait_for(each, "Resources")
    assert desk.tick().warnings == [], "it waits for its turn"
    desk.slurm.wait_for(job_id, reason)
    warning = (
        f"{launched.run_id}: job {job_id} is pending for nodes that are unavailable, and "
        f"excludes n2; to allow these nodes: scontrol update jobid={job_id} ExcNodeList="
    )
    assert desk.tick().warnings == [warning]
    assert desk.tick().warnings == [warning], "in the same words, so the log says it once"


@pytest.mark.parametrize("reason", ["Reserved for maintenance", "May be reserved for other job"])
def test_a_job_that_waits_for_a_reservation_is_told_of_no_missing_nodes(
    desk: Watched, reason: str
) -> None:
    """Giving it the nodes that it is kept away from would not let it start."""
    launched, _ = _failed_on(desk, "n2", 2)
    job_id = desk.tick().sent[launched.run_id]
    desk.slurm.set_raw_state(job_id, "PENDING")
    for said in (f"ReqNodeNotAvail, {reason}", f"ReqNodeNotAvail, {reason}".replace(" ", "_")):
        desk.slurm.wait_for(job_id, said)
        assert desk.tick().warnings == []
        assert desk.seen(launched.run_id).attempts[-1].reason == said


def test_a_rebuilt_ledger_judges_nodes_the_same(desk: Watched) -> None:
    _failed_on(desk, "n2", 2)

    def judged() -> Evidence:
        with open_ledger(desk.settings.ledger_url) as ledger:
            return read_evidence(ledger, desk.settings.home, desk.clock.now())

    before = judged()
    assert [each.node for each in before.standings["devcluster"]] == ["n2"]
    desk.settings.home.ledger.unlink()
    desk.look()
    assert judged() == before


def test_the_record_of_a_refusal_is_not_taken_for_the_job_that_was_sent_after_it(
    desk: Watched,
) -> None:
    """Slurm keeps records of some refused jobs, and both requests bear one name."""
    runs = _failed_on(desk, "n2", 2)
    desk.slurm.faults += [Fault.STILLBORN, Fault.LOST_REQUEST]
    (first,) = desk.tick().sent
    desk.clock.advance(60)
    assert {first, *desk.tick().sent} == {launched.run_id for launched in runs}
    for launched in runs:
        causes = {view.cause for view in desk.seen(launched.run_id).attempts}
        assert causes == {Cause.NODE_FAIL, None}
    assert len(desk.alive()) == 2
