"""How much can be written: the least of what the disk has free and the quotas leave."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.runtime.disk_quota import Quota
from hpcflow.storage import lustre
from hpcflow.storage.disk_space import Space, look
from tests.cluster_fixture import small_disk

GIB = 1 << 30


def quota(whose: str, used: int, soft: int | None, limit: int | None) -> Quota:
    return Quota(whose, used * GIB, soft and soft * GIB, limit and limit * GIB, None, None)


@pytest.mark.parametrize(
    ("quotas", "left", "why"),
    [
        ([], 100, "the disk"),
        ([quota("user ada", 10, None, 50)], 40, "the quota of user ada"),
        ([quota("user ada", 10, 30, 50)], 20, "the quota of user ada"),
        ([quota("user ada", 10, None, None)], 100, "the disk"),
        ([quota("user ada", 0, None, 500)], 100, "the disk"),
        ([quota("user ada", 0, None, 50), quota("project 7", 60, None, 50)], 0,
         "the quota of project 7"),
    ],
)  # fmt: skip
def test_the_tightest_counts(quotas: list[Quota], left: int, why: str) -> None:
    space = Space(Path("/scratch"), "lustre", 1000 * GIB, 100 * GIB, tuple(quotas))
    assert (space.left_bytes, space.why) == (left * GIB, why)


def test_a_disk_as_it_is(tmp_path: Path) -> None:
    with small_disk(tmp_path, "16m"):
        before = look(tmp_path, "ada")
        assert before is not None
        assert (before.kind, before.total_bytes, before.quotas) == ("tmpfs", 16 << 20, ())
        (tmp_path / "data").write_bytes(bytes(4 << 20))
        after = look(tmp_path / "not" / "made yet", "ada")
        assert after is not None
        assert after.path == tmp_path
        assert before.left_bytes - after.left_bytes == 4 << 20


def test_what_has_no_size_says_nothing() -> None:
    assert look(Path("/proc/self"), "ada") is None


def test_quotas_are_those_of_lustre(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ours = quota("user ada", 1, None, 2)
    monkeypatch.setattr(lustre, "quotas", lambda _path, user: [ours] if user == "ada" else [])
    space = look(tmp_path, "ada")
    assert space is not None
    assert (space.quotas, space.left_bytes) == ((ours,), GIB)
