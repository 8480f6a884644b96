"""The ``#SBATCH`` lines, in the words of each site."""

from __future__ import annotations

from typing import Any

import pytest

from hpcflow.errors import InputError
from hpcflow.model.spec import RunSpec
from hpcflow.sites.schema import Site
from tests.rendering.samples import RUN_ID, a_run, a_site, a_spec, script_of

FOUR_GPUS = {"gpus_per_node": 4, "time_limit": "4h"}


def header(spec: RunSpec, site: Site, **more: Any) -> list[str]:
    """The options of the script, in order."""
    lines = script_of(a_run(spec), site, **more).splitlines()
    assert lines[0] == "#!/bin/bash"
    options = [line.removeprefix("#SBATCH ") for line in lines if line.startswith("#SBATCH")]
    assert [f"#SBATCH {option}" for option in options] == lines[1 : len(options) + 1]
    return options


def of_resources(site: Site | None = None, **resources: Any) -> list[str]:
    return header(a_spec(resources={**FOUR_GPUS, **resources}), site or a_site())


def test_what_every_job_has() -> None:
    options = of_resources()
    assert {
        f"--job-name={RUN_ID}:1",
        "--output=out.log",
        "--open-mode=append",
        "--no-requeue",
        "--nodes=1",
        "--time=0-04:00:00",
        "--partition=gpu",
        "--signal=B:USR2@120",
        "--export=NONE",
        "--propagate=NONE",
    } <= set(options)


@pytest.mark.parametrize(
    ("dialect", "expected"),
    [
        ({}, "--gres=gpu:a100:4"),
        ({"gpu_type_in_request": False}, "--gres=gpu:4"),
        ({"gpus": "gpus-per-node"}, "--gpus-per-node=a100:4"),
        ({"gpus": "gpus-per-node", "gpu_type_in_request": False}, "--gpus-per-node=4"),
        ({"gpus": "implied"}, None),
    ],
)
def test_gpus_are_asked_for_as_the_site_wants_it(
    dialect: dict[str, Any], expected: str | None
) -> None:
    asked = [option for option in of_resources(a_site(dialect=dialect)) if "gpu:" in option]
    asked += [o for o in of_resources(a_site(dialect=dialect)) if o.startswith("--gpus")]
    assert asked == ([expected] if expected else [])


def test_a_gpu_type_is_named_as_slurm_knows_it() -> None:
    site = a_site(gpu_types={"a100": {"mem": "80G", "gres_name": "nvidia_a100"}})
    assert "--gres=gpu:nvidia_a100:4" in of_resources(site)


def test_a_job_without_gpus_asks_for_none() -> None:
    assert not [option for option in of_resources(gpus_per_node=0) if "gpu:" in option]


def test_tasks_are_those_of_the_launcher() -> None:
    """torchrun is one task with the CPUs of all its ranks; srun starts every rank itself."""
    by_torchrun = of_resources(cpus_per_task=3)
    assert {"--ntasks-per-node=1", "--cpus-per-task=12"} <= set(by_torchrun)
    spec = a_spec(resources={**FOUR_GPUS, "cpus_per_task": 3}, launch={"launcher": "srun"})
    assert {"--ntasks-per-node=4", "--cpus-per-task=3"} <= set(header(spec, a_site()))


def test_memory_and_words_are_passed_on_when_given() -> None:
    options = of_resources(
        mem="20G", account="physics", qos="high", constraint="fast&(ib|roce)", exclude="n[1-3]"
    )
    assert {
        "--mem=20480M",
        "--account=physics",
        "--qos=high",
        "--constraint=fast&(ib|roce)",
        "--exclude=n[1-3]",
    } <= set(options)
    bare = " ".join(of_resources())
    for absent in ("--mem", "--account", "--qos", "--constraint", "--exclude"):
        assert absent not in bare


def test_a_site_without_export_gets_none() -> None:
    assert "--export=NONE" not in of_resources(a_site(dialect={"export": False}))


def test_what_the_run_asks_for_wins_over_the_options_of_the_site() -> None:
    """sbatch lets the later one win."""
    site = a_site(dialect={"options": ["--mem=0", "--exclusive"]})
    options = of_resources(site, mem="20G")
    assert options[:2] == ["--mem=0", "--exclusive"]
    assert options.index("--mem=20480M") > options.index("--mem=0")


