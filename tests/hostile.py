"""A home with runs, of each of which one file is what somebody else has put there."""

from __future__ import annotations

import getpass
import json
import os
import resource
import shutil
import signal
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final

from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import create_run
from tests.runtime.published import publish
from tests.storage.runs import make_run

#: Stands in a file that no command may show.
SECRET: Final = "hunter2"
_DEADLINE_S: Final = 60
#: More than any command here needs on top of what Python and its libraries have by then.
_MORE_BYTES: Final = 700 << 20
_OTHER_USER: Final = 4711
_AT: Final = "2026-03-01T12:00:00.000Z"


class TooLongError(BaseException):
    """A command waits for what never comes; no handler of its own may take it for an error."""


def _socket(path: Path) -> None:
    here = Path.cwd()
    os.chdir(path.parent)  # the name of a socket is short
    try:
        with socket.socket(socket.AF_UNIX) as server:
            server.bind(path.name)
    finally:
        os.chdir(here)


def _sparse(path: Path) -> None:
    with path.open("wb") as file:
        file.truncate(3 << 30)


def _link(to: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(to)


def _holding(content: bytes | str) -> Callable[[Path], None]:
    data = content.encode() if isinstance(content, str) else content

    def write(path: Path) -> None:
        path.write_bytes(data)

    return write


def _of_another_user(path: Path) -> None:
    path.write_text(f'{{"{SECRET}": 1}}\n')
    os.chown(path, _OTHER_USER, _OTHER_USER)


#: What it is called -> how it comes to be at a path where there is nothing.
KINDS: Final[dict[str, Callable[[Path], None]]] = {
    "link to a folder of the system": _link("/etc"),
    "link to the folder above": _link(".."),
    "link to itself": lambda path: path.symlink_to(path),
    "link to nothing": _link("nothing"),
    "link to a private file": lambda path: path.symlink_to(_secret(path)),
    "link to a device that never ends": _link("/dev/zero"),
    "link to a pipe": lambda path: path.symlink_to(_pipe(path)),
    "pipe": os.mkfifo,
    "socket": _socket,
    "folder": Path.mkdir,
    "three gigabytes": _sparse,
    "nothing": Path.touch,
    "noughts": _holding(bytes(10_000)),
    "garbage": _holding(bytes(range(256)) * 40 + b"\n"),
    "deep lists": _holding(b"[" * 100_000 + b"]" * 100_000 + b"\n"),
    "deep objects": _holding(b'{"a":' * 99_999),
    "a list": _holding("[1, 2]\n"),
    "numbers": _holding(f"{'9' * 5000}\n1e999\nNaN\n"),
    "other keys": _holding('{"at": 1, "files": 2, "record": [], "x": {}}\n'),
}
if os.geteuid() == 0:
    KINDS["file of another user"] = _of_another_user
    KINDS["device"] = lambda path: os.mknod(path, 0o020666, os.makedev(1, 5))


def _secret(path: Path) -> Path:
    secret = path.parent.parent / f".secret-{path.name}"
    secret.write_text(f'{{"{SECRET}": "{SECRET}"}}\n{SECRET}\n')
    return secret


def _pipe(path: Path) -> Path:
    pipe = path.parent.parent / f".pipe-{path.name}"
    pipe.unlink(missing_ok=True)
    os.mkfifo(pipe)
    return pipe


def put(kind: str, path: Path) -> None:
    """Let ``path`` be of ``kind``, whatever was there."""
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    path.unlink(missing_ok=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    KINDS[kind](path)


def held_run(
    home: Home,
    *,
    name: str,
    is_over: bool = True,
    scratch: Path | None = None,
    site: str = "local",
    gpus: int = 0,
    account: str | None = None,
) -> RunDir:
    """A run with an attempt, events, a mirror and two checkpoints; nothing is ever sent for it."""
    run = make_run(
        scratch or home.path / "scratch",
        name=name,
        resources={"nodes": 1, "gpus_per_node": gpus, "account": account},
    )
    run = run.model_copy(
        update={"site": site, "partition": "local", "gpu_type": None, "user": getpass.getuser()}
    )
    run_dir = create_run(run, home)
    attempt = run_dir.attempt(1)
    attempt.path.mkdir(parents=True)
    records: list[dict[str, Any]] = [
        {"record": "held", "by": "ada"},
        {
            "record": "intended",
            "attempt": 1,
            "job_name": f"{run.run_id}:1",
            "scheduler": "local",
        },
        {"record": "submitted", "attempt": 1, "job_id": "7"},
    ]
    if is_over:
        records.append({"record": "ended", "attempt": 1, "cause": "failed", "raw_state": "FAILED"})
        records[-1] |= {"rule": "test", "exit_code": 1, "ended_at": _AT}
    _write(run_dir.journal, records)
    _write(attempt.events, [{"event": "started"}, {"event": "progress", "train_step": 20}])
    _write(run_dir.mirror, [{"what": "mirrored", "train_step": 10}])
    attempt.log.write_text("it is trained\n")
    for train_step in (10, 20):
        facts = {"metrics": {"loss": 0.5}, "run_id": run.run_id, "attempt": 1}
        publish(run_dir.checkpoints, train_step, {"model.pt": b"weights of it"}, **facts)
    return run_dir


def _write(path: Path, lines: list[dict[str, Any]]) -> None:
    path.write_text("".join(json.dumps({"at": _AT, **line}) + "\n" for line in lines))
    path.chmod(0o600)


@contextmanager
def bounded() -> Iterator[None]:
    """Neither hangs nor takes much memory: the one ends in an exception, as the other does."""

    def end(*_: object) -> None:
        raise TooLongError

    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    before = resource.getrlimit(resource.RLIMIT_AS)
    old = signal.signal(signal.SIGALRM, end)
    signal.alarm(_DEADLINE_S)
    resource.setrlimit(resource.RLIMIT_AS, (mapped + _MORE_BYTES, before[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, before)
        signal.alarm(0)
        signal.signal(signal.SIGALRM, old)
