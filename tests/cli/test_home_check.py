"""What is found out about the file system of the home."""

from __future__ import annotations

import errno
import fcntl
from pathlib import Path

import pytest

from hpcflow import filesystem
from hpcflow.cli.clusters.site import check_home
from hpcflow.sites.check import Level


def test_a_file_system_with_locks_is_fine_and_nothing_is_left(tmp_path: Path) -> None:
    (found,) = check_home(tmp_path)
    assert (found.level, found.key) == (Level.OK, "HPCFLOW_HOME")
    assert "has locks" in found.message
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_does_not_exist_yet_is_checked_where_it_will_be(tmp_path: Path) -> None:
    (found,) = check_home(tmp_path / "not" / "yet")
    assert found.level is Level.OK
    assert list(tmp_path.iterdir()) == []


def test_without_locks_the_mount_option_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuses(_descriptor: int, _how: int) -> None:
        raise OSError(errno.ENOSYS, "Function not implemented")

    monkeypatch.setattr(fcntl, "flock", refuses)
    (found,) = check_home(tmp_path)
    assert found.level is Level.WARNING
    assert "the mount option flock" in found.message
    assert list(tmp_path.iterdir()) == []


def test_a_home_that_cannot_be_written_is_an_error() -> None:
    (found,) = check_home(Path("/proc/self"))
    assert found.level is Level.ERROR


@pytest.mark.parametrize("kind", ["nfs4", "nfs"])
@pytest.mark.parametrize("security", ["krb5", "krb5p", "sys"])
def test_kerberos_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, security: str
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "25 1 8:1 / / rw,relatime - ext4 /dev/sda1 rw\n"
        f"40 25 0:45 / {tmp_path} rw,nosuid - {kind} server:/home rw,vers=4.2,sec={security},hard\n"
    )
    mount = filesystem.mount_of(tmp_path / "home", mounts)
    assert mount.kind == kind
    assert {"nosuid", f"sec={security}", "hard"} <= mount.options
    monkeypatch.setattr("hpcflow.cli.clusters.site.mount_of", lambda _: mount)
    messages = [each.message for each in check_home(tmp_path)]
    assert any("Kerberos ticket" in each for each in messages) == (security != "sys")
