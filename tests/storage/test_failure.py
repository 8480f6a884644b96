"""What a log says about the failure of an attempt: the first rank that failed, and its error."""

from __future__ import annotations

import os
import time
from pathlib import Path

import pytest

from hpcflow.storage.failure import Failure, explain, read_failure
from hpcflow.storage.layout import RunDir

#: Of two ranks under torchrun 2.10, of which rank 1 raised.
LOGS = Path(__file__).parent / "logs"

IMPORT = """\
Traceback (most recent call last):
  File "/home/ada/train.py", line 3, in <module>
    import timm
ModuleNotFoundError: No module named 'timm'
"""
HANDLED = """\
WARNING: going on without xformers
Traceback (most recent call last):
  File "/home/ada/optional.py", line 1, in <module>
    import xformers
ModuleNotFoundError: No module named 'xformers'
"""
SRUN = """\
srun: error: n1: task 1: Exited with exit code 1
srun: Terminating StepId=17.0
slurmstepd-n1: error: *** STEP 17.0 ON n1 CANCELLED AT 2026-03-01T12:00:00 ***
srun: error: n1: tasks 0,2-3: Terminated
Terminated
"""


def of(text: str) -> Failure:
    return explain(1, Path("out.log"), text.split("\n"))


@pytest.fixture
def run_dir(tmp_path: Path) -> RunDir:
    run_dir = RunDir(tmp_path)
    run_dir.attempt(1).path.mkdir(parents=True)
    return run_dir


def test_the_error_and_the_place_are_those_of_the_first_traceback() -> None:
    failure = of(f"reading the data\n{IMPORT}{SRUN}")
    assert failure.error == "ModuleNotFoundError: No module named 'timm'"
    assert failure.at == "/home/ada/train.py:3"
    assert failure.rank == 1, "by srun"
    assert of(IMPORT).rank is None
    assert failure.lines == ("reading the data", *IMPORT.splitlines()), "without what srun writes"


@pytest.mark.parametrize("name", ["torchrun", "torchrun_marked"])
def test_of_torchrun_the_rank_that_failed_first_is_shown(run_dir: RunDir, name: str) -> None:
    run_dir.attempt(1).log.write_bytes((LOGS / f"{name}.log").read_bytes())
    failure = read_failure(run_dir, 1)
    assert failure is not None
    assert (failure.rank, failure.error) == (1, "ValueError: bad shard 1"), "not its cause, either"
    assert failure.at == "/home/ada/train.py:10"
    assert failure.lines[-1] == "ValueError: bad shard 1"
    assert not any("elastic" in line or "Connection closed" in line for line in failure.lines)


def test_an_error_that_the_program_handled_is_not_its_failure() -> None:
    assert of(f"{HANDLED}training\n{IMPORT}").error == "ModuleNotFoundError: No module named 'timm'"
    marked = "".join(f"[rank2]: {line}\n" for line in IMPORT.splitlines())
    failure = of(f"{HANDLED}{marked}")
    assert (failure.rank, failure.error) == (2, "ModuleNotFoundError: No module named 'timm'")


def test_without_a_traceback_there_are_the_last_lines_of_the_rank_that_failed() -> None:
    text = "0: waiting\n1: no licence\n1: Terminated\n0: waiting still\n"
    assert of(text + SRUN).lines == ("no licence",)


def test_of_ranks_that_are_not_marked_the_first_at_the_end_counts() -> None:
    other = IMPORT.replace("ModuleNotFoundError: No module named 'timm'", "OSError: peer closed")
    assert of(IMPORT + other + SRUN).error == "ModuleNotFoundError: No module named 'timm'"


@pytest.mark.parametrize("rank", ["", "[rank3]: ", "3: "])
def test_a_progress_bar_may_stand_before_a_traceback_and_after_it(rank: str) -> None:
    bar = "  0%|          | 0/10 [00:00<?, ?it/s]"
    text = "".join(f"{rank}{line}\n" for line in f"{bar}{IMPORT}{bar}".splitlines())
    failure = of(text)
    assert failure.error == "ModuleNotFoundError: No module named 'timm'"
    assert (failure.at, failure.rank) == ("/home/ada/train.py:3", 3 if rank else None)
    group = of(f"  + Exception Group {IMPORT.replace('ModuleNotFoundError', '  | Error')}{SRUN}")
    assert group.error is None, "only what is understood is the error"


