"""Whatever is asked of whatever site: either a clear refusal, or a placement within all limits."""

from __future__ import annotations

from typing import Any

from hypothesis import event
from hypothesis import strategies as st

from hpcflow.errors import SpecError
from hpcflow.model.execution import Launch, Launcher
from hpcflow.model.spec import RunSpec
from hpcflow.sites.placement import Placement, partition_of_job, place
from hpcflow.sites.schema import Site
from tests.sampled import sampled
from tests.sites.build import spec

GPU_TYPES = ("a100", "h100", "mi250x")
counts = st.integers(1, 12)
minutes = st.integers(1, 4000).map(lambda number: f"{number}m")
maybe = st.none


@st.composite
def partitions(draw: st.DrawFn) -> dict[str, Any]:
    """A partition as a site file may describe it."""
    gpus = draw(st.integers(0, 8))
    longest = draw(st.none() | st.integers(1, 4000))
    nodes_min = draw(st.integers(1, 3))
    found = {
        "partition": draw(st.none() | st.sampled_from(["p", "q"])),
        "gpus_per_node": gpus,
        "gpu_type": draw(maybe() | st.sampled_from(GPU_TYPES)) if gpus else None,
        "cpus_per_node": draw(st.integers(1, 64)),
        "mem_per_node": draw(maybe() | st.integers(1, 64).map(lambda gib: f"{gib}G")),
        "nodes_min": nodes_min,
        "nodes_max": draw(maybe() | st.integers(nodes_min, 12)),
        "time_limit_max": f"{longest}m" if longest else None,
        "time_limit_default": draw(maybe() | st.integers(1, longest or 4000).map("{}m".format)),
        "node_time_max": draw(maybe() | minutes),
        "time_limit_bins": [
            {"nodes_max": size, "time_limit_max": draw(minutes)}
            for size in sorted(draw(st.sets(counts, max_size=3)))
        ],
        "whole_nodes": draw(st.booleans()),
        "qos": draw(maybe() | st.sampled_from(["normal", "debug"])),
        "constraint": draw(maybe() | st.sampled_from(["gpu", "gpu&nvme"])),
        "auto": draw(st.booleans()),
    }
    # `partition: null` means something; for all else null and absent are one.
    return {key: each for key, each in found.items() if each is not None or key == "partition"}


@st.composite
def sites(draw: st.DrawFn) -> Site:
    """A site of one to four partitions."""
    required = ["account", "nodes", "time_limit", "partition", "qos", "constraint"]
    return Site.model_validate(
        {
            "name": "any",
            "partitions": draw(
                st.dictionaries(
                    st.sampled_from(["a", "b", "c", "auto"]), partitions(), min_size=1, max_size=4
                )
            ),
            "gpu_types": {name: {} for name in GPU_TYPES},
            "accounts": draw(maybe() | st.just(["physics"])),
            "default_account": draw(maybe() | st.just("physics")),
            "dialect": {
                "mem": draw(st.booleans()),
                "gpu_type_in_request": draw(st.booleans()),
                "required": draw(st.lists(st.sampled_from(required), max_size=2)),
            },
            "scratch": {"path": "/scratch"},
        }
    )


@st.composite
def specs(draw: st.DrawFn) -> RunSpec:
    """A run, modest enough to fit now and then."""
    options = {
        "nodes": counts,
        "gpus_per_node": st.integers(0, 9),
        "gpu_type": st.sampled_from([*GPU_TYPES, "unknown"]),
        "tasks_per_node": counts,
        "cpus_per_task": counts,
        "mem": st.integers(1, 80).map(lambda gib: f"{gib}G"),
        "time_limit": minutes,
        "partition": st.sampled_from(["a", "b", "p", "auto", "nowhere"]),
        "account": st.sampled_from(["physics", "nobody"]),
        "qos": st.sampled_from(["normal", "odd"]),
        "constraint": st.sampled_from(["gpu", "ib", "a|b", "[rack1*2]"]),
    }
    chosen = draw(st.sets(st.sampled_from(sorted(options)), max_size=5))
    resources = {key: draw(options[key]) for key in sorted(chosen)}
    frameworks = st.sampled_from(["pytorch", "tensorflow", "jax", "mpi", "none"])
    return spec(launch={"framework": draw(frameworks)}, **resources)


