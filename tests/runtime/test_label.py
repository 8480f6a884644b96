"""Each line that a rank prints begins with its rank; the program notices nothing of it."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from functools import partial
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


def test_a_program_that_is_not_there_is_an_error_of_the_shell() -> None:
    done = subprocess.run([*LABEL, "/no/such"], stdout=subprocess.PIPE, check=False)
    assert done.returncode == 127
    assert done.stdout.startswith(b"[rank")
    assert b"not found" in done.stdout


def test_a_long_line_stays_one_line_and_a_short_one_is_written_whole() -> None:
    assert labelled("head -c 300000 /dev/zero | tr '\\0' x")[1].count("\n") == 1
    sizes = writes_of("i=0; while [ $i -lt 3000 ]; do echo a line; i=$((i + 1)); done")
    assert max(sizes) <= select.PIPE_BUF, "no other process writes in between"


def writes_of(shell: str) -> list[int]:
    """How many bytes each write has, to a pipe that keeps them apart."""
    read, write = os.pipe2(os.O_DIRECT)
    with subprocess.Popen([*LABEL, "sh", "-c", shell], stdout=write):
        os.close(write)
        sizes = [len(chunk) for chunk in iter(partial(os.read, read, 1 << 16), b"")]
    os.close(read)
    return sizes


def test_a_progress_bar_does_not_wait_for_the_end_of_its_line(tmp_path: Path) -> None:
    """The growth of the log is a sign of life; a bar ends its line after hours."""
    go, log = tmp_path / "go", tmp_path / "log"
    shell = f"printf '10 %%\\r'; until test -e {go}; do sleep 0.1; done; printf '20 %%\\r'"
    with log.open("wb") as file, subprocess.Popen([*LABEL, "sh", "-c", shell], stdout=file):
        poll(lambda: log.read_bytes() == b"[rank0]: 10 %\r\n", 60, log.read_text)
        go.touch()
    assert log.read_bytes() == b"[rank0]: 10 %\r\n[rank0]: 20 %\r\n"


def test_a_line_that_is_written_in_two_parts_after_a_pause_is_one_line() -> None:
    """As ``python3 -u`` writes a line and its end."""
    shell = "echo first; sleep 5.5; printf a; sleep 0.5; echo b"
    assert labelled(shell)[1] == "[rank3]: first\n[rank3]: ab\n"


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
