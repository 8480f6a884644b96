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

from hpcflow.errors import MirrorError
from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import Ended, Held, Resumed
from hpcflow.model.run import Mirror
from hpcflow.model.state import Cause
from hpcflow.restore.ledger import rebuild_from
from hpcflow.restore.request import Changes, of_elsewhere
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.restoring import restoring
from hpcflow.storage.rundir import read_run
from tests.hostile import bounded
from tests.restore.mirrored import mirror, purge
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
    mirror(run_dir, owner.remote)
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


def test_a_purged_run_that_others_have_changed_in_the_bucket_waits(owner: Owner) -> None:
    run_dir = owner.mirrored(100)
    evil = ["sh", "-c", "evil"]
    change(owner, run_dir, lambda said: said["spec"].update(command=evil))
    purge(run_dir)
    outcome = owner.restore(run_dir)
    assert outcome.is_unknown
    owner.clock.advance(3600)
    assert owner.tick().sent == {}
    assert owner.alive() == []
    purge(run_dir)  # and it is no better known for having been here
    assert owner.restore(run_dir).is_unknown
    owner.resume(run_dir)
    assert len(owner.alive()) == 1


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
