"""Build the options of the ``#SBATCH`` lines, in the dialect of the site."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from hpcflow.model.ids import job_name
from hpcflow.model.run import Run
from hpcflow.model.units import format_minutes
from hpcflow.sites.placement import Placement, added_options
from hpcflow.sites.schema import GpuDialect, Site

#: The maximum of ``--signal`` in sbatch(1).
_NOTICE_MAX_S: Final = 65535

#: Keys of ``resources`` that delay the first start of a run.
START_CONDITIONS: Final = ("dependency", "begin")

#: For a job whose script opens the log itself.
NO_LOG: Final = "--output=/dev/null"

#: Options of hpcflow whose variables srun uses as its defaults.
_ALSO_FOR_SRUN: Final = frozenset({"ntasks-per-node", "cpus-per-task", "gpus-per-node", "mem"})
_GRES: Final = "--gres="
_OTHER_NAMES: Final = {"SLURM_MEM": "SLURM_MEM_PER_NODE"}


def directives(
    run: Run,
    site: Site,
    placement: Placement,
    *,
    attempt: int,
    tasks_per_node: int,
    opens_log: bool = False,
    excluded: Sequence[str] = (),
    start_conditions: Collection[str] = START_CONDITIONS,
    waits_for: str | None = None,
) -> list[str]:
    """Return all options, such as ``--nodes=2``.

    Options of the site and the run come first, those that hpcflow needs last, because the last one
    counts for sbatch.

    Args:
        tasks_per_node: Slurm's tasks, not the ranks: one for torchrun.
        opens_log: whether the script opens its log itself; then Slurm uses no run directory.
        excluded: nodes to exclude, besides those that the run, or else the site, names.
        start_conditions: those of :data:`START_CONDITIONS` that apply to this attempt.
        waits_for: id of the job whose end this job waits for.
    """
    resources = run.spec.resources
    added = added_options(site, placement.options, resources)
    found = [option for option in added if not option.startswith(_GRES)]
    placed = {
        "account": placement.account,
        "partition": placement.slurm_partition,
        "qos": placement.qos,
        "constraint": placement.constraint,
        "exclude": _exclude(run, added, excluded),
        "nodes": placement.nodes,
        "ntasks-per-node": tasks_per_node,
        "cpus-per-task": placement.cpus_per_task * placement.ranks_per_node // tasks_per_node,
        **_gres(added, _gpus(site, placement)),
        "mem": f"{placement.mem_mb}M" if placement.mem_mb and site.dialect.mem else None,
        "time": format_minutes(placement.time_limit_min) if placement.time_limit_min else None,
        "nice": resources.nice,
    }
    placed |= {key: getattr(resources, key) for key in START_CONDITIONS if key in start_conditions}
    found += [f"--{name}={value}" for name, value in placed.items() if value is not None]
    found += [
        f"--job-name={job_name(run.run_id, attempt)}",
        *(("--chdir=/", NO_LOG) if opens_log else ("--output=out.log",)),
        "--open-mode=append",
        "--no-requeue",
        f"--signal=B:USR2@{notice_s(run, placement)}",
        # Otherwise the first attempt would have the limits of a login shell, later ones a daemon's.
        "--propagate=NONE",
    ]
    if waits_for is not None:
        found.append(f"--dependency=afterany:{waits_for}")
    if site.dialect.export:
        found.append("--export=NONE")
    return found


def notice_s(run: Run, placement: Placement) -> int:
    """Return how many seconds before its time limit the job gets the notice."""
    return notice_before_s(run.spec.checkpoint.notice_s, placement.time_limit_min)


def notice_before_s(asked_s: int, time_limit_min: int | None) -> int:
    """Return how many seconds before a time limit a requested notice comes.

    At most a quarter of the limit. Otherwise a short job would get its notice at its start, and
    make no progress; Slurm sends it up to a minute early.
    """
    asked_s = min(asked_s, _NOTICE_MAX_S)
    if time_limit_min is None:
        return max(1, asked_s)
    return max(1, min(asked_s, time_limit_min * 60 // 4))


def kept_variables(added: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the ``SLURM_*`` variables that sbatch sets in the job because of ``options``.

    They are kept, because srun uses them as its defaults. sbatch overwrites those that leak from
    the submitting shell.

    Args:
        added: those of ``options`` from the site and the run.
    """
    theirs = {_name(option) for option in added}
    kept = {_name(option) for option in options} & (theirs | _ALSO_FOR_SRUN)
    variables = {f"SLURM_{name.upper().replace('-', '_')}" for name in kept}
    return sorted({_OTHER_NAMES.get(each, each) for each in variables})


def _name(option: str) -> str:
    return option[2:].partition("=")[0]


def _exclude(run: Run, added: Sequence[str], excluded: Sequence[str]) -> str | None:
    """Return one list of all nodes, because a second ``--exclude`` would replace the first."""
    named = run.spec.resources.exclude
    if not excluded:
        return named
    if named is None:
        options = (option.partition("=") for option in added)
        named = next((hosts for name, _, hosts in options if name == "--exclude"), None)
    return ",".join([*([named] if named else []), *excluded])


def _gres(added: Sequence[str], gpus: Mapping[str, str]) -> dict[str, str]:
    """Return one list of all generic resources: a second ``--gres`` would replace the first."""
    others = [option.removeprefix(_GRES) for option in added if option.startswith(_GRES)]
    if not others:
        return dict(gpus)
    return {**gpus, "gres": ",".join([*([gpus["gres"]] if "gres" in gpus else []), others[-1]])}


def _gpus(site: Site, placement: Placement) -> dict[str, str]:
    count = placement.gpus_per_node
    if not count or site.dialect.gpus is GpuDialect.IMPLIED:
        return {}
    kind = f"{placement.gres_name}:" if placement.gres_name else ""
    if site.dialect.gpus is GpuDialect.GRES:
        return {"gres": f"gpu:{kind}{count}"}
    return {"gpus-per-node": f"{kind}{count}"}
