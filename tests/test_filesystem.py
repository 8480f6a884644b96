"""SQLite's write-ahead log is used only where one machine alone sees the file."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.filesystem import is_shared, is_supported, kind_of
from hpcflow.ledger import connection
from hpcflow.ledger.connection import Connection
from hpcflow.ledger.store import open_ledger
from hpcflow.ledger.url import parse_url

MOUNTS = r"""22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda rw
30 22 0:40 / /home rw,relatime shared:2 - nfs4 server:/home rw,vers=4.2
31 22 0:41 / /scratch rw - lustre 10.0.0.1@o2ib:/scratch rw,flock
32 30 0:42 / /home/ada/local\040disk rw - tmpfs tmpfs rw
33 22 0:43 / /cloud rw - fuse.sshfs host:/ rw
34 22 0:44 / /again rw - ext4 /dev/vdb rw
35 34 0:45 / /again rw - beegfs beegfs_nodev rw
36 22 0:46 / /dvs rw - dvs /scratch rw
37 22 0:47 / /vm rw - virtiofs shared rw
38 22 0:48 / /auto rw - autofs auto.home rw
39 22 0:49 / /snfs rw - cvfs volume rw
40 22 0:50 / /old rw - fhgfs fhgfs_nodev rw
"""


@pytest.mark.parametrize(
    ("path", "shared"),
    [
        ("/var/tmp/ledger.sqlite", False),
        ("/home/ada/.hpcflow/ledger.sqlite", True),
        ("/homes/ada/ledger.sqlite", False),
        ("/scratch/x", True),
        ("/home/ada/local disk/ledger.sqlite", False),
        ("/cloud/x", True),
        ("/again/x", True),
        *((f"/{each}/x", True) for each in ("dvs", "vm", "auto", "snfs", "old")),
    ],
)
def test_the_innermost_mount_decides(path: str, shared: bool, tmp_path: Path) -> None:
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(MOUNTS)
    assert is_shared(Path(path), mountinfo) == shared


@pytest.mark.parametrize(
    "end", [each for each in map(chr, range(0x3000)) if f"a{each}b".splitlines()[1:]]
)
def test_a_mount_of_another_user_with_a_line_end_in_its_name(end: str, tmp_path: Path) -> None:
    """As with sshfs, which needs no root. The kernel escapes line feeds alone."""
    name = f"/tmp/a{end}b" if end != "\n" else r"/tmp/a\012b"
    more = f"50 22 0:60 / {name} rw,nosuid,user_id=7 - fuse.sshfs host: rw\n"
    mountinfo = tmp_path / "mountinfo"
    mountinfo.write_text(more + MOUNTS + more)
    assert kind_of(Path("/var/tmp/x"), mountinfo) == "ext4"
    assert kind_of(Path(f"/tmp/a{end}b/x"), mountinfo) == "fuse.sshfs"


def test_the_kernel_supports_a_kind_or_does_not(tmp_path: Path) -> None:
    filesystems = tmp_path / "filesystems"
    filesystems.write_text("nodev\tsysfs\n\text4\nnodev\tlustre\nnodev\tfuse\n")
    assert is_supported("lustre", filesystems)
    assert is_supported("ext4", filesystems)
    assert not is_supported("gpfs", filesystems)
    assert is_supported("gpfs", tmp_path / "missing"), "then the mounts tell"
    assert is_supported("proc")


def test_what_the_kernel_does_not_tell_counts_as_shared(tmp_path: Path) -> None:
    assert is_shared(tmp_path, tmp_path / "missing")
    (tmp_path / "empty").write_text("")
    assert is_shared(tmp_path, tmp_path / "empty")


@pytest.mark.parametrize(("shared", "mode"), [(True, "delete"), (False, "wal")])
def test_the_journal_mode_follows(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, shared: bool, mode: str
) -> None:
    monkeypatch.setattr(connection, "is_shared", lambda _: shared)
    url = str(tmp_path / "ledger.sqlite")
    open_ledger(url).close()
    opened = Connection(parse_url(url))
    assert opened.rows("PRAGMA journal_mode") == [(mode,)]
    assert opened.rows("PRAGMA foreign_keys") == [(1,)]
    opened.close()
