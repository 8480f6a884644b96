"""The options on the ``#SBATCH`` lines, in the dialect of the site."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Final

from hpcflow.model.ids import job_name
from hpcflow.model.run import Run
from hpcflow.model.units import format_minutes
from hpcflow.sites.added import added_options
from hpcflow.sites.placement import Placement
from hpcflow.sites.schema import GpuDialect, Site

#: sbatch takes no more; see ``--signal`` in sbatch(1).
_NOTICE_MAX_S: Final = 65535

#: Keys of ``resources`` that hold back the first start of a run.
START_CONDITIONS: Final = ("dependency", "begin")

#: Of a job whose script opens the log.
NO_LOG: Final = "--output=/dev/null"

#: Those of our own options that srun takes for its defaults through a variable.
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
    """Every option, one an item, such as ``--nodes=2``.

    Other options than hpcflow's own stand first, those of the run last, for sbatch lets the later
    one win: what hpcflow itself depends on is never taken back.

    Args:
        tasks_per_node: Slurm's tasks, not the ranks: one for torchrun.
        opens_log: whether the script opens its log itself; then Slurm touches no run directory.
        excluded: nodes to keep away from, beside those that the run, or else the site, names.
        start_conditions: those of :data:`START_CONDITIONS` that apply to this attempt.
        waits_for: id of the job whose end is to be waited for.
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
        # Else the first attempt would have the limits of a login shell, and later ones a daemon's.
        "--propagate=NONE",
    ]
    if waits_for is not None:
        found.append(f"--dependency=afterany:{waits_for}")
    if site.dialect.export:
        found.append("--export=NONE")
    return found


def notice_s(run: Run, placement: Placement) -> int:
    """Seconds before the time limit at which the job gets its notice."""
    return notice_before_s(run.spec.checkpoint.notice_s, placement.time_limit_min)


def notice_before_s(asked_s: int, time_limit_min: int | None) -> int:
    """Seconds before a time limit at which the notice comes that was asked for.

    At most a quarter of the limit: Slurm sends it up to a minute early, and in a short job the
    default would come right at the start, so that no attempt would ever get anywhere.
    """
    asked_s = min(asked_s, _NOTICE_MAX_S)
    if time_limit_min is None:
        return max(1, asked_s)
    return max(1, min(asked_s, time_limit_min * 60 // 4))


def kept_variables(added: Sequence[str], options: Sequence[str]) -> list[str]:
    """The ``SLURM_*`` variables that sbatch itself sets in the job because of ``options``.

    srun takes them for its own defaults, so they are to be kept. The same ones may leak from the
    submitting shell, but then sbatch has put the job's own values over them.

    Args:
        added: those of ``options`` that are not hpcflow's own.
    """
    theirs = {_name(option) for option in added}
    kept = {_name(option) for option in options} & (theirs | _ALSO_FOR_SRUN)
    variables = {f"SLURM_{name.upper().replace('-', '_')}" for name in kept}
    return sorted({_OTHER_NAMES.get(each, each) for each in variables})


def _name(option: str) -> str:
    return option[2:].partition("=")[0]


def _exclude(run: Run, added: Sequence[str], excluded: Sequence[str]) -> str | None:
    """One list of all, for a second ``--exclude`` would take the first one back."""
    named = run.spec.resources.exclude
    if not excluded:
        return named
    if named is None:
        options = (option.partition("=") for option in added)
        named = next((hosts for name, _, hosts in options if name == "--exclude"), None)
    return ",".join([*([named] if named else []), *excluded])


def _gres(added: Sequence[str], gpus: Mapping[str, str]) -> dict[str, str]:
    """One list of all generic resources, for a second ``--gres`` would take the first one back."""
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
