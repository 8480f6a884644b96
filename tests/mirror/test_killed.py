"""kill -9 of the mirror: the next one goes on, sends no part twice, and half is never visible."""

from __future__ import annotations

import json
import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcflow.mirror import layout
from hpcflow.mirror.upload import PART_BYTES
from hpcflow.storage.layout import RunDir
from tests.cluster_fixture import poll
from tests.mirror.proxy import Proxy
from tests.mirror.runs import Desk, checkpoint_names, desk_in, save


@pytest.fixture
def desk(bucket_url: str, tmp_path: Path) -> Desk:
    return desk_in(tmp_path, bucket_url)


def start(desk: Desk) -> subprocess.Popen[bytes]:
    """``hpcflow mirror --once``, in a process of its own."""
    argv = [sys.executable, "-m", "hpcflow.cli.main", "mirror", "--once"]
    desk.home.path.chmod(0o700)
    environ = {**os.environ, "HPCFLOW_HOME": str(desk.home.path)}
    return subprocess.Popen(argv, env=environ, stdout=subprocess.PIPE, stderr=subprocess.STDOUT)


def finish(process: subprocess.Popen[bytes]) -> str:
    output, _ = process.communicate(timeout=120)
    assert process.returncode == 0, output.decode()
    return output.decode()


def kill(process: subprocess.Popen[bytes]) -> None:
    process.send_signal(signal.SIGKILL)
    process.communicate(timeout=120)


def require_nothing_half(desk: Desk, run_dir: RunDir) -> None:
    """Whatever has a manifest in the store is as that manifest says."""
    for step, there in desk.stored(run_dir).items():
        folder = layout.checkpoint_folder(run_dir.path.name, step)
        manifest = json.loads(desk.remote.read(folder + layout.MANIFEST))
        sizes = {name: said["size_bytes"] for name, said in manifest["files"].items()}
        files = {name: entry.size_bytes for name, entry in there.items()}
        assert files == {**sizes, layout.MANIFEST: files[layout.MANIFEST]}


def test_no_part_is_sent_twice(desk: Desk, proxy: Proxy) -> None:
    run_dir = desk.make()
    size_bytes = 6 * PART_BYTES
    save(run_dir, 400, {"model.pt": size_bytes})
    proxy.fails_for = rb"^POST .*\?uploadId="  # so that the object is never made of its parts
    process = start(desk)
    poll(lambda: len(parts_there(desk, run_dir)) >= 3, 120, "the store has some parts")
    kill(process)
    have = parts_there(desk, run_dir)
    require_nothing_half(desk, run_dir)
    proxy.fails_for = None

    before = proxy.sent_bytes
    finish(start(desk))
    again = proxy.sent_bytes - before
    assert again < (6 - len(have)) * PART_BYTES + (1 << 20)
    assert set(checkpoint_names(400, {"model.pt": 0})) < set(desk.there(run_dir))
    assert ": unchanged" in verify(desk, run_dir)


def parts_there(desk: Desk, run_dir: RunDir) -> set[int]:
    """Numbers of the parts of ``model.pt`` that the store has."""
    assert desk.remote.parts is not None
    if not run_dir.mirror.exists():
        return set()
    for line in run_dir.mirror.read_text().splitlines():
        if (said := json.loads(line))["what"] == "sending":
            name = f"{layout.checkpoint_folder(run_dir.path.name, 400)}model.pt"
            return set(desk.remote.parts.done(name, said["upload_id"]) or {})
    return set()


def verify(desk: Desk, run_dir: RunDir) -> str:
    argv = [sys.executable, "-m", "hpcflow.cli.main", "mirror", "verify", "--read"]
    environ = {**os.environ, "HPCFLOW_HOME": str(desk.home.path)}
    done = subprocess.run([*argv, run_dir.path.name], env=environ, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("kills", [4, pytest.param(40, marks=pytest.mark.soak)])
def test_killed_at_any_moment(desk: Desk, kills: int) -> None:
    run_dir = desk.make()
    steps = [100, 200]
    files = {"model.pt": 2 * PART_BYTES + 1, "a/b.pt": 3_000_000, **{f"{n}": n for n in range(40)}}
    for step in steps:
        save(run_dir, step, files)
    chance = random.Random(4)
    finish_s = 4.0
    for _ in range(kills):
        process = start(desk)
        time.sleep(chance.uniform(0.3, finish_s))
        kill(process)
        require_nothing_half(desk, run_dir)
    finish(start(desk))
    require_nothing_half(desk, run_dir)
    assert list(desk.stored(run_dir)) == [200, 100]
    assert verify(desk, run_dir).count(": unchanged") == 2
    assert finish(start(desk)) == ""
