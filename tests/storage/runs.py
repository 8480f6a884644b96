"""Runs for the tests of storage, ledger and projection."""

from __future__ import annotations

import secrets
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hpcflow.model.ids import make_run_id
from hpcflow.model.run import Provenance, Run
from hpcflow.model.spec import RunSpec

CREATED_AT = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)


def make_run(scratch: Path, *, name: str = "digits", at: datetime = CREATED_AT, **spec: Any) -> Run:
    """A run of a small script whose directory will lie below ``scratch``; nothing is created."""
    run_id = make_run_id(name, at, secrets.token_bytes(8))
    content: dict[str, Any] = {
        "name": name,
        "project": "vision",
        "command": ["python3", "train.py"],
        "args": ["--epochs", "3"],
        "params": {"lr": 0.1},
        "resources": {"nodes": 2, "gpus_per_node": 4, "time_limit": "4h", "mem": "10G"},
        "tags": ["paper"],
        **spec,
    }
    return Run(
        run_id=run_id,
        user="ada",
        site="devcluster",
        created_at=at,
        run_dir=str(scratch / "hpcflow" / content["project"] / run_id),
        working_dir="/home/ada/code",
        partition="gpu",
        gpu_type="a100",
        spec=RunSpec.model_validate(content),
        estimated_cost_usd="12.50",
        provenance=Provenance(
            hpcflow_version="0.1.0",
            python_version="3.11.2",
            submit_host="login1",
            data={"digits": "sha256:1234"},
        ),
    )
