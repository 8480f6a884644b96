"""Place a run on a site: check it, and fill in every default, without the live cluster.

:mod:`hpcflow.sites.limits` checks the limits of a partition, :mod:`hpcflow.sites.defaults` has the
defaults.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcflow.errors import shell_word
from hpcflow.model.execution import Launcher, Resources
from hpcflow.model.run import Run
from hpcflow.model.sbatch import as_options
from hpcflow.model.scalars import shortened
from hpcflow.model.spec import RunSpec
from hpcflow.sites.defaults import (
    combined_constraint,
    default_cpus_per_task,
    launcher_and_ranks,
    time_limit,
)
from hpcflow.sites.limits import (
    Complaint,
    check_machine,
    check_nodes,
    check_refused_words,
    check_required,
)
from hpcflow.sites.names import suggestion
from hpcflow.sites.schema import Partition, Site

if TYPE_CHECKING:
    from hpcflow.documents import Document

AUTO = "auto"


@dataclass(frozen=True)
class Placement:
    """The request to the scheduler for one run.

    Attributes:
        partition: the key in the site file.
        options: its section in the site file.
        slurm_partition: the value of ``--partition``; None if it must be absent.
        gpu_type: key of the site's ``gpu_types``; None without GPUs, or if any type is fine.
        gres_name: the GPU type in the request; None if the request names no type.
        cpus_per_task: CPU cores per rank.
        mem_mb: memory per node; None leaves it to Slurm.
        time_limit_min: None leaves it to Slurm.
    """

    partition: str
    options: Partition
    slurm_partition: str | None
    gpu_type: str | None
    gres_name: str | None
    account: str | None
    qos: str | None
    constraint: str | None
    nodes: int
    gpus_per_node: int
    ranks_per_node: int
    cpus_per_task: int
    mem_mb: int | None
    time_limit_min: int | None
    launcher: Launcher


def place(
    spec: RunSpec,
    site: Site,
    document: Document | None = None,
    *,
    prefer: str | None = None,
    is_granted: bool = False,
) -> Placement:
    """Check ``spec`` against ``site`` and fill in every default.

    ``partition: auto`` selects the first partition of the site that fits. For a run without GPUs,
    partitions without GPUs are tried first.

    Args:
        prefer: the partition that `auto` chose before; used if the run fits there.
        is_granted: whether the job is already running. Then its limits are not checked, because
            Slurm has accepted it, and the site file may be wrong.

    Raises:
        SpecError: the run does not fit; with file, line, key and a correct value.
    """
    try:
        launcher_and_ranks(spec, site)  # first, because its errors apply to every partition
        _check_gpu_type(spec, site)
        if is_granted:
            return _granted(spec, site, prefer)
        _check_words(spec, site)
        return _first_that_fits(site, _tried(spec, site, prefer))
    except Complaint as complaint:
        raise complaint.as_error(document) from None


def placements(
    spec: RunSpec, site: Site, document: Document | None = None
) -> dict[str, Placement | Complaint]:
    """Return key -> placement, or the reason for none, of each partition that ``spec`` may mean.

    Raises:
        SpecError: the run fits nowhere on this site; with file, line, key and a correct value.
    """
    try:
        launcher_and_ranks(spec, site)
        _check_gpu_type(spec, site)
        _check_words(spec, site)
        return dict(_tried(spec, site))
    except Complaint as complaint:
        raise complaint.as_error(document) from None


def partition_of_job(site: Site, partition: str | None, qos: str | None) -> str:
    """Return the key of a running job's partition, by Slurm's names of its partition and QOS.

    If the site file does not have the partition, the QOS decides. `auto` if it has neither.
    """
    names = list(site.partitions)
    same = [name for name in names if partition and site.slurm_partition(name) == partition]
    with_qos = [name for name in same or names if qos and site.partitions[name].qos == qos]
    without = [name for name in same if site.partitions[name].qos is None]
    return next(iter([*with_qos, *without, *same]), AUTO)


def _granted(spec: RunSpec, site: Site, prefer: str | None) -> Placement:
    """Return the placement of a running job: a partition that it fits, else the likeliest one."""
    if spec.resources.partition == AUTO and not any(each.auto for each in site.partitions.values()):
        names = list(site.partitions)
    else:
        names = _candidates(spec, site, prefer)
    for name in names:
        if isinstance(placement := _try(spec, site, name), Placement):
            return placement
    gpus = spec.resources.gpus_per_node
    has_enough = (name for name in names if site.partitions[name].gpus_per_node >= gpus)
    return _fit(spec, site, next(has_enough, names[0]), is_granted=True)


def _check_gpu_type(spec: RunSpec, site: Site) -> None:
    asked = spec.resources.gpu_type
    if asked is not None and asked not in site.gpu_types:
        raise Complaint(
            "resources.gpu_type",
            f"site {site.name} has no GPU type {shortened(asked)}",
            suggestion(asked, site.gpu_types),
        )


def _check_words(spec: RunSpec, site: Site) -> None:
    """Check the options that are independent of the partition."""
    resources = spec.resources
    check_refused_words(resources, site)
    account = _account(resources, site)
    check_required({"account": account}, site)
    if account is not None and site.accounts is not None and account not in site.accounts:
        raise Complaint(
            "resources.account",
            f"site {site.name} has no account {shortened(account)}",
            suggestion(account, site.accounts),
        )


def _candidates(spec: RunSpec, site: Site, prefer: str | None = None) -> list[str]:
    """Return the keys of the partitions that the run may mean, in order."""
    asked, qos = spec.resources.partition, spec.resources.qos
    if asked == AUTO and AUTO not in site.partitions:
        names = [name for name, options in site.partitions.items() if options.auto]
        if not names:
            raise Complaint(
                "resources.partition",
                f"site {site.name} has no partition that `auto` may choose",
                suggestion("", site.partitions),
            )
        with_qos = [name for name in names if qos and site.partitions[name].qos == qos]
        return _preferred_first(with_qos or names, spec, site, prefer)
    # The run may also use Slurm's name of the partition, and its QOS.
    same = [name for name in site.partitions if asked in (name, site.slurm_partition(name))]
    if not same:
        raise Complaint(
            "resources.partition",
            f"site {site.name} has no partition {shortened(asked)}",
            suggestion(asked, [*site.partitions, AUTO]),
        )
    with_qos = [name for name in same if qos and site.partitions[name].qos == qos]
    if asked in (with_qos or site.partitions):
        return [asked]
    return _preferred_first(kinds_of_nodes(site, (with_qos or same)[0]), spec, site, prefer)


def _preferred_first(names: list[str], spec: RunSpec, site: Site, prefer: str | None) -> list[str]:
    # A run without GPUs should not block GPU nodes; False is sorted before True.
    takes_gpus = spec.resources.gpus_per_node > 0
    return sorted(
        names,
        key=lambda name: (
            name != prefer,
            not takes_gpus and site.partitions[name].gpus_per_node > 0,
        ),
    )


def kinds_of_nodes(site: Site, key: str) -> list[str]:
    """Return the keys of ``site`` with the same sbatch options as ``key``; their nodes differ."""

    def sbatch_options(name: str) -> tuple[str | None, str | None, str | None]:
        options = site.partitions[name]
        return site.slurm_partition(name), options.qos, options.constraint

    return [name for name in site.partitions if sbatch_options(name) == sbatch_options(key)]


def _account(resources: Resources, site: Site) -> str | None:
    """Return the account of a run; an undecided `auto` counts as none."""
    return site.default_account if resources.account in (None, AUTO) else resources.account


def _tried(
    spec: RunSpec, site: Site, prefer: str | None = None
) -> Iterator[tuple[str, Placement | Complaint]]:
    for name in _candidates(spec, site, prefer):
        yield name, _try(spec, site, name)


def _first_that_fits(site: Site, tried: Iterable[tuple[str, Placement | Complaint]]) -> Placement:
    complaints: dict[str, Complaint] = {}
    for name, result in tried:
        if isinstance(result, Placement):
            return result
        complaints[name] = result
    first = next(iter(complaints.values()))
    if len(complaints) == 1:
        raise first
    keys = {complaint.key for complaint in complaints.values()}
    raise Complaint(
        first.key if len(keys) == 1 else "resources.partition",
        f"no partition of site {site.name} fits this run:",
        f"request less, or see the partitions: hpcflow site show {shell_word(site.name)}",
        lines=[f"{name}: {each.message}" for name, each in complaints.items()],
    )


def _try(spec: RunSpec, site: Site, name: str) -> Placement | Complaint:
    try:
        return _fit(spec, site, name)
    except Complaint as complaint:
        return complaint


def _fit(spec: RunSpec, site: Site, name: str, *, is_granted: bool = False) -> Placement:
    resources, options = spec.resources, site.partitions[name]
    launcher, ranks_per_node = launcher_and_ranks(spec, site)
    gpu_type = _gpu_type(spec, site, name, is_granted=is_granted)
    cpus_per_task = resources.cpus_per_task or default_cpus_per_task(
        resources, options, ranks_per_node
    )
    qos = resources.qos or options.qos
    if is_granted:
        limit_min = resources.time_limit_min or time_limit(resources, site, name)
        constraint = resources.constraint or options.constraint
    else:
        check_nodes(resources, site, name)
        check_machine(resources, site, name, ranks_per_node, cpus_per_task)
        limit_min = time_limit(resources, site, name)
        constraint = combined_constraint(resources.constraint, options.constraint, name)
        check_required({"time_limit": limit_min, "qos": qos, "constraint": constraint}, site)
    return Placement(
        partition=name,
        options=options,
        slurm_partition=site.slurm_partition(name),
        gpu_type=gpu_type,
        gres_name=_gres_name(site, gpu_type),
        account=_account(resources, site),
        qos=qos,
        constraint=constraint,
        nodes=resources.nodes,
        gpus_per_node=resources.gpus_per_node,
        ranks_per_node=ranks_per_node,
        cpus_per_task=cpus_per_task,
        mem_mb=resources.mem_mb,
        time_limit_min=limit_min,
        launcher=launcher,
    )


def _gpu_type(spec: RunSpec, site: Site, name: str, *, is_granted: bool) -> str | None:
    asked, there = spec.resources.gpu_type, site.partitions[name].gpu_type
    if not spec.resources.gpus_per_node:
        return None
    if is_granted:
        return there or asked
    if asked and there and asked != there:
        others = [key for key, each in site.partitions.items() if each.gpu_type == asked]
        where = f"partition {' or '.join(others)} has" if others else "another partition may have"
        raise Complaint(
            "resources.gpu_type",
            f"partition {name} has {there}, and the run asks for {asked}",
            f"{where} {asked}; or ask for {there}",
        )
    return asked or there


def _gres_name(site: Site, gpu_type: str | None) -> str | None:
    if gpu_type is None or not site.dialect.gpu_type_in_request:
        return None
    return site.gpu_types[gpu_type].gres_name or gpu_type


def next_placement(run: Run, site: Site, mem_mb: int | None) -> Placement:
    """Return the placement of the next attempt.

    Args:
        mem_mb: memory on every node, instead of what the run requests.

    Raises:
        SpecError: the run does not fit its site any more.
    """
    spec = run.spec
    if mem_mb is not None:
        resources = spec.resources.model_copy(update={"mem_mb": mem_mb})
        spec = spec.model_copy(update={"resources": resources})
    return place(spec, site, prefer=run.partition)


def added_options(site: Site, partition: Partition | None, resources: Resources) -> list[str]:
    """Return the added options of site, partition and run. sbatch uses the last of equal ones."""
    of_partition = partition.sbatch if partition is not None else {}
    return [*site.dialect.options, *as_options({**of_partition, **resources.sbatch})]
