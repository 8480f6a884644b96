"""Every folder that a path leads through, also by links: who could put another in its place."""

from __future__ import annotations

import errno
import os
import pwd
import re
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from hpcflow.ownership import Trust, is_open_to_others, weak_point
from tests.untrusted_paths import (
    EVE,
    LAB,
    SAFE,
    UNSAFE,
    folders,
    of_eve,
    open_and_sticky,
    open_to_a_group,
    open_to_a_group_by_an_acl,
    open_to_eve_by_an_acl,
)

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a folder away")


@pytest.mark.parametrize("layout", SAFE)
def test_a_way_that_nobody_else_can_change(tmp_path: Path, layout: Callable[[Path], None]) -> None:
    path = folders(tmp_path)
    layout(tmp_path)
    assert weak_point(path) is None
    assert weak_point(path / "not/there/yet") is None


def test_the_name_service_is_asked_only_where_a_group_may_write(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At some sites it takes seconds to list the members of a group of thousands."""
    asked: list[str] = []

    def no_groups() -> frozenset[int]:
        asked.append("groups")
        return frozenset()

    monkeypatch.setattr("hpcflow.runtime.creators.private_groups", no_groups)
    path = folders(tmp_path)
    assert weak_point(path) is None
    assert asked == []
    path.chmod(0o775)
    assert weak_point(path) is not None
    assert asked == ["groups"]


@pytest.mark.parametrize("layout", UNSAFE)
@pytest.mark.parametrize("below", [".", "not/there/yet"])
def test_a_way_that_others_can_change(
    tmp_path: Path, layout: Callable[[Path], None], below: str
) -> None:
    path = folders(tmp_path) / below
    layout(tmp_path)
    weak = weak_point(path)
    assert weak is not None
    assert re.search(UNSAFE[layout], str(weak))


@pytest.mark.parametrize(
    ("layout", "trust"),
    [
        (of_eve, Trust(users=frozenset({EVE}))),
        (open_to_a_group, Trust(groups=frozenset({LAB}))),
        (open_to_eve_by_an_acl, Trust(users=frozenset({EVE}))),
        (open_to_a_group_by_an_acl, Trust(groups=frozenset({LAB}))),
    ],
)
def test_whom_a_site_trusts(tmp_path: Path, layout: Callable[[Path], None], trust: Trust) -> None:
    path = folders(tmp_path)
    layout(tmp_path)
    assert weak_point(path, trust) is None


def test_what_every_user_may_write_in_is_never_trusted(tmp_path: Path) -> None:
    path = folders(tmp_path)
    open_to_a_group(tmp_path)
    (tmp_path / "shared/ada").chmod(0o777)
    assert weak_point(path, Trust(groups=frozenset({LAB}))) is not None


def test_links_that_lead_in_a_circle_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "a").symlink_to("b")
    (tmp_path / "b").symlink_to("a")
    with pytest.raises(OSError) as caught:
        weak_point(tmp_path / "a/x")
    assert caught.value.errno == errno.ELOOP


@pytest.fixture
def closed() -> Iterator[Path]:
    """A folder on whose path no other user can create anything; that is not so below /tmp."""
    with tempfile.TemporaryDirectory(dir=pwd.getpwuid(os.geteuid()).pw_dir) as folder:
        yield Path(folder)


@pytest.mark.parametrize("layout", [*SAFE, *UNSAFE])
@pytest.mark.parametrize("below", [".", "not/there/yet"])
def test_a_way_on_which_others_can_create_an_entry(
    closed: Path, layout: Callable[[Path], None], below: str
) -> None:
    """Whatever lets others replace a folder, and sticky folders."""
    path = folders(closed) / below
    assert not is_open_to_others(path)
    layout(closed)
    assert is_open_to_others(path) == (layout is open_and_sticky or layout in UNSAFE)


def test_whom_a_site_trusts_may_create_entries(closed: Path) -> None:
    path = folders(closed)
    open_to_a_group(closed)
    assert is_open_to_others(path)
    assert not is_open_to_others(path, Trust(groups=frozenset({LAB})))


def test_a_way_that_cannot_be_checked_counts_as_one_that_is_open(closed: Path) -> None:
    (closed / "a").symlink_to("a")
    assert is_open_to_others(closed / "a/x")
