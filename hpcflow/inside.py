"""A run from inside an allocation that somebody asked for by hand.

``sbatch --nodes=2 sbatch/train.sbatch config.yaml`` calls this in the job: it makes the same run
directory and journal as ``hpcflow run`` does, with the resources that the allocation has, and
becomes the job script. The ledger is not opened here, on a compute node; the run appears in it as
soon as somebody looks from the login side, because the run is linked in HPCFLOW_HOME.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Mapping
from pathlib import Path

import click

from hpcflow.clock import SystemClock
from hpcflow.errors import HpcflowError, InputError
from hpcflow.launch.plan import make_plan, reference, resolve_site
from hpcflow.model.ids import job_name
from hpcflow.model.journal import Intended, Submitted
from hpcflow.settings import load_settings
from hpcflow.storage import journal
from hpcflow.storage.files import write_durably
from hpcflow.storage.rundir import create_run

#: What the allocation has -> the key of the run's YAML that it decides.
_FROM_ALLOCATION = {
    "SLURM_JOB_NUM_NODES": "resources.nodes",
    "SLURM_JOB_PARTITION": "resources.partition",
    "SLURM_JOB_ACCOUNT": "resources.account",
}


def prepare(
    config: Path, overrides: list[str], site: str | None, environ: Mapping[str, str]
) -> Path:
    """Make the run for the allocation that ``environ`` describes; returns its job script.

    Raises:
        InputError: this is no Slurm job, or the config does not fit the allocation.
    """
    job_id = batch_job_id(environ)
    settings, clock = load_settings(environ), SystemClock()
    the_site = resolve_site(settings, site)
    plan = make_plan(
        config,
        settings=settings,
        clock=clock,
        site=the_site,
        site_reference=reference(the_site, site or settings.site),
        overrides=[*allocation_overrides(environ), *overrides],
    )
    run_dir = create_run(plan.run, settings.home, code=plan.code)
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
    )
    journal.append(run_dir, intent)
    journal.append(run_dir, Submitted(at=clock.now(), attempt=1, job_id=job_id, how="inside"))
    return attempt.script


def batch_job_id(environ: Mapping[str, str]) -> str:
    """The id of the batch job that we are in, for the first time in its life.

    Raises:
        InputError: this is something else, whose end Slurm would not tell as a run's.
    """
    job_id = environ.get("SLURM_JOB_ID")
    submit = "submit it: sbatch sbatch/train.sbatch config.yaml, or: hpcflow run"
    if not job_id or "SLURM_PROCID" not in environ or "SLURM_STEP_ID" in environ:
        raise InputError("this is not inside a batch job of Slurm", next_action=submit)
    if environ.get("SLURM_ARRAY_JOB_ID"):
        raise InputError("a task of a job array cannot be a run", next_action=submit)
    if environ.get("SLURM_RESTART_COUNT", "0") != "0":
        raise InputError(
            f"Slurm restarted job {job_id}, whose run exists already",
            next_action="go on with it from its checkpoint: hpcflow ls, then hpcflow resume RUN",
        )
    return job_id


def allocation_overrides(environ: Mapping[str, str]) -> list[str]:
    """What the allocation decides, as ``--set`` would say it.

    Raises:
        InputError: it has fewer CPU cores on a node than GPUs, so not one for each rank.
    """
    found = [
        f"{key}={environ[variable]}"
        for variable, key in _FROM_ALLOCATION.items()
        if environ.get(variable)
    ]
    gpus = environ.get("SLURM_GPUS_ON_NODE", "0")
    if gpus.isdecimal():
        found.append(f"resources.gpus_per_node={gpus}")
    cpus = environ.get("SLURM_CPUS_ON_NODE", "")
    if gpus.isdecimal() and cpus.isdecimal():
        ranks = max(1, int(gpus))
        if int(cpus) < ranks:
            raise InputError(
                f"the allocation has {cpus} CPU cores on a node for {ranks} ranks",
                next_action=f"ask for more: sbatch --cpus-per-task={ranks} ...",
            )
        found.append(f"resources.cpus_per_task={int(cpus) // ranks}")
    return found


@click.command()
@click.argument("config", type=click.Path(path_type=Path))
@click.option("--site", help="The cluster. Default: the one of this machine.")
@click.option("--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key.")
def main(config: Path, site: str | None, overrides: tuple[str, ...]) -> None:
    """Make a run of CONFIG for this allocation, and become its job script."""
    try:
        script = prepare(config, list(overrides), site, os.environ)
    except HpcflowError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
    os.chdir(script.parent)
    with (script.parent / "out.log").open("ab") as log:
        os.dup2(log.fileno(), 1)
        os.dup2(log.fileno(), 2)
    os.execv("/bin/bash", ["bash", str(script)])  # noqa: S606 - the script replaces us


if __name__ == "__main__":
    main()
