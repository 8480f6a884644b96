"""Which nodes fail runs, how many of them are excluded, and what speaks for a node again."""

from __future__ import annotations

import random
from collections.abc import Iterable, Iterator
from dataclasses import replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.ledger.ends import End
from hpcflow.model.run import Run
from hpcflow.model.state import Cause
from hpcflow.requeue.exclusion import choose, excluded_in, most_excluded, outliers, to_avoid
from hpcflow.requeue.nodes import HALF_LIFE, LOOK_BACK, Evidence, Standing, weigh
from hpcflow.sites.loader import load_site, search_path
from hpcflow.sites.schema import Partition, SchedulerKind, Site
from tests.growth import require_no_square
from tests.storage.runs import CREATED_AT as NOW
from tests.storage.runs import make_run

HOUR = timedelta(hours=1)


def ended(
    run: str, attempt: int, nodes: str, cause: Cause, hours_ago: float = 1, **more: Any
) -> End:
    return End(
        "here", run, attempt, "gpu", tuple(nodes.split()), cause, NOW - hours_ago * HOUR, **more
    )


def bad(ends: Iterable[End], now: datetime = NOW) -> list[str]:
    return sorted(each.node for each in weigh(ends, now).standings.get("here", ()) if each.is_bad)


NODE_FAIL, FAILED, DONE = Cause.NODE_FAIL, Cause.FAILED, Cause.COMPLETED

