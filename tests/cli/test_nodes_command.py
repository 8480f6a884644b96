"""Which nodes have failed runs, as a person sees it, and how a person overrules it."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path

import pytest

from hpcflow.ledger.store import open_ledger
from hpcflow.model.state import AttemptState, Cause
from tests.cli.desk import Desk
from tests.ledger.lines import ended, intended, observed, submitted
from tests.ledger.test_store import change_of
from tests.storage.runs import CREATED_AT, make_run


def remember(home: Path, *nodes: Sequence[str], site: str = "devcluster") -> list[str]:
    """For each of ``nodes`` a run of somebody's that failed on them ten minutes ago."""
    then = (datetime.now(timezone.utc) - CREATED_AT).total_seconds() / 60 - 10
    runs = []
    with open_ledger(str(home / "ledger.sqlite")) as ledger:
        for of_run in nodes:
            run = make_run(home).model_copy(update={"site": site})
            seen = observed(1, AttemptState.RUNNING, then - 1, nodes=list(of_run))
            lines = [intended(1, then - 2), submitted(1, then - 2), seen]
            ledger.apply([change_of(run, [*lines, ended(1, Cause.NODE_FAIL, then)], [])])
            runs.append(run.run_id)
    return sorted(runs)


def test_while_nothing_happened_there_is_nothing_to_show(desk: Desk) -> None:
    assert desk.say("nodes") == "no node has failed a run lately\n"
    assert desk.json("nodes")["nodes"] == []


def test_a_bad_node_is_shown_with_its_reasons(desk: Desk, home: Path) -> None:
    runs = remember(home, ["n2"], ["n2"])
    remember(home, ["n4"])
    bad, other = desk.json("nodes")["nodes"]
    assert (bad["site"], bad["node"], bad["is_bad"]) == ("devcluster", "n2", True)
    assert bad["excluded_in"] == ["gpu"]
    assert bad["runs"] == runs
    assert bad["causes"] == ["node_fail"]
    assert bad["score"] == 1.0, "both are of one user"
    assert (other["node"], other["is_bad"], other["excluded_in"]) == ("n4", False, [])
    said = desk.say("nodes").splitlines()
    assert [line.split()[:2] for line in said[1:]] == [["devcluster", "n2"], ["devcluster", "n4"]]
    assert "from gpu" in said[1]
    assert "2 failures of 2 runs (node_fail)" in said[1]
    assert "10m" in said[1]
    assert "a single run may fail by itself" in said[2]


def test_what_the_cap_leaves_is_suspicious(desk: Desk, home: Path) -> None:
    """The partition has four nodes, and one of them may be excluded."""
    remember(home, ["n2"], ["n2"], ["n3"], ["n3"], ["n3"])
    worst, other = desk.json("nodes")["nodes"]
    assert [(each["node"], each["excluded_in"]) for each in (worst, other)] == [
        ("n3", ["gpu"]),
        ("n2", []),
    ]
    assert other["is_bad"]
    assert "would lose too many nodes" in other["why"]
    assert "suspicious" in desk.say("nodes")


def test_where_most_nodes_look_bad_none_is_excluded(desk: Desk, home: Path) -> None:
    remember(home, ["n1"], ["n1"], ["n2"], ["n2"], ["n3"], ["n3"])
    for line in desk.json("nodes")["nodes"]:
        assert (line["is_bad"], line["excluded_in"]) == (True, [])
        assert line["why"].endswith("not excluded, because most nodes there look as bad")


def test_where_there_is_one_machine_it_is_not_excluded(desk: Desk, home: Path) -> None:
    remember(home, ["here"], ["here"], site="local")
    (line,) = desk.json("nodes")["nodes"]
    assert (line["is_bad"], line["excluded_in"]) == (True, [])
    assert "hpcflow excludes no nodes on this site" in line["why"]


