"""What a daemon is installed for: one user, one cluster and one HPCFLOW_HOME."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from hpcflow.errors import InputError, Where
from hpcflow.settings import Settings
from hpcflow.sites.slurm_conf import configured_name
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import FILE_MODE, make_folders

_ODD: Final = re.compile(r"[^A-Za-z0-9_.-]+")
#: Characters that a line of a table, unit or script cannot have, even quoted.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class Rounds:
    """A kind of rounds that is run regularly.

    Attributes:
        what: its name in the marks around its entry.
        words: arguments of hpcflow that run one round.
        job_name: of a round that is a job.
        log_suffix: follows the place's name in the log's name.
        remark: comment above the entry; ``{way}`` is the option that selects the table.
    """

    what: str
    words: tuple[str, ...]
    job_name: str
    log_suffix: str
    remark: str


DAEMON: Final = Rounds(
    "daemon",
    ("daemon", "--once"),
    "hpcflow-round",
    "",
    "remove: hpcflow daemon uninstall --{way}",
)


@dataclass(frozen=True)
class Place:
    """The names of one installed daemon, or of the installed sweeps.

    Clusters may share a home directory, and a user may have several HPCFLOW_HOMEs. Each has its
    own daemon, and installing one must not replace another.

    Attributes:
        cluster: Slurm's ClusterName; ``local`` without one.
        mark: suffix for a home other than ``~/.hpcflow``; empty for that one.
        command: absolute command that starts hpcflow.
        folder: for logs and scripts.
    """

    cluster: str
    mark: str
    command: tuple[str, ...]
    folder: Path
    rounds: Rounds = DAEMON

    @property
    def name(self) -> str:
        """Return a name that is unique across clusters and homes."""
        return self.cluster + self.mark

    @property
    def block(self) -> str:
        return f"{self.rounds.what} {self.name}"

    @property
    def job_name(self) -> str:
        """Return the daemon's job name; for the default home as in ``sbatch/daemon.sbatch``."""
        return f"hpcflow-daemon{self.mark}"

    @property
    def round_name(self) -> str:
        """Return the job name of a scrontab round; it differs from :attr:`job_name`."""
        return self.rounds.job_name + self.mark

    @property
    def log(self) -> Path:
        return self.folder / f"{self.name}{self.rounds.log_suffix}.log"

    def make_folder(self) -> None:
        """Create the folder, and the log, which only the user can read."""
        with storage_errors("write", self.log):
            make_folders(self.folder)
            fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
            try:
                os.utime(fd)  # the time of the installation
            finally:
                os.close(fd)


def place_of(settings: Settings, rounds: Rounds = DAEMON) -> Place:
    """Return the place of the caller's daemon, or of other rounds, on this cluster.

    Raises:
        InputError: a path has a character that a table, unit or script cannot have.
    """
    place = Place(
        cluster=cluster_word(settings),
        mark=settings.mark,
        command=hpcflow_command(),
        folder=settings.home.daemon,
        rounds=rounds,
    )
    require_one_line({"HPCFLOW_HOME": str(settings.home.path), "hpcflow": " ".join(place.command)})
    return place


def cluster_word(settings: Settings) -> str:
    """Return this cluster's name for file names; ``local`` without one."""
    cluster = configured_name(settings.environ)
    return _ODD.sub("-", cluster) if cluster else "local"


def hpcflow_command() -> tuple[str, ...]:
    """Return the command of this installation, independent of PATH."""
    beside = Path(sys.executable).with_name("hpcflow")
    if os.access(beside, os.X_OK):
        return (str(beside),)
    return (sys.executable, "-m", "hpcflow.cli.main")


def require_one_line(values: Mapping[str, str]) -> None:
    """Check that values have no line breaks, control characters or invalid UTF-8.

    Raises:
        InputError: names the first value that has.
    """
    for name, value in values.items():
        if _CONTROL.search(value) or value.encode("utf-8", "replace").decode() != value:
            raise InputError(
                f"has a newline, another control character, or invalid UTF-8: {value[:200]!r}",
                where=Where(key=name),
                next_action=f"change its value, or unset it: unset {name}",
            )
