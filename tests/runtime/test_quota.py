"""A quota of Lustre without room for a checkpoint: it is not written, and the training continues.

There is no Lustre here: a program prints what ``lfs`` would; see tests/storage/test_lustre.py.
"""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from hpcflow.runtime import disk_quota
from hpcflow.runtime.disk_quota import is_lustre, require_quota
from tests.runtime.harness import RunFolder, start
from tests.runtime.lfs import Lfs
from tests.runtime.program import BATCHES, EPOCHS

LAST = EPOCHS * BATCHES
#: So many KiB are used of 1000.
QUOTA = """\
Disk quotas for usr 0 (uid 0):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
       /scratch     {}       0    1000       -       7       0       0       -
"""
#: The program of the tests, which takes its disk for Lustre.
ON_LUSTRE = """
from hpcflow.runtime import disk_quota
from tests.runtime import program

disk_quota.is_lustre = lambda _: True
program.train()
"""


@pytest.fixture
def lfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lfs:
    return Lfs(tmp_path / "bin", monkeypatch)


def test_this_machine_has_no_lustre_and_asks_nobody(lfs: Lfs, tmp_path: Path) -> None:
    lfs.says("quota-u", QUOTA.format(1000))
    assert not is_lustre(tmp_path)
    assert not is_lustre(tmp_path / "gone")
    require_quota(tmp_path, 1 << 30)
    assert lfs.asked == []


def test_the_kernel_says_what_lustre_is(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    of_ext4, of_tmpfs, of_xfs, of_btrfs = 0xEF53, 0x01021994, 0x58465342, 0x9123683E
    found = []
    for magic in (of_ext4, of_tmpfs, of_xfs, of_btrfs):
        monkeypatch.setattr(disk_quota, "_LUSTRE", magic)
        found.append(is_lustre(tmp_path))
    assert found.count(True) <= 1, "the number of one file system, and of no other"
    monkeypatch.setattr(disk_quota, "_LUSTRE", 0x9FA0)
    assert is_lustre(Path("/proc")), "PROC_SUPER_MAGIC"


def test_what_fits_into_the_quota_is_written(
    lfs: Lfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_quota, "is_lustre", lambda _: True)
    require_quota(tmp_path, 1 << 30)  # nothing is known of it
    lfs.says("quota-u", QUOTA.format(500))
    require_quota(tmp_path, 400 << 10)
    with pytest.raises(
        OSError, match=r"takes 600\.0 KiB, but the quota of user \d+ leaves 500"
    ) as no:
        require_quota(tmp_path, 600 << 10)
    assert no.value.errno == errno.EDQUOT


def test_beyond_a_soft_limit_a_checkpoint_is_written_while_the_time_of_grace_lasts(
    lfs: Lfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(disk_quota, "is_lustre", lambda _: True)
    row = QUOTA.replace("0    1000       -", "500    1000    {}")
    lfs.says("quota-u", row.format("700*", "6d23h59m"))
    require_quota(tmp_path, 200 << 10)
    with pytest.raises(OSError, match=r"leaves 300\.0 KiB"):
        require_quota(tmp_path, 400 << 10)
    lfs.says("quota-u", row.format("700*", "none"))
    with pytest.raises(OSError, match="leaves 0 B"):
        require_quota(tmp_path, 200 << 10)


@pytest.mark.parametrize("world_size", [1, 2])
def test_a_training_without_quota_goes_on_and_says_so(
    folder: RunFolder, lfs: Lfs, tmp_path: Path, world_size: int
) -> None:
    script = tmp_path / "on_lustre.py"
    script.write_text(ON_LUSTRE)
    path = f"{lfs.folder}:/usr/bin:/bin"
    environ = {"PROGRAM": script, "PATH": path, "HPCFLOW_CHECKPOINT_EVERY_TRAIN_STEPS": 10}
    lfs.says("quota-u", QUOTA.format(0))
    first = start(folder, world_size, HURT="0:15:TERM_ALL", PATIENT=1, **environ)
    assert first.exit_codes() == [75] * world_size, first.log()
    saved = folder.complete()

    lfs.says("quota-u", QUOTA.format(1000))
    folder.attempt = 2
    second = start(folder, world_size, HURT=f"0:{LAST - 5}:raise", PATIENT=1, **environ)
    assert second.exit_codes_by_themselves()[0] == 1
    assert "a mistake in the program" in second.log()
    failed = folder.events("checkpoint_failed")
    assert [each["train_step"] for each in failed] == [20, 30]
    assert failed[0]["why"].startswith(f"[Errno {errno.EDQUOT}] a checkpoint takes ")
    assert "leaves 0 B" in failed[0]["why"]
    assert folder.complete() == saved
    assert not list(folder.checkpoints.glob(".*"))