STORIES = {
    "nothing happened": ([], []),
    "one run failed on it": ([ended("a", 1, "n2", NODE_FAIL)], []),
    "one run failed on it ten times": (
        [ended("a", number, "n2", NODE_FAIL) for number in range(1, 11)],
        [],
    ),
    "two runs failed on it": (
        [ended("a", 1, "n2", NODE_FAIL), ended("b", 1, "n2", NODE_FAIL)],
        ["n2"],
    ),
    "two runs failed on it the day before yesterday": (
        [ended("a", 1, "n2", NODE_FAIL, 48), ended("b", 1, "n2", NODE_FAIL, 48)],
        [],
    ),
    "two runs failed on two nodes each, and it is the one that they share": (
        [ended("a", 1, "n1 n2", NODE_FAIL), ended("b", 1, "n2 n3", NODE_FAIL)],
        ["n2"],
    ),
    "one run failed on it alone, and another on it and fifteen others": (
        [
            ended("a", 1, "n2", NODE_FAIL),
            ended("b", 1, " ".join(f"n{number}" for number in range(16)), NODE_FAIL),
        ],
        [],
    ),
    "two runs failed on sixteen nodes, and went on without one of them": (
        [
            each
            for run in "ab"
            for each in (
                ended(run, 1, " ".join(f"n{number}" for number in range(16)), NODE_FAIL),
                ended(run, 2, " ".join(f"n{number}" for number in range(17) if number != 2), DONE),
            )
        ],
        ["n2"],
    ),
    "two runs failed on two nodes, and completed on the same": (
        [
            each
            for run in "ab"
            for each in (ended(run, 1, "n1 n2", NODE_FAIL, 2), ended(run, 2, "n1 n2", DONE, 1))
        ],
        [],
    ),
    "a launch failed, and another stalled": (
        [ended("a", 1, "n2", Cause.LAUNCH_FAILED), ended("b", 1, "n2", Cause.STALLED)],
        ["n2"],
    ),
    "two vanished, which says less": (
        [ended("a", 1, "n2", Cause.VANISHED), ended("b", 1, "n2", Cause.VANISHED)],
        ["n2"],
    ),
    "two vanished, one of them a day and a half ago": (
        [ended("a", 1, "n2", Cause.VANISHED), ended("b", 1, "n2", Cause.VANISHED, 36)],
        [],
    ),
    "what is decided elsewhere says nothing": (
        [
            ended(f"{cause.value}{number}", 1, "n2", cause)
            for number in range(3)
            for cause in (Cause.PREEMPTED, Cause.TIMEOUT, Cause.CANCELLED, Cause.OUT_OF_MEMORY)
        ],
        [],
    ),
    "two programs failed, and were not sent again": (
        [ended("a", 1, "n2", FAILED), ended("b", 1, "n2", FAILED)],
        [],
    ),
    "two programs failed, and did so elsewhere": (
        [
            each
            for run in "ab"
            for each in (
                ended(run, 1, "n2", FAILED, reached=50),
                ended(run, 2, "n3", FAILED, reached=50),
            )
        ],
        [],
    ),
    "two programs failed, and got further elsewhere": (
        [
            each
            for run in "ab"
            for each in (
                ended(run, 1, "n2", FAILED, reached=50),
                ended(run, 2, "n3", Cause.PREEMPTED, reached=90),
            )
        ],
        ["n2"],
    ),
    "two programs that say no train step failed, and completed elsewhere": (
        [each for run in "ab" for each in (ended(run, 1, "n2", FAILED), ended(run, 2, "n3", DONE))],
        ["n2"],
    ),
    "two programs failed, and got further on the same node": (
        [
            each
            for run in "ab"
            for each in (
                ended(run, 1, "n2", FAILED, reached=50),
                ended(run, 2, "n2 n3", DONE, reached=90),
            )
        ],
        [],
    ),
    "two programs failed, a person mended them, and they got further elsewhere": (
        [
            each
            for run in "ab"
            for each in (
                ended(run, 1, "n2", FAILED, reached=50, counted_from=2),
                ended(run, 2, "n3", DONE, reached=90, counted_from=2),
            )
        ],
        [],
    ),
    "two runs failed on it, and then two ran well": (
        [
            ended("a", 1, "n2", NODE_FAIL, 3),
            ended("b", 1, "n2", NODE_FAIL, 3),
            ended("c", 1, "n1 n2", DONE, 2),
            ended("d", 1, "n2", Cause.PREEMPTED, 2, has_saved=True),
        ],
        [],
    ),
    "two runs ran well on it, and then two failed": (
        [
            ended("a", 1, "n2", NODE_FAIL, 1),
            ended("b", 1, "n2", NODE_FAIL, 1),
            ended("c", 1, "n2", DONE, 2),
            ended("d", 1, "n2", DONE, 2),
        ],
        ["n2"],
    ),
    "two runs failed on it, and then two were preempted before they had saved anything": (
        [
            ended("a", 1, "n2", NODE_FAIL, 3),
            ended("b", 1, "n2", NODE_FAIL, 3),
            ended("c", 1, "n2", Cause.PREEMPTED, 2),
            ended("d", 1, "n2", Cause.PREEMPTED, 2),
        ],
        ["n2"],
    ),
    "nodes of the same name on two sites": (
        [ended("a", 1, "n2", NODE_FAIL), replace(ended("b", 1, "n2", NODE_FAIL), site="there")],
        [],
    ),
    "jobs on so many nodes that each has hardly a share": (
        [
            ended(run, 1, " ".join(f"n{number}" for number in range(5000)), NODE_FAIL)
            for run in "abcdefgh"
        ],
        [],
    ),
    "clocks that are mad": (
        [
            replace(ended(run, 1, "n2", NODE_FAIL), ended_at=NOW + timedelta(days=36500))
            for run in "ab"
        ],
        [],
    ),
}


@pytest.mark.parametrize("told", STORIES)
def test_the_stories(told: str) -> None:
    ends, expected = STORIES[told]
    assert bad(ends) == expected


HOSTILE = (
    "-w",
    "n1,n2",
    "n[1-3]",
    "n2\n#SBATCH --uid=0",
    "$(id)",
    "n 2",
    "",
    "ñ2",
    "n" * 300,
    "a;b",
)


@pytest.mark.parametrize("name", HOSTILE)
def test_what_is_no_name_of_a_node_is_never_excluded(name: str) -> None:
    ends = [replace(ended(run, 1, "", NODE_FAIL), nodes=(name,)) for run in "ab"]
    evidence = weigh(ends, NOW)
    assert evidence == Evidence()


