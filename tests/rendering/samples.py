"""Runs and sites to render in tests; every value can be overridden."""

from __future__ import annotations

from datetime import datetime, timezone
from typing import Any

from hpcflow.model.run import Provenance, Run
from hpcflow.model.spec import RunSpec
from hpcflow.rendering.job import IntegrityCheck, render_job
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site

#: The checksum is not that of the installed runtime, which changes with every change to it.
AN_INTEGRITY_CHECK = IntegrityCheck(groups=(1815,), runtime_sum="0123456789abcdef" * 4)
RUN_ID = "digits-20260102-abcdefgh"


def a_spec(**changes: Any) -> RunSpec:
    """A run of a script on one node, as its user would write it."""
    return RunSpec.model_validate({"name": "digits", "script": "/home/ada/train.py", **changes})


def a_run(spec: RunSpec, **changes: Any) -> Run:
    """``spec`` frozen into a run."""
    fields: dict[str, Any] = {
        "run_id": RUN_ID,
        "user": "ada",
        "site": "here",
        "created_at": datetime(2026, 1, 2, tzinfo=timezone.utc),
        "run_dir": f"/scratch/ada/hpcflow/default/{RUN_ID}",
        "working_dir": "/home/ada/project",
        "partition": "gpu",
        "umask": "0022",
        "spec": spec,
        "provenance": Provenance(
            hpcflow_version="1",
            python_version="3.11",
            submit_host="login1",
            config_path="/home/ada/config.yaml",
        ),
        **changes,
    }
    return Run(**fields)


def a_site(**changes: Any) -> Site:
    """A Slurm site of nodes with four A100."""
    partition = {"gpu_type": "a100", "gpus_per_node": 4, "cpus_per_node": 32, "nodes_max": 8}
    return Site.model_validate(
        {
            "name": "here",
            "partitions": {"gpu": partition},
            "gpu_types": {"a100": {"mem": "80G"}},
            "scratch": {"path": "/scratch/$USER"},
            **changes,
        }
    )


def a_local_site(**changes: Any) -> Site:
    """This machine, without Slurm."""
    return a_site(
        **{
            "scheduler": "local",
            "partitions": {"gpu": {"cpus_per_node": 2}},
            "gpu_types": {},
            **changes,
        }
    )


def script_of(
    run: Run, site: Site, *, attempt: int = 1, resume_from: str | None = None, **options: Any
) -> str:
    """What would be submitted for ``run`` on ``site``."""
    placement = place(run.spec, site)
    options = {"integrity": IntegrityCheck(), "resume_from": resume_from, **options}
    return render_job(run, site, placement, attempt=attempt, **options)
