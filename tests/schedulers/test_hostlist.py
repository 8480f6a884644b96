"""Slurm's notation for many nodes, checked against scontrol itself."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hpcflow.schedulers.slurm.hostlist import expand
from hpcflow.testing.cluster import Cluster


@pytest.mark.parametrize(
    ("hostlist", "names"),
    [
        ("n1", ["n1"]),
        ("n[1-4]", ["n1", "n2", "n3", "n4"]),
        ("n[08-11]", ["n08", "n09", "n10", "n11"]),
        ("n[1,3-4],login1", ["n1", "n3", "n4", "login1"]),
        ("r[1-2]n[1-2]", ["r1n1", "r1n2", "r2n1", "r2n2"]),
        ("nid[001-002]-hsn", ["nid001-hsn", "nid002-hsn"]),
        ("gpu-[1,10]-[2-3].x.org", ["gpu-1-2.x.org", "gpu-1-3.x.org", "gpu-10-2.x.org",
                                    "gpu-10-3.x.org"]),
        ("", []),
        ("None assigned", []),
        ("(null)", []),
        ("N/A", []),
    ],
)  # fmt: skip
def test_a_list_becomes_its_names_in_order(hostlist: str, names: list[str]) -> None:
    assert list(expand(hostlist)) == names


@pytest.mark.parametrize(
    "hostlist", ["n[1-", "n1]", "n[1-2", "n[a-b]", "n[1-2-3]", "n[]", "a,,b", "n[[1]]", "n[٣]"]
)
def test_what_is_no_list_is_an_error(hostlist: str) -> None:
    with pytest.raises(ValueError):
        expand(hostlist)


def test_a_list_longer_than_any_machine_is_an_error_not_a_full_memory() -> None:
    with pytest.raises(ValueError, match="more than"):
        expand("n[1-99999999999]")


@st.composite
def _ranges(draw: st.DrawFn) -> str:
    width = draw(st.integers(1, 4))
    ranges = []
    for _ in range(draw(st.integers(1, 3))):
        first, length = draw(st.integers(0, 120)), draw(st.integers(0, 5))
        text = f"{first:0{width}d}"
        ranges.append(f"{text}-{first + length:0{width}d}" if length else text)
    return f"[{','.join(ranges)}]"


#: As Slurm writes them: it knows no name that goes on after its last bracket.
_HOSTLISTS = st.lists(
    st.one_of(
        st.from_regex(r"[a-z][a-z0-9.-]{0,5}", fullmatch=True),
        st.builds("{}-{}".format, st.sampled_from(["n", "gpu1", "x.y"]), _ranges()),
        st.builds("r{}n{}".format, _ranges(), _ranges()),
    ),
    min_size=1,
    max_size=3,
).map(",".join)


@pytest.mark.cluster
def test_scontrol_says_the_same(cluster: Cluster) -> None:
    @settings(max_examples=60, deadline=None)
    @given(_HOSTLISTS)
    def compare(hostlist: str) -> None:
        said = cluster.run("scontrol", "show", "hostnames", hostlist).splitlines()
        assert list(expand(hostlist)) == said

    compare()
