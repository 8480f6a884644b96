"""A run whose program writes checkpoints of its own, with the attempts made by hand."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
import time
import zipfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from hpcflow.runtime.adoption.adopter import Adopter
from hpcflow.runtime.adoption.rule import parse_adopt_rule
from hpcflow.runtime.job import job_from
from hpcflow.runtime.manifest import read_manifest, verify
from tests.runtime.harness import RunFolder

ROOT = Path(__file__).resolve().parents[3]


def archive(text: str, size_bytes: int = 5000) -> bytes:
    """What torch.save writes, as far as anybody looks at it: a zip archive, not compressed."""
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("archive/data.pkl", text)
        file.writestr("archive/data/0", os.urandom(size_bytes))
    return buffer.getvalue()


@dataclass
class Clock:
    """Seconds that pass when a test says so."""

    now_s: float = 1000.0

    def __call__(self) -> float:
        return self.now_s


@dataclass
class Bench:
    """A run of attempts, and what its program writes in ``out``.

    Attributes:
        rule: what the config says.
        resumed: what the attempt that runs now has resumed from.
    """

    folder: RunFolder
    out: Path
    rule: dict[str, Any] = field(default_factory=dict)
    clock: Clock = field(default_factory=Clock)
    resumed: Path | None = None

    def write(self, name: str, content: bytes | dict[str, bytes], *, age_s: float = 0) -> Path:
        """As the program does: one file, or a folder of files; last changed so long ago."""
        path = self.out / name
        files = {path: content} if isinstance(content, bytes) else {}
        if isinstance(content, dict):
            files = {path / file: data for file, data in content.items()}
        for file, data in files.items():
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(data)
        for each in (*files, path):
            self._date(each, age_s)
        return path

    def environ(self) -> dict[str, str]:
        rule = {"folder": str(self.out), "pattern": "step-*", "stable_s": 10, **self.rule}
        environ = {**self.folder.environ(), "HPCFLOW_ADOPT": json.dumps(rule)}
        if self.resumed is not None:
            environ["HPCFLOW_RESUME_FROM"] = str(self.resumed)
        return environ

    def adopter(self) -> Adopter:
        """Of the attempt that runs now, in a process of its own, so to say."""
        environ = self.environ()
        job = job_from(environ)
        rule = parse_adopt_rule(environ["HPCFLOW_ADOPT"])
        assert job.run_dir and job.checkpoint_dir
        return Adopter(job, job.run_dir, job.checkpoint_dir, rule, self.clock)

    def begin(self) -> Path | None:
        """The attempt begins: its program is about to start."""
        self.resumed = None
        self.resumed = self.adopter().begin()
        (self.folder.attempt_dir / "program").write_text("123\n")
        return self.resumed

    def watching(self) -> Adopter:
        """The attempt has begun, and its program is watched."""
        self.begin()
        adopter = self.adopter()
        adopter.watch()
        return adopter

    def program_ended(self, code: int | None, *, ago_s: float = 0) -> None:
        """The program of this attempt is no more; None: nor is anybody who would say so."""
        program = self.folder.attempt_dir / "program"
        program.write_text("123\n" if code is None else f"123\n{code}\n")
        for path in self.folder.attempt_dir.iterdir():
            self._date(path, ago_s)

    def seen(self, node: str, *, ago_s: float) -> None:
        """A node of this attempt has seen the program then, and not since."""
        path = self.folder.attempt_dir / ".usage" / f"{node}.json"
        path.parent.mkdir(exist_ok=True)
        path.write_text("{}")
        self._date(path, ago_s)

    def failed(self, mark: str, *, ago_s: float = 0) -> None:
        """The shell around a rank has left this word."""
        path = self.folder.attempt_dir / mark
        path.touch()
        self._date(path, ago_s)

    def next_attempt(self) -> None:
        self.folder.attempt += 1
        self.resumed = None

    def end(self, code: int) -> None:
        """The script's last look, after the program has left with ``code``."""
        self.program_ended(code)
        self.adopter().end(is_well=code in (0, 75))

    def pass_by(self, adopter: Adopter, seconds: float) -> None:
        """Look, let time pass, look."""
        adopter.look()
        self.clock.now_s += seconds
        adopter.look()

    def adopted(self) -> dict[int, Any]:
        """Train step -> what is in it: the bytes of a file, or those of each file of a folder."""
        found: dict[int, Any] = {}
        for train_step in self.folder.complete():
            path = self.folder.checkpoint(train_step)
            verify(path)
            (own,) = (path / "adopted").iterdir()
            assert read_manifest(path)["run_id"] == self.folder.environ()["HPCFLOW_RUN_ID"]
            found[train_step] = own.read_bytes() if own.is_file() else _files(own)
        return found

    def command(self, *words: str) -> list[str]:
        return [sys.executable, "-m", "hpcflow.runtime", "adopt", *words]

    def call(self, *words: str) -> subprocess.CompletedProcess[str]:
        """``python3 -m hpcflow.runtime adopt …``, to its end."""
        return subprocess.run(
            self.command(*words),
            env=self._for_a_process(),
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )

    def watcher(self) -> subprocess.Popen[bytes]:
        """The same with ``watch``, as the job script starts it; it speaks into a file."""
        with (self.folder.attempt_dir / "watch.log").open("ab") as log:
            command = self.command("watch", str(os.getpid()))
            return subprocess.Popen(command, env=self._for_a_process(), stderr=log)

    def _for_a_process(self) -> dict[str, str]:
        return {**os.environ, "PYTHONPATH": str(ROOT), **self.environ()}

    def _date(self, path: Path, age_s: float) -> None:
        moment = time.time() - age_s
        os.utime(path, (moment, moment))


def _files(folder: Path) -> dict[str, bytes]:
    paths = (path for path in sorted(folder.rglob("*")) if path.is_file())
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}
