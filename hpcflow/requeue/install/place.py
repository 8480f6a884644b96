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
from hpcflow.storage.files import FILE_MODE, make_folders, storage_error

_ODD: Final = re.compile(r"[^A-Za-z0-9_.-]+")
#: What no line of a table, unit or script can hold; the others may stand there, quoted.
_CONTROL: Final = re.compile(r"[\x00-\x1f\x7f\x80-\x9f\u2028\u2029]")


@dataclass(frozen=True)
class Rounds:
    """What is to be made a round of, again and again.

    Attributes:
        what: what the marks around a line of it say.
        words: of hpcflow, that make one round.
        job_name: of a round that is a job.
        log_suffix: behind the name of the place, in that of the log.
        remark: stands above the line; ``{way}`` is the option that chooses the table.
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
    """One daemon, and what it is called wherever it is installed; or likewise the sweeps.

    People have one home on several clusters, and some have several HPCFLOW_HOMEs; each has runs
    and a daemon of its own, and installing one must not take the place of another.

    Attributes:
        cluster: by Slurm's name; ``local`` where there is none.
        mark: tells apart those of other homes than ``~/.hpcflow``; empty for that one.
        command: how hpcflow is started; absolute.
        folder: for logs and scripts.
    """

    cluster: str
    mark: str
    command: tuple[str, ...]
    folder: Path
    rounds: Rounds = DAEMON

    @property
    def name(self) -> str:
        """Where one place holds the daemons of several clusters."""
        return self.cluster + self.mark

    @property
    def block(self) -> str:
        """The same in a table, where lines for something else may stand, too."""
        return f"{self.rounds.what} {self.name}"

    @property
    def job_name(self) -> str:
        """Where there is one cluster only; as in ``sbatch/daemon.sbatch``."""
        return f"hpcflow-daemon{self.mark}"

    @property
    def round_name(self) -> str:
        """The job of a round in Slurm's own cron: none of those that are the daemon."""
        return self.rounds.job_name + self.mark

    @property
    def log(self) -> Path:
        """What the rounds say."""
        return self.folder / f"{self.name}{self.rounds.log_suffix}.log"

    def make_folder(self) -> None:
        """Make the folder, and the log as a file that nobody else may read.

        Raises:
            StorageError: it cannot be made.
        """
        try:
            make_folders(self.folder)
            fd = os.open(self.log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, FILE_MODE)
            try:
                os.utime(fd)  # the time of the installation
            finally:
                os.close(fd)
        except OSError as error:
            raise storage_error("write", self.log, error) from error


def place_of(settings: Settings, rounds: Rounds = DAEMON) -> Place:
    """The daemon of the caller, here; or what else rounds are made of.

    Raises:
        InputError: a path holds what no table, unit or script can hold.
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
    """This cluster's name as a part of file names; ``local`` where there is none."""
    cluster = configured_name(settings.environ)
    return _ODD.sub("-", cluster) if cluster else "local"


def hpcflow_command() -> tuple[str, ...]:
    """This very hpcflow, whatever PATH says later."""
    beside = Path(sys.executable).with_name("hpcflow")
    if os.access(beside, os.X_OK):
        return (str(beside),)
    return (sys.executable, "-m", "hpcflow.cli.main")


def require_one_line(values: Mapping[str, str]) -> None:
    """Refuse what could become a second line, or bytes that are no text.

    Raises:
        InputError: names the first of ``values`` that does.
    """
    for name, value in values.items():
        if _CONTROL.search(value) or value.encode("utf-8", "replace").decode() != value:
            raise InputError(
                f"holds a newline, another control character, or no UTF-8 text: {value[:200]!r}",
                where=Where(key=name),
                next_action=f"give it another value, or none: unset {name}",
            )
