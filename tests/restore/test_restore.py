"""What a purge took comes back from the mirror, and nothing that is newer is lost."""

from __future__ import annotations

import json
import os
import shutil
import stat
from datetime import timedelta
from pathlib import Path

import pytest

from hpcflow.errors import InputError, MirrorError, NotFoundError, ScratchError, StorageError
from hpcflow.history import RunHistory
from hpcflow.history.run import OLDER_HOME
from hpcflow.model.journal import CancelRequested, Decided, Ended, Held, Restored, Submitted
from hpcflow.model.run import Mirror
from hpcflow.model.state import RunState
from hpcflow.restore.fetching import ALL
from hpcflow.restore.journals import UNAPPROVED
from hpcflow.restore.local import frozen, newest_whole
from hpcflow.restore.request import of_this_home, own_mirror
from hpcflow.storage import journal
from hpcflow.storage.approval import is_approved
from hpcflow.storage.disk_space import Space
from hpcflow.storage.restoring import read_mark
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_gone, is_purged
from tests.restore.mirrored import FILES, all_of, contents, purge, save
from tests.restore.owner import Owner
from tests.restore.test_foreign import take
from tests.runtime.published import publish


def test_a_purged_run_is_back_as_it_was(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    before = all_of(run_dir)
    purge(run_dir)
    outcome = owner.restore(run_dir, which=ALL)
    assert (outcome.is_new, outcome.checkpoints, outcome.newest) == (True, [200, 100], 200)
    after = all_of(run_dir)
    *lines, last = after.pop("journal.jsonl").splitlines(keepends=True)
    assert b"".join(lines) == before.pop("journal.jsonl")
    assert b'"restored"' in last
    assert after == before
    assert not run_dir.restore.exists()
    assert run_dir.runtime.joinpath("hpcflow/runtime/run.py").is_file()
    for root, folders, files in os.walk(run_dir.path):
        for name in [".", *folders]:
            assert stat.S_IMODE(Path(root, name).stat().st_mode) == 0o700
        assert all(not Path(root, name).stat().st_mode & 0o077 for name in files)


def test_it_says_how_much_was_fetched_for_stores_charge_for_it(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    checkpoint = sum(len(data) for data in FILES.values())
    purge(run_dir)
    owner.restore(run_dir)
    owner.restore(run_dir, which=100)
    owner.restore(run_dir, always_record=True)
    said = [each for each in journal.read(run_dir) if isinstance(each, Restored)]
    assert [each.checkpoints for each in said] == [[200], [100], []]
    first, second, third = [each.size_bytes for each in said]
    assert first is not None
    assert first > checkpoint, "with the small files"
    assert (second, third) == (checkpoint, 0)


def test_to_go_on_the_newest_checkpoint_is_enough(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200, 300)
    purge(run_dir)
    assert owner.restore(run_dir).checkpoints == [300]
    assert sorted(path.name for path in run_dir.checkpoints.iterdir()) == ["000000300"]
    assert owner.restore(run_dir, which=100).checkpoints == [100]
    assert owner.restore(run_dir, which=ALL).checkpoints == [200]
    assert newest_whole(run_dir) == 300


def test_a_restored_run_goes_on_from_its_checkpoint(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    owner.look()
    owner.restore(run_dir)
    seen = owner.seen(run_dir.path.name)
    assert seen.run.state is RunState.WAITING
    assert [attempt.rule for attempt in seen.attempts] != ["its run directory is gone"]
    launched = owner.resume(run_dir)
    assert launched.attempt == 2
    assert owner.seen(run_dir.path.name).attempts[-1].resume_from == "checkpoints/000000100"
    owner.assert_rebuilt_alike(run_dir.path.name)


def test_doing_it_again_does_nothing(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    owner.restore(run_dir)
    before = all_of(run_dir)
    assert owner.restore(run_dir).is_nothing
    assert all_of(run_dir) == before


@pytest.mark.parametrize(
    "taken",
    [
        ["params.json"],
        ["runtime/hpcflow/runtime/run.py"],
        ["attempts/0001/events.jsonl", "params.json"],
        ["checkpoints/000000200/rank0/optim.pt"],
        ["checkpoints/000000200/manifest.json"],
        ["checkpoints"],
        ["runtime/hpcflow/runtime/run.py", "params.json"],
    ],
    ids=str,
)
def test_what_a_purge_took_of_a_run_directory_is_put_back(owner: Owner, taken: list[str]) -> None:
    run_dir = owner.mirrored(100, 200)
    before = all_of(run_dir)
    for name in taken:
        path = run_dir.path / name
        shutil.rmtree(path) if path.is_dir() else path.unlink()
    assert owner.restore(run_dir, which=ALL).held is None
    after = {name: data for name, data in all_of(run_dir).items() if ".broken/" not in name}
    assert after.pop("journal.jsonl").startswith(before.pop("journal.jsonl"))
    assert after == before
    assert run_dir.runtime.joinpath("hpcflow/runtime/run.py").is_file()
    assert isinstance(journal.read(run_dir)[-1], Restored)


def test_a_torn_checkpoint_is_set_aside_for_that_of_the_mirror(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    torn = run_dir.checkpoints / "000000200" / "model.pt"
    torn.write_bytes(torn.read_bytes()[:-1])
    assert newest_whole(run_dir) == 100
    assert owner.restore(run_dir).checkpoints == [200]
    assert torn.read_bytes() == FILES["model.pt"]
    assert [path.suffix for path in run_dir.checkpoints.glob(".*")] == [".broken"]


def test_a_flipped_bit_shows_when_that_checkpoint_is_asked_for(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    flipped = run_dir.checkpoints / "000000100" / "model.pt"
    flipped.write_bytes(b"W" + flipped.read_bytes()[1:])
    assert owner.restore(run_dir).is_nothing
    assert owner.restore(run_dir, which=100).checkpoints == [100]
    assert flipped.read_bytes() == FILES["model.pt"]


def test_newer_checkpoints_and_lines_on_scratch_stay(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    save(run_dir, 200)
    owner.resume(run_dir)
    written = run_dir.journal.read_bytes()
    (run_dir.attempt(1).events).unlink()
    owner.restore(run_dir)
    assert newest_whole(run_dir) == 200
    assert run_dir.journal.read_bytes().startswith(written)


@pytest.mark.parametrize(
    "taken", [["run.json"], ["journal.jsonl"], ["run.json", "journal.jsonl"], ["mirrored"]], ids=str
)
@pytest.mark.parametrize("is_purged", [True, False])
def test_what_the_record_lost_is_put_back_and_the_run_waits_for_its_user(
    owner: Owner, taken: list[str], *, is_purged: bool
) -> None:
    run_dir = owner.mirrored(100, 200)
    before, record = all_of(run_dir), run_dir.run_json.parent
    for name in taken:
        (record / name).unlink()
    if is_purged:
        purge(run_dir)
    held = owner.restore(run_dir, which=ALL, always_record=True).held
    assert (held is None) is (taken == ["mirrored"])
    assert is_approved(run_dir) is ("run.json" not in taken)
    after = all_of(run_dir)
    assert after.pop("journal.jsonl").startswith(before.pop("journal.jsonl"))
    params = "params.json" if is_purged and "run.json" in taken else ""
    assert after == {name: data for name, data in before.items() if name != params}
    owner.look()
    owner.clock.advance(600)
    assert bool(owner.tick().sent) is (held is None)
    if held is not None:
        assert owner.resume(run_dir).attempt == 2
        assert is_approved(run_dir)


@pytest.mark.parametrize("name", ["run.json", "journal.jsonl"])
@pytest.mark.parametrize("is_purged", [True, False])
def test_such_a_file_in_the_run_directory_is_not_read(
    owner: Owner, name: str, *, is_purged: bool
) -> None:
    run_dir = owner.mirrored(100)
    before = all_of(run_dir)
    if is_purged:
        purge(run_dir)
        run_dir.path.mkdir(mode=0o700)
    forged = before[name].replace(b"PREEMPTED", b"COMPLETED").replace(b'"true"', b'"evil"')
    (run_dir.path / name).write_bytes(forged)
    assert owner.restore(run_dir, always_record=True).held is None
    assert run_dir.run_json.read_bytes() == before["run.json"]
    assert run_dir.journal.read_bytes().startswith(before["journal.jsonl"])
    owner.clock.advance(600)
    assert owner.tick().sent.keys() == {run_dir.path.name}
    assert owner.mirror_pass(run_dir).problems == {}
    assert owner.remote.read(f"{run_dir.path.name}/{name}") != forged


def test_a_home_from_a_backup_waits_for_its_user(owner: Owner) -> None:
    """What the ledger has read since is not lost."""
    run_dir = owner.mirrored(100)
    before = owner.seen(run_dir.path.name).attempts
    whole = run_dir.journal.read_bytes()
    run_dir.journal.write_bytes(whole.splitlines(keepends=True)[0] + b'{"at": "2026-0')
    assert owner.restore(run_dir).held == OLDER_HOME
    after = owner.seen(run_dir.path.name).attempts
    assert [(each.job_id, each.cause) for each in after] == [
        (each.job_id, each.cause) for each in before
    ]
    assert owner.tick().sent == {}
    assert owner.resume(run_dir).attempt == 2


def test_a_journal_that_says_something_else_than_the_stores_counts(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    first, *rest = run_dir.journal.read_bytes().splitlines(keepends=True)
    name = f"{run_dir.path.name}/journal.jsonl"
    owner.remote.put_bytes(first + rest[0].replace(b"Z", b"z"), name)
    (run_dir.attempt(1).events).unlink()
    before = run_dir.journal.read_bytes()
    assert owner.restore(run_dir).held is None
    assert run_dir.journal.read_bytes().startswith(before)
    assert owner.mirror_pass(run_dir).problems == {}
    assert owner.remote.read(name) == run_dir.journal.read_bytes()


def test_what_only_the_ledger_knew_is_not_lost(owner: Owner) -> None:
    """The mirror is minutes behind: the second attempt ran, and the run was to be held."""
    run_dir = owner.mirrored(100)
    launched = owner.resume(run_dir)
    owner.clock.advance(60)
    owner.end(launched.job_id, "NODE_FAIL")
    owner.look()
    owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
    before = owner.seen(run_dir.path.name)
    purge(run_dir)
    owner.clock.advance(60)
    owner.restore(run_dir)
    after = owner.seen(run_dir.path.name)
    assert [each.job_id for each in after.attempts] == [each.job_id for each in before.attempts]
    assert [each.cause for each in after.attempts] == [each.cause for each in before.attempts]
    assert (after.run.next_action, before.run.next_action) == ("held", "held")
    assert owner.resume(run_dir).attempt == 3
    owner.assert_rebuilt_alike(run_dir.path.name)


def test_a_job_that_runs_on_is_still_the_runs_job(owner: Owner) -> None:
    run_dir = owner.mirrored(100, end=None)
    (job_id,) = owner.alive()
    purge(run_dir)
    owner.look()
    owner.restore(run_dir)
    assert owner.seen(run_dir.path.name).run.state in (RunState.QUEUED, RunState.RUNNING)
    assert owner.alive() == [job_id]
    assert not any(isinstance(each, Ended) for each in journal.read(run_dir))


def test_a_run_that_was_cancelled_stays_so(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    owner.cancel(run_dir)
    owner.look()
    owner.mirror(run_dir)
    purge(run_dir)
    owner.restore(run_dir)
    assert run_dir.cancel.exists()
    assert owner.seen(run_dir.path.name).run.state is RunState.CANCELLED


@pytest.mark.parametrize("is_held", [False, True])
def test_a_stop_that_the_mirror_lacks_stays_though_a_clock_was_years_ahead_before(
    owner: Owner, is_held: bool
) -> None:
    run_dir = owner.trained(100)
    ahead = owner.clock.now() + timedelta(days=3650)
    owner.say(run_dir.path, Decided(at=ahead, after=1, action="wait", rule="test", why="test"))
    owner.mirror(run_dir)
    if is_held:
        owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
        owner.look()
    else:
        owner.cancel(run_dir)
        owner.look()
    purge(run_dir)
    owner.restore(run_dir)
    records = journal.read(run_dir)
    assert RunHistory.of(records).is_cancelled is not is_held
    stops = [each for each in records if isinstance(each, (CancelRequested, Held))]
    assert [type(each) for each in stops] == [Held if is_held else CancelRequested]
    assert [each.why for each in stops] == [None]


def test_what_was_cancelled_while_it_was_gone_comes_back_cancelled(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    owner.cancel(run_dir)
    owner.restore(run_dir)
    assert owner.seen(run_dir.path.name).run.state is RunState.CANCELLED
    assert any(isinstance(each, CancelRequested) for each in journal.read(run_dir))
    assert list(owner.settings.home.restoring.iterdir()) == []


@pytest.mark.parametrize("left", ["", "cut", "zeros"])
def test_a_run_json_that_was_cut_is_taken_from_the_mirror_and_waits_for_its_user(
    owner: Owner, left: str
) -> None:
    """So it is after a crash, or on a disk that was full."""
    run_dir = owner.mirrored(100, 200)
    whole = run_dir.run_json.read_bytes()
    kept = {"": b"", "cut": whole[:300], "zeros": b"\0" * len(whole)}
    run_dir.run_json.write_bytes(kept[left])
    before = all_of(run_dir)
    outcome = owner.restore(run_dir)
    assert (outcome.files, outcome.checkpoints) == (1, [])
    assert run_dir.run_json.read_bytes() == whole
    after = all_of(run_dir)
    assert after.pop("journal.jsonl").startswith(before.pop("journal.jsonl"))
    assert {**before, "run.json": whole} == after
    assert outcome.held == UNAPPROVED
    assert owner.tick().sent == {}
    assert owner.resume(run_dir).attempt == 2


def test_a_run_json_that_was_cut_is_not_taken_from_a_run_that_went_elsewhere(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    cut = run_dir.run_json.read_bytes()[:300]
    name = f"{run_dir.path.name}/run.json"
    there = json.loads(owner.remote.read(name))
    for changed in ({"run_dir": "/scratch/of/others"}, {"site": "elsewhere"}):
        owner.remote.put_bytes(json.dumps({**there, **changed}).encode(), name)
        run_dir.run_json.write_bytes(cut)
        with pytest.raises(InputError, match="was moved"):
            owner.restore(run_dir)
        assert run_dir.run_json.read_bytes() == cut


@pytest.mark.parametrize("said", [b"{}", b"[]", b'{"format": 99}'])
def test_a_run_json_that_somebody_changed_is_for_a_person_to_judge(
    owner: Owner, said: bytes
) -> None:
    run_dir = owner.mirrored(100)
    run_dir.run_json.write_bytes(said)
    with pytest.raises(StorageError, match=r"run\.json (is damaged|was written by a newer)"):
        owner.restore(run_dir)
    assert run_dir.run_json.read_bytes() == said


def test_who_reads_a_damaged_run_json_is_told_what_brings_it_back(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    run_dir.run_json.write_bytes(run_dir.run_json.read_bytes()[:300])
    with pytest.raises(StorageError, match="is damaged") as caught:
        read_run(run_dir)
    assert f"hpcflow restore {run_dir.path.name};" in (caught.value.next_action or "")


def test_a_run_that_the_store_does_not_have_is_no_errand_in_a_circle(owner: Owner) -> None:
    """`mirror status` sends people to `restore`, so that must not send them back."""
    run_dir = owner.trained(100)
    mirror_there = Mirror(url=owner.remote.url)
    with pytest.raises(NotFoundError, match="has no run") as caught:
        of_this_home(
            run_dir,
            mirror_there,
            owner.clock,
            site=owner.site.name,
            own=None,
        )
    on_scratch = caught.value.next_action or ""
    assert f"hpcflow resume {run_dir.path.name}" in on_scratch
    purge(run_dir)
    with pytest.raises(NotFoundError, match="has no run") as caught:
        of_this_home(
            run_dir,
            mirror_there,
            owner.clock,
            site=owner.site.name,
            own=None,
        )
    gone = caught.value.next_action or ""
    assert f"--from s3://BUCKET/PREFIX/{run_dir.path.name}" in gone
    assert gone.endswith("start it again: hpcflow run CONFIG")
    assert "mirror status" not in on_scratch + gone


def test_a_run_that_was_never_mirrored_is_said_to_be_none(owner: Owner) -> None:
    run_dir = owner.trained(100)
    purge(run_dir)
    with pytest.raises(NotFoundError, match="has no run small-"):
        owner.restore(run_dir)
    assert not run_dir.path.exists()


def test_a_store_without_a_journal_makes_no_run(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    owner.lose_record(run_dir)
    owner.remote.delete([f"{run_dir.path.name}/journal.jsonl"])
    purge(run_dir)
    with pytest.raises(MirrorError, match="the state of the run's jobs is unknown"):
        owner.restore(run_dir)
    assert not run_dir.path.exists()
    mark = read_mark(owner.settings.home, run_dir.path.name)
    assert mark is not None
    assert mark.outcome == "failed"


def test_what_is_restored_is_sent_by_nobody_meanwhile(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    owner.restore(run_dir)
    records = journal.read(run_dir)
    assert sum(isinstance(each, Submitted) for each in records) == 1
    assert read_run(run_dir) == owner.there(run_dir.path.name).run


def test_a_checkpoint_that_the_store_does_not_have_is_not_made_up(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    with pytest.raises(NotFoundError, match="no checkpoint of train step 150") as caught:
        owner.restore(run_dir, which=150)
    assert caught.value.next_action == "it has 100, the newest first"


def test_a_folder_made_meanwhile_keeps_what_is_in_it(owner: Owner) -> None:
    """A program that goes on in a deleted directory makes parts of it again."""
    run_dir = owner.mirrored(100)
    purge(run_dir)
    save_in = run_dir
    save_in.checkpoints.mkdir(parents=True)
    save(save_in, 150)
    assert owner.restore(run_dir, which=ALL).checkpoints == [100]
    assert newest_whole(run_dir) == 150
    assert read_run(run_dir).run_id == run_dir.path.name


def test_what_has_no_room_is_not_begun(owner: Owner, monkeypatch: pytest.MonkeyPatch) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)

    def full(path: Path, _: str) -> Space:
        return Space(path, "ext4", 1 << 40, 100)

    monkeypatch.setattr("hpcflow.restore.staging.look", full)
    with pytest.raises(ScratchError, match=r"largest file: .*, but the disk has room for 100 B"):
        owner.restore(run_dir)
    assert not run_dir.path.exists()


def test_numbers_are_not_given_twice_where_only_the_journal_was_purged(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    second = owner.resume(run_dir)
    owner.end(second.job_id, "PREEMPTED")
    owner.look()
    before = owner.seen(run_dir.path.name)
    run_dir.journal.unlink()
    owner.restore(run_dir)
    assert [each.attempt for each in before.attempts] == [1, 2]
    after = owner.seen(run_dir.path.name)
    assert [(each.attempt, each.job_id, each.cause) for each in after.attempts] == [
        (each.attempt, each.job_id, each.cause) for each in before.attempts
    ]
    assert owner.resume(run_dir).attempt == 3


@pytest.mark.parametrize("is_dangling", [False, True])
def test_nothing_is_restored_where_a_link_leads_that_lies_in_the_place_of_a_run(
    owner: Owner, tmp_path: Path, is_dangling: bool
) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    assert is_purged(run_dir)
    elsewhere = tmp_path / "elsewhere"
    if not is_dangling:
        elsewhere.mkdir()
        (elsewhere / "thesis.tex").write_text("mine")
    run_dir.path.symlink_to(elsewhere)
    assert not is_gone(run_dir)
    assert not is_purged(run_dir), "the daemon restores what is"
    with pytest.raises(StorageError, match=f"is a link to {elsewhere}") as caught:
        owner.restore(run_dir)
    assert f"rm {run_dir.path} && hpcflow restore" in str(caught.value)
    if not is_dangling:
        assert [each.name for each in elsewhere.iterdir()] == ["thesis.tex"]
        (elsewhere / "run.json").write_bytes(b"{}")
    with pytest.raises(StorageError, match="is a link to"):
        frozen(run_dir)
    run_dir.path.unlink()
    assert owner.restore(run_dir).is_new


def test_the_checkpoint_of_another_run_that_it_begins_from_is_restored(owner: Owner) -> None:
    """Without it the next job ends: it was told of one, and finds none."""
    run_dir = owner.trained()
    start = publish(run_dir.path / "start", 400, {"model.pt": b"weights"}).path
    owner.mirror(run_dir)
    before = contents(start)
    purge(run_dir)
    owner.restore(run_dir)
    assert contents(start) == before
    assert before


@pytest.mark.parametrize("lost", ["nothing", "run.json", "run.json, with --from"])
def test_a_run_whose_mirror_only_its_run_json_named_is_mirrored_where_its_user_says(
    owner: Owner, lost: str
) -> None:
    """What the store and the ledger say of it may be forged."""
    run_dir = owner.mirrored(100)
    run_id, named = run_dir.path.name, read_run(run_dir).mirror
    owner.site = owner.site.model_copy(update={"mirror": None})
    if lost != "nothing":
        run_dir.run_json.unlink()
    if lost == "run.json, with --from":
        assert named is not None
        run = read_run(take(owner, run_id))
        assert (run.mirror, run.spec.mirror) == (named, None)
        return
    found = of_this_home(
        run_dir,
        Mirror(url=owner.remote.url),
        owner.clock,
        site=owner.site.name,
        own=own_mirror(run_dir, owner.site, owner.settings),
    )
    assert found.place.run.mirror == (named if lost == "nothing" else None)
    warned = f"hpcflow resume {run_id} --set mirror=URL"
    assert [warned in each for each in found.warnings] == [True] * (lost != "nothing")
