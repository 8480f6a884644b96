"""A store into which somebody else may write: a folder, and a bucket of a real S3 server.

All that is in it may be changed, with names and contents that are meant to harm. The owner restores
from it, here and in a home that knows nothing, mirrors there, and looks at what came of it. What a
bucket says never chooses where hpcflow reads, writes or executes; the rest is in ``typed``.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from hpcflow.errors import HpcflowError
from hpcflow.mirror.stores import open_remote
from hpcflow.testing.cluster import S3, packages
from tests.soak.findings import Findings
from tests.soak.outside import Outside
from tests.soak.project import Project, shared_project
from tests.soak.typed import Try, warm_up
from tests.soak.worker import in_child

_ROLES: Final = ("completed", "waiting", "held", "failed", "purged")
_NAMES: Final = (
    "../../escaped", "artifacts/../../../escaped", "/tmp/hpcflow-escaped", "a\x1b]0;owned\x07",
    "runtime/hpcflow/__init__.py", "runtime/hpcflow/runtime/__init__.py", "attempts/0009/claim",
    "attempts/0001/job.sbatch", "checkpoints/000000300/manifest.json", "cancel", "submit.lock",
    "checkpoints/99999999999999999999/manifest.json", "-rf", "artifacts/" + "d/" * 200 + "x",
    "journal.jsonl/x", "artifacts/\u202ename", "code/.git/config", "start/000000100/manifest.json",
)  # fmt: skip
_COMMANDS: Final = (
    "purge and restore RUN", "mirror --once", "mirror verify RUN", "mirror status", "restore RUN",
    "checkpoint verify RUN", "show RUN", "history RUN", "ls --all", "daemon --once",
    "resume-path RUN", "scratch",
)  # fmt: skip
#: A larger file is not sent to the server.
_SENT_BYTES: Final = 60 << 20
#: In a home that did not know the run.
_LATER: Final = ("ls --all", "show RUN", "history RUN", "mirror --once", "checkpoint verify RUN",
                 "checkpoint ls RUN", "resume RUN", "ledger check")  # fmt: skip


def run(folder: Path, findings: Findings, numbers: Sequence[int]) -> None:
    """Each try: some objects are another's, then the owner's commands."""
    project, outside = shared_project(folder.parent), Outside(folder / "outside")
    warm_up(project)
    with _server(folder / "s3") as server:
        for number in numbers:
            this = Try(project, outside, findings.dice(number), findings)
            role = this.dice.choice(_ROLES)
            store = project.store / project.runs[role]
            for _ in range(this.dice.choice((1, 1, 2, 3))):
                _attack(this, store)
            url = str(store)
            if server is not None and this.dice.random() < 0.3:
                url = _upload(server, store, f"try-{number}")
            _elsewhere(this, role, url, server)
            for command in this.dice.sample(_COMMANDS, 3):
                this.type(command, role=role)
            this.exactly_once()
            project.reset()
            findings.progress(len(numbers))


def _attack(this: Try, store: Path) -> None:
    how = this.dice.choice(("hurt", "hurt", "name", "forged", "forged"))
    files = sorted(path for path in store.rglob("*") if path.is_file() and not path.is_symlink())
    if how == "hurt":
        this.damage(this.dice.choice(files))
        return
    if how == "name":
        name = this.dice.choice(_NAMES)
        path = Path(os.path.normpath(f"{store}/{name}"))
        if path.is_relative_to(this.project.store):
            try:
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(this.dice.choice((b"{}", b"import os; os._exit(9)", b"1")))
            except OSError:
                return
        this.story.append(f"another wrote {name!r}")
        return
    path = this.dice.choice([path for path in files if path.suffix == ".json"] or files)
    try:
        data = json.loads(path.read_bytes())
        key, value = _forge(data, this)
        path.write_text(json.dumps(data))
    except (OSError, ValueError, RecursionError, TypeError, KeyError):
        return
    this.story.append(f"another wrote {key} = {value!r:.100} in {path.name}")


def _forge(data: dict[str, Any], this: Try) -> tuple[str, object]:
    """What would choose a place, if it were believed."""
    outside = this.outside.folder
    urls = (
        f"reference://x::file://{outside}/reference.json", f"file://{outside}", str(outside), "memory://x",
        f"zip://x::file://{outside}/secret", "tar://x::file:///etc/passwd", "jlab://x", "s3://../x",
        f"simplecache::file://{outside}", "http://127.0.0.1:9/x", "github://a:b@/x", "ssh://h/x",
        f"local://{outside}", "-oProxyCommand=x", "\x1b[2J",
    )  # fmt: skip
    places = (str(outside), f"{outside}/deep", "/etc", "/", "../../..", "relative", "/dev/zero", "")
    if "spec" in data:
        key = this.dice.choice(("mirror", "run_dir", "working_dir", "run_id", "project", "site",
                                "command", "user", "name"))  # fmt: skip
        spec = data["spec"]
        if key == "mirror":
            value: object = this.dice.choice(urls)
            spec["mirror"] = {"url": value}
        elif key in ("project", "name", "command"):
            value = this.dice.choice(
                ("../..", "\x1b]0;owned\x07", "a/b", "", ["\x1b[2J"], [], "x" * 9999)
            )
            spec[key] = value
        else:
            value = this.dice.choice(places)
            data[key] = value
        return key, value
    files = data.get("files")
    if isinstance(files, dict) and files:
        name = this.dice.choice(sorted(files))
        value = this.dice.choice(
            (f"{outside}/secret", "../../../run.json", "..", "a\x1b[2Jb", "manifest.json")
        )
        files[str(value)] = files.pop(name)
        return "a file's name", value
    key = this.dice.choice(sorted(data))
    value = this.dice.choice((*urls, *places))
    data[key] = value
    return key, value


def _elsewhere(this: Try, role: str, url: str, server: S3 | None) -> None:
    """Restored where nobody knows it."""
    project = this.project
    other = project.folder / "other"
    other.mkdir(mode=0o700)
    environ = {"HPCFLOW_HOME": str(other / "home"), "SCRATCH": str(other / "scratch")}
    (other / "scratch").mkdir(mode=0o700)
    if server is not None:
        environ |= _environ(server)
    before = _outer(project)
    run_id = project.runs[role]
    at_terminal = this.dice.random() < 0.5

    def say(command: str, *args: str) -> None:
        this.story.append(f"elsewhere: hpcflow {command}")
        ended = project.say(*args, at_terminal=at_terminal, environ=environ)
        this.judge(command, ended, at_terminal=at_terminal)

    say("restore --from", "restore", run_id, "--from", url, "--even-if-running",
        "--working-dir", str(other))  # fmt: skip
    this.requested.add(role)
    this.forgotten.add(role)
    for command in this.dice.sample(_LATER, 3):
        say(command, *command.replace("RUN", run_id).split())
    for name in sorted(_outer(project).keys() - before.keys()):
        this.found("restore --from: makes files where they do not belong", name)
    this.whole(list(other.glob(f"scratch/hpcflow/*/{run_id}/checkpoints/*")), "restored elsewhere")


def _outer(project: Project) -> Mapping[str, None]:
    """What there is in the project, but for what may be made there."""
    return dict.fromkeys(
        str(path.relative_to(project.folder))
        for path in project.folder.rglob("*")
        if path.relative_to(project.folder).parts[0] not in ("other", "slurm", "store")
    )


@contextmanager
def _server(folder: Path) -> Iterator[S3 | None]:
    try:
        packages.require_rclone()
    except HpcflowError as error:
        print(f"bucket: without S3: {error}", flush=True)
        yield None
        return
    server = S3(folder)
    try:
        yield server.start()
    finally:
        server.stop()


def _upload(server: S3, store: Path, name: str) -> str:
    """The regular files of a run's folder as objects; returns its URL."""
    url = f"s3://{server.create_bucket(name)}/runs"

    def send() -> int:
        remote = open_remote(url, patience_s=5)
        for path in store.rglob("*"):
            if path.is_file() and not path.is_symlink() and path.stat().st_size < _SENT_BYTES:
                with suppress(HpcflowError):  # a name that the server does not take
                    name = f"{store.name}/{path.relative_to(store).as_posix()}"
                    remote.put_bytes(path.read_bytes(), name)
        return 0

    in_child(send, environ=_environ(server), folder=store)
    return f"{url}/{store.name}"


def _environ(server: S3) -> dict[str, str]:
    nowhere = dict.fromkeys(("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE"), "/nonexistent")
    return {**server.env(), **nowhere}
