"""Stripes and quotas where there is Lustre, and nothing at all where there is none.

There is no Lustre here. What ``lfs`` prints is in the form that the Lustre Operations Manual shows
(chapters "Configuring and Managing Quotas" and "Managing File Layout (Striping) and Free Space"),
with its peculiarities as users of real clusters have published them. A script of that name prints
it.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from hpcflow.runtime import disk_quota
from hpcflow.runtime.disk_quota import Quota, parse_quota
from hpcflow.storage import lustre
from hpcflow.storage.layout import Home
from hpcflow.storage.lustre import LAYOUT, quotas, set_layout
from hpcflow.storage.rundir import create_run
from tests.runtime.lfs import Lfs
from tests.storage.runs import make_run

KIB, GIB = 1024, 1 << 30

USER = """\
Disk quotas for usr ada (uid 1001):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
       /scratch  209715200  314572800  419430400       -   12000  900000 1000000       -
"""
#: A long name has a line of its own; over its soft limit, with a time of grace.
PROJECT = """\
Disk quotas for prj 110255 (pid 110255):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
/scratch/projects/a-long-name-of-a-project
                3165308*   3072    4096 6d23h59m56s   99       0       0       -
pid 110255 is using default file quota setting
"""
#: A target does not answer; no limit but for files. Newer ones call the columns so.
GROUP = """\
Disk quotas for grp 2000 (gid 2000):
     Filesystem  kbytes  bquota  blimit  bgrace   files  iquota  ilimit  igrace
       /scratch [1041408]      0       0       -    [23]       0  500000       -
"""
UNLIMITED = """\
Disk quotas for usr ada (uid 1001):
     Filesystem  kbytes   quota   limit   grace   files   quota   limit   grace
              .    1840       0       0       -      23       0       0       -
uid 1001 is using default block quota setting
uid 1001 is using default file quota setting
"""
#: ``lfs getstripe -d`` of a folder with a plain layout, and of one with a progressive layout.
PLAIN = "stripe_count:  1 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1\n"
PROGRESSIVE = """\
  lcm_layout_gen:    0
  lcm_mirror_count:  1
  lcm_entry_count:   2
    lcme_id:             N/A
    lcme_extent.e_start: 0
    lcme_extent.e_end:   536870912
"""


@pytest.fixture
def lfs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Lfs:
    monkeypatch.setattr(lustre, "is_lustre", lambda _: True)
    return Lfs(tmp_path / "bin", monkeypatch)


def test_the_files_of_a_new_run_are_spread_as_they_grow(lfs: Lfs, tmp_path: Path) -> None:
    lfs.says("getstripe", PLAIN)
    lfs.says("setstripe", "")
    run_dir = create_run(make_run(tmp_path / "it's $scratch"), Home(tmp_path / "home"))
    looked, done = lfs.asked
    assert looked.startswith("getstripe -d ")
    assert done.startswith(
        f"setstripe {' '.join(LAYOUT)} {tmp_path}/it's $scratch/hpcflow/vision/."
    )
    assert done.endswith("/checkpoints")
    assert run_dir.checkpoints.is_dir()


def test_the_parts_of_the_layout_go_to_the_end_and_grow() -> None:
    options = list(zip(LAYOUT[::2], LAYOUT[1::2], strict=True))
    assert [value for option, value in options if option == "-E"] == ["1G", "16G", "-1"]
    assert [value for option, value in options if option == "-c"] == ["1", "4", "8"]


def test_a_progressive_layout_of_the_site_stays(lfs: Lfs, tmp_path: Path) -> None:
    lfs.says("getstripe", PROGRESSIVE)
    assert not set_layout(tmp_path)
    assert lfs.asked == [f"getstripe -d {tmp_path}"]


def test_a_layout_that_is_refused_is_no_reason_not_to_train(lfs: Lfs, tmp_path: Path) -> None:
    lfs.says("getstripe", PLAIN)
    create_run(make_run(tmp_path / "scratch"), Home(tmp_path / "home"))
    assert len(lfs.asked) == 2


def test_elsewhere_nobody_is_asked(
    lfs: Lfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.undo()  # the file system of this machine, and a program of that name all the same
    monkeypatch.setenv("PATH", f"{lfs.folder}:{os.environ['PATH']}")
    lfs.says("getstripe", PLAIN)
    lfs.says("quota-u", USER)
    create_run(make_run(tmp_path / "lustre"), Home(tmp_path / "home"))
    assert not set_layout(tmp_path)
    assert quotas(tmp_path, "ada") == []
    assert lfs.asked == []


def test_without_the_program_nothing_is_known(
    lfs: Lfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert not set_layout(tmp_path)
    assert quotas(tmp_path, "ada") == []
    assert lfs.asked == []


def test_an_answer_that_does_not_come_is_not_waited_for(
    lfs: Lfs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (lfs.folder / "lfs").write_text("#!/bin/sh\nexec sleep 60\n")
    monkeypatch.setattr(disk_quota, "_TIMEOUT_S", 0.1)
    assert not set_layout(tmp_path)
    assert quotas(tmp_path, "ada") == []


def test_the_quotas_of_user_group_and_project(lfs: Lfs, tmp_path: Path) -> None:
    lfs.says("quota-u", USER)
    lfs.says("quota-g", GROUP)
    lfs.says("quota-p", PROJECT)
    lfs.says("project", f"110255 P {tmp_path}\n")
    gid = tmp_path.stat().st_gid
    user, group, project = quotas(tmp_path, "ada")
    assert user == Quota("user ada", 200 * GIB, 300 * GIB, 400 * GIB, 12000, 1000000)
    assert group == Quota(f"group {gid}", 1041408 * KIB, None, None, 23, 500000)
    assert project == Quota("project 110255", 3165308 * KIB, 3072 * KIB, 4096 * KIB, 99, None)
    assert [each.left_bytes for each in (user, group, project)] == [100 * GIB, None, 0]
    assert f"quota -p 110255 {tmp_path}" in lfs.asked


def test_quotas_without_limits_are_none(lfs: Lfs, tmp_path: Path) -> None:
    lfs.says("quota-u", UNLIMITED)
    lfs.says("project", f"    0 - {tmp_path}\n")
    assert quotas(tmp_path, "ada") == []


@pytest.mark.parametrize(
    "text",
    [
        "",
        "lfs quota: '/home' not on a mounted Lustre filesystem\n",
        "Disk quotas for usr ada (uid 1001):\n",
        USER.rpartition("/scratch")[0],
        USER.replace("209715200", "many"),
        "1 2 3 4 5 6 7 8 9\n",
    ],
)
def test_what_is_no_quota_is_none(text: str) -> None:
    assert parse_quota(text, "user ada") is None