def test_the_reasons_in_words() -> None:
    def why(*ends: End) -> str:
        return next(each.why for each in weigh(ends, NOW).standings["here"] if each.node == "n2")

    one = ended("a", 1, "n2", NODE_FAIL)
    assert why(one) == "1 failure of 1 run (node_fail); a single run may fail by itself"
    two = ended("b", 1, "n2", Cause.STALLED)
    assert why(one, two) == "2 failures of 2 runs (node_fail, stalled)"
    good = ended("c", 1, "n2", DONE, 0.5)
    assert why(one, two, good, replace(good, run_id="d")) == (
        "2 failures of 2 runs (node_fail, stalled), 2 attempts ran well since; "
        "too few or too old to exclude it"
    )


def test_what_a_person_has_forgiven_counts_no_more_and_what_comes_after_does() -> None:
    old = [ended(run, 1, "n2", NODE_FAIL, 2) for run in "ab"]
    new = [ended(run, 2, "n2", NODE_FAIL, 1) for run in "ab"]
    since = NOW - 1.5 * HOUR

    def runs(ends: Iterable[End], **forgiven: datetime) -> list[int]:
        said = {("here", node): at for node, at in forgiven.items()}
        return [each.failures for each in weigh(ends, NOW, said).standings.get("here", ())]

    assert runs(old) == [2]
    assert runs(old, n2=since) == []
    assert runs([*old, *new], n2=since) == [2]
    assert runs(old, n3=since) == [2]
    assert weigh(old, NOW, {("here", "n2"): since}).own == {}
    assert weigh(old, NOW, {("there", "n2"): since}).own == {"a": "n2", "b": "n2"}


SIZES = {
    # nodes_max of the partition, nodes of the run, excluded by the run itself -> at most
    (None, 1, 0): 2,
    (None, 2, 0): 0,
    (1, 1, 0): 0,
    (2, 1, 0): 0,
    (3, 1, 0): 1,
    (2, 2, 0): 0,
    (4, 1, 0): 1,
    (4, 2, 0): 1,
    (4, 3, 0): 0,
    (4, 4, 0): 0,
    (4, 1, 2): 0,
    (100, 1, 0): 10,
    (100, 95, 0): 4,
    (100, 1, 45): 5,
    (100, 1, 60): 0,
}


@pytest.mark.parametrize(("size", "nodes", "already"), SIZES)
def test_how_many_may_be_excluded(size: int | None, nodes: int, already: int) -> None:
    partition = Partition.model_validate({"cpus_per_node": 8, "nodes_max": size})
    assert most_excluded(partition, nodes, already) == SIZES[size, nodes, already]


ENDS = st.builds(
    End,
    site=st.just("here"),
    run_id=st.sampled_from("abcd"),
    attempt=st.integers(1, 5),
    partition=st.sampled_from(["gpu", "cpu", None]),
    nodes=st.lists(st.sampled_from(["n1", "n2", "n3", "n4"]), max_size=4).map(tuple),
    cause=st.sampled_from(Cause),
    ended_at=st.floats(-1, 80).map(lambda hours: NOW - hours * HOUR),
    reached=st.none() | st.integers(0, 3),
    has_saved=st.booleans(),
    counted_from=st.integers(1, 5),
    user=st.sampled_from(["ada", "grace"]),
)


def standings(ends: Iterable[End], now: datetime = NOW) -> dict[str, Standing]:
    return {each.node: each for each in weigh(ends, now).standings.get("here", ())}


@given(ends=st.lists(ENDS, max_size=20), seed=st.integers())
def test_the_order_in_which_ends_are_read_makes_no_difference(ends: list[End], seed: int) -> None:
    shuffled = ends[:]
    random.Random(seed).shuffle(shuffled)
    assert standings(shuffled) == standings(ends)


@given(ends=st.lists(ENDS, max_size=20), hours=st.floats(0, 100))
def test_a_score_only_falls_while_nothing_happens(ends: list[End], hours: float) -> None:
    now = NOW + HOUR  # later than every end
    before, after = standings(ends, now), standings(ends, now + hours * HOUR)
    assert after.keys() <= before.keys()
    for node, standing in after.items():
        assert standing.score <= before[node].score
        assert standing.is_bad <= before[node].is_bad
    assert standings(ends, now + LOOK_BACK + 100 * HOUR) == {}


