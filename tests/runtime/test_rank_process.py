"""A rank gets each signal once, and each of its lines a label; it notices nothing of either."""

from __future__ import annotations

import os
import select
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path
from time import monotonic
from typing import IO

import pytest

from hpcflow.runtime import rank_process
from hpcflow.testing.cluster import poll

AFTER = 'exit "$1"'
RANK_PROCESS = [sys.executable, "-I", "-S", rank_process.__file__, AFTER]
#: Of a rank among several.
LABELLED = {**os.environ, "WORLD_SIZE": "12", "RANK": "3"}


def labelled(shell: str, *, rank: str = "3") -> tuple[int, str]:
    """The exit code, and what is in the log."""
    done = subprocess.run(
        [*RANK_PROCESS, "sh", "-c", shell],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**LABELLED, "RANK": rank},
        timeout=60,
        check=False,
    )
    return done.returncode, done.stdout.decode()


def start(shell: str, log: IO[bytes] | int, **variables: str) -> subprocess.Popen[bytes]:
    """A rank, in a session of its own, as torchrun starts it."""
    return subprocess.Popen(
        [*RANK_PROCESS, "sh", "-c", shell],
        stdout=log,
        env={**LABELLED, **variables},
        start_new_session=True,
    )


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
    done = subprocess.run(
        [*RANK_PROCESS, "/no/such"], stdout=subprocess.PIPE, env=LABELLED, check=False
    )
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
    with start(shell, write):
        os.close(write)
        sizes = [len(chunk) for chunk in iter(partial(os.read, read, 1 << 16), b"")]
    os.close(read)
    return sizes


def test_a_progress_bar_does_not_wait_for_the_end_of_its_line(tmp_path: Path) -> None:
    """The growth of the log is a sign of life; a bar ends its line after hours."""
    go, log = tmp_path / "go", tmp_path / "log"
    shell = f"printf '10 %%\\r'; until test -e {go}; do sleep 0.1; done; printf '20 %%\\r'"
    with log.open("wb") as file, start(shell, file):
        poll(lambda: log.read_bytes() == b"[rank3]: 10 %\r\n", 60, log.read_text)
        go.touch()
    assert log.read_bytes() == b"[rank3]: 10 %\r\n[rank3]: 20 %\r\n"


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
        rank = start(shell, file)
    poll(ready.exists, 60, "it has not started")
    os.killpg(rank.pid, signal.SIGTERM)
    assert rank.wait(60) == 9
    assert log.read_text().endswith("[rank3]: saved\n")


def test_a_signal_that_is_ignored_stays_ignored_in_the_program() -> None:
    shell = f"trap '' USR2; exec {shlex.join(RANK_PROCESS)} sh -c 'kill -s USR2 $$; echo alive'"
    assert subprocess.run(["sh", "-c", shell], check=True, stdout=-1, env=LABELLED).stdout == (
        b"[rank3]: alive\n"
    )


def test_a_full_disk_does_not_end_the_program() -> None:
    with Path("/dev/full").open("wb") as full:
        shell = "yes | head -c 1000000; exit 4"
        assert start(shell, full).wait(60) == 4


_NUMBERS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGUSR2, signal.SIGUSR1)
#: It prints each signal that it gets, and ends after USR1, when no second one can come.
PRINTS = f"""
import os, signal, time
seen = []
def take(number, _):
    seen.append(number)
    os.write(1, signal.Signals(number).name.encode() + b"\\n")
for number in {[int(each) for each in _NUMBERS]}:
    signal.signal(number, take)
os.write(1, b"ready\\n")
while signal.SIGUSR1 not in seen:
    time.sleep(0.05)
time.sleep(1)
"""
ALONE, ALL = [os.kill] * 5, [os.killpg] * 5


