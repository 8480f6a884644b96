"""hpcflow creates and submits nothing on a path that another user could replace."""

from __future__ import annotations

import grp
import os
from pathlib import Path

import pytest

from hpcflow.errors import InputError, ScratchError, SiteError, StorageError
from hpcflow.launch.plan import make_plan
from hpcflow.launch.run import rehearse
from hpcflow.placement.run_paths import template_dirs
from hpcflow.resources import resource_dir
from hpcflow.sites.loader import list_sites, load_site, search_path
from hpcflow.storage import runtime_copy
from hpcflow.storage.files import make_folders
from hpcflow.storage.rundir import make_place
from tests.launch.desk import Desk
from tests.untrusted_paths import EVE, LAB

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    desk = Desk(tmp_path)
    (tmp_path / "scratch").mkdir(mode=0o755)
    return desk


def trusting(desk: Desk, **whom: list[str]) -> None:
    scratch = desk.site.scratch.model_copy(update=whom)
    desk.site = desk.site.model_copy(update={"scratch": scratch})


def test_a_scratch_that_all_may_write_in_is_refused_before_anything_is_made(desk: Desk) -> None:
    scratch = desk.folder / "scratch"
    scratch.chmod(0o777)
    with pytest.raises(ScratchError, match="every user can write to") as caught:
        desk.launch()
    assert caught.value.exit_code == 2
    assert f"chmod go-w {scratch}" in str(caught.value)
    assert not desk.alive()
    plan = make_plan(desk.config, settings=desk.settings, clock=desk.clock, site=desk.site)
    with pytest.raises(ScratchError, match="every user can write to"):
        rehearse(plan, settings=desk.settings, clock=desk.clock)
    with pytest.raises(ScratchError, match="every user can write to"):
        make_place(Path(plan.run.run_dir))
    scratch.chmod(0o1777)
    assert desk.launch().run_dir.is_dir(), "as /tmp is"


@as_root
def test_the_site_says_whom_it_trusts(desk: Desk) -> None:
    scratch = desk.folder / "scratch"
    os.chown(scratch, EVE, LAB)
    scratch.chmod(0o2775)
    with pytest.raises(ScratchError, match=f"belongs to uid {EVE}") as caught:
        desk.launch()
    assert f"scratch: {{trusted_users: [{EVE}]}}" in str(caught.value)
    trusting(desk, trusted_users=[str(EVE)])
    with pytest.raises(ScratchError, match=f"gid {LAB} can write to") as caught:
        desk.launch()
    assert f"scratch: {{trusted_groups: [{LAB}]}}" in str(caught.value)
    assert "chmod +t" in str(caught.value)
    trusting(desk, trusted_groups=[str(LAB)])
    launched = desk.launch()
    script = desk.dir_of(launched).attempt(1).script.read_text()
    assert f" 0 $EUID {EVE} " in script
    assert f" {LAB} " in script


