"""A user who can write to the bucket decides neither what runs here nor where data is sent."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import InputError, MirrorError
from hpcflow.ledger.store import open_ledger
from hpcflow.mirror.passes import Pass
from hpcflow.mirror.stores import Stores
from hpcflow.model.journal import Ended, Held, Intended, Resumed, Withdrawn
from hpcflow.model.run import Mirror
from hpcflow.model.state import Cause
from hpcflow.restore.journals import UNAPPROVED
from hpcflow.restore.ledger import rebuild_from
from hpcflow.restore.moving import where_it_was
from hpcflow.restore.request import Changes, mirror_of_gone, of_elsewhere, own_mirror
from hpcflow.storage import journal
from hpcflow.storage.approval import is_approved
from hpcflow.storage.layout import RunDir
from hpcflow.storage.restoring import restoring
from hpcflow.storage.rundir import read_run
from tests.hostile import bounded
from tests.restore.mirrored import purge
from tests.restore.owner import Owner


def take(other: Owner, run_id: str, **how: Any) -> RunDir:
    """As `hpcflow restore --from` does."""
    changes = Changes(working_dir=other.folder, **how)
    with restoring(other.settings.home, run_id, other.clock):
        found = of_elsewhere(
            other.remote.url,
            run_id,
            other.site,
            changes,
            settings=other.settings,
            clock=other.clock,
        )
        return other.put(found.remote, found.place).run_dir


def change(owner: Owner, run_dir: RunDir, do: Callable[[dict[str, Any]], object]) -> None:
    """Somebody writes another ``run.json`` into the bucket."""
    name = f"{run_dir.path.name}/run.json"
    said = json.loads(owner.remote.read(name))
    do(said)
    owner.remote.put_bytes(json.dumps(said).encode(), name)


@pytest.mark.parametrize("lost", ["nothing", "run.json", "the record"])
@pytest.mark.parametrize("has_params", [True, False])
def test_a_job_that_is_still_in_the_queue_gets_no_parameters_from_a_bucket(
    owner: Owner, lost: str, *, has_params: bool
) -> None:
    """The run is held if its run.json is lost, but Slurm starts what was submitted before."""
    run_dir = owner.mirrored(100, end=None)
    change(owner, run_dir, lambda said: said["spec"].update(params={"evil": 1}))
    before = run_dir.params_json.read_bytes()
    purge(run_dir)
    if has_params:
        run_dir.path.mkdir(mode=0o700)
        run_dir.params_json.write_bytes(before)
    if lost == "run.json":
        run_dir.run_json.unlink()
    if lost == "the record":
        owner.lose_record(run_dir)
    for _ in range(2):
        assert owner.restore(run_dir).is_unknown is (lost != "nothing")
        assert run_dir.params_json.exists() is (has_params or lost == "nothing")
        if run_dir.params_json.exists():
            assert run_dir.params_json.read_bytes() == before
    (job_id,) = owner.alive()
    owner.end(job_id, "PREEMPTED")
    owner.look()
    owner.resume(run_dir)
    assert json.loads(run_dir.params_json.read_text()) == read_run(run_dir).spec.params


URLS = [
    "s3://evil/x",
    "/somewhere/else",
    "reference://x::file:///tmp/ref.json",
    "s3://$AWS_SECRET_ACCESS_KEY/x",
]


@pytest.mark.parametrize("url", URLS)
def test_a_bucket_does_not_say_where_the_run_is_mirrored(
    owner: Owner, other: Owner, url: str
) -> None:
    run_dir = owner.mirrored(100)
    evil = {"url": url, "endpoint_url": "http://evil.example.org", "shared": True}

    def lie(said: dict[str, Any]) -> None:
        said["mirror"] = evil
        if "::" not in url:  # else it is no run at all
            said["spec"]["mirror"] = url

    change(owner, run_dir, lie)
    run = read_run(take(other, run_dir.path.name))
    assert run.mirror is not None
    assert (run.mirror.url, run.mirror.endpoint_url) == (owner.remote.url, None)
    assert run.spec.mirror in (None, owner.remote.url)


def test_a_bucket_does_not_say_how_the_run_is_mirrored(owner: Owner, other: Owner) -> None:
    """A group that may read it, a key of another account, a byte a second, none but the newest."""
    run_dir = owner.mirrored(100)
    how = {"shared": True, "encryption": "aws:kms", "kms_key": "evil", "bandwidth_bytes_s": 1}
    change(owner, run_dir, lambda said: said["mirror"].update(how, keep_last=1, keep_for_s=1))
    there = take(other, run_dir.path.name)
    assert read_run(there).mirror == Mirror(url=owner.remote.url)


def _pass(owner: Owner, run_dir: RunDir) -> None:
    with Stores(owner.clock, patience_s=0) as stores:
        Pass(owner.settings.home, owner.clock, stores).run(lambda: [run_dir])


@pytest.mark.parametrize("lost", ["run directory", "run.json", "run.json, in part", "record"])
@pytest.mark.parametrize("key", ["mirror", "spec"])
def test_a_bucket_does_not_say_where_a_run_of_this_home_is_mirrored(
    owner: Owner, key: str, lost: str
) -> None:
    run_dir, evil = owner.mirrored(100), owner.folder / "evil"
    evil.mkdir()
    before = read_run(run_dir)
    lies = {
        "mirror": lambda said: said.update(mirror={"url": str(evil), "shared": True}),
        "spec": lambda said: said["spec"].update(mirror=str(evil)),
    }
    change(owner, run_dir, lies[key])
    if lost == "run directory":
        purge(run_dir)
    elif lost == "run.json":
        run_dir.run_json.unlink()
    elif lost == "record":
        owner.lose_record(run_dir)
    else:
        run_dir.run_json.write_bytes(run_dir.run_json.read_bytes()[:300])
    assert owner.restore(run_dir).is_unknown is (lost != "run directory")
    assert read_run(run_dir).mirror == before.mirror
    owner.clock.advance(100)
    _pass(owner, run_dir)
    owner.resume(run_dir, overrides=("resources.time_limit=5m",))
    _pass(owner, run_dir)
    assert read_run(run_dir).mirror == before.mirror
    assert list(evil.iterdir()) == []


def test_nor_does_what_the_ledger_has_read_of_a_bucket(owner: Owner) -> None:
    """The bucket names another, once the run was restored from it; that one names itself."""
    run_dir, evil = owner.mirrored(100), owner.folder / "evil"
    name, before = run_dir.path.name, read_run(run_dir).mirror
    line = {"at": "2999-01-01T00:00:00Z", "what": "mirrored", "url": str(evil), "train_step": 5}
    line |= {"manifest_sha256": "0", "size_bytes": 1}
    owner.remote.put_bytes(f"{json.dumps(line)}\n".encode(), f"{name}/mirror.jsonl")
    now = owner.clock.now()
    intent = Intended(at=now, attempt=2, job_name=f"{name}:2", scheduler="slurm", mirror=str(evil))
    lines = intent.to_line() + Withdrawn(at=now, attempt=2, reason="test").to_line()
    journal_there = f"{name}/journal.jsonl"
    owner.remote.put_bytes(owner.remote.read(journal_there) + lines.encode(), journal_there)
    purge(run_dir)
    owner.restore(run_dir)
    owner.look()
    purge(run_dir)
    with open_ledger(owner.settings.ledger_url) as ledger:
        assert mirror_of_gone(ledger, run_dir, owner.site, owner.settings) == before
        owner.lose_record(run_dir)
        assert own_mirror(run_dir, owner.site, owner.settings) == before
        nowhere = owner.site.model_copy(update={"mirror": None})
        assert own_mirror(run_dir, nowhere, owner.settings) is None


@pytest.mark.parametrize("name", ["/tmp/evil.yaml", "evil.yaml", "../evil"])
def test_a_bucket_does_not_choose_the_site_file(owner: Owner, name: str) -> None:
    run_dir = owner.mirrored(100)
    change(owner, run_dir, lambda said: said.update(site=name))
    purge(run_dir)
    owner.lose_record(run_dir)
    there = owner.there(run_dir.path.name)
    with pytest.raises(InputError, match="was moved"):
        where_it_was(there.run, run_dir, there.url, site=None, mirror=None)
    for path in (owner.folder / "scratch", owner.settings.home.path):
        shutil.rmtree(path)
    owner.settings.home.path.mkdir(mode=0o700)
    with open_ledger(owner.settings.ledger_url) as ledger:
        found = rebuild_from(ledger, owner.remote, owner.settings, site=owner.site)
        assert (found.runs, found.linked) == ([], [])
        assert "names the site file" in found.problems[0]
        assert ledger.known([run_dir.path.name]) == {}


def test_a_run_on_the_site_file_of_this_machine_is_read(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    assert owner.site.file is not None
    change(owner, run_dir, lambda said: said.update(site=owner.site.file))
    purge(run_dir)
    owner.settings.home.scratch_link(run_dir.path.name).unlink()
    with open_ledger(owner.settings.ledger_url) as ledger:
        found = rebuild_from(ledger, owner.remote, owner.settings, site=owner.site)
    assert found.linked == [run_dir.path.name]


def test_a_chain_in_a_bucket_makes_no_run(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100)
    chain = "reference://x::file:///tmp/ref.json"
    change(owner, run_dir, lambda said: said["spec"].update(mirror=chain))
    with pytest.raises(MirrorError, match="is damaged"):
        take(other, run_dir.path.name)


def test_who_names_a_mirror_gets_that(owner: Owner, other: Owner) -> None:
    run_dir = owner.mirrored(100)
    change(owner, run_dir, lambda said: said["spec"].update(mirror="s3://evil/x"))
    run = read_run(take(other, run_dir.path.name, overrides=("mirror=/my/own",)))
    assert run.mirror == Mirror(url="/my/own")


def _resumed_after_scancel(owner: Owner) -> list[Any]:
    now = owner.clock.now()
    ended = Ended(at=now, attempt=1, cause=Cause.CANCELLED, raw_state="CANCELLED", rule="test")
    return [ended, Resumed(at=now + timedelta(days=3650), by="ada")]


def test_no_journal_makes_a_run_go_on_that_comes_from_elsewhere(owner: Owner, other: Owner) -> None:
    """As one does that says of a cancelled run that it was resumed ten years later."""
    run_dir = owner.trained(100, end=None)
    for record in _resumed_after_scancel(owner):
        owner.say(run_dir.path, record)
    owner.mirror(run_dir)
    there = take(other, run_dir.path.name, even_if_running=True)
    assert isinstance(journal.read(there)[-2], Held)
    for _ in range(3):
        assert other.tick().sent == {}
        other.clock.advance(3600)
    assert other.alive() == []


def test_a_purged_run_goes_on_with_what_was_frozen_here(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    outcome = owner.restore(run_dir)
    assert not outcome.is_unknown
    assert not any(isinstance(each, Held) for each in journal.read(run_dir))


def test_what_others_have_changed_in_the_bucket_is_not_read_but_replaced(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    before = run_dir.run_json.read_bytes()
    change(owner, run_dir, lambda said: said["spec"].update(command=["sh", "-c", "evil"]))
    purge(run_dir)
    outcome = owner.restore(run_dir)
    assert (outcome.is_unknown, outcome.held) == (False, None)
    assert run_dir.run_json.read_bytes() == before
    owner.clock.advance(3600)
    assert list(owner.tick().sent) == [run_dir.path.name]
    assert "evil" not in run_dir.attempt(2).script.read_text()
    _pass(owner, run_dir)
    assert owner.remote.read(f"{run_dir.path.name}/run.json") == before


def test_a_lost_run_that_others_have_changed_in_the_bucket_waits(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    evil = ["sh", "-c", "evil"]
    change(owner, run_dir, lambda said: said["spec"].update(command=evil))
    purge(run_dir)
    owner.lose_record(run_dir)
    outcome = owner.restore(run_dir)
    assert outcome.is_unknown
    assert outcome.held == UNAPPROVED
    assert not is_approved(run_dir)
    owner.clock.advance(3600)
    assert owner.tick().sent == {}
    assert owner.alive() == []
    purge(run_dir)  # and it is no better known for having been here
    assert owner.restore(run_dir).is_unknown
    owner.clock.advance(3600)
    assert owner.tick().sent == {}
    owner.resume(run_dir)
    assert len(owner.alive()) == 1
    assert is_approved(run_dir)


TIMES = ["0001-01-01T00:00:00Z", "0001-01-01T00:00:00+23:59", "9999-12-31T23:59:59-23:59"]
_EVERY_TIME = ("started_at", "ended_at", "submitted_at", "preempted_at", "not_before", "last_sign")
_RECORDS: list[dict[str, Any]] = [
    {"record": "intended", "attempt": 2, "job_name": "x:2", "scheduler": "slurm"},
    {"record": "ended", "attempt": 1, "cause": "timeout", "raw_state": "TIMEOUT", "rule": "x"},
    {"record": "observed", "attempt": 1, "job_id": "1", "state": "running", "raw_state": "RUNNING"},
    {"record": "decided", "after": 1, "action": "wait", "rule": "x", "why": "x"},
    {"record": "held", "by": "x"},
]


@pytest.mark.parametrize("at", [*TIMES, "9999-12-31T23:59:59.999Z"])
@pytest.mark.parametrize("record", _RECORDS, ids=lambda record: record["record"])
def test_a_journal_with_times_that_are_none_stops_no_run(
    owner: Owner, record: dict[str, Any], at: str
) -> None:
    """Python computes with none before the year 1 or after 9999."""
    run_dir = owner.mirrored(100)
    line = json.dumps({"at": at, **record, **dict.fromkeys(_EVERY_TIME, at)}) + "\n"
    name = f"{run_dir.path.name}/journal.jsonl"
    owner.remote.put_bytes(owner.remote.read(name) + line.encode(), name)
    purge(run_dir)
    owner.restore(run_dir)
    other = owner.launch()
    owner.tick()
    owner.clock.advance(120)
    owner.end(other.job_id, "PREEMPTED")
    assert other.run_id in owner.tick().sent
    assert owner.seen(run_dir.path.name).attempts


@pytest.mark.parametrize("key", ["created_at", "user"])
@pytest.mark.parametrize("value", [*TIMES, "\ud800"])
def test_a_run_json_with_what_cannot_be_written_makes_no_run(
    owner: Owner, key: str, value: str
) -> None:
    if (key == "user") != (value == "\ud800"):
        pytest.skip("a user may have any name")
    run_dir = owner.mirrored(100)
    change(owner, run_dir, lambda said: said.update({key: value}))
    purge(run_dir)
    with pytest.raises(MirrorError, match="is damaged"):
        owner.restore(run_dir)


_MANY = b'{"format":1,"train_step":200,"files":{},"x":[' + b"[]," * (20 << 20) + b"[]]}"


@pytest.mark.parametrize(
    "name", ["run.json", "checkpoints/000000200/manifest.json", "journal.jsonl"]
)
def test_json_of_many_megabytes_in_a_store_is_not_parsed(owner: Owner, name: str) -> None:
    run_dir = owner.mirrored(100)
    owner.lose_record(run_dir)
    data = b'{"at":"2026-03-01T00:00:00Z","record":"held","by":""}\n' * (1 << 20)
    data = data if name == "journal.jsonl" else _MANY
    owner.remote.put_bytes(data, f"{run_dir.path.name}/{name}")
    with bounded():
        _pass(owner, run_dir)
    purge(run_dir)
    with bounded():
        try:
            skipped = owner.restore(run_dir).skipped.keys()
        except MirrorError as error:
            assert "too large" in error.message
        else:  # the pass has replaced run.json
            assert skipped == ({200} if "manifest" in name else set())


def _link(path: Path, secret: Path) -> None:
    path.unlink()
    path.symlink_to(secret)


def _pipe(path: Path, _: Path) -> None:
    path.unlink()
    os.mkfifo(path)


def _huge(path: Path, _: Path) -> None:
    os.truncate(path, 1 << 40)


def _deep(path: Path, _: Path) -> None:
    path.write_bytes(b"[" * 200_000)


@pytest.mark.parametrize("harm", [_link, _pipe, _huge, _deep])
@pytest.mark.parametrize(
    "name",
    [
        "run.json",
        "journal.jsonl",
        "attempts/0001/events.jsonl",
        "attempts/0001/out.log",
        "checkpoints/000000100/manifest.json",
        "checkpoints/000000100/model.pt",
    ],
)
def test_nothing_of_a_hostile_folder_reaches_the_run(
    owner: Owner, other: Owner, name: str, harm: Callable[[Path, Path], None]
) -> None:
    if harm is _huge and name.endswith("out.log"):
        pytest.skip("a log may be large; where there is no room, that is said before")
    run_dir = owner.mirrored(100)
    secret = owner.folder / "secret"
    secret.write_bytes(b"private")
    path = Path(owner.remote.url) / run_dir.path.name / name
    if not path.exists():
        path.write_bytes(b"")
    harm(path, secret)

    with bounded():
        try:
            take(other, run_dir.path.name)
        except MirrorError as error:
            assert error.message
        except Exception as error:
            assert "has no run" in str(error) or "no journal" in str(error), error
    copies = [
        each
        for each in (other.folder / "scratch").rglob("*")
        if each.is_file() and not each.is_symlink() and each.read_bytes() == b"private"
    ]
    assert copies == []


def test_a_bucket_that_the_ledger_was_made_from_makes_nothing_run(owner: Owner) -> None:
    """The home is lost, and somebody has put another command, and another bucket, into this one."""
    run_dir = owner.mirrored(100)
    change(owner, run_dir, lambda said: said["spec"].update(command=["sh", "-c", "evil"]))
    shutil.rmtree(owner.folder / "scratch")
    shutil.rmtree(owner.settings.home.path)
    owner.settings.home.path.mkdir(mode=0o700)
    with open_ledger(owner.settings.ledger_url) as ledger:
        rebuild_from(ledger, owner.remote, owner.settings, site=owner.site)
    run_dir.path.parent.mkdir(parents=True)
    owner.tick()
    owner.restores_for_the_daemon()
    for _ in range(3):
        assert owner.tick().sent == {}
        owner.clock.advance(3600)
    assert any(isinstance(each, Held) for each in journal.read(run_dir))
    assert owner.alive() == []
