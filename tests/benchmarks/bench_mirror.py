"""The mirror and fetching from it, against s5cmd and rclone and one server: ``rclone serve s3``."""

from __future__ import annotations

import itertools
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Final

from hpcflow.storage.layout import Home, RunDir
from hpcflow.testing.cluster import S3
from tests.benchmarks.timing import (
    ProcessFailedError,
    Row,
    Usage,
    quiet,
    ratio,
    time_process,
    wall,
)
from tests.mirror.runs import desk_in, save

_ROUNDS: Final = 3
_LARGE: Final = {f"shard-{number:02d}.pt": 128 << 20 for number in range(16)}
_SMALL: Final = 10_000
_SMALL_BYTES: Final = 2_000
_BIN: Final = Path(sys.executable).parent
_MEMORY_MB: Final = 500
_ON_DISK: Final = "s5cmd and sync"

Start = Callable[[], subprocess.Popen[str]]


def rows() -> list[Row]:
    """Measure on the disk of ``/var/tmp``, all programs in turn."""
    folder = Path(tempfile.mkdtemp(dir="/var/tmp", prefix="hpcflow-bench-mirror-"))
    server = S3(folder / "server").start()
    try:
        large, small = (_Bench(folder / name, server) for name in ("large", "small"))
        return [*large.large(), *small.small()]
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