@as_root
def test_a_group_can_be_that_of_the_account(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    (desk.folder / "scratch").chmod(0o775)
    os.chown(desk.folder / "scratch", -1, LAB)
    monkeypatch.setattr(
        "grp.getgrnam", lambda name: grp.struct_group((name, "x", {"physics": LAB}[name], []))
    )
    trusting(desk, trusted_groups=["$ACCOUNT"])
    assert desk.launch().run_dir.is_dir()


def test_a_group_that_there_is_not_is_named(desk: Desk) -> None:
    trusting(desk, trusted_groups=["nosuchgroup"])
    with pytest.raises(SiteError, match="no group 'nosuchgroup' on this machine") as caught:
        desk.launch()
    assert "trusted_groups" in str(caught.value)


def test_no_later_attempt_is_sent_where_the_way_was_opened(desk: Desk) -> None:
    launched = desk.launch()
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.look()
    run_dir = desk.dir_of(launched)
    run_dir.path.parent.chmod(0o777)
    with pytest.raises(ScratchError, match="every user can write to"):
        desk.resume(run_dir)
    assert not run_dir.attempt(2).path.exists()
    run_dir.path.parent.chmod(0o700)
    assert desk.resume(run_dir).attempt == 2


def test_a_link_in_the_runtime_is_refused(desk: Desk) -> None:
    launched = desk.launch()
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.look()
    run_dir = desk.dir_of(launched)
    (run_dir.runtime / "torch").symlink_to("/usr")
    with pytest.raises(StorageError, match="symbolic link"):
        desk.resume(run_dir)
    (run_dir.runtime / "torch").unlink()
    assert desk.resume(run_dir).attempt == 2


def test_a_later_attempt_takes_the_runtime_that_the_run_has(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That of the hpcflow that made it, whatever is installed by now."""
    launched = desk.launch()
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.look()
    run_dir = desk.dir_of(launched)
    expected = runtime_copy.runtime_sum(run_dir.runtime)
    monkeypatch.setattr(runtime_copy, "_installed", lambda: ("new", {"__init__.py": b"new"}))
    assert desk.resume(run_dir).attempt == 2
    assert expected in run_dir.attempt(2).script.read_text()


def test_the_shared_runtime_is_compared_byte_by_byte(desk: Desk) -> None:
    """The same size says nothing; others may have made it before hpcflow did."""
    desk.launch()
    (copy,) = (desk.folder / "scratch/hpcflow/.runtime").iterdir()
    path = copy / "runtime/events.py"
    planted = b"#" * path.stat().st_size
    path.unlink()
    path.write_bytes(planted)
    runtime_copy._is_the_installed.cache_clear()
    launched = desk.launch()
    assert (launched.run_dir / "runtime/hpcflow/runtime/events.py").read_bytes() != planted


def test_what_is_made_for_an_array_is_for_its_owner_only(desk: Desk) -> None:
    before = os.umask(0o002)
    try:
        make_folders(desk.folder / "a/b/c")
    finally:
        os.umask(before)
    modes = [(desk.folder / each).stat().st_mode & 0o777 for each in ("a", "a/b", "a/b/c")]
    assert modes == [0o700] * 3


@pytest.mark.parametrize("name", ["templates", "templates/parts", "templates/parts/started.j2"])
def test_a_template_that_others_may_write_is_refused(desk: Desk, name: str) -> None:
    """The home is closed to writing, and not to entering."""
    home = desk.settings.home
    (home.templates / "parts").mkdir(parents=True, mode=0o755)
    (home.templates / "parts/started.j2").write_text("echo mine\n")
    home.path.chmod(0o755)
    assert template_dirs(desk.settings) == [home.templates]
    (home.path / name).chmod(0o777)
    with pytest.raises(InputError, match=r"every user can write to .*becomes shell"):
        desk.launch()


@pytest.mark.parametrize("name", ["parts", "parts/started.j2", "parts/deeper/note.j2"])
def test_so_is_one_behind_a_link_to_a_folder(desk: Desk, name: str) -> None:
    home, shared = desk.settings.home, desk.folder / "shared"
    (shared / "parts/deeper").mkdir(parents=True)
    home.templates.mkdir(parents=True)
    for each in ("parts/started.j2", "parts/deeper/note.j2"):
        (shared / each).write_text("echo mine\n")
    (home.templates / "parts").symlink_to(shared / "parts")
    (shared / "parts/deeper/back").symlink_to(home.templates)
    assert template_dirs(desk.settings) == [home.templates]
    (shared / name).chmod(0o777)
    with pytest.raises(InputError, match=r"every user can write to .*becomes shell"):
        template_dirs(desk.settings)


@pytest.mark.parametrize("name", ["sites", "sites/mine.yaml"])
def test_a_site_file_that_others_may_write_is_refused(desk: Desk, name: str) -> None:
    home = desk.settings.home.path
    (home / "sites").mkdir(parents=True, mode=0o755)
    text = (resource_dir("site_configs") / "devcluster.yaml").read_text()
    (home / "sites/mine.yaml").write_text(text.replace("name: devcluster", "name: mine"))
    assert load_site("mine", search=search_path(home)).name == "mine"
    (home / name).chmod(0o777)
    with pytest.raises(SiteError, match="every user can write to"):
        load_site("mine", search=search_path(home))
    (entry,) = [each for each in list_sites(search_path(home)) if each.name == "mine"]
    assert entry.problem is not None


@pytest.mark.parametrize("below", ["", "hpcflow", "hpcflow/default"])
def test_nothing_is_made_where_a_link_of_others_leads(desk: Desk, below: str) -> None:
    """Not even for a moment: whoever may swap a folder on the way is seen before."""
    plan = make_plan(desk.config, settings=desk.settings, clock=desk.clock, site=desk.site)
    private = desk.folder / "private"
    (private / below).mkdir(parents=True, mode=0o700)
    (desk.folder / "scratch").rmdir()
    (desk.folder / "scratch").symlink_to(private)
    desk.folder.chmod(0o777)
    folders = [private, *private.rglob("*")]
    before = [each.stat().st_mtime_ns for each in folders]
    for make in (desk.launch, lambda: make_place(Path(plan.run.run_dir))):
        with pytest.raises(ScratchError, match="every user can write to"):
            make()
        assert [each.stat().st_mtime_ns for each in folders] == before


def test_a_link_that_comes_while_folders_are_made_leads_nowhere(tmp_path: Path) -> None:
    """In a sticky folder whoever is first makes a name; what was looked at is where it is made."""
    private, place = tmp_path / "private", tmp_path / "ada"
    private.mkdir()
    before = private.stat().st_mtime_ns
    place.symlink_to(private)
    with pytest.raises(OSError, match="replaced"):
        make_folders(place / "a/b", check=lambda: _to_folder(place))
    assert list(place.iterdir()) == []
    place.rmdir()
    with pytest.raises(OSError, match=r"ada|directory"):
        make_folders(place / "a/b", check=lambda: place.symlink_to(private))
    assert private.stat().st_mtime_ns == before


@as_root
def test_a_folder_that_another_user_has_just_made_is_not_filled(tmp_path: Path) -> None:
    def eve_is_first() -> None:
        (tmp_path / "ada").mkdir()
        os.chown(tmp_path / "ada", EVE, -1)

    with pytest.raises(OSError, match="another user has just made it"):
        make_folders(tmp_path / "ada/a", check=eve_is_first)
    assert list((tmp_path / "ada").iterdir()) == []


def _to_folder(link: Path) -> None:
    link.unlink()
    link.mkdir()
