"""Without cgroups, a job that ran out of memory was only killed: what it used then tells it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from hpcflow.model.journal import Ended
from hpcflow.model.state import Cause
from hpcflow.reconcile.attempt_events import memory_when_killed
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from tests.reconcile.test_classify_end import RUNNING, answer
from tests.requeue.watched import Watched

NEARLY_ALL = '"seconds": 9, "mem_peak_mb": 190, "asked": {"mem_mb": 200}'
HALF = '"seconds": 9, "mem_peak_mb": 100, "asked": {"mem_mb": 200}'


def used(run_dir: RunDir, members: str, *, is_marked: bool = False) -> None:
    files = run_dir.attempt(1)
    files.usage.parent.mkdir(parents=True)
    files.usage.write_text(members)
    if is_marked:
        files.killed.touch()


@pytest.mark.parametrize(
    ("exit_code", "signal", "is_marked", "members", "has_run_out"),
    [
        (None, 9, False, NEARLY_ALL, True),
        (137, None, False, NEARLY_ALL, True),
        (1, None, True, NEARLY_ALL, True),
        (1, None, False, NEARLY_ALL, False),
        (None, 11, False, NEARLY_ALL, False),
        (137, None, False, HALF, False),
        (137, None, False, '"seconds": 9, "mem_peak_mb": 190', False),
        (137, None, False, '"seconds": 9, "mem_peak_mb": 190, "asked": {"mem_mb": "many"}', False),
        (137, None, False, "no JSON", False),
        (137, None, False, "", False),
    ],
)
def test_only_a_job_that_was_killed_with_nearly_all_in_use_has_run_out(
    tmp_path: Path,
    exit_code: int | None,
    signal: int | None,
    is_marked: bool,
    members: str,
    has_run_out: bool,
) -> None:
    used(RunDir(tmp_path), members, is_marked=is_marked)
    job = replace(answer("FAILED", exit_code=exit_code), signal=signal)
    why = memory_when_killed(RunDir(tmp_path), RUNNING, job)
    assert why == ("killed when it used 190 of 200 MB" if has_run_out else None)


def test_a_job_without_samples_was_only_killed(tmp_path: Path) -> None:
    assert memory_when_killed(RunDir(tmp_path), RUNNING, answer("FAILED", exit_code=137)) is None


def test_it_is_sent_again_with_more_memory(tmp_path: Path) -> None:
    desk = Watched(tmp_path)
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    used(run_dir, NEARLY_ALL)
    desk.slurm.end(launched.job_id, "FAILED", signal=9)
    desk.tick()
    (ended,) = (each for each in journal.read(run_dir) if isinstance(each, Ended))
    assert ended.cause is Cause.OUT_OF_MEMORY
    assert ended.rule == "killed when it used 190 of 200 MB; queue says FAILED"
