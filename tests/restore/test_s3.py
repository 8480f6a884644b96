"""The same from a real S3 server, which is killed, comes back, and is asked by the wrong people."""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.clock import SystemClock
from hpcflow.errors import MirrorError
from hpcflow.mirror.remote import Remote
from hpcflow.mirror.stores import open_remote
from hpcflow.restore.fetching import ALL, Progress
from hpcflow.testing.cluster import S3, packages
from tests.cluster_fixture import need
from tests.restore.mirrored import all_of, purge, save
from tests.restore.owner import Owner

pytestmark = pytest.mark.s3

STRANGE = {
    "with blanks and $(touch owned).pt": b"a" * 100,
    "Zürich/東京 🚄.pt": b"b" * 100,
    "deep/" * 20 + "x": b"",
    "e\u0301/é": b"c",
    "-rf": b"d",
    "a%2Fb+c&d=e?f#g;h": b"e" * 10,
}


def _store(server: S3, patch: pytest.MonkeyPatch) -> Remote:
    for name, value in server.env().items():
        patch.setenv(name, value)
    patch.setenv("AWS_CONFIG_FILE", "/nonexistent")
    patch.setenv("AWS_SHARED_CREDENTIALS_FILE", "/nonexistent")
    bucket = server.create_bucket(f"test-{secrets.token_hex(6)}")
    return open_remote(f"s3://{bucket}/ada/runs", clock=SystemClock(), patience_s=1)


@pytest.fixture
def owner(tmp_path: Path, s3_server: S3, monkeypatch: pytest.MonkeyPatch) -> Owner:
    owner = Owner(tmp_path)
    owner.remote = _store(s3_server, monkeypatch)
    return owner


@pytest.fixture
def own_server(tmp_path: Path) -> Iterator[S3]:
    """One that nobody else uses, for it is killed."""
    need(packages.require_rclone)
    server = S3(tmp_path / "s3")
    try:
        yield server.start()
    finally:
        server.stop()


def test_a_run_with_strange_names_is_back_as_it_was(owner: Owner) -> None:
    run_dir = owner.trained(100)
    save(run_dir, 200, STRANGE)
    for name, data in STRANGE.items():
        path = run_dir.artifacts / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    owner.mirror(run_dir)
    before = all_of(run_dir)
    purge(run_dir)
    outcome = owner.restore(run_dir, which=ALL)
    assert (outcome.checkpoints, outcome.refused) == ([200, 100], [])
    after = all_of(run_dir)
    assert after.pop("journal.jsonl").startswith(before.pop("journal.jsonl"))
    assert after == before


def test_a_file_that_was_changed_behind_our_back_is_found(owner: Owner) -> None:
    run_dir = owner.mirrored(100, 200)
    name = f"{run_dir.path.name}/checkpoints/000000200/rank0/optim.pt"
    owner.remote.put_bytes(b"nada" * 500, name)
    purge(run_dir)
    outcome = owner.restore(run_dir)
    assert outcome.checkpoints == [100]
    assert "its checksum differs" in outcome.skipped[200]


def test_a_server_that_is_killed_meanwhile_is_gone_on_with_when_it_is_back(
    tmp_path: Path, own_server: S3, monkeypatch: pytest.MonkeyPatch
) -> None:
    owner = Owner(tmp_path)
    owner.remote = _store(own_server, monkeypatch)
    run_dir = owner.trained(100)
    save(run_dir, 200, {f"{number}.pt": bytes([number]) * 10_000 for number in range(40)})
    owner.mirror(run_dir)
    purge(run_dir)
    left = 10

    def kill_it(_: int) -> None:
        nonlocal left
        left -= 1
        if left == 0:
            own_server.daemon.kill()

    with pytest.raises(MirrorError) as caught:
        owner.restore(run_dir, progress=Progress(on_bytes=kill_it))
    assert caught.value.next_action
    assert not run_dir.path.exists()
    fetched = list((run_dir.restore / "run/checkpoints/000000200").glob("*.pt"))
    assert len(fetched) >= 10
    own_server.start()
    assert owner.restore(run_dir).checkpoints == [200]


def test_wrong_credentials_say_so_and_make_nothing(
    owner: Owner, monkeypatch: pytest.MonkeyPatch
) -> None:
    run_dir = owner.mirrored(100)
    purge(run_dir)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")
    stranger = open_remote(owner.remote.url, clock=SystemClock(), patience_s=1)
    with pytest.raises(MirrorError) as caught:
        owner.restore(run_dir, remote=stranger)
    assert caught.value.next_action
    assert not run_dir.path.exists()
