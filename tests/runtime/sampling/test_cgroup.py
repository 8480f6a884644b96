"""The cgroup of the job, as Slurm makes it with either version, and where there is none."""

from __future__ import annotations

from pathlib import Path

from hpcflow.runtime.sampling.processes import CgroupUse, find_cgroup

MIB = 1 << 20
UNIFIED = "0::/system.slice/slurmstepd.scope/job_71/step_0/user/task_0\n"
FIRST = """\
11:memory:/slurm/uid_1000/job_71/step_0/task_0
9:cpu,cpuacct:/slurm/uid_1000/job_71/step_0/task_0
3:cpuset:/slurm/uid_1000/job_71/step_0
0::/system.slice/slurmd.service
"""


def written(folder: Path, **files: str) -> Path:
    folder.mkdir(parents=True)
    for name, text in files.items():
        (folder / name.replace("__", ".")).write_text(text)
    return folder


def test_version_2_says_cpu_time_and_the_memory_that_cannot_be_given_away(tmp_path: Path) -> None:
    """Of 9 GiB, most are pages of the data set that was read."""
    written(
        tmp_path / "system.slice/slurmstepd.scope/job_71",
        cpu__stat="usage_usec 12500000\nuser_usec 12000000\nsystem_usec 500000\n",
        memory__stat=f"anon {600 * MIB}\nfile {8000 * MIB}\nkernel {20 * MIB}\nshmem {30 * MIB}\n",
        memory__current=f"{9000 * MIB}\n",
        memory__peak=f"{9100 * MIB}\n",
    )
    found = find_cgroup("71", UNIFIED, tmp_path)
    assert found.read() == CgroupUse(12.5, 650 * MIB, 9100 * MIB)


def test_version_1_has_a_folder_for_each_controller(tmp_path: Path) -> None:
    written(
        tmp_path / "memory/slurm/uid_1000/job_71",
        memory__stat=f"cache {8000 * MIB}\ntotal_rss {600 * MIB}\ntotal_shmem {30 * MIB}\n",
        memory__max_usage_in_bytes=f"{9100 * MIB}\n",
    )
    written(tmp_path / "cpu,cpuacct/slurm/uid_1000/job_71", cpuacct__usage="12500000000\n")
    found = find_cgroup("71", FIRST, tmp_path)
    assert found.read() == CgroupUse(12.5, 630 * MIB, 9100 * MIB)


def test_slurm_names_the_folder_by_the_jobs_sluid(tmp_path: Path) -> None:
    """From 26.05 on, unless cgroup.conf has CgroupJobIdPaths=yes."""
    said = UNIFIED.replace("job_71", "sEKNKTV3WPV500")
    written(
        tmp_path / "system.slice/slurmstepd.scope/sEKNKTV3WPV500",
        cpu__stat="usage_usec 12500000\n",
        memory__stat=f"anon {600 * MIB}\n",
    )
    found = find_cgroup("71", said, tmp_path, sluid="sEKNKTV3WPV500")
    assert found.read() == CgroupUse(12.5, 600 * MIB, None)
    for other in (None, "", "sEKNKTV3WPV501"):
        assert not find_cgroup("71", said, tmp_path, sluid=other).is_there
    assert not find_cgroup("71", "0::/\n", tmp_path, sluid="").is_there


def test_an_old_kernel_has_no_peak(tmp_path: Path) -> None:
    written(
        tmp_path / "system.slice/slurmstepd.scope/job_71",
        memory__stat=f"anon {600 * MIB}\nshmem 0\n",
    )
    assert find_cgroup("71", UNIFIED, tmp_path).read() == CgroupUse(None, 600 * MIB, None)


def test_without_a_cgroup_of_this_very_job_there_is_none(tmp_path: Path) -> None:
    written(tmp_path / "system.slice/slurmstepd.scope/job_71", memory__stat="anon 1\n")
    for job_id, said in (("7", UNIFIED), (None, UNIFIED), ("71", "0::/user.slice\n"), ("71", "")):
        found = find_cgroup(job_id, said, tmp_path)
        assert not found.is_there
        assert found.read() == CgroupUse(None, None, None)


def test_files_that_say_nonsense_are_nothing_known(tmp_path: Path) -> None:
    written(
        tmp_path / "system.slice/slurmstepd.scope/job_71",
        memory__stat="anon many\n",
        memory__peak="max\n",
        cpu__stat="",
    )
    assert find_cgroup("71", UNIFIED, tmp_path).read() == CgroupUse(None, None, None)
