"""Which variables a daemon takes along, and which ledger one on a compute node may open."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from hpcflow.errors import InputError
from hpcflow.requeue.install import ledger_for_jobs
from hpcflow.requeue.install.environment import daemon_environment
from hpcflow.requeue.install.ledger_for_jobs import require_ledger_for_jobs
from hpcflow.requeue.install.place import place_of
from hpcflow.settings import Settings, load_settings


def settings(folder: Path, **environ: str) -> Settings:
    return load_settings({"HOME": str(folder), "PATH": "/usr/bin:/bin", **environ})


def fine(_command: Sequence[str], _environment: Mapping[str, str]) -> None:
    return None


def test_only_what_is_needed_is_taken_along(tmp_path: Path) -> None:
    slurm, other = tmp_path / "slurm", tmp_path / "other"
    for folder in (slurm, other):
        folder.mkdir()
    (slurm / "squeue").touch(0o755)
    theirs = settings(
        tmp_path,
        PATH=f"{other}:{slurm}:/usr/bin:/bin:.",
        SLURM_CONF="/etc/s.conf",
        SLURM_JOB_ID="7",
        SCRATCH="/scratch/ada",
        AWS_PROFILE="lab",
        AWS_ACCESS_KEY_ID="AKIDEXAMPLE",
        AWS_SECRET_ACCESS_KEY="wJalrXUtnFEMI",
        PS1="$ ",
        LD_LIBRARY_PATH="/opt/cuda",
    )
    found = daemon_environment(theirs, ("/opt/bin/hpcflow",), starts=fine)
    assert found == {
        "HOME": str(tmp_path),
        "PATH": f"{slurm}:/usr/bin:/bin:/opt/bin",
        "HPCFLOW_HOME": str(tmp_path / ".hpcflow"),
        "LOGNAME": theirs.user,
        "SLURM_CONF": "/etc/s.conf",
        "SCRATCH": "/scratch/ada",
        "AWS_PROFILE": "lab",
    }


def test_a_python_that_needs_its_libraries_gets_them(tmp_path: Path) -> None:
    def starts(_command: Sequence[str], environment: Mapping[str, str]) -> str | None:
        return None if environment.get("LD_LIBRARY_PATH") else "libpython3.so: cannot open"

    theirs = settings(tmp_path, LD_LIBRARY_PATH="/opt/python/lib")
    assert daemon_environment(theirs, ("x",), starts=starts)["LD_LIBRARY_PATH"] == "/opt/python/lib"
    with pytest.raises(InputError, match=r"does not start .*libpython3"):
        daemon_environment(settings(tmp_path), ("x",), starts=starts)


def test_it_is_really_started_before_anything_is_written(tmp_path: Path) -> None:
    broken = tmp_path / "hpcflow"
    broken.write_text("#!/bin/sh\necho no module named hpcflow >&2; exit 1\n")
    broken.chmod(0o755)
    with pytest.raises(InputError, match="no module named hpcflow"):
        daemon_environment(settings(tmp_path), (str(broken),))
    place = place_of(settings(tmp_path))
    assert daemon_environment(settings(tmp_path), place.command)["HOME"] == str(tmp_path)


@pytest.mark.parametrize(
    "url",
    [
        "postgresql://ada:hunter2@db/hpcflow",
        "postgresql://db/hpcflow?password=hunter2",
        "postgresql://db/hpcflow?PASS%57ORD=hunter2",
    ],
)
def test_a_password_does_not_get_where_others_could_see_it(tmp_path: Path, url: str) -> None:
    with pytest.raises(InputError) as refused:
        daemon_environment(settings(tmp_path, HPCFLOW_LEDGER=url), ("x",), starts=fine)
    assert "hunter2" not in str(refused.value)
    assert f"in {tmp_path}/.hpcflow/config.yaml" in str(refused.value)
    harmless = settings(tmp_path, HPCFLOW_LEDGER="postgresql://ada@db/hpcflow?sslmode=require")
    assert "HPCFLOW_LEDGER" in daemon_environment(harmless, ("x",), starts=fine)


def test_the_way_to_log_in_to_postgres_is_taken_along_but_no_password(tmp_path: Path) -> None:
    def login(**environ: str) -> dict[str, str]:
        theirs = settings(tmp_path, HPCFLOW_LEDGER="postgresql://db/hpcflow", **environ)
        return daemon_environment(theirs, ("x",), starts=fine)

    found = login(PGSERVICE="ours", PGPASSFILE="/secret/pass", PGSSLROOTCERT="system")
    assert (found["PGSERVICE"], found["PGPASSFILE"]) == ("ours", "/secret/pass")
    assert found["PGSSLROOTCERT"] == "system"
    with pytest.raises(InputError, match=r"PGPASSWORD.*") as refused:
        login(PGPASSWORD="hunter2")
    assert f"{tmp_path}/.pgpass" in str(refused.value)
    (tmp_path / ".pgpass").touch()
    assert "hunter2" not in login(PGPASSWORD="hunter2").values()
    own = settings(tmp_path, PGSERVICE="ours", PGPASSWORD="hunter2")
    assert "PGSERVICE" not in daemon_environment(own, ("x",), starts=fine)


def test_a_ledger_that_the_daemon_could_not_open_is_refused(tmp_path: Path) -> None:
    def starts(command: Sequence[str], _environment: Mapping[str, str]) -> str | None:
        return None if command[-1] == "version" else "no password supplied"

    theirs = settings(tmp_path, HPCFLOW_LEDGER="postgresql://db/hpcflow")
    with pytest.raises(InputError, match=r"cannot be opened .*: no password supplied"):
        daemon_environment(theirs, ("x",), starts=starts)


@pytest.mark.parametrize("name", ["SLURM_CONF", "SCRATCH"])
def test_a_path_that_depends_on_the_folder_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InputError, match=f"{name}: is not an absolute path"):
        daemon_environment(settings(tmp_path, **{name: "rel/x"}), ("x",), starts=fine)


@pytest.mark.parametrize("value", ["/a\nb", "/a\rb", "/a\x1bb", "/a\u2028b", "/a\udcffb"])
@pytest.mark.parametrize("name", ["SCRATCH", "HPCFLOW_HOME"])
def test_what_could_become_a_second_line_is_refused(tmp_path: Path, name: str, value: str) -> None:
    theirs = settings(tmp_path, **{name: value})
    with pytest.raises(InputError, match=f"{name}: has a newline"):
        daemon_environment(theirs, place_of(theirs).command, starts=fine)


def test_homes_and_clusters_do_not_get_in_each_others_way(tmp_path: Path) -> None:
    conf = tmp_path / "slurm.conf"
    conf.write_text("ClusterName=north\n")
    local = place_of(settings(tmp_path, SLURM_CONF="/nowhere"))
    north = place_of(settings(tmp_path, SLURM_CONF=str(conf)))
    other = place_of(settings(tmp_path, SLURM_CONF=str(conf), HPCFLOW_HOME="/srv/other"))
    assert (local.name, north.name) == ("local", "north")
    assert local.job_name == north.job_name == "hpcflow-daemon"
    assert other.name.startswith("north-")
    assert other.job_name == f"hpcflow-daemon{other.mark}"


def test_sqlite_that_several_machines_share_is_not_for_jobs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    theirs = settings(tmp_path)
    monkeypatch.setattr(ledger_for_jobs, "is_shared", lambda _path: True)
    with pytest.raises(InputError, match="on a shared file system") as refused:
        require_ledger_for_jobs(theirs)
    assert "install --cron" in str(refused.value)
    monkeypatch.setattr(ledger_for_jobs, "is_shared", lambda path: path == theirs.home.path)
    with pytest.raises(InputError, match="no compute node sees"):
        require_ledger_for_jobs(theirs)
    monkeypatch.setattr(ledger_for_jobs, "is_shared", lambda _path: False)
    require_ledger_for_jobs(theirs)
    monkeypatch.setattr(ledger_for_jobs, "is_shared", lambda _path: True)
    require_ledger_for_jobs(settings(tmp_path, HPCFLOW_LEDGER="postgresql://db/hpcflow"))