@pytest.mark.parametrize("world_size", ["1", "12"])
@pytest.mark.parametrize(
    "sends", [ALONE, ALL, ALONE[:1] + ALL[1:]], ids=["alone", "all", "first alone, then all"]
)
def test_each_signal_reaches_the_program_once(
    sends: list[Callable[[int, int], None]], world_size: str, tmp_path: Path
) -> None:
    """Slurm with cgroups signals the process that it has started; without, or torchrun, all."""
    log = tmp_path / "log"
    words = shlex.join([sys.executable, "-c", PRINTS])
    with log.open("wb") as file:
        rank = start(f"exec {words}", file, WORLD_SIZE=world_size)
    poll(partial(_has, log, "ready"), 60, "it has not started")
    _probe(rank.pid)
    for send, number in zip(sends, _NUMBERS, strict=True):
        send(rank.pid, number)
        poll(partial(_has, log, number.name), 60, log.read_text)
    assert rank.wait(60) == 0
    assert _lines(log) == ["ready", *(number.name for number in _NUMBERS)]


def _has(log: Path, line: str) -> bool:
    return line in _lines(log)


def _lines(log: Path) -> list[str]:
    return [line.split("]: ")[-1] for line in log.read_text().splitlines()]


SAVES = "trap 'exit 75' TERM; touch ready; while :; do sleep 0.05; done"


@pytest.mark.parametrize("world_size", ["1", "12"])
@pytest.mark.parametrize("redirects", ["exec > own.log 2>&1; ", "exec >&- 2>&-; "])
def test_a_program_that_does_not_print_to_the_log_gets_signals(
    redirects: str, world_size: str, tmp_path: Path
) -> None:
    shell = f"cd {tmp_path}; {redirects}{SAVES}"
    rank = start(shell, subprocess.DEVNULL, WORLD_SIZE=world_size)
    poll((tmp_path / "ready").exists, 60, "it has not started")
    rank.terminate()
    assert rank.wait(60) == 75


def test_a_signal_reaches_the_program_if_the_probe_was_killed(tmp_path: Path) -> None:
    rank = start(f"cd {tmp_path}; {SAVES}", subprocess.DEVNULL)
    poll((tmp_path / "ready").exists, 60, "it has not started")
    os.kill(_probe(rank.pid), signal.SIGKILL)
    rank.terminate()
    assert rank.wait(60) == 75


#: ``rank_process``, which signals all processes of the rank as soon as the probe exists.
SIGNALLED_AT_ONCE = """
import os, runpy, signal, sys
fork = os.fork
def fork_and_signal():
    pid = fork()
    if pid:
        os.killpg(0, signal.SIGTERM)
    return pid
os.fork = fork_and_signal
sys.argv[:1] = []
runpy.run_path(sys.argv[0], run_name="__main__")
"""


def test_a_signal_to_all_while_the_program_is_started_ends_it() -> None:
    words = [sys.executable, "-c", SIGNALLED_AT_ONCE, rank_process.__file__, AFTER, "sleep", "5"]
    assert subprocess.run(words, start_new_session=True, check=False).returncode == 143


@pytest.mark.parametrize("world_size", ["1", "12"])
def test_signals_that_the_launcher_blocks_are_not_blocked(world_size: str) -> None:
    blocks = (
        "import os, signal, sys; signal.pthread_sigmask(signal.SIG_BLOCK, signal.valid_signals()); "
        "os.execv(sys.argv[1], sys.argv[1:])"
    )
    words = [sys.executable, "-c", blocks, *RANK_PROCESS, "sh", "-c", "sleep 0.1; kill $$"]
    environment = {**LABELLED, "WORLD_SIZE": world_size}
    assert subprocess.run(words, env=environment, timeout=60, check=False).returncode == 143


@pytest.mark.parametrize("world_size", ["1", "12"])
def test_the_program_gets_the_descriptors_that_were_opened_for_it(world_size: str) -> None:
    """Such as PMI_FD, by which MPI talks to Slurm."""
    read, write = os.pipe()
    words = [*RANK_PROCESS, "sh", "-c", f"echo hello > /dev/fd/{write}"]
    environment = {**LABELLED, "WORLD_SIZE": world_size}
    subprocess.run(words, env=environment, pass_fds=[write], timeout=60, check=False)
    os.close(write)
    assert os.read(read, 9) == b"hello\n"
    os.close(read)


