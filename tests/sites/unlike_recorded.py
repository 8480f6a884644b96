"""A recording of a cluster, as tests/recorded/layout.py makes it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from hpcflow.schedulers.slurm.parse_assoc_mgr import parse_assoc_mgr
from hpcflow.schedulers.slurm.parse_cluster import cluster_info, keeps_cpus, parse_settings
from hpcflow.schedulers.slurm.parse_standing import SlurmOutputs, standing
from hpcflow.sites.detect import detect
from hpcflow.sites.live import ClusterInfo
from hpcflow.sites.schema import Site
from hpcflow.sites.standing import Standing
from tests.sites.build import site


class Recorded:
    """What hpcflow makes of one folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def _text(self, name: str) -> str | None:
        path = self._folder / f"{name}.txt"
        return path.read_text() if path.exists() else None

    @property
    def truth(self) -> dict[str, Any]:
        """Who asked, and what sbatch said."""
        truth: dict[str, Any] = json.loads((self._folder / "truth.json").read_text())
        return truth

    def info(self) -> ClusterInfo:
        """The cluster."""
        config, partitions = self._text("config"), self._text("partitions")
        assert config is not None
        assert partitions is not None
        nodes = self._text("nodes" if keeps_cpus(partitions) else "sinfo")
        return cluster_info(parse_settings(config), partitions, nodes, self._text("qos"))

    def standing(self) -> Standing | None:
        """The user's, who asked."""
        book = self._text("of_usage")
        associations = self._text("of_associations")
        if book is None or associations is None:
            return None
        user = self.truth["user"]
        told = SlurmOutputs(associations, None, None, parse_assoc_mgr(book))
        return standing(told, user=user["name"], uid=user["uid"], cluster=self.info().name)

    def text(self) -> str:
        """The site file that is detected."""
        groups = frozenset(self.truth["user"]["groups"])
        return detect(
            self.info(),
            host="login1.example.org",
            environ={"SCRATCH": "/scratch"},
            standing=self.standing(),
            groups=groups,
        )

    def site(self) -> Site:
        """The site that this file describes."""
        return site(self.text())
