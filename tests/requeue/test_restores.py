"""The daemon fetches by itself what a run goes on from, and leaves alone what shall not go on."""

from __future__ import annotations

import json
import shutil
from datetime import timedelta
from pathlib import Path

import pytest

from hpcflow.errors import MirrorError
from hpcflow.history import RunHistory
from hpcflow.mirror.stores import open_remote
from hpcflow.model.journal import Accounted, Decided, Ended, Held, Restored
from hpcflow.model.state import Cause
from hpcflow.requeue.policy import Action
from hpcflow.requeue.restores import MOST_AT_ONCE
from hpcflow.restore.fetching import ALL, NEWEST, Which
from hpcflow.runtime.successor import SEAL
from hpcflow.schedulers.base import Lookup
from hpcflow.storage import journal
from hpcflow.storage.restoring import read_mark, restoring
from tests.restore.mirrored import mirror, purge, save
from tests.restore.owner import Owner


@pytest.fixture
def owner(tmp_path: Path) -> Owner:
    return Owner(tmp_path)


def test_a_preempted_run_whose_directory_is_deleted_goes_on_from_the_mirror(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    purge(run_dir)
    report = owner.tick()
    assert report.restores[run_dir.path.name].rule == "purged"
    assert owner.restoring == [run_dir.path.name]
    owner.restores_for_the_daemon()
    assert owner.tick().sent.keys() == {run_dir.path.name}
    last = owner.seen(run_dir.path.name).attempts[-1]
    assert (last.attempt, last.resume_from) == (2, "checkpoints/000000200")
    owner.assert_rebuilt_alike(run_dir.path.name)


def test_a_directory_that_is_deleted_under_a_running_job_comes_back_for_it(owner: Owner) -> None:
    run_dir = owner.mirrored(100, end=None)
    owner.tick()
    (job_id,) = owner.alive()
    purge(run_dir)
    owner.tick()
    owner.restores_for_the_daemon()
    assert owner.tick().sent == {}
    assert owner.alive() == [job_id]
    owner.end(job_id, "NODE_FAIL", checkpoint=100)
    owner.tick()
    owner.clock.advance(600)
    assert owner.tick().sent.keys() == {run_dir.path.name}
    assert owner.seen(run_dir.path.name).attempts[-1].resume_from == "checkpoints/000000100"


@pytest.mark.parametrize("is_mirrored", [True, False])
def test_a_job_that_was_only_out_of_sight_begins_nothing_once_the_directory_is_back(
    owner: Owner, monkeypatch: pytest.MonkeyPatch, is_mirrored: bool
) -> None:
    """Pending, it was in no answer of Slurm while there was no folder to seal its attempt in."""
    if not is_mirrored:
        owner.site = owner.site.model_copy(update={"mirror": None})
    run_dir = owner.dir_of(owner.launch())
    owner.tick()
    if is_mirrored:
        owner.mirror(run_dir)
    run_dir.path.rename(owner.folder / "away")
    with monkeypatch.context() as broken:
        broken.setattr(owner.slurm, "queue", lambda *_, **__: [])
        broken.setattr(owner.slurm, "accounting", lambda *_, **__: [])
        broken.setattr(owner.slurm, "find", lambda *_, **__: Lookup(()))
        for _ in range(7):
            owner.tick()
            owner.clock.advance(60)
        ends = [each for each in journal.read(run_dir) if isinstance(each, Ended)]
        assert [each.cause for each in ends] == [Cause.VANISHED]
        if is_mirrored:
            owner.restores_for_the_daemon()
            assert run_dir.attempt(1).claim.read_text().strip() == SEAL
            assert owner.tick().sent.keys() == {run_dir.path.name}
        else:
            (owner.folder / "away").rename(run_dir.path)
            owner.resume(run_dir)
    assert run_dir.attempt(1).claim.read_text().strip() == SEAL
    assert RunHistory.of(journal.read(run_dir)).last.number == 2


@pytest.mark.parametrize("end", ["COMPLETED", "CANCELLED"])
def test_what_came_to_rest_and_was_deleted_stays_deleted(owner: Owner, end: str) -> None:
    run_dir = owner.trained(100, end=None)
    (job_id,) = owner.alive()
    owner.end(job_id, end, exit_code=0 if end == "COMPLETED" else None)
    owner.tick()
    owner.mirror(run_dir)
    purge(run_dir)
    for _ in range(3):
        assert owner.tick().restores == {}
        owner.clock.advance(3600)
    assert not run_dir.path.exists()


def test_a_run_that_is_cancelled_once_it_is_deleted_stays_deleted(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    owner.cancel(run_dir)
    assert owner.tick().restores == {}
    assert owner.tick().restores == {}


def test_a_run_that_is_held_is_left_where_it_is(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
    owner.look()
    purge(run_dir)
    owner.tick()
    assert owner.tick().restores == {}


def test_a_run_without_a_mirror_is_stopped_until_its_directory_is_back(
    owner: Owner, tmp_path: Path
) -> None:
    owner.site = owner.site.model_copy(update={"mirror": None})
    run_dir = owner.trained(100)
    run_dir.path.rename(tmp_path / "purged")
    decision = owner.tick().decisions[run_dir.path.name]
    assert (decision.action, decision.rule) == (Action.STOP, "purged")
    assert f"put the directory back, then: hpcflow resume {run_dir.path.name}" in decision.why
    report = owner.tick()
    assert (report.looked_at, report.problems, report.warnings) == (0, {}, [])
    owner.assert_rebuilt_alike(run_dir.path.name)
    (tmp_path / "purged").rename(run_dir.path)
    assert owner.tick().sent == {}
    owner.resume(run_dir)
    assert owner.seen(run_dir.path.name).attempts[-1].resume_from == "checkpoints/000000100"


@pytest.mark.parametrize("is_mirrored", [True, False])
def test_an_attempt_that_lost_its_directory_has_its_real_end_and_its_bill(
    owner: Owner, is_mirrored: bool
) -> None:
    """Its journal has them: the daemon asks Slurm about it as about any other."""
    if not is_mirrored:
        owner.site = owner.site.model_copy(update={"mirror": None})
    run_dir = owner.trained(100, end=None)
    if is_mirrored:
        owner.mirror(run_dir)
    (job_id,) = owner.alive()
    purge(run_dir)
    owner.clock.advance(3600)
    report = owner.tick()
    assert (report.decisions, report.problems) == ({}, {})
    (warning,) = report.warnings
    assert "its run directory is gone" in warning
    owner.slurm.end(job_id, "NODE_FAIL")
    owner.tick()
    owner.clock.advance(60)
    owner.tick()
    history = RunHistory.of(journal.read(run_dir))
    (ended,) = [each for each in history.records if isinstance(each, Ended)]
    assert (ended.cause, ended.raw_state) == (Cause.NODE_FAIL, "NODE_FAIL")
    (bill,) = [each for each in history.records if isinstance(each, Accounted)]
    assert (bill.source, round(float(bill.elapsed_s))) == ("accounting", 3600)
    decided = history.decided
    assert decided is not None
    assert (decided.action, decided.rule) == ("restore" if is_mirrored else "stop", "purged")


def test_a_run_that_was_purged_long_ago_is_not_fetched_behind_its_owners_back(
    owner: Owner,
) -> None:
    run_dir = owner.mirrored(100)
    owner.clock.advance(timedelta(days=20).total_seconds())
    purge(run_dir)
    owner.tick()
    assert owner.tick().restores == {}


def test_a_run_of_which_the_mirror_has_nothing_is_looked_for_once_a_day(owner: Owner) -> None:
    run_dir = owner.trained(100)
    purge(run_dir)
    owner.tick()
    with pytest.raises(Exception, match="has no run"):
        owner.restores_for_the_daemon()
    assert owner.tick().restores == {}
    owner.clock.advance(timedelta(days=1).total_seconds())
    assert owner.tick().restores.keys() == {run_dir.path.name}


def test_a_store_that_does_not_answer_is_asked_again_later_and_later(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    tries = 0
    for _ in range(60):
        owner.tick()
        while owner.restoring:
            run_id = owner.restoring.pop()
            tries += 1
            with (
                pytest.raises(MirrorError),
                restoring(owner.settings.home, run_id, owner.clock),
            ):
                raise MirrorError("the store does not answer")
        owner.clock.advance(60)
    assert 5 < tries < 15
    report = owner.tick()
    told = report.problems[run_dir.path.name]
    assert told == "it cannot be restored: the store does not answer"
    owner.clock.advance(600)
    owner.tick()
    owner.restores_for_the_daemon()
    assert owner.tick().sent.keys() == {run_dir.path.name}
    assert read_mark(owner.settings.home, run_dir.path.name) is None


def test_a_few_are_fetched_at_once_and_none_twice(owner: Owner) -> None:
    runs = [owner.mirrored(100) for _ in range(MOST_AT_ONCE + 2)]
    for run_dir in runs:
        purge(run_dir)
    owner.tick()
    assert len(owner.restoring) == MOST_AT_ONCE
    first = owner.restoring[0]
    owner.restoring.clear()
    owner.tick()
    assert owner.restoring == []  # both have only just begun
    owner.clock.advance(60)
    with restoring(owner.settings.home, first, owner.clock):
        owner.tick()
        assert len(owner.restoring) == MOST_AT_ONCE - 1
        assert first not in owner.restoring
    owner.restores_for_the_daemon()
    for _ in runs:
        owner.clock.advance(60)
        owner.tick()
        owner.restores_for_the_daemon()
    owner.tick()
    assert len(owner.alive()) == len(runs)


def test_whoever_lost_the_lease_starts_nothing(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    owner.tick(may_act=lambda: False)
    assert owner.tick(may_act=lambda: False).has_lost_lease
    assert owner.restoring == []


@pytest.mark.parametrize("what", ["gone", "torn"])
def test_a_checkpoint_that_is_only_in_the_mirror_is_fetched_before_the_run_goes_on(
    owner: Owner, what: str
) -> None:
    run_dir = owner.mirrored(100, 200)
    if what == "gone":
        shutil.rmtree(run_dir.checkpoints / "000000200")
    else:
        (run_dir.checkpoints / "000000200" / "model.pt").unlink()
    report = owner.tick()
    assert report.sent == {}
    assert report.restores[run_dir.path.name].rule == "only_mirrored"
    decided = [each for each in journal.read(run_dir) if isinstance(each, Decided)]
    assert [(each.action, each.rule) for each in decided] == [("restore", "only_mirrored")]
    owner.tick()
    assert set(owner.restoring) == {run_dir.path.name}
    owner.restoring[1:] = []
    owner.restores_for_the_daemon()
    assert owner.tick().sent.keys() == {run_dir.path.name}
    last = owner.seen(run_dir.path.name).attempts[-1]
    assert last.resume_from == "checkpoints/000000200"


def test_where_the_mirror_has_no_more_the_run_goes_on_with_what_is_there(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    save(run_dir, 200)
    (job_id,) = [owner.resume(run_dir).job_id]
    owner.end(job_id, "PREEMPTED", checkpoint=200)
    shutil.rmtree(run_dir.checkpoints / "000000200")
    assert owner.tick().restores[run_dir.path.name].rule == "only_mirrored"
    owner.restores_for_the_daemon()
    assert isinstance(journal.read(run_dir)[-1], Restored)
    assert owner.tick().sent.keys() == {run_dir.path.name}
    last = owner.seen(run_dir.path.name).attempts[-1]
    assert last.resume_from == "checkpoints/000000100"


def test_who_fetched_an_older_one_has_not_looked_for_the_newest(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200, 300)
    purge(run_dir)
    owner.restore(run_dir, which=100)
    report = owner.tick()
    assert report.sent == {}
    assert report.restores[run_dir.path.name].why == "checkpoint 300 is gone from scratch"
    owner.restores_for_the_daemon()
    assert owner.tick().sent.keys() == {run_dir.path.name}
    last = owner.seen(run_dir.path.name).attempts[-1]
    assert last.resume_from == "checkpoints/000000300"
    owner.assert_rebuilt_alike(run_dir.path.name)


@pytest.mark.parametrize("which", [NEWEST, ALL])
def test_what_was_restored_and_is_lost_again_is_fetched_again(owner: Owner, which: Which) -> None:
    run_dir = owner.mirrored(100, 200)
    for _ in range(3):
        shutil.rmtree(run_dir.checkpoints / "000000200")
        owner.restore(run_dir, which=which)
    shutil.rmtree(run_dir.checkpoints / "000000200")
    report = owner.tick()
    assert report.sent == {}
    assert report.restores[run_dir.path.name].rule == "only_mirrored"
    owner.restores_for_the_daemon()
    assert owner.tick().sent.keys() == {run_dir.path.name}
    last = owner.seen(run_dir.path.name).attempts[-1]
    assert last.resume_from == "checkpoints/000000200"
    owner.assert_rebuilt_alike(run_dir.path.name)


def test_an_older_journal_does_not_say_what_was_looked_for_and_it_is_looked_for_once(
    owner: Owner,
) -> None:
    run_dir = owner.trained(100, 200)
    shutil.rmtree(run_dir.checkpoints / "000000200")
    owner.mirror(run_dir)
    of_old = Restored(at=owner.clock.now(), by="ada", url="s3://b", after=1, site="devcluster")
    assert "newest" not in of_old.to_line()
    owner.say(run_dir.path, of_old)
    assert owner.tick().restores.keys() == {run_dir.path.name}
    owner.restores_for_the_daemon()
    said = journal.read(run_dir)[-1]
    assert isinstance(said, Restored)
    assert said.newest == 100
    assert owner.tick().sent.keys() == {run_dir.path.name}
    owner.assert_rebuilt_alike(run_dir.path.name)


def test_a_store_with_no_checkpoint_at_all_is_asked_once(owner: Owner) -> None:
    run_dir = owner.trained(100)
    shutil.rmtree(run_dir.checkpoints / "000000100")
    owner.mirror(run_dir)
    assert owner.tick().restores.keys() == {run_dir.path.name}
    owner.restores_for_the_daemon()
    assert owner.tick().sent.keys() == {run_dir.path.name}
    assert owner.seen(run_dir.path.name).attempts[-1].resume_from is None


def test_a_checkpoint_that_no_job_would_take_is_not_fetched_for_ever(owner: Owner) -> None:
    """It is whole in the store, but its manifest does not say whose it is."""
    run_dir = owner.trained(100, 200)
    path = run_dir.checkpoints / "000000200" / "manifest.json"
    manifest = json.loads(path.read_text())
    del manifest["run_id"]
    path.write_text(json.dumps(manifest))
    owner.mirror(run_dir)
    for step in (100, 200):
        shutil.rmtree(run_dir.checkpoints / f"{step:09d}")
    assert owner.tick().restores.keys() == {run_dir.path.name}
    owner.restores_for_the_daemon()
    assert owner.tick().sent.keys() == {run_dir.path.name}
    last = owner.seen(run_dir.path.name).attempts[-1]
    assert last.resume_from == "checkpoints/000000100"


def test_while_it_is_fetched_nothing_is_sent(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    shutil.rmtree(run_dir.checkpoints / "000000200")
    with restoring(owner.settings.home, run_dir.path.name, owner.clock):
        for _ in range(5):
            report = owner.tick()
            assert (report.sent, report.restores) == ({}, {})
            owner.clock.advance(3600)


def test_a_checkpoint_that_was_removed_on_purpose_is_not_fetched(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200, end=None)
    (job_id,) = owner.alive()
    events = run_dir.attempt(1).events
    removed = '{"at": "2026-03-01T00:00:00.000Z", "event": "checkpoint_removed", '
    removed += '"train_step": 200, "path": "checkpoints/000000200", "size_bytes": 1}\n'
    owner.end(job_id, "PREEMPTED", checkpoint=200)
    events.write_text(events.read_text() + removed)
    shutil.rmtree(run_dir.checkpoints / "000000200")
    assert owner.tick().sent.keys() == {run_dir.path.name}


def test_a_person_who_resumes_does_not_wait_for_the_mirror(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    shutil.rmtree(run_dir.checkpoints / "000000200")
    owner.tick()
    owner.resume(run_dir)
    assert len(owner.alive()) == 1
    assert owner.tick().restores == {}


@pytest.mark.parametrize("is_mirrored", [True, False])
def test_scratch_that_is_not_mounted_is_no_purge(owner: Owner, is_mirrored: bool) -> None:
    if not is_mirrored:
        owner.site = owner.site.model_copy(update={"mirror": None})
    run_dir = owner.mirrored(100) if is_mirrored else owner.trained(100)
    scratch = run_dir.path.parents[1]
    scratch.rename(scratch.parent / "elsewhere")
    for _ in range(2):
        report = owner.tick()
        assert (report.restores, report.decisions) == ({}, {})
        assert "is missing, and so is the run directory" in report.problems[run_dir.path.name]
    (scratch.parent / "elsewhere").rename(scratch)
    assert owner.tick().sent.keys() == {run_dir.path.name}


def test_what_another_bucket_says_is_not_asked(owner: Owner, tmp_path: Path) -> None:
    """The run's own mirror counts, not that of its site, as long as run.json is there."""
    run_dir = owner.mirrored(100, 200)
    (tmp_path / "other").mkdir()
    other = open_remote(str(tmp_path / "other"))
    other.make_root()
    mirror(run_dir, other)
    shutil.rmtree(run_dir.checkpoints / "000000200")
    assert owner.tick().restores.keys() == {run_dir.path.name}


def test_a_process_that_dies_without_a_word_is_told_and_another_one_started(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    owner.tick()
    assert owner.tick().problems == {}
    owner.restoring.clear()
    owner.clock.advance(31)
    report = owner.tick()
    told = f"ended without an error message; see why: hpcflow restore {run_dir.path.name}"
    assert report.problems[run_dir.path.name].endswith(told)
    assert owner.restoring == [run_dir.path.name]


def test_a_run_that_the_store_does_not_have_at_all_goes_on_from_scratch(owner: Owner) -> None:
    run_dir = owner.trained(100, 200)
    shutil.rmtree(run_dir.checkpoints / "000000200")
    assert owner.tick().restores.keys() == {run_dir.path.name}
    owner.restores_for_the_daemon()
    assert owner.tick().sent.keys() == {run_dir.path.name}
    last = owner.seen(run_dir.path.name).attempts[-1]
    assert last.resume_from == "checkpoints/000000100"


def test_a_store_without_the_journal_helps_out_with_the_checkpoint(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    owner.remote.delete([f"{run_dir.path.name}/journal.jsonl"])
    shutil.rmtree(run_dir.checkpoints / "000000200")
    owner.tick()
    owner.restores_for_the_daemon()
    assert owner.tick().sent.keys() == {run_dir.path.name}
    last = owner.seen(run_dir.path.name).attempts[-1]
    assert last.resume_from == "checkpoints/000000200"
