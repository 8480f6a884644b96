"""`hpcflow tensorboard`: only its user can reach it, and it shows the runs that were named."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import stat
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.cli.trained import Trained


class OverSocket(http.client.HTTPConnection):
    """HTTP over a Unix socket, as ssh forwards it."""

    def __init__(self, path: str) -> None:
        super().__init__("localhost", timeout=60)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX)
        self.sock.connect(self._path)


@pytest.fixture
def runs(desk: Desk) -> list[str]:
    """Two runs; both have logged a loss."""
    from tensorboard.compat.proto.event_pb2 import Event
    from tensorboard.compat.proto.summary_pb2 import Summary
    from tensorboard.summary.writer.event_file_writer import EventFileWriter

    trained = [Trained(desk), Trained(desk)]
    for each in trained:
        writer = EventFileWriter(str(each.dir.tensorboard))
        loss = Summary.Value(tag="loss", simple_value=0.5)
        writer.add_event(Event(step=1, wall_time=1.0, summary=Summary(value=[loss])))
        writer.close()
    return [each.run_id for each in trained]


@pytest.fixture
def board(runs: list[str], tmp_path: Path) -> Iterator[tuple[subprocess.Popen[str], list[str]]]:
    """The command, and the lines that it has said."""
    said = tmp_path / "said"
    with said.open("w") as out:
        process = subprocess.Popen(
            [sys.executable, "-m", "hpcflow.cli.main", "tensorboard", *runs],
            stdout=out,
            stderr=subprocess.STDOUT,
            text=True,
        )
    try:
        poll(lambda: "Ctrl-C" in said.read_text(), 120, said.read_text)
        yield process, said.read_text().splitlines()
    finally:
        process.kill()
        process.wait()


def test_it_is_reached_by_its_socket_alone(
    board: tuple[subprocess.Popen[str], list[str]], runs: list[str]
) -> None:
    process, said = board
    path = Path(next(line for line in said if "ssh -N -L 6006:" in line).split(":")[1].split()[0])
    assert stat.S_IMODE(path.parent.stat().st_mode) == 0o700
    assert _ports(process.pid) == [], "others on the node could connect"

    def shown() -> bool:
        connection = OverSocket(str(path))
        connection.request("GET", "/data/runs")
        return bool(set(json.loads(connection.getresponse().read())) == set(runs))

    poll(shown, 120, lambda: "the runs are not shown")

    process.send_signal(signal.SIGTERM)
    assert process.wait(60) == 0
    assert not path.parent.exists()


def _ports(pid: int) -> list[str]:
    """TCP ports at which a process and its children listen."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    links = (
        str(link.readlink())
        for each in (str(pid), *children)
        for link in Path(f"/proc/{each}/fd").iterdir()
    )
    inodes = {link[len("socket:[") : -1] for link in links if link.startswith("socket:")}
    tables = (Path(f"/proc/net/{name}").read_text().splitlines()[1:] for name in ("tcp", "tcp6"))
    rows = [line.split() for table in tables for line in table]
    return [row[1] for row in rows if row[3] == "0A" and row[9] in inodes]


def test_a_run_that_was_purged_has_no_logs(desk: Desk) -> None:
    trained = Trained(desk)
    trained.dir.path.rename(trained.dir.path.with_name("purged"))
    assert "has no directory" in desk.error("tensorboard", trained.run_id)
    assert "no run 'nothing-like-it'" in desk.error("tensorboard", "nothing-like-it")