def test_a_notice_does_not_end_a_program_that_does_not_listen(tmp_path: Path) -> None:
    log = tmp_path / "log"
    shell = f"trap '' USR2; exec {shlex.join(RANK_PROCESS)} sh -c 'echo ready; exec sleep 60'"
    with log.open("wb") as file:
        rank = subprocess.Popen(["sh", "-c", shell], stdout=file, start_new_session=True)
    poll(lambda: "ready" in log.read_text(), 60, "it has not started")
    os.kill(rank.pid, signal.SIGUSR2)
    os.kill(rank.pid, signal.SIGTERM)
    assert rank.wait(60) == 143, "of TERM"


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_script_of_a_shell_goes_on_and_what_it_has_started_gets_the_signal(
    shell: str, tmp_path: Path
) -> None:
    """TERM would end the shell, and the rank with it, while the training saves."""
    log, words = tmp_path / "log", shlex.join([sys.executable, "-c", PRINTS])
    with log.open("wb") as file:
        rank = start(f"{shell} -c {shlex.quote(f'({words}); exit 75')}; exit $?", file)
    poll(partial(_has, log, "ready"), 60, "it has not started")
    for number in (signal.SIGTERM, signal.SIGUSR1):
        os.kill(rank.pid, number)
        poll(partial(_has, log, number.name), 60, log.read_text)
    assert rank.wait(60) == 75
    assert _lines(log) == ["ready", "SIGTERM", "SIGUSR1"]


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_a_shell_that_has_a_trap_gets_the_signal(shell: str, tmp_path: Path) -> None:
    rank = start(f"cd {tmp_path}; exec {shell} -c {shlex.quote(SAVES)}", subprocess.DEVNULL)
    poll((tmp_path / "ready").exists, 60, "it has not started")
    rank.terminate()
    assert rank.wait(60) == 75


@pytest.mark.parametrize(("word", "seen"), [("USR2", ["SIGUSR2"]), ("stalled", [])])
def test_torchrun_hands_on_no_notice_so_a_rank_looks_for_it(
    word: str, seen: list[str], tmp_path: Path
) -> None:
    """What shows no progress gets only the file."""
    log, notice = tmp_path / "log", tmp_path / "notice"
    words = shlex.join([sys.executable, "-c", PRINTS])
    variables = {"TORCHELASTIC_RUN_ID": "x", "HPCFLOW_NOTICE": str(notice)}
    with log.open("wb") as file:
        rank = start(f"exec {words}", file, **variables)
    poll(partial(_has, log, "ready"), 60, "it has not started")
    notice.write_text(f"{word}\n")
    over = monotonic() + 2 * rank_process._NOTICE_S
    poll(lambda: (seen and _has(log, *seen)) or monotonic() > over, 60, "time stands still")
    os.kill(rank.pid, signal.SIGUSR1)
    assert rank.wait(60) == 0
    assert _lines(log) == ["ready", *seen, "SIGUSR1"]


def test_afterwards_a_script_gets_the_exit_code_and_nothing_ends_it() -> None:
    words = [sys.executable, "-I", "-S", rank_process.__file__]
    script = 'kill -s TERM $$; echo "$1"; exit 5'
    done = subprocess.run(
        [*words, script, "sh", "-c", "exit 7"], stdout=subprocess.PIPE, check=False
    )
    assert (done.returncode, done.stdout) == (5, b"7\n")


def test_the_probe_ends_with_the_rank(tmp_path: Path) -> None:
    """Also with one that is killed."""
    log = tmp_path / "log"
    with log.open("wb") as file:
        rank = start("echo ready; exec sleep 60", file)
    poll(lambda: b"ready" in log.read_bytes(), 60, "it has not started")
    probe = _probe(rank.pid)
    os.killpg(rank.pid, signal.SIGSTOP)  # so that only one thing ends it
    rank.kill()
    rank.wait(60)
    os.kill(probe, signal.SIGCONT)
    poll(lambda: b"rank_process" not in _command_line(probe), 60, "it is still there")
    os.killpg(rank.pid, signal.SIGKILL)


def _probe(rank: int) -> int:
    """Its process id; the program is started before it."""
    found: list[int] = []

    def look() -> bool:
        found[:] = (pid for pid in _children(rank) if b"rank_process" in _command_line(pid))
        return len(found) == 1

    poll(look, 60, "there is no probe")
    return found[0]


def _children(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def _command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:  # it has ended
        return b""
