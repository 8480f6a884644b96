"""Start a run inside an allocation that its user submitted by hand.

``sbatch --nodes=2 sbatch/train.sbatch config.yaml`` calls this in the job. It creates the same run
directory and journal as ``hpcflow run``, with the resources of the allocation, and becomes the job
script. The ledger is not opened on a compute node: the next command on a login node adds the run.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from hpcflow.clock import SystemClock
from hpcflow.config import LoadedSpec, load_spec
from hpcflow.errors import HpcflowError, InputError, StorageError, Where
from hpcflow.launch.connecting import reference, resolve_site
from hpcflow.launch.plan import make_plan
from hpcflow.model.ids import job_name
from hpcflow.model.journal import Intended, Submitted
from hpcflow.model.secret import redact
from hpcflow.placement.run_paths import trust_on
from hpcflow.schedulers.slurm.allocation import Allocation, enclosing_step, read_allocation
from hpcflow.settings import load_settings
from hpcflow.sites.defaults import launcher_and_ranks
from hpcflow.sites.limits import Complaint
from hpcflow.sites.placement import kinds_of_nodes, partition_of_job
from hpcflow.sites.schema import GpuDialect, Site
from hpcflow.storage.files import write_durably
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.path_check import require_safe_path
from hpcflow.storage.runs import list_runs
from hpcflow.terminal import echo, echo_message


def prepare(
    config: Path,
    overrides: list[str],
    site: str | None,
    environ: Mapping[str, str],
    *,
    step: str | None = None,
) -> Path:
    """Create the run for the allocation that ``environ`` describes; return its job script.

    If Slurm restarted the job, return the script of the run that it created before, which starts
    the next attempt.

    Args:
        step: the enclosing job step, from :func:`enclosing_step`; None if unknown.

    Raises:
        InputError: this is not a Slurm batch job, the config does not fit the allocation, or
            another user could replace a directory on the path to the run directory.
    """
    job_id = batch_job_id(environ, step)
    settings, clock = load_settings(environ), SystemClock()
    the_site = resolve_site(settings, site, named_in=Where(key="--site"))
    if environ.get("SLURM_RESTART_COUNT", "0") != "0":
        script = _script_before_restart(settings.home, job_id)
        account = environ.get("SLURM_JOB_ACCOUNT") or the_site.default_account
        require_safe_path(script, trust_on(the_site, settings, account))
        return script
    plan = make_plan(
        config,
        settings=settings,
        clock=clock,
        site=the_site,
        site_reference=reference(the_site, site or settings.site),
        overrides=overrides,
        granted=granted_resources(config, overrides, the_site, read_allocation(environ)),
    )
    run_dir = plan.create_run(settings.home)
    attempt = run_dir.attempt(1)
    attempt.path.mkdir(mode=0o700, parents=True, exist_ok=True)
    write_durably(attempt.script, plan.script.encode())
    name = environ.get("SLURM_JOB_NAME") or job_name(plan.run.run_id, 1)
    intent = Intended(
        at=clock.now(),
        attempt=1,
        job_name=name,
        scheduler="slurm",
        partition=plan.placement.partition,
        account=plan.placement.account,
        resume_from=plan.run.begins_from,
        cluster=environ.get("SLURM_CLUSTER_NAME"),
        host=socket.gethostname(),
        mirror=plan.run.mirror.url if plan.run.mirror is not None else None,
    )
    Journal(run_dir).append(intent)
    Journal(run_dir).append(Submitted(at=clock.now(), attempt=1, job_id=job_id, how="inside"))
    return attempt.script


def batch_job_id(environ: Mapping[str, str], step: str | None) -> str:
    """Return the id of the batch job that this process runs in.

    Raises:
        InputError: it runs in none, or in a task of a job array.
    """
    job_id = environ.get("SLURM_JOB_ID")
    submit = "submit it: sbatch sbatch/train.sbatch config.yaml, or: hpcflow run"
    if step is None:
        is_batch = "SLURM_PROCID" in environ and "SLURM_STEP_ID" not in environ
    else:
        is_batch = step == "batch"
    if not job_id or not is_batch:
        raise InputError("this is not a Slurm batch job", next_action=submit)
    if environ.get("SLURM_ARRAY_JOB_ID"):
        raise InputError("a task of a job array cannot be a run", next_action=submit)
    return job_id


def _script_before_restart(home: Home, job_id: str) -> Path:
    """Return the job script of the run that this job created before Slurm restarted it."""
    for run_dir in sorted(list_runs(home), key=_created_at, reverse=True):
        try:
            attempt = Journal(run_dir).history.submitted_inside(job_id)
        except StorageError:  # a damaged run must not hide the one of this job
            continue
        if attempt is not None:
            return run_dir.attempt(attempt).script
    raise InputError(
        f"Slurm restarted job {job_id}, and the run that it created before is missing",
        next_action="look for it: hpcflow ls; or submit it again",
    )


def _created_at(run_dir: RunDir) -> float:
    """Return when a run was created: Slurm reuses job ids, and the newest run counts."""
    try:
        return run_dir.run_json.stat().st_mtime
    except OSError:
        return 0.0


def granted_resources(
    config: Path, overrides: list[str], site: Site, allocation: Allocation
) -> dict[str, Any]:
    """Return the resources of the allocation, under the keys of ``resources``.

    Raises:
        SpecError: the config or an override is wrong.
        InputError: a node has fewer CPU cores than ranks.
    """
    gpus = allocation.gpus_per_node
    if gpus is None and site.dialect.gpus is not GpuDialect.IMPLIED:
        gpus = 0  # Slurm does not count implied GPUs, so there the number in the config applies
    limit_min = allocation.time_limit_min
    found = {
        "nodes": allocation.nodes,
        "gpus_per_node": gpus,
        "partition": _partition(site, allocation),
        "account": allocation.account,
        "qos": allocation.qos,
        "time_limit": None if limit_min is None else f"{limit_min}m",
    }
    granted = {key: value for key, value in found.items() if value is not None}
    if allocation.cpus_per_node is not None:
        ranks = _ranks_per_node(load_spec(config, overrides, granted=granted), site)
        granted["cpus_per_task"] = _cores_per_rank(allocation.cpus_per_node, ranks)
    return granted


def _partition(site: Site, allocation: Allocation) -> str:
    """Return the site's key of the partition, or Slurm's name if several keys share it."""
    key, name = partition_of_job(site, allocation.partition, allocation.qos), allocation.partition
    if name is None or key not in site.partitions or site.slurm_partition(key) != name:
        return key
    return name if len(kinds_of_nodes(site, key)) > 1 else key


def _ranks_per_node(loaded: LoadedSpec, site: Site) -> int:
    try:
        return launcher_and_ranks(loaded.spec, site)[1]
    except Complaint as complaint:
        raise complaint.as_error(loaded.document) from None


def _cores_per_rank(cpus_per_node: int, ranks: int) -> int:
    if cpus_per_node < ranks:
        raise InputError(
            f"{ranks} ranks on a node need {ranks} CPU cores, and the allocation has a node with "
            f"{cpus_per_node}",
            next_action=f"ask for more: sbatch --ntasks-per-node=1 --cpus-per-task={ranks} ...",
        )
    return cpus_per_node // ranks


@click.command()
@click.argument("config", type=click.Path(path_type=Path, readable=False))
@click.option("--site", help="The cluster. Default: the one of this machine.")
@click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the config. May be given several times.",
)
def main(config: Path, site: str | None, overrides: tuple[str, ...]) -> None:
    """Create a run of CONFIG for this allocation, and become its job script."""
    try:
        step = enclosing_step(os.getppid())
        script = prepare(config, list(overrides), site, os.environ, step=step)
    except HpcflowError as error:
        echo("error: ", nl=False, err=True)
        echo_message(*map(redact, error.parts()), err=True)
        sys.exit(error.exit_code)
    os.chdir(script.parent)
    os.umask(0o077)  # of the log; the script sets the program's
    with (script.parent / "out.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.execv("/bin/bash", ["bash", str(script)])  # noqa: S606 - the script replaces us


if __name__ == "__main__":
    main()
