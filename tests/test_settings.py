"""Who calls hpcflow, and whose files it believes."""

from __future__ import annotations

import os
import pwd
import struct
from pathlib import Path

import pytest

from hpcflow.errors import InputError
from hpcflow.ledger.store import open_ledger
from hpcflow.settings import load_settings


def test_a_home_that_does_not_exist_yet_is_no_error(tmp_path: Path) -> None:
    settings = load_settings({"HPCFLOW_HOME": str(tmp_path / "new")})
    assert settings.ledger_url == f"sqlite:///{tmp_path}/new/ledger.sqlite"
    assert not settings.home.path.exists()


@pytest.mark.parametrize("mode", [0o770, 0o707, 0o1777])
def test_a_home_that_others_may_write_in_is_refused(tmp_path: Path, mode: int) -> None:
    """They could put templates there, and so shell into the jobs."""
    tmp_path.chmod(mode)
    with pytest.raises(InputError, match="other users can write to") as caught:
        load_settings({"HPCFLOW_HOME": str(tmp_path)})
    assert "chmod go-w" in str(caught.value)


def test_a_home_that_others_may_read_is_the_users_choice(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    assert load_settings({"HPCFLOW_HOME": str(tmp_path)}).home.path == tmp_path


def test_somebody_elses_home_is_refused(tmp_path: Path) -> None:
    theirs = tmp_path
    if os.geteuid() == 0:
        os.chown(theirs, 12345, -1)
    else:
        theirs = Path("/usr")  # root's
    with pytest.raises(InputError, match="belongs to another user"):
        load_settings({"HPCFLOW_HOME": str(theirs)})


def test_a_home_that_is_a_file_is_refused_as_such(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.write_text("")
    with pytest.raises(InputError, match="home is not a directory") as caught:
        load_settings({"HPCFLOW_HOME": str(home)})
    assert str(caught.value).startswith("HPCFLOW_HOME: ")


@pytest.mark.parametrize(
    "url", ["postgresql://ada:hunter2@db/x", "postgresql://db/x?user=ada&password=hunter2"]
)
@pytest.mark.parametrize(
    ("home", "config", "is_open"),
    [(0o755, 0o644, True), (0o710, 0o640, True), (0o755, 0o600, False), (0o700, 0o644, False)],
)
def test_a_password_that_others_can_read_is_refused(
    tmp_path: Path, url: str, home: int, config: int, is_open: bool
) -> None:
    file = tmp_path / "config.yaml"
    file.write_text(f"ledger: {url}\n")
    file.chmod(config)
    tmp_path.chmod(home)
    environ = {"HPCFLOW_HOME": str(tmp_path)}
    if not is_open:
        assert load_settings(environ).ledger_url == url
        return
    with pytest.raises(InputError, match="other users can read this file") as caught:
        load_settings(environ)
    assert f"chmod 600 {file}" in str(caught.value)
    assert "hunter2" not in str(caught.value)
    file.write_text("ledger: postgresql://ada@db/x?sslmode=require\n")
    assert load_settings(environ).site is None


def test_a_password_behind_a_link_is_read_where_the_link_leads(tmp_path: Path) -> None:
    home, elsewhere = tmp_path / "home", tmp_path / "config.yaml"
    home.mkdir(mode=0o700)
    elsewhere.write_text("ledger: postgresql://ada:hunter2@db/x\n")
    elsewhere.chmod(0o644)
    (home / "config.yaml").symlink_to(elsewhere)
    with pytest.raises(InputError, match="other users can read this file"):
        load_settings({"HPCFLOW_HOME": str(home)})


def journal_that_names(victim: Path, ledger: Path) -> bytes:
    """A rollback journal of SQLite that belongs to another journal, as of several databases."""
    magic, name = bytes.fromhex("d9d505f920a163d7"), os.fsencode(victim)
    page_bytes = 4096
    pages = ledger.stat().st_size // page_bytes
    head = magic + struct.pack(">5I", 0, 1, pages, 512, page_bytes)
    checksum = sum(name) & 0xFFFFFFFF
    tail = name + struct.pack(">2I", len(name), checksum) + magic
    return head.ljust(512, b"\0") + struct.pack(">I", (1 << 30) // page_bytes + 1) + tail


@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o757])
@pytest.mark.parametrize("is_link", [False, True])
def test_a_journal_that_others_put_beside_the_ledger_deletes_nothing(
    tmp_path: Path, mode: int, is_link: bool
) -> None:
    folder, home = tmp_path / "shared", tmp_path / "home"
    folder.mkdir()
    home.mkdir(mode=0o700)
    ledger = folder / "ledger.sqlite"
    with open_ledger(f"sqlite:///{ledger}"):
        pass
    folder.chmod(mode)
    private = tmp_path / "private"
    private.write_text("years")
    Path(f"{ledger}-journal").write_bytes(journal_that_names(private, ledger))
    if is_link:
        (home / "ledger.sqlite").symlink_to(ledger)
    environ = {"HPCFLOW_HOME": str(home), "HPCFLOW_LEDGER": "" if is_link else str(ledger)}
    with (
        pytest.raises(InputError, match="SQLite would read what they put beside the ledger"),
        open_ledger(load_settings(environ).ledger_url) as opened,
    ):
        opened.runs()
    assert private.exists()


@pytest.mark.parametrize(("mode", "is_new"), [(0o700, False), (0o755, False), (0o1777, True)])
def test_a_ledger_where_others_make_no_files(tmp_path: Path, mode: int, is_new: bool) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    folder.chmod(mode)
    url = f"sqlite:///{folder / 'new' if is_new else folder}/ledger.sqlite"
    assert load_settings({"HPCFLOW_HOME": str(tmp_path), "HPCFLOW_LEDGER": url}).ledger_url == url


def test_a_home_must_be_an_absolute_path() -> None:
    with pytest.raises(InputError, match="not an absolute path"):
        load_settings({"HPCFLOW_HOME": "here"})


@pytest.mark.parametrize(
    ("environ", "expected"),
    [
        ({"LOGNAME": "ada", "USER": "root"}, "ada"),
        ({"USER": "ada"}, "ada"),
        ({"LOGNAME": "PHYSICS\\ada"}, "PHYSICS\\ada"),
        ({}, str(os.getuid())),
        ({"USER": ""}, str(os.getuid())),
        ({"USER": "../ada"}, str(os.getuid())),
    ],
)
def test_while_the_name_service_is_away_the_user_is_called_as_before(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, environ: dict[str, str], expected: str
) -> None:
    """Runs and leases are kept under that name. A uid that never had one goes by its number."""

    def nobody(uid: int) -> None:
        raise KeyError(f"getpwuid(): uid not found: {uid}")

    monkeypatch.setattr("pwd.getpwuid", nobody)
    assert load_settings({"HPCFLOW_HOME": str(tmp_path), **environ}).user == expected


def test_what_a_variable_claims_counts_nothing_where_the_uid_has_a_name(tmp_path: Path) -> None:
    name = pwd.getpwuid(os.getuid()).pw_name
    environ = {"HPCFLOW_HOME": str(tmp_path), "LOGNAME": "grace", "USER": "grace"}
    assert load_settings(environ).user == name


def test_a_home_that_others_could_replace_is_refused(tmp_path: Path) -> None:
    home = tmp_path / "shared/ada/.hpcflow"
    home.mkdir(parents=True, mode=0o700)
    home.parent.chmod(0o777)
    with pytest.raises(InputError, match="every user can write to") as caught:
        load_settings({"HPCFLOW_HOME": str(home)})
    assert f"chmod go-w {home.parent}" in str(caught.value)
    home.rmdir()
    with pytest.raises(InputError, match="every user can write to"):
        load_settings({"HPCFLOW_HOME": str(home)})
    home.parent.chmod(0o1777)
    assert load_settings({"HPCFLOW_HOME": str(home)}).home.path == home


def test_a_config_that_others_may_write_is_refused(tmp_path: Path) -> None:
    """It names the site, and the site's file a script that jobs source."""
    config = tmp_path / "config.yaml"
    config.write_text("site: devcluster\n")
    config.chmod(0o666)
    with pytest.raises(InputError, match=r"every user can write to .*config\.yaml"):
        load_settings({"HPCFLOW_HOME": str(tmp_path)})
    config.chmod(0o644)
    assert load_settings({"HPCFLOW_HOME": str(tmp_path)}).site == "devcluster"
