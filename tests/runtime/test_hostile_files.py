"""Unsafe files in a job: they neither hang it nor fill its memory, and no link is followed."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import Final

import pytest

from hpcflow.runtime.adoption.adopter import read_memory
from hpcflow.runtime.files import create_marker
from hpcflow.runtime.manifest import verify
from hpcflow.runtime.notice import Notice
from hpcflow.runtime.retention import find
from hpcflow.runtime.rule import COMPLETE
from hpcflow.runtime.store import CheckpointStore
from hpcflow.runtime.successor import successor
from tests.hostile import KINDS, bounded, put
from tests.runtime.kept import RUN_ID, job_in, save, save_and_tidy, there

#: Below a run directory with checkpoints 10 and 20: what somebody may have put something in for.
OF_A_CHECKPOINT: Final = (
    "checkpoints/000000020/manifest.json",
    "checkpoints/000000020/model.pt",
    "checkpoints/000000020/sub/optimizer.pt",
    "checkpoints/000000020/sub",
    "checkpoints/000000020",
)
BESIDE_THEM: Final = (
    "mirror.jsonl",
    "run.json",
    "cancel",
    "attempts/0003/claim",
    "attempts/0003",
    "events.jsonl",
    "adoption.json",
    "attempts/0002/resubmit",
)


@pytest.fixture
def run_dir(tmp_path: Path) -> Path:
    """A run directory with checkpoints 10 and 20."""
    path = tmp_path / "run"
    path.mkdir()
    for train_step in (10, 20):
        save(path, train_step, loss=0.5)
    return path


@pytest.mark.parametrize("place", OF_A_CHECKPOINT)
@pytest.mark.parametrize("kind", KINDS)
def test_a_bad_checkpoint_hides_no_good_one(run_dir: Path, kind: str, place: str) -> None:
    """The job resumes from the newest good one, and goes on to save; the bad one has a reason."""
    put(kind, run_dir / place)
    with bounded():
        newest = CheckpointStore(run_dir / "checkpoints").newest()
        found = {each.train_step: each for each in find(run_dir / "checkpoints", RUN_ID)}
        save_and_tidy(job_in(run_dir), 30)
    assert newest is not None
    assert newest.train_step == 10
    assert found.keys() == {10, 20}
    assert found[10].state == COMPLETE
    assert found[20].state != COMPLETE
    assert found[20].why
    assert verify(run_dir / "checkpoints/000000030").train_step == 30


@pytest.mark.parametrize("kind", KINDS)
def test_what_lies_beside_the_checkpoints_holds_no_save_up(run_dir: Path, kind: str) -> None:
    """Nor is it written to: not through a link, and not into a pipe that nobody reads."""
    for place in BESIDE_THEM:
        put(kind, run_dir / place)
    job = job_in(run_dir, attempt_dir=run_dir / "attempts/0002", mirror_url="s3://b")
    secrets = {path: path.read_bytes() for path in run_dir.parent.rglob(".secret-*")}
    with bounded():
        successor(job)
        Notice(None, cancel=job.cancel).is_pruned()
        read_memory(run_dir / "adoption.json")
        with suppress(OSError):
            create_marker(run_dir / "attempts/0002/resubmit")
        newest = CheckpointStore(run_dir / "checkpoints").newest()
        save_and_tidy(job, 30)
    assert newest is not None
    assert newest.train_step == 20
    assert there(run_dir)[-1] == 30
    assert {path: path.read_bytes() for path in secrets} == secrets
    assert not list(run_dir.rglob("nothing"))
