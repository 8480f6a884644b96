"""Build the values that a template can use, besides the run, the site and the placement."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from hpcflow.errors import InputError, SpecError, Where
from hpcflow.model.execution import ContainerRuntime, Launcher
from hpcflow.model.run import Run
from hpcflow.model.state import RESUBMIT_EXIT_CODE
from hpcflow.rendering.arguments import (
    as_text,
    code_folder,
    commands,
    filled_in,
    program_argv,
    resume_argv,
)
from hpcflow.rendering.directives import START_CONDITIONS, directives, kept_variables, notice_s
from hpcflow.sites.placement import Placement, added_options
from hpcflow.sites.schema import SchedulerKind, Site

#: Variables of bash itself: their values would not reach the program unchanged.
_OF_BASH: Final = re.compile(
    r"_|BASH.*|COMP_WORDBREAKS|DIRSTACK|EPOCH(REALTIME|SECONDS)|E?UID|FUNCNAME|GROUPS|HISTCMD|LINENO"
    r"|OPTARG|OPTIND|PIPESTATUS|POSIXLY_CORRECT|PPID|S?RANDOM|SECONDS|SHELLOPTS|SHLVL"
)

#: Longer values are only in the file of all parameters, because an environment has a limited size.
_MOST_CHARS: Final = 4096
#: The id of a Slurm job or an array task.
_JOB_ID: Final = re.compile(r"[1-9][0-9]{0,9}(_[0-9]{1,9})?", re.ASCII)
#: Options of ``apptainer exec`` that mount the host's GPU driver.
_GPU_OPTIONS: Final = {"nvidia": "--nv", "amd": "--rocm"}


@dataclass(frozen=True)
class JobContainer:
    """The container of a run, for the templates.

    Attributes:
        mounts: ``SOURCE:TARGET[:ro]``, the folders of the run first.
        gpu_option: for apptainer; None if no driver is needed.
        variables: names of the variables that override those of the image.
    """

    runtime: str
    image: str
    mounts: tuple[str, ...]
    gpu_option: str | None
    variables: tuple[str, ...]


def container_of(
    run: Run, site: Site, placement: Placement, variables: Iterable[str]
) -> JobContainer | None:
    """Return the container of ``run``; None if it has none.

    Args:
        variables: names of the environment variables that site and run set.

    Raises:
        SpecError: the site cannot run it, or a path cannot be mounted.
    """
    container = run.spec.environment.container
    if container is None:
        return None
    if container.runtime is ContainerRuntime.PYXIS and site.scheduler is SchedulerKind.LOCAL:
        raise SpecError(
            "pyxis is a part of srun, and this site has no Slurm",
            where=_where(run, "environment.container.runtime"),
            next_action="use `runtime: apptainer`",
        )
    folders = _folders(run, container.mounts)
    for folder in folders:
        if ":" in folder or "," in folder:
            raise SpecError(
                f"a container cannot mount {folder!r}, because its path contains ':' or ','",
                where=_where(run, "environment.container"),
                next_action="move the folder, or run without a container",
            )
    gpu_type = site.gpu_types.get(placement.gpu_type or "")
    return JobContainer(
        runtime=container.runtime.value,
        image=container.image,
        mounts=(*(f"{folder}:{folder}" for folder in folders), *container.mounts),
        gpu_option=_GPU_OPTIONS.get(gpu_type.vendor) if gpu_type else None,
        variables=tuple(dict.fromkeys((*variables, "PYTHONPATH"))),
    )


def _folders(run: Run, mounts: Sequence[str]) -> list[str]:
    """Return the folders that are always mounted: those that the program needs."""
    folders = list(dict.fromkeys((run.run_dir, run.working_dir)))
    if run.code is not None:
        folders.append(run.in_code())
    mounted = [*folders, *(mount.split(":")[1] for mount in mounts)]
    if run.spec.script is not None and run.code is None:
        script = PurePosixPath(run.spec.script)
        if not any(map(script.is_relative_to, mounted)):
            # First, because it may contain one of the others, and would hide its mount.
            folders.insert(0, str(script.parent))
    return folders


def _where(run: Run, key: str) -> Where:
    return Where(file=run.provenance.config_path, key=key)


@dataclass(frozen=True)
class Standby:
    """The job, of attempt ``after``, whose end a standby job waits for.

    Raises:
        ValueError: ``job_id`` is not the id of a Slurm job.
    """

    after: int
    job_id: str

    def __post_init__(self) -> None:
        if not _JOB_ID.fullmatch(self.job_id):
            raise ValueError(f"not the id of a Slurm job: {self.job_id!r}")


@dataclass(frozen=True)
class Job:
    """One attempt, prepared for the templates.

    Attributes:
        directives: options for the ``#SBATCH`` lines.
        kept_variables: ``SLURM_*`` variables that are kept, because an sbatch option sets them.
        argv: the words of the program, unquoted.
        resume_argv: words to add if there is a checkpoint, each in parts with the path of the
            checkpoint between them.
        code_folder: the working directory in the code snapshot; without one, itself.
        code_paths: folders of the code snapshot for PYTHONPATH.
        before, after: commands on the first node, each as words.
        adopt: the rule to find checkpoints that the program writes, as JSON; None for none.
        is_slurm: False if jobs run on this machine.
        opens_log: whether the script opens its log itself, because Slurm must not.
        uses_srun: whether the program is started as a job step.
        tasks_per_node: Slurm's tasks on every node: one for torchrun, one per rank for srun.
        cpus_per_task: CPU cores of each of those tasks.
        world_size: ranks of the whole job.
        resume_from: the checkpoint that was known at submission, relative to the run directory.
        begin_from: the checkpoint of another run that the run starts from if none of its own is
            intact; relative to the run directory.
        venv, conda: the environment; a path is absolute, and a name has no slash.
        variables: those of the site, its fabric and the run; the run's override the others.
        notice_s: seconds that the program has to save after the notice.
        resubmit_exit_codes: exit codes that request a resubmission.
        standby: the job that this job waits for, if it is a standby.
        mtbf_s: mean time to an unplanned end; None if unused.
    """

    attempt: int
    directives: tuple[str, ...]
    kept_variables: tuple[str, ...]
    argv: tuple[str, ...]
    resume_argv: tuple[tuple[str, ...], ...]
    code_folder: str
    code_paths: tuple[str, ...]
    before: tuple[tuple[str, ...], ...]
    after: tuple[tuple[str, ...], ...]
    adopt: str | None
    is_slurm: bool
    opens_log: bool
    uses_srun: bool
    tasks_per_node: int
    cpus_per_task: int
    world_size: int
    resume_from: str | None
    begin_from: str | None
    modules: tuple[str, ...]
    venv: str | None
    conda: str | None
    variables: Mapping[str, str]
    container: JobContainer | None
    notice_s: int
    resubmit_exit_codes: tuple[int, ...]
    standby: Standby | None
    mtbf_s: int | None


def make_job(
    run: Run,
    site: Site,
    placement: Placement,
    *,
    attempt: int,
    resume_from: str | None,
    opens_log: bool,
    excluded: Sequence[str] = (),
    start_conditions: Collection[str] = START_CONDITIONS,
    standby: Standby | None = None,
    mtbf_s: int | None = None,
) -> Job:
    """Return the value of ``job`` in templates.

    Raises:
        SpecError: the run has a value that cannot be in a script for this site.
    """
    is_slurm = site.scheduler is SchedulerKind.SLURM
    opens_log = is_slurm and opens_log
    _check_executable(run, placement, is_slurm=is_slurm)
    by_srun = placement.launcher is Launcher.SRUN
    tasks_per_node = placement.ranks_per_node if by_srun else 1
    options = directives(
        run,
        site,
        placement,
        attempt=attempt,
        tasks_per_node=tasks_per_node,
        opens_log=opens_log,
        excluded=excluded,
        start_conditions=start_conditions,
        waits_for=standby.job_id if standby else None,
    )
    _check_variables(run, site)
    environment = run.spec.environment
    own = {
        name: filled_in(value, run, f"environment.variables.{name}")
        for name, value in environment.variables.items()
    }
    variables = {**site.variables, **site.fabric.variables, **own, **_of_trial(run)}
    container = container_of(run, site, placement, [*variables, *environment.secrets])
    is_pyxis = container is not None and container.runtime == "pyxis"
    return Job(
        attempt=attempt,
        directives=tuple(options),
        kept_variables=tuple(
            kept_variables(added_options(site, placement.options, run.spec.resources), options)
        ),
        argv=tuple(program_argv(run)),
        resume_argv=tuple(resume_argv(run)),
        code_folder=code_folder(run),
        code_paths=() if run.code is None else tuple(map(run.in_code, run.code.paths)),
        before=commands(run, "before"),
        after=commands(run, "after"),
        adopt=_adopt(run),
        is_slurm=is_slurm,
        opens_log=opens_log,
        uses_srun=is_slurm and (placement.launcher is not Launcher.NONE or is_pyxis),
        tasks_per_node=tasks_per_node,
        cpus_per_task=placement.cpus_per_task * placement.ranks_per_node // tasks_per_node,
        world_size=placement.nodes * placement.ranks_per_node,
        resume_from=resume_from,
        begin_from=run.begins_from,
        modules=(*site.modules.load, *environment.modules),
        venv=environment.venv and str(PurePosixPath(run.working_dir, environment.venv)),
        conda=_conda(run),
        variables=variables,
        container=container,
        notice_s=notice_s(run, placement),
        resubmit_exit_codes=tuple(
            sorted({RESUBMIT_EXIT_CODE, *run.spec.retry.resubmit_exit_codes})
        ),
        standby=standby,
        mtbf_s=mtbf_s,
    )


def _of_trial(run: Run) -> dict[str, str]:
    """Return the variables of a trial of a sweep: its number, and each of its parameters."""
    if run.parent_sweep is None:
        return {}
    variables = {"HPCFLOW_SWEEP": run.parent_sweep}
    variables |= {"HPCFLOW_TRIAL": str(run.trial or 0), "HPCFLOW_REPEAT": str(run.repeat or 0)}
    values = {name: v for name, v in run.spec.params.items() if not isinstance(v, (list, dict))}
    return variables | {
        f"HPCFLOW_PARAM_{name}": text
        for name, value in values.items()
        if len(text := as_text(value)) <= _MOST_CHARS
    }


def _conda(run: Run) -> str | None:
    """Return the name of the conda environment, or its absolute path."""
    conda = run.spec.environment.conda
    if conda is None or "/" not in conda:
        return conda
    return str(PurePosixPath(run.working_dir, conda))


def _adopt(run: Run) -> str | None:
    """Return the adopt rule as JSON; its folder is relative to the working directory."""
    adopt = run.spec.checkpoint.adopt
    if adopt is None:
        return None
    folder = filled_in(adopt.get("folder"), run, "checkpoint.adopt.folder")
    return adopt.rule(str(PurePosixPath(run.working_dir, folder)))


def _check_executable(run: Run, placement: Placement, *, is_slurm: bool) -> None:
    """Check what sites.placement does not: the path of the log, and that srun exists."""
    if is_slurm:
        if "%" in run.run_dir or "\\" in run.run_dir:
            raise InputError(
                f"Slurm cannot write a log into {run.run_dir!r}: it treats '%' and '\\' in a path "
                "as patterns",
                next_action="use a scratch folder without them",
            )
        return
    if placement.launcher is Launcher.SRUN and placement.ranks_per_node > 1:
        raise SpecError(
            f"this site has no srun to start {placement.ranks_per_node} ranks",
            where=Where(file=run.provenance.config_path, key="launch.launcher"),
            next_action="use `launcher: torchrun`, or `resources.tasks_per_node: 1`",
        )


def _check_variables(run: Run, site: Site) -> None:
    environment = run.spec.environment
    ours = {**environment.variables, **environment.secrets}
    for name in (*site.variables, *site.fabric.variables, *ours):
        if _OF_BASH.fullmatch(name):
            section = "secrets" if name in environment.secrets else "variables"
            raise SpecError(
                f"{name} belongs to the shell that runs the job script, and cannot be set",
                where=Where(
                    file=run.provenance.config_path if name in ours else None,
                    key=f"environment.{section}.{name}"
                    if name in ours
                    else f"variables.{name} of site {site.name}",
                ),
                next_action="remove it, or set it in the program",
            )
