"""Each line that a rank prints begins with its rank; the program notices nothing of it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from hpcflow.runtime import label
from hpcflow.testing.cluster import poll

LABEL = [sys.executable, "-I", "-S", label.__file__]


def labelled(shell: str, *, rank: str = "3") -> tuple[int, str]:
    """The exit code, and what is in the log."""
    done = subprocess.run(
        [*LABEL, "sh", "-c", shell],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "RANK": rank},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def test_lines_of_both_streams_begin_with_the_rank() -> None:
    code, log = labelled("echo out; echo error >&2; echo; printf 'no end'", rank="12")
    assert log == "[rank12]: out\n[rank12]: error\n[rank12]: \n[rank12]: no end\n"
    assert code == 0


def test_a_line_that_torch_has_marked_is_not_marked_twice() -> None:
    assert labelled("echo '[rank3]: Traceback'")[1] == "[rank3]: Traceback\n"


@pytest.mark.parametrize(("shell", "code"), [("exit 75", 75), ("kill -9 $$", 137)])
def test_the_exit_code_is_that_of_the_program(shell: str, code: int) -> None:
    assert labelled(f"echo before; {shell}") == (code, "[rank3]: before\n")


def test_a_long_line_stays_one_line_and_a_progress_bar_is_not_kept_back() -> None:
    assert labelled("head -c 300000 /dev/zero | tr '\\0' x")[1].count("\n") == 1
    labels = label.Labels("[rank0]: ")
    bars = [b"\r%3d %%" % percent for percent in range(100)] * 20
    written = b"".join(map(labels.add, bars)) + labels.end()
    assert written.count(b"[rank0]: ") == written.count(b"\n") > 1
    assert written.replace(b"[rank0]: ", b"").replace(b"\n", b"\r") == b"".join(bars) + b"\r"


def test_a_process_that_the_program_leaves_behind_does_not_keep_the_rank_alive() -> None:
    begin = time.monotonic()
    assert labelled("sleep 50 & echo done") == (0, "[rank3]: done\n")
    code, log = labelled("(while echo more; do sleep 0.01; done) & echo done")
    assert code == 0
    assert "[rank3]: done\n" in log
    assert time.monotonic() - begin < 40


def test_what_the_program_prints_when_it_is_told_to_end_is_in_the_log(tmp_path: Path) -> None:
    """torchrun sends TERM to all processes of a rank."""
    log, ready = tmp_path / "log", tmp_path / "ready"
    shell = f"trap 'echo saved; exit 9' TERM; touch {ready}; while :; do sleep 0.05; done"
    with log.open("wb") as file:
        rank = subprocess.Popen([*LABEL, "sh", "-c", shell], stdout=file, start_new_session=True)
    poll(ready.exists, 60, "it has not started")
    os.killpg(rank.pid, signal.SIGTERM)
    assert rank.wait(60) == 9
    assert log.read_text().endswith("[rank0]: saved\n")


def test_a_signal_that_is_ignored_stays_ignored_in_the_program() -> None:
    shell = f"trap '' USR2; exec {' '.join(LABEL)} sh -c 'kill -s USR2 $$; echo alive'"
    assert subprocess.run(["sh", "-c", shell], check=True, stdout=-1).stdout == b"[rank0]: alive\n"


def test_a_full_disk_does_not_end_the_program() -> None:
    with Path("/dev/full").open("wb") as full:
        shell = "yes | head -c 1000000; exit 4"
        assert subprocess.run([*LABEL, "sh", "-c", shell], stdout=full, check=False).returncode == 4
