"""A real Slurm cluster on one machine, for development and tests, with Postgres and S3.

``python -m hpcflow.testing.cluster up`` starts it, as does ``Cluster().up()``.

Standard library only. hpcflow's own code for Slurm is in hpcflow.schedulers.
"""

from __future__ import annotations

from hpcflow.testing.cluster import packages
from hpcflow.testing.cluster.cluster import Cluster
from hpcflow.testing.cluster.daemon import Daemon
from hpcflow.testing.cluster.layouts import LAYOUTS, Size
from hpcflow.testing.cluster.polling import DeadlinePassed, poll
from hpcflow.testing.cluster.postgres import Postgres
from hpcflow.testing.cluster.progress import Progress
from hpcflow.testing.cluster.s3 import S3
from hpcflow.testing.cluster.settings import DEFAULT_DIRECTORY
from hpcflow.testing.cluster.software import Software
from hpcflow.testing.cluster.users import CommandFailed, User

__all__ = [
    "DEFAULT_DIRECTORY",
    "LAYOUTS",
    "S3",
    "Cluster",
    "CommandFailed",
    "Daemon",
    "DeadlinePassed",
    "Postgres",
    "Progress",
    "Size",
    "Software",
    "User",
    "packages",
    "poll",
]