@pytest.mark.parametrize("line", SRUN.splitlines())
def test_what_srun_writes_into_a_traceback_is_not_its_error(line: str) -> None:
    """All tasks write to one log; the first of them may have ended before."""
    *frames, error = IMPORT.splitlines()
    failure = of("\n".join([*frames, line, error]))
    assert (failure.error, failure.at) == (error, "/home/ada/train.py:3")


def test_without_a_traceback_there_are_the_last_lines() -> None:
    failure = of(20 * "more\n" + f"hpcflow: there is no virtual environment /x\n{SRUN}")
    assert (failure.error, failure.at) == (None, None)
    assert len(failure.lines) == 10
    assert failure.lines[-1] == "hpcflow: there is no virtual environment /x"
    assert of("").lines == ()


def test_two_attempts_that_failed_alike_have_one_digest() -> None:
    first = of(f"attempt 1 at 12:00, pid 4711, 0x7f31\n{IMPORT}{SRUN}")
    later = of(f"attempt 2 at 12:05, pid 815, 0x9abc\n{IMPORT.replace('line 3', 'line 4')}")
    assert first.digest == later.digest is not None
    assert of(IMPORT.replace("timm", "torchvision")).digest != first.digest
    ranks = of("hpcflow: cannot read it\nsh: ./simulate: not found\n")
    assert ranks.digest == of("sh: ./simulate: not found\nhpcflow: cannot read it\n").digest
    assert ranks.digest != of("sh: ./other: not found\n").digest
    assert of(SRUN).digest is None, "a log that says nothing is like no other"


def test_only_the_end_of_a_long_log_is_read_and_no_line_is_endless(run_dir: RunDir) -> None:
    with run_dir.attempt(1).log.open("w") as file:
        file.write(HANDLED)
        file.write("x" * 100 + "\n" * 30_000 + "y" * 5_000_000 + "\n")
        file.write("10 %\r100 %\r\n" + IMPORT)
    failure = read_failure(run_dir, 1)
    assert failure is not None
    assert failure.error == "ModuleNotFoundError: No module named 'timm'"
    assert failure.lines[0] == "100 %"


HEADER = "Traceback (most recent call last):\n"
SLOW = {
    "tracebacks": f"{HEADER}A: b\n",
    "headers": HEADER,
    "ranks": "".join(f"[rank{rank}]: {HEADER}" for rank in range(1000)),
    "words": "a" * 499 + "\n",
    "digits": "0123456789abcdef-" * 29 + "g\n",
    "times": "E0000 " + ":" * 490 + "\n",
    "frames": '  File "' + '", line 1' * 50 + "\n",
    "nothing": "\n",
}


@pytest.mark.parametrize("lines", SLOW.values(), ids=SLOW)
def test_a_log_that_somebody_made_to_be_slow_is_read_in_seconds(
    run_dir: RunDir, lines: str
) -> None:
    run_dir.attempt(1).log.write_text(lines * (1 + (2 << 20) // len(lines)))
    begin = time.process_time()
    failure = read_failure(run_dir, 1)
    assert failure is not None
    assert failure.digest or lines == "\n"
    assert time.process_time() - begin < 10, "minutes, if it were quadratic"


def test_a_log_that_is_a_pipe_or_a_link_is_not_read(run_dir: RunDir, tmp_path: Path) -> None:
    assert read_failure(run_dir, 1) is None
    os.mkfifo(run_dir.attempt(1).log)
    assert read_failure(run_dir, 1) is None
    run_dir.attempt(1).log.unlink()
    (tmp_path / "other").write_text(IMPORT)
    run_dir.attempt(1).log.symlink_to(tmp_path / "other")
    assert read_failure(run_dir, 1) is None
