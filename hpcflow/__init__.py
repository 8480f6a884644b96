"""hpcflow: training runs that survive a Slurm cluster.

The public Python API is small and imported lazily, so that ``import hpcflow`` costs nothing on a
compute node::

    import hpcflow
    run = hpcflow.submit("config.yaml", site="devcluster")
    search = hpcflow.sweep(loss_of, {"lr": {"low": 0, "high": 1}}, direction="minimize", trials=8)

Inside a job, import :mod:`hpcflow.runtime` instead; it needs nothing but the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "submit", "sweep"]

if TYPE_CHECKING:
    from hpcflow.launch.run import submit
    from hpcflow.sweeps.api import sweep


def __getattr__(name: str) -> Any:
    if name == "submit":
        from hpcflow.launch.run import submit

        return submit
    if name == "sweep":
        from hpcflow.sweeps.api import sweep

        return sweep
    raise AttributeError(f"module 'hpcflow' has no attribute {name!r}")
