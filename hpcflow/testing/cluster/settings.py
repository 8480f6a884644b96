"""The saved settings of a cluster: size, ports, passwords, and its folder."""

from __future__ import annotations

import os
import secrets
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from hpcflow.errors import InputError
from hpcflow.testing.cluster.files import read_json, write_json
from hpcflow.testing.cluster.layouts import LAYOUTS, Layout, Size, development
from hpcflow.testing.cluster.ports import free_block

DIRECTORY_VARIABLE = "HPCFLOW_CLUSTER_DIR"
DEFAULT_DIRECTORY = Path("/var/tmp/hpcflow-devcluster")
_LONGEST_DIRECTORY = 70
"""A Unix socket's path has at most 107 bytes; the longest one below the folder takes about 30."""


_BEFORE_SETTINGS = {"lock", "in-use", "started-by-tests", "log", "run", "software",
                    "postgres", "postgres.lock", "s3", "s3.lock"}  # fmt: skip
"""Names that may be in a folder before a cluster is started there."""


def cluster_directory(given: str | Path | None = None) -> Path:
    """Return the cluster's folder: ``given``, else the environment's, else the default."""
    path = Path(given or os.environ.get(DIRECTORY_VARIABLE) or DEFAULT_DIRECTORY).resolve()
    text = str(path)
    if len(text) > _LONGEST_DIRECTORY or not all(c.isalnum() or c in "/._-" for c in text):
        raise InputError(
            f"the cluster's folder {text!r} must have at most {_LONGEST_DIRECTORY} characters,"
            " all of them letters, digits or one of / . _ -",
            next_action=f"choose another: --dir {DEFAULT_DIRECTORY}",
        )
    return path


def purge_mark(folder: Path) -> Path:
    """Return the file that marks a folder whose deletion has begun."""
    return folder / "purging"


def require_own_folder(folder: Path) -> None:
    """Raise InputError if the folder is another user's, not a cluster's, or closed to users.

    ``up`` sets its mode and ``down --purge`` deletes it, which must never happen to ``--dir /``.
    """
    ours = (folder / "cluster.json", purge_mark(folder))
    if os.path.lexists(folder) and folder.lstat().st_uid != os.geteuid():
        raise InputError(
            f"{folder} belongs to another user, who could change what the cluster executes",
            next_action=f"choose another: --dir {folder}-{os.geteuid()}",
        )
    if folder.is_dir() and not any(path.exists() for path in ours):
        foreign = sorted(
            path.name for path in folder.iterdir() if path.name not in _BEFORE_SETTINGS
        )
        if foreign:
            raise InputError(
                f"{folder} is not a cluster's folder: it holds {', '.join(foreign[:3])}",
                next_action=f"choose a new one, such as {folder}/hpcflow-devcluster",
            )
    closed = [above for above in folder.parents if above.exists() and not _is_open(above)]
    if closed:
        raise InputError(
            f"{closed[-1]} is closed to ordinary users, who must reach the cluster's folder",
            next_action=f"choose another: --dir {DEFAULT_DIRECTORY}",
        )


def _is_open(folder: Path) -> bool:
    return bool(folder.stat().st_mode & 0o001)


@dataclass(frozen=True)
class Ports:
    """The daemons' ports; ``slurmd`` is the first node's, the others follow."""

    slurmctld: int
    slurmdbd: int
    mariadb: int
    slurmd: int

    @classmethod
    def choose(cls, nodes: int) -> Ports:
        first = free_block(3 + nodes)
        return cls(first, first + 1, first + 2, first + 3)


@dataclass(frozen=True)
class Settings:
    """The settings of a cluster that must be the same after a restart."""

    size: Size
    ports: Ports
    name: str = "devcluster"
    database_password: str = field(default_factory=lambda: secrets.token_hex(16), repr=False)
    slurm: str | None = None
    """Slurm's version, such as ``26.05``; None for the installed one."""
    layout_name: str | None = None
    """A key of LAYOUTS; None for the development cluster's own, of ``size``."""

    @property
    def layout(self) -> Layout:
        return LAYOUTS[self.layout_name] if self.layout_name else development(self.size)

    @property
    def node_names(self) -> list[str]:
        return list(self.layout.nodes)

    @classmethod
    def load(cls, folder: Path) -> Settings | None:
        """Read the settings; None if no cluster was ever started in this folder."""
        record: dict[str, Any] = read_json(folder / "cluster.json")
        if not record:
            return None
        size, ports = Size(**record.pop("size")), Ports(**record.pop("ports"))
        return cls(size=size, ports=ports, **record)

    def save(self, folder: Path) -> None:
        write_json(folder / "cluster.json", asdict(self))