@sampled(100, 1000, sites(), specs())
def test_a_placement_respects_every_limit_or_the_run_is_refused(site: Site, run: RunSpec) -> None:
    try:
        placement = place(run, site)
    except SpecError as error:
        event(f"refused because of {error.where.key if error.where else None}")
        assert error.where is not None
        assert error.where.key is not None
        assert error.where.key.startswith("resources.")
        assert error.next_action
        return
    event("placed")
    check_partition(placement, site)
    check_request(placement, site, run)


@sampled(
    80,
    800,
    sites(),
    specs(),
    st.sampled_from(["p", "unknown", None]),
    st.sampled_from(["debug", None]),
)
def test_a_job_that_runs_has_a_place_everywhere(
    site: Site, run: RunSpec, partition: str | None, qos: str | None
) -> None:
    key = partition_of_job(site, partition, qos)
    granted = {"partition": key, "qos": qos, "gpu_type": None}
    resources = run.resources.model_copy(update=granted)
    run = run.model_copy(update={"resources": resources, "launch": Launch()})
    placement = place(run, site, is_granted=True)
    assert placement.partition in site.partitions
    for asked in ("nodes", "gpus_per_node", "mem_mb", "account"):
        said = getattr(resources, asked)
        assert said is None or getattr(placement, asked) == said


def check_partition(placement: Placement, site: Site) -> None:
    """Nothing is more, or less, than the partition allows."""
    options = site.partitions[placement.partition]
    assert options == placement.options
    assert options.nodes_min <= placement.nodes <= (options.nodes_max or placement.nodes)
    assert 0 <= placement.gpus_per_node <= options.gpus_per_node
    assert placement.cpus_per_task >= 1
    assert placement.ranks_per_node * placement.cpus_per_task <= options.cpus_per_node
    if placement.mem_mb is not None:
        assert placement.mem_mb <= (options.mem_per_node_mb or placement.mem_mb)
        assert site.dialect.mem
    limit = placement.time_limit_min
    if limit is not None:
        assert 1 <= limit <= (options.time_limit_max_min or limit)
        for each in options.time_limit_bins:
            if placement.nodes <= each.nodes_max:
                assert limit <= each.time_limit_max_min
                break
        if options.node_time_max_min:
            assert limit == 1 or limit * placement.nodes <= options.node_time_max_min
    if options.time_limit_max_min:
        assert limit is not None
    for needed in (options.constraint or "").split("&"):
        assert needed in (placement.constraint or "")


def check_request(placement: Placement, site: Site, run: RunSpec) -> None:
    """Whatever the run said is what is asked for, and whatever the site wants is said."""
    asked = run.resources
    if asked.partition == "auto" and "auto" not in site.partitions:
        assert placement.options.auto
    for key in ("cpus_per_task", "mem_mb", "time_limit_min", "account", "qos"):
        said = getattr(asked, key)
        assert said is None or getattr(placement, key) == said
    if asked.gpu_type and placement.gpus_per_node:
        assert placement.gpu_type == asked.gpu_type
    if site.accounts is not None and asked.account:
        assert asked.account in site.accounts
    needed: dict[str, Any] = {"account": placement.account, "qos": placement.qos}
    needed |= {"constraint": placement.constraint, "time_limit": placement.time_limit_min}
    for key in site.dialect.required:
        assert needed.get(key, True) is not None
    if placement.launcher is Launcher.NONE:
        assert placement.nodes == placement.ranks_per_node == 1
    assert (placement.gres_name is None) or site.dialect.gpu_type_in_request
