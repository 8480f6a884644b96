"""Start a run inside an allocation that its user submitted by hand.

``sbatch --nodes=2 sbatch/train.sbatch config.yaml`` calls this in the job: it makes the same run
directory and journal as ``hpcflow run`` does, with the resources that the allocation has, and
becomes the job script. What Slurm has granted is not held against the limits of the site file. The
ledger is not opened here, on a compute node; the run appears in it as soon as somebody looks from
the login side, because the run is linked in HPCFLOW_HOME.
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
from hpcflow.launch.places import trust_on
from hpcflow.launch.plan import make_plan
from hpcflow.model.ids import job_name
from hpcflow.model.journal import Intended, Submitted
from hpcflow.model.secret import redact
from hpcflow.schedulers.slurm.allocation import Allocation, enclosing_step, read_allocation
from hpcflow.settings import load_settings
from hpcflow.sites.complaint import Complaint
from hpcflow.sites.defaults import launcher_and_ranks
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
    """Make the run for the allocation that ``environ`` describes; returns its job script.

    Where Slurm has restarted the job, that of the run which it made before: the script itself goes
    on as the next attempt.

    Args:
        step: the job step that we are in, from :func:`enclosing_step`; None if nobody knows.

    Raises:
        InputError: this is no batch job of Slurm, or the config does not fit the allocation; or
            others could replace a folder that leads to the run directory.
    """
    job_id = batch_job_id(environ, step)
    settings, clock = load_settings(environ), SystemClock()
    the_site = resolve_site(settings, site, named_in=Where(key="--site"))
    if environ.get("SLURM_RESTART_COUNT", "0") != "0":
        script = _script_of_former_life(settings.home, job_id)
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
    """The id of the batch job that we are in.

    Raises:
        InputError: this is something else, whose end Slurm would not tell as a run's.
    """
    job_id = environ.get("SLURM_JOB_ID")
    submit = "submit it: sbatch sbatch/train.sbatch config.yaml, or: hpcflow run"
    if step is None:
        is_batch = "SLURM_PROCID" in environ and "SLURM_STEP_ID" not in environ
    else:
        is_batch = step == "batch"
    if not job_id or not is_batch:
        raise InputError("this is not inside a batch job of Slurm", next_action=submit)
    if environ.get("SLURM_ARRAY_JOB_ID"):
        raise InputError("a task of a job array cannot be a run", next_action=submit)
    return job_id


def _script_of_former_life(home: Home, job_id: str) -> Path:
    """The job script of the run that this very job has made before Slurm restarted it.

    Raises:
        InputError: there is none; it was restarted before it came so far, or the run is gone.
    """
    for run_dir in sorted(list_runs(home), key=_made_at, reverse=True):
        try:
            attempt = Journal(run_dir).history.submitted_inside(job_id)
        except StorageError:  # another run's: it hides none
            continue
        if attempt is not None:
            return run_dir.attempt(attempt).script
    raise InputError(
        f"Slurm restarted job {job_id}, and the run that it made before is not to be found",
        next_action="look for it: hpcflow ls; or submit it again",
    )


def _made_at(run_dir: RunDir) -> float:
    """When a run was made; job ids are used again, and the newest is meant."""
    try:
        return run_dir.run_json.stat().st_mtime
    except OSError:
        return 0.0


def granted_resources(
    config: Path, overrides: list[str], site: Site, allocation: Allocation
) -> dict[str, Any]:
    """What the allocation has, in the words of ``resources``.

    Raises:
        SpecError: the config or an override is wrong.
        InputError: some node has fewer CPU cores than ranks.
    """
    gpus = allocation.gpus_per_node
    if gpus is None and site.dialect.gpus is not GpuDialect.IMPLIED:
        gpus = 0  # where GPUs go with the nodes, Slurm does not count them, and the config does
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
        granted["cpus_per_task"] = _cores_of_a_rank(allocation.cpus_per_node, ranks)
    return granted


def _partition(site: Site, allocation: Allocation) -> str:
    """Return the partition; Slurm's own name for it if what the run asks for tells its nodes."""
    key, name = partition_of_job(site, allocation.partition, allocation.qos), allocation.partition
    if name is None or key not in site.partitions or site.slurm_partition(key) != name:
        return key
    return name if len(kinds_of_nodes(site, key)) > 1 else key


def _ranks_per_node(loaded: LoadedSpec, site: Site) -> int:
    try:
        return launcher_and_ranks(loaded.spec, site)[1]
    except Complaint as complaint:
        raise complaint.as_error(loaded.document) from None


def _cores_of_a_rank(cpus_per_node: int, ranks: int) -> int:
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
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
def main(config: Path, site: str | None, overrides: tuple[str, ...]) -> None:
    """Make a run of CONFIG for this allocation, and become its job script."""
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
