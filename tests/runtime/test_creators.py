"""A folder from which Python imports is one in which no other user can create a file."""

from __future__ import annotations

import os
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest

from hpcflow.runtime.creators import OpenFolder, require_closed
from tests.untrusted_paths import CREATORS, everybody, everybody_though_it_is_sticky

as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


def refusal(folder: Path) -> OpenFolder:
    with pytest.raises(OpenFolder) as caught:
        require_closed(str(folder))
    return caught.value


@pytest.mark.parametrize("mode", [0o700, 0o755, 0o1755, 0o500])
def test_a_folder_in_which_only_its_user_writes_is_taken(tmp_path: Path, mode: int) -> None:
    tmp_path.chmod(mode)
    require_closed(str(tmp_path))
    tmp_path.chmod(0o700)


@as_root
def test_a_group_without_other_members_is_this_user(tmp_path: Path) -> None:
    tmp_path.chmod(0o775)
    require_closed(str(tmp_path))


@as_root
@pytest.mark.parametrize("is_behind_a_link", [False, True])
@pytest.mark.parametrize("opened", CREATORS)
def test_one_in_which_others_can_create_files_is_refused(
    weird_tmp_path: Path, opened: Callable[[Path], None], is_behind_a_link: bool
) -> None:
    folder = weird_tmp_path / "mine"
    folder.mkdir(mode=0o755)
    opened(folder)
    link = weird_tmp_path / "link"
    link.symlink_to("mine")
    problem = refusal(link if is_behind_a_link else folder)
    mode = f"{folder.stat().st_mode & 0o7777:04o}"
    assert str(problem).startswith(f"{CREATORS[opened]} can create files in {folder} (mode {mode})")
    is_own = folder.stat().st_uid == os.geteuid()
    assert (f"chmod -R go-w {shlex.quote(str(folder))}; or " in problem.next_action) == is_own
    assert "move your Python files to a folder in which only you can write" in problem.next_action


@pytest.mark.parametrize("opened", [everybody, everybody_though_it_is_sticky])
def test_what_it_says_to_do_helps(weird_tmp_path: Path, opened: Callable[[Path], None]) -> None:
    opened(weird_tmp_path)
    command = refusal(weird_tmp_path).next_action.partition(": ")[2].partition("; or ")[0]
    assert os.system(command) == 0, "as a user would type it"
    require_closed(str(weird_tmp_path))


def test_a_folder_that_is_gone_is_an_error_of_the_system(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        require_closed(str(tmp_path / "gone"))