def test_sites_have_nothing_in_common(desk: Desk, home: Path) -> None:
    remember(home, ["n2"])
    remember(home, ["n2"], site="perlmutter")
    remember(home, ["x1"], ["x1"], site="/home/grace/mine.yaml")
    assert [(each["site"], each["is_bad"]) for each in desk.json("nodes")["nodes"]] == [
        ("/home/grace/mine.yaml", True),
        ("devcluster", False),
        ("perlmutter", False),
    ]
    assert [each["site"] for each in desk.json("nodes", "--site", "perlmutter")["nodes"]] == [
        "perlmutter"
    ]
    assert desk.say("nodes", "--site", "frontier") == "no node has failed a run lately\n"


@pytest.mark.parametrize("words", [["nodes"], ["nodes", "forgive", "n2"]])
def test_a_site_that_is_none_is_an_error_whatever_has_failed(
    desk: Desk, home: Path, words: list[str]
) -> None:
    for _ in range(2):
        error = desk.json(*words, "--site", "nosuch", code=2)["error"]
        assert "no site" in error["message"]
        assert error["key"] == "--site"
        remember(home, ["n2"])


def test_a_person_may_speak_for_a_node(desk: Desk, home: Path) -> None:
    remember(home, ["n2"], ["n2"], ["n3"])
    assert desk.say("nodes", "forgive", "n2") == "n2 of devcluster is forgiven\n"
    assert [each["node"] for each in desk.json("nodes")["nodes"]] == ["n3"]
    assert (home / "forgiven.jsonl").stat().st_mode & 0o777 == 0o600
    error = desk.json("nodes", "forgive", "n2", code=2)["error"]
    assert "has failed a run lately" in error["message"]


def test_of_two_nodes_of_one_name_one_is_to_be_named(desk: Desk, home: Path) -> None:
    remember(home, ["n2"])
    remember(home, ["n2"], site="perlmutter")
    error = desk.json("nodes", "forgive", "n2", code=2)["error"]
    assert "devcluster, perlmutter" in error["message"]
    said = desk.json("nodes", "forgive", "n2", "--site", "perlmutter")
    assert (said["site"], said["node"]) == ("perlmutter", "n2")
    assert [each["site"] for each in desk.json("nodes")["nodes"]] == ["devcluster"]


@pytest.mark.parametrize("before", [["--site", "perlmutter"], ["--json", "--site=perlmutter"]])
def test_options_count_on_either_side_of_forgive(desk: Desk, home: Path, before: list[str]) -> None:
    remember(home, ["n2"])
    remember(home, ["n2"], site="perlmutter")
    said = desk.say("nodes", *before, "forgive", "n2")
    assert ("{" in said) == ("--json" in before)
    assert [each["site"] for each in desk.json("nodes")["nodes"]] == ["devcluster"]


def test_what_others_call_their_site_is_no_command(desk: Desk, home: Path) -> None:
    hostile = "a\x1b]0;owned\x07; rm -rf ~ #"
    for site in (hostile, "devcluster"):
        remember(home, ["n2"], ["n2"], site=site)
    assert "\x1b" not in desk.say("nodes")
    error = desk.json("nodes", "forgive", "n2", code=2)["error"]
    said = error["message"] + error["next_action"]
    assert "\x1b" not in said
    assert shlex.split(error["next_action"])[-1].endswith("; rm -rf ~ #")


@pytest.mark.parametrize("line", [b"\x00\xff", b'{"at": "no"}', b"[1]", b'{"site": "devcluster"'])
def test_a_damaged_line_forgives_nothing(desk: Desk, home: Path, line: bytes) -> None:
    remember(home, ["n2"], ["n2"])
    desk.say("nodes", "forgive", "n2")
    remember(home, ["n3"])
    good = (home / "forgiven.jsonl").read_bytes()
    (home / "forgiven.jsonl").write_bytes(line + b"\n" + good + line)
    assert [each["node"] for each in desk.json("nodes")["nodes"]] == ["n3"]