@given(ends=st.lists(ENDS, max_size=40), most=st.integers(0, 4))
def test_one_run_alone_excludes_nothing_and_never_more_than_the_cap(
    ends: list[End], most: int
) -> None:
    assert bad(replace(each, run_id="a") for each in ends) == []
    chosen = choose(standings(ends).values(), most, "gpu")
    assert len(chosen) <= most
    assert set(chosen) <= set(bad(ends))


@given(ends=st.lists(ENDS, max_size=20), node=st.sampled_from(["n1", "n2", "n3"]))
def test_an_attempt_that_ran_well_never_speaks_against_its_node(ends: list[End], node: str) -> None:
    good = ended("z", 1, node, DONE, 0)
    before, after = standings(ends), standings([*ends, good])
    assert before.keys() == after.keys()
    for name, standing in after.items():
        assert standing.score <= before[name].score


class _Nodes(tuple[str, ...]):
    """Nodes of an attempt that count how often all of them are looked at."""

    looks = 0

    def __iter__(self) -> Iterator[str]:
        _Nodes.looks += 1
        return super().__iter__()


def test_the_nodes_of_an_attempt_are_looked_at_as_often_however_many_attempts_there_are() -> None:
    """Another role can write thousands of attempts with a thousand nodes each."""

    def looks(attempts: int) -> float:
        _Nodes.looks = 0
        nodes = _Nodes(f"n{number}" for number in range(200))
        for cause in (NODE_FAIL, FAILED, DONE):
            ends = [ended("a", number, "", cause, reached=number) for number in range(attempts)]
            weigh([replace(each, nodes=nodes) for each in ends], NOW)
        return _Nodes.looks / attempts

    assert looks(80) == looks(40)


def test_however_often_a_run_fails_on_a_node_it_speaks_once() -> None:
    ends = [ended("a", number, "n2", NODE_FAIL, 0) for number in range(1, 11)]
    ends += [ended(run, 1, "n3", NODE_FAIL, 0) for run in "ab"]
    scores = {node: each.total for node, each in standings(ends).items()}
    assert scores == {"n2": 1.0, "n3": 2.0}


def sweep(nodes: int, trials: int = 60) -> list[End]:
    """Trials of one user that hang wherever they run, all over a partition."""
    return [
        ended(f"trial{number}", 1, f"n{number % nodes}", Cause.STALLED, user="ada")
        for number in range(trials)
    ]


def test_a_user_speaks_once_however_many_runs_fail() -> None:
    ends = [*sweep(20), *(ended(run, 1, "x7", NODE_FAIL, user=run) for run in ("grace", "alan"))]
    first, second, *_ = weigh(ends, NOW).standings["here"]
    assert first.node == "x7"
    assert first.score > 1.9
    assert second.score == 1.0


def test_one_person_s_bug_excludes_nothing_and_hides_no_bad_node() -> None:
    site = the_site()
    assert to_avoid(weigh(sweep(20), NOW), the_run(), site) == []
    bad_one = [ended(run, 1, "x7", NODE_FAIL, user=run) for run in ("grace", "alan")]
    assert to_avoid(weigh([*sweep(20), *bad_one], NOW), the_run(), site) == ["x7"]
    here = excluded_in(weigh([*sweep(20), *bad_one], NOW), "here", site)
    assert here == {"x7": ["gpu"]}


def test_one_partition_per_node_takes_no_quadratic_time() -> None:
    """Rows of other roles name any number of nodes and partitions."""

    def outliers_of(count: int) -> None:
        standings = [
            Standing(
                f"n{number}", 1.0, ("a", "b"), 2, 2, (), NOW, partitions=frozenset((str(number),))
            )
            for number in range(count)
        ]
        assert len(outliers(Evidence({"here": standings}), "here", None)) == count

    require_no_square(outliers_of, 8000)


def test_some_bad_nodes_among_many_are_outliers() -> None:
    three_of_four = [ended(run, 1, f"n{n}", NODE_FAIL) for n in (1, 2, 3) for run in "ab"]
    assert to_avoid(weigh(three_of_four, NOW), the_run(), the_site()) == []
    two_of_four = three_of_four[:4]
    assert to_avoid(weigh(two_of_four, NOW), the_run(), the_site()) == ["n1"]


