"""hpcflow: training runs that survive a Slurm cluster.

The public Python API is small and imported lazily, so that ``import hpcflow`` costs nothing on a
compute node::

    import hpcflow
    run = hpcflow.submit("config.yaml", site="devcluster")

Inside a job, import :mod:`hpcflow.runtime` instead; it needs nothing but the standard library.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__version__ = "0.1.0"
__all__ = ["__version__", "submit"]

if TYPE_CHECKING:
    from hpcflow.launch.run import submit


def __getattr__(name: str) -> Any:
    if name == "submit":
        from hpcflow.launch.run import submit

        return submit
    raise AttributeError(f"module 'hpcflow' has no attribute {name!r}")
