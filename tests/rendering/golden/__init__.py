"""The golden scripts: every shipped site with every launcher, rendered and looked at.

``python -m tests.rendering.golden`` rewrites them; look at the difference before it goes in.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import cache, partial
from pathlib import Path
from typing import Any, Final

from hpcflow.model.execution import Launcher
from hpcflow.model.run import CodeSnapshot
from hpcflow.rendering.context import Standby
from hpcflow.rendering.job import IntegrityCheck
from hpcflow.resources import resource_dir
from hpcflow.sites.loader import load_site
from hpcflow.sites.schema import SchedulerKind, Site
from tests.rendering.samples import AN_INTEGRITY_CHECK, a_run, a_spec, script_of

FOLDER: Final = Path(__file__).parent
_FRAMEWORKS: Final = {"torchrun": "pytorch", "srun": "jax", "none": "none"}


@cache
def cases() -> dict[str, Callable[[], str]]:
    """Name of a file -> how its content is made."""
    found: dict[str, Callable[[], str]] = {}
    for path in sorted(resource_dir("site_configs").glob("*.yaml")):
        for launcher in Launcher:
            name = f"{path.stem}-{launcher.value}.sbatch"
            found[name] = partial(_script, path, launcher)
    found["devcluster-tensorflow.sbatch"] = partial(
        _script,
        resource_dir("site_configs") / "devcluster.yaml",
        Launcher.SRUN,
        launch={"launcher": "srun", "framework": "tensorflow"},
    )
    found["devcluster-command.sbatch"] = partial(
        _script,
        resource_dir("site_configs") / "devcluster.yaml",
        Launcher.SRUN,
        script=None,
        command=["./simulate"],
        launch={},
    )
    found["devcluster-adopt.sbatch"] = partial(
        _script,
        resource_dir("site_configs") / "devcluster.yaml",
        Launcher.TORCHRUN,
        checkpoint={"adopt": {"like": "huggingface", "folder": "{{ run.dir }}/artifacts"}},
        resume_args=["--verbose", "--resume={{ resume.path }}", "{{ params.lr }}"],
    )
    found["devcluster-standby.sbatch"] = partial(
        _script,
        resource_dir("site_configs") / "devcluster.yaml",
        Launcher.NONE,
        standby=Standby(1, "4711"),
    )
    found["devcluster-snapshot.sbatch"] = partial(
        _script,
        resource_dir("site_configs") / "devcluster.yaml",
        Launcher.TORCHRUN,
        code_snapshot=CodeSnapshot(
            digest="0123456789abcdef" * 4,
            root="/home/ada/project",
            files={"-m it's.train": "it's/train.py"},
            paths=["src"],
        ),
        script=None,
        command=["python3", "-u", "-m", "it's.train"],
        args=["{{ run.code }}/conf.yaml"],
        environment={
            "container": {"image": "/images/train.sif"},
            "variables": {"NCCL_DEBUG": "WARN"},
        },
    )
    for name, options in (("begin", {}), ("begin-adopt", {"adopt": {"pattern": "step-*"}})):
        found[f"devcluster-{name}.sbatch"] = partial(
            _script,
            resource_dir("site_configs") / "devcluster.yaml",
            Launcher.NONE,
            begins_from="start/400",
            checkpoint=options,
        )
    found["devcluster-open.sbatch"] = partial(
        _script,
        resource_dir("site_configs") / "devcluster.yaml",
        Launcher.NONE,
        integrity=replace(AN_INTEGRITY_CHECK, opens_log=True),
    )
    found["devcluster-commands.sbatch"] = partial(
        _script,
        resource_dir("site_configs") / "devcluster.yaml",
        Launcher.SRUN,
        environment={"setup": ["source 'it is.sh'", "if true; then\n  export A=1\nfi"]},
        before=["./unpack --to 'a b'"],
        after=[["./evaluate", "{{ params.lr }}"], "./report"],
    )
    for runtime in ("apptainer", "pyxis"):
        found[f"devcluster-{runtime}.sbatch"] = partial(
            _script,
            resource_dir("site_configs") / "devcluster.yaml",
            Launcher.TORCHRUN,
            environment={
                "container": {
                    "runtime": runtime,
                    "image": "/images/train.sif",
                    "mounts": ["/data/images:/data:ro"],
                },
                "variables": {"NCCL_DEBUG": "WARN"},
                "secrets": {"WANDB_API_KEY": "/home/ada/.secrets/wandb"},
            },
        )
    return found


def _script(
    path: Path,
    launcher: Launcher,
    standby: Standby | None = None,
    begins_from: str | None = None,
    integrity: IntegrityCheck = AN_INTEGRITY_CHECK,
    code_snapshot: CodeSnapshot | None = None,
    **changes: Any,
) -> str:
    site = load_site(str(path), search=[])
    spec = a_spec(
        **{
            "args": ["--lr", "{{ params.lr }}", "--out", "{{ run.dir }}/artifacts"],
            "params": {"lr": 0.1},
            "launch": {"launcher": launcher.value, "framework": _FRAMEWORKS[launcher.value]},
            "environment": {"venv": "/home/ada/envs/it's mine"},
            "resources": _resources(site, launcher),
            "retry": {"resubmit_exit_codes": [75, 85]},
            **changes,
        }
    )
    return script_of(
        a_run(spec, begins_from=begins_from, code=code_snapshot),
        site,
        attempt=2,
        resume_from="checkpoints/000100",
        standby=standby,
        integrity=integrity,
    )


def _resources(site: Site, launcher: Launcher) -> dict[str, Any]:
    """The largest usual job: two whole nodes, or one where there can be no more."""
    partition = next(iter(site.partitions.values()))
    is_one_process = launcher is Launcher.NONE or site.scheduler is SchedulerKind.LOCAL
    gpus = 0 if site.scheduler is SchedulerKind.LOCAL else partition.gpus_per_node
    resources: dict[str, Any] = {
        "nodes": 1 if is_one_process else 2,
        "gpus_per_node": gpus,
        "time_limit": "1h",
        "cpus_per_task": 1,
    }
    if is_one_process:
        resources["tasks_per_node"] = 1
    if site.accounts is None and site.scheduler is SchedulerKind.SLURM:
        resources["account"] = "project_1"
    return resources