def test_of_two_that_failed_as_much_that_of_the_run_s_own_partition_is_excluded() -> None:
    ends = [
        replace(ended(run, 1, node, NODE_FAIL), partition=partition)
        for run in "ab"
        for node, partition in (("c1", "cpu"), ("g1", "gpu"))
    ]
    both = standings(ends).values()
    assert choose(both, 1, "gpu") == ["g1"]
    assert choose(both, 1, "cpu") == ["c1"]
    assert choose(both, 2, "gpu") == ["c1", "g1"]


# --- for one run ------------------------------------------------------------------------------

TWO = [ended("a", 1, "n2", NODE_FAIL), ended("b", 1, "n2", NODE_FAIL)]


def the_site(*options: str, **changes: Any) -> Site:
    """Its partition "gpu" has four nodes."""
    site = load_site("devcluster", search=search_path(Path("/nowhere")))
    dialect = site.dialect.model_copy(update={"options": list(options)})
    return site.model_copy(update={"dialect": dialect, **changes})


def the_run(**spec: Any) -> Run:
    spec["resources"] = {"nodes": 1, "time_limit": "1h", **spec.get("resources", {})}
    return make_run(Path("/scratch"), **spec).model_copy(update={"site": "here"})


def test_the_next_attempt_keeps_away_from_the_bad_node() -> None:
    assert to_avoid(weigh(TWO, NOW), the_run(), the_site()) == ["n2"]
    elsewhere = the_run().model_copy(update={"site": "there"})
    assert to_avoid(weigh(TWO, NOW), elsewhere, the_site()) == []


@pytest.mark.parametrize(
    ("spec", "site"),
    [
        ({"retry": {"avoid_bad_nodes": False}}, the_site()),
        ({"resources": {"nodes": 4}}, the_site()),
        ({"resources": {"exclude": "n[1-2]"}}, the_site()),
        ({"resources": {"exclude": "n[1"}}, the_site()),
        ({}, the_site("--nodelist=n[1-2]")),
        ({}, the_site("--nodefile=/nodes")),
        ({}, the_site(scheduler=SchedulerKind.LOCAL)),
    ],
    ids=[
        "switched off",
        "it needs all nodes",
        "it keeps away by itself",
        "a list that Slurm will refuse",
        "the site names nodes",
        "the site names a file of nodes",
        "one machine",
    ],
)
def test_nothing_is_excluded_where_somebody_has_said_otherwise(
    spec: dict[str, Any], site: Site
) -> None:
    assert to_avoid(weigh(TWO, NOW), the_run(**spec), site) == []


def test_what_the_run_itself_excludes_counts_as_excluded() -> None:
    assert to_avoid(weigh(TWO, NOW), the_run(resources={"exclude": "n4"}), the_site()) == ["n2"]
    assert to_avoid(weigh(TWO, NOW), the_run(resources={"exclude": "n[3-4]"}), the_site()) == []


def test_a_run_keeps_away_from_where_it_failed_last_though_nobody_else_does() -> None:
    run = the_run()
    own = ended(run.run_id, 1, "n3", NODE_FAIL)
    assert to_avoid(weigh([own], NOW), run, the_site()) == ["n3"]
    assert to_avoid(weigh([own], NOW), the_run(), the_site()) == []
    assert to_avoid(weigh([own], NOW + HALF_LIFE), run, the_site()) == [], "a day later"
    later = ended(run.run_id, 2, "n1", Cause.PREEMPTED)
    assert to_avoid(weigh([own, later], NOW), run, the_site()) == []
    for other in (Cause.VANISHED, Cause.PREEMPTED):
        assert to_avoid(weigh([replace(own, cause=other)], NOW), run, the_site()) == []
    crashed = replace(own, cause=FAILED)
    assert to_avoid(weigh([crashed], NOW), run, the_site()) == ["n3"]
    trained = replace(crashed, reached=100)
    assert to_avoid(weigh([trained], NOW), run, the_site()) == [], "the node does its work"
    assert to_avoid(weigh([replace(own, nodes=("n3", "n4"))], NOW), run, the_site()) == []
    assert to_avoid(weigh([own, *TWO], NOW), run, the_site()) == ["n2"], "the cap is one"