@dataclass
class _Bench:
    folder: Path
    server: S3

    def __post_init__(self) -> None:
        self._buckets = (f"{self.folder.name}{number}" for number in itertools.count())
        self._failed: set[str] = set()
        rclone = "RCLONE_CONFIG_LAB_"
        self._environ = {
            **os.environ,
            **self.server.env(),
            "S3_ENDPOINT_URL": self.server.endpoint,
            f"{rclone}TYPE": "s3",
            f"{rclone}PROVIDER": "Rclone",
            f"{rclone}ENV_AUTH": "true",
            f"{rclone}ENDPOINT": self.server.endpoint,
            "RCLONE_CONFIG": str(self.folder / "rclone.conf"),
            "PYTHONPATH": str(Path(__file__).resolve().parents[2]),
        }

    def large(self) -> list[Row]:
        """A checkpoint of 2 GiB, there and back."""
        source = self._save(_LARGE)
        sent: dict[str, list[Usage]] = {}
        fetched: dict[str, list[Usage]] = {}
        again: dict[str, list[Usage]] = {}  # the server has computed its MD5s by then
        for _ in range(_ROUNDS):
            bucket = self._bucket()
            home, url = self._run_with(bucket, checkpoint=source)
            self._time(sent, "hpcflow", self._mirror(home))
            self._fetch(fetched, "hpcflow", url)
            self._fetch(again, "hpcflow", url)
            for name, start in self._peers(source, bucket).items():
                self._time(sent, name, start)
            url = f"s3://{bucket}/s5cmd"
            self._fetch(fetched, "s5cmd", url)
            self._fetch(again, "s5cmd", url)
            self._fetch(again, _ON_DISK, url)
            self._clear(bucket)
        size_mb = sum(_LARGE.values()) / 1e6
        what = f"a checkpoint of {size_mb:.0f} MB in {len(_LARGE)} files"
        return [
            _compared(f"{what} mirrored, whole `hpcflow mirror --once`", sent, "s5cmd", 1.0),
            _compared("the same, against rclone", sent, "rclone", None),
            _memory("peak memory of that", sent),
            _compared(f"{what} fetched, verified and on the disk", fetched, "s5cmd", 1.0),
            _compared("the same once more", again, "s5cmd", None),
            _compared("the same, on the disk by both", again, _ON_DISK, None),
            _memory("peak memory of that", fetched),
        ]

    def small(self) -> list[Row]:
        """Ten thousand small files, there and back."""
        files = {f"{number:05d}.pt": _SMALL_BYTES for number in range(_SMALL)}
        source = self._save(files)
        sent: dict[str, list[Usage]] = {}
        fetched: dict[str, list[Usage]] = {}
        for _ in range(_ROUNDS):
            bucket = self._bucket()
            home, url = self._run_with(bucket, checkpoint=source)
            self._time(sent, "hpcflow", self._mirror(home))
            self._fetch(fetched, "hpcflow", url)
            for name, start in self._peers(source, bucket).items():
                self._time(sent, name, start)
                self._fetch(fetched, name, f"s3://{bucket}/{name}")
            self._clear(bucket)
        what = f"a checkpoint of {_SMALL:,} files of {_SMALL_BYTES:,} bytes"
        return [
            _compared(f"{what} mirrored, whole `hpcflow mirror --once`", sent, "rclone", 1.0),
            _compared("the same, against s5cmd", sent, "s5cmd", None),
            _memory("peak memory of that", sent),
            _compared(f"{what} fetched, verified and on the disk", fetched, "rclone", 1.0),
            _compared("the same, against s5cmd", fetched, "s5cmd", None),
            _memory("peak memory of that", fetched),
        ]

    def _save(self, files: dict[str, int]) -> Path:
        run_dir = RunDir(self.folder / "source")
        run_dir.checkpoints.mkdir(parents=True)
        return save(run_dir, 400, files)

    def _bucket(self) -> str:
        """Create a bucket for one round: ``rclone serve s3`` lists objects for five minutes after
        they were deleted from its disk, and a peer that fetches all that is listed fails."""
        bucket = self.server.create_bucket(next(self._buckets))
        for name in ("s5cmd", "rclone"):
            self._expect(bucket, name)
        return bucket

    def _run_with(self, bucket: str, *, checkpoint: Path) -> tuple[Home, str]:
        """A home with a new run that has this one, without copying it; and where it goes."""
        desk = desk_in(self.folder / bucket, f"s3://{bucket}/hpcflow")
        desk.home.path.mkdir(parents=True, mode=0o700)
        run_dir = desk.make()
        place = run_dir.checkpoints / checkpoint.name
        shutil.copytree(checkpoint, place, copy_function=os.link)
        self._expect(bucket, f"hpcflow/{run_dir.path.name}/checkpoints/{checkpoint.name}")
        return desk.home, desk.url

    def _mirror(self, home: Home) -> Start:
        argv = [sys.executable, "-m", "hpcflow.cli.main", "mirror", "--once"]
        return quiet(argv, env={**self._environ, "HPCFLOW_HOME": str(home.path)})

    def _peers(self, source: Path, bucket: str) -> dict[str, Start]:
        s5cmd = [str(_BIN / "s5cmd"), "cp", f"{source}/", f"s3://{bucket}/s5cmd/"]
        rclone = [str(_BIN / "rclone"), "copy", str(source), f"lab:{bucket}/rclone/"]
        return {
            "s5cmd": quiet(s5cmd, env=self._environ),
            "rclone": quiet([*rclone, "--no-check-dest"], env=self._environ),
        }

    def _expect(self, bucket: str, folder: str) -> None:
        """Make the folder of objects to come. Where the first of a new one come at once, ``rclone
        serve s3`` refuses some (4 of 1,920 here), and then never gives back what was sent again."""
        (self.server.data / bucket / folder).mkdir(parents=True)

    def _fetch(self, measured: dict[str, list[Usage]], name: str, url: str) -> None:
        target = self.folder / "fetched"
        if name == "hpcflow":
            program = [sys.executable, "-m", "tests.benchmarks.mirror_program", url, str(target)]
        elif name == "rclone":
            program = [str(_BIN / "rclone"), "copy", url.replace("s3://", "lab:"), str(target)]
        else:
            program = [str(_BIN / "s5cmd"), "cp", f"{url}/*", f"{target}/"]
            if name == _ON_DISK:
                program = ["sh", "-c", '"$@" && sync "$0"/*', str(target), *program]
        self._time(measured, name, quiet(program, env=self._environ))
        if target.exists():  # a peer that failed may have fetched nothing
            shutil.rmtree(target)

    def _time(self, measured: dict[str, list[Usage]], name: str, start: Start) -> None:
        """Measure one process. A peer that fails is shown and not started again: what it would
        fetch then is not all there."""
        program = name.split()[0]
        if program in self._failed:
            return
        os.sync()  # what the one before has left to be written is not this one's
        try:
            usage = time_process(start)
        except ProcessFailedError as failure:
            if program == "hpcflow":
                raise
            self._failed.add(program)
            print(f"{program} is not compared: {failure}", file=sys.stderr, flush=True)
        else:
            measured.setdefault(name, []).append(usage)

    def _clear(self, bucket: str) -> None:
        """Through the server's disk, which has room for one round."""
        for place in (self.server.data / bucket).iterdir():
            shutil.rmtree(place)


def _compared(what: str, measured: dict[str, list[Usage]], peer: str, least: float | None) -> Row:
    goal = "none" if least is None else f"at least {least} ×"
    if len(measured.get(peer, [])) < len(measured["hpcflow"]):
        return Row(what, f"{peer} failed, see stderr", goal, is_met=False)
    speed = 1 / ratio(measured["hpcflow"], measured[peer])
    return Row(
        what,
        f"{speed:.2f} × {peer} ({wall(measured['hpcflow']):.1f} s, {wall(measured[peer]):.1f} s)",
        goal,
        least is None or speed >= least,
    )


def _memory(what: str, measured: dict[str, list[Usage]]) -> Row:
    peak_mb = median(usage.peak_mb for usage in measured["hpcflow"])
    return Row(what, f"{peak_mb:.0f} MB", f"at most {_MEMORY_MB} MB", peak_mb <= _MEMORY_MB)