@pytest.mark.parametrize(
    ("named", "options", "excluded", "expected"),
    [
        (None, [], [], []),
        (None, [], ["n2", "n7"], ["--exclude=n2,n7"]),
        ("n[1-3]", [], ["n7"], ["--exclude=n[1-3],n7"]),
        (None, ["--exclude=login1"], [], ["--exclude=login1"]),
        (None, ["--exclude=login1"], ["n7"], ["--exclude=login1", "--exclude=login1,n7"]),
        ("n1", ["--exclude=login1"], ["n7"], ["--exclude=login1", "--exclude=n1,n7"]),
    ],
)
def test_the_last_exclude_says_all_that_is_to_be_excluded(
    named: str | None, options: list[str], excluded: list[str], expected: list[str]
) -> None:
    spec = a_spec(resources={**FOUR_GPUS, "exclude": named})
    site = a_site(dialect={"options": options})
    said = header(spec, site, excluded=excluded)
    assert [each for each in said if each.startswith("--exclude")] == expected


@pytest.mark.parametrize("name", ["n2 --uid=0", "n2\n#SBATCH --uid=0", "$(id)", "n2#", "'n2'"])
def test_what_is_no_node_gets_into_no_script(name: str) -> None:
    """It is kept out long before; this is the second lock on the same door."""
    with pytest.raises(InputError, match="cannot be on an #SBATCH line"):
        header(a_spec(resources=FOUR_GPUS), a_site(), excluded=[name])


@pytest.mark.parametrize(
    ("time_limit", "notice", "expected_s"),
    [("4h", "5m", 300), ("2m", "2m", 30), ("1m", "2m", 15), ("10d", "20h", 65535)],
)
def test_the_notice_leaves_a_short_job_most_of_its_time(
    time_limit: str, notice: str, expected_s: int
) -> None:
    spec = a_spec(resources={"time_limit": time_limit}, checkpoint={"notice": notice})
    assert f"--signal=B:USR2@{expected_s}" in header(spec, a_site())


def test_a_folder_that_slurm_would_misread_is_refused() -> None:
    """Slurm takes ``%`` and a backslash in the path of a log for patterns: no log, a failed job."""
    for folder in ("/scratch/100%/x", "/scratch/a\\b"):
        with pytest.raises(InputError, match="scratch folder"):
            script_of(a_run(a_spec(), run_dir=folder), a_site())


def test_only_what_our_own_options_set_of_slurms_variables_is_kept() -> None:
    site = a_site(dialect={"gpus": "gpus-per-node", "options": ["--hint=nomultithread"]})
    script = script_of(a_run(a_spec(resources={**FOUR_GPUS, "mem": "1G"})), site)
    for name in ("GPUS_PER_NODE", "HINT", "MEM_PER_NODE", "CPUS_PER_TASK", "NTASKS_PER_NODE"):
        assert f"    SLURM_{name}) ;;" in script
    assert "SLURM_PARTITION" not in script


def test_other_options_of_the_run_win_over_those_of_its_partition_and_of_the_site() -> None:
    gpu = a_site().partitions["gpu"].model_dump(by_alias=True)
    gpu["sbatch"] = {"licenses": "matlab", "reservation": "partition", "spread-job": True}
    site = a_site(partitions={"gpu": gpu}, dialect={"options": ["--licenses=site", "--hint=site"]})
    options = of_resources(site, sbatch={"reservation": "run", "mail-type": "END,FAIL", "tmp": 5})
    own = options.index("--nodes=1")
    assert options.index("--licenses=site") < options.index("--licenses=matlab")
    added = {"--hint=site", "--licenses=matlab", "--reservation=run", "--spread-job", "--tmp=5"}
    assert {*added, "--mail-type=END,FAIL"} <= set(options[:own]), "hpcflow's own come last"
    assert "--reservation=partition" not in options


def test_srun_keeps_what_the_run_adds() -> None:
    spec = a_spec(resources={**FOUR_GPUS, "sbatch": {"hint": "nomultithread"}})
    assert "SLURM_HINT" in script_of(a_run(spec), a_site())


@pytest.mark.parametrize(
    ("dialect", "asked"),
    [("gres", "gpu:a100:4,nvme:1"), ("gpus-per-node", "nvme:1"), ("implied", "nvme:1")],
)
def test_other_generic_resources_take_no_gpus_away(dialect: str, asked: str) -> None:
    options = of_resources(a_site(dialect={"gpus": dialect}), sbatch={"gres": "nvme:1"})
    assert [option for option in options if option.startswith("--gres")] == [f"--gres={asked}"]


def test_an_attempt_waits_for_other_jobs_and_a_time_where_that_applies() -> None:
    """Slurm forgets jobs, and refuses a dependency on one that it does not know."""
    spec = a_spec(resources={"dependency": "afterok:12", "begin": "now+1hour", "nice": 100})
    once = {"--dependency=afterok:12", "--begin=now+1hour"}
    assert {*once, "--nice=100"} <= set(header(spec, a_site()))
    again = set(header(spec, a_site(), start_conditions=()))
    assert "--nice=100" in again
    assert not once & again
