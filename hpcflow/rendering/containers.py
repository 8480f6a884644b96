"""The container of a run, and its mounts."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath
from typing import Final

from hpcflow.errors import SpecError, Where
from hpcflow.model.execution import ContainerRuntime
from hpcflow.model.run import Run
from hpcflow.sites.placement import Placement
from hpcflow.sites.schema import SchedulerKind, Site

#: Options of ``apptainer exec`` that mount the host's GPU driver.
_GPU_OPTIONS: Final = {"nvidia": "--nv", "amd": "--rocm"}


@dataclass(frozen=True)
class JobContainer:
    """A container for the templates.

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
    script = run.spec.script if run.code is None else None
    targets = [mount.split(":")[1] for mount in mounts]
    if script is not None and not any(_is_below(script, each) for each in (*folders, *targets)):
        # First, because it may contain one of the others, and would hide its mount.
        folders.insert(0, str(PurePosixPath(script).parent))
    return folders


def _is_below(path: str, folder: str) -> bool:
    return PurePosixPath(path).is_relative_to(folder)


def _where(run: Run, key: str) -> Where:
    return Where(file=run.provenance.config_path, key=key)
