"""An entry in Slurm's scrontab: every five minutes a short job that is one round.

Slurm runs it on a compute node, so the ledger must be one that may be opened there. The line sets
its own environment, as in cron: Slurm gives the job the user's login environment or none. ``%`` has
no special meaning here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final

from hpcflow.requeue.install.cron import round_command
from hpcflow.requeue.install.ledger_for_jobs import require_ledger_for_jobs
from hpcflow.requeue.install.place import Place
from hpcflow.requeue.install.slurm_job import checked_options, output_option
from hpcflow.requeue.install.table import TableProgram, find_block, make_block, with_block
from hpcflow.settings import Settings

SCRONTAB: Final = TableProgram(
    "scrontab",
    "scrontab is not available here; use another way: hpcflow daemon install --help",
)
#: Each round is a job, with a start, an end and a line in accounting.
SCHEDULE: Final = "*/5 * * * *"
#: How `scrontab -l` shows an entry whose job was cancelled.
DISABLED: Final = "#DISABLED: "
_LOOK_TIMEOUT_S: Final = 5.0


@dataclass(frozen=True)
class Scrontab:
    """The entry, in a block of its own.

    Attributes:
        options: of sbatch, for the job: partition, account and the like.
    """

    place: Place
    variables: Mapping[str, str]
    settings: Settings
    options: Sequence[str] = ()
    program: TableProgram = SCRONTAB
    name: ClassVar[str] = "scrontab"

    def plan(self) -> str:
        require_ledger_for_jobs(self.settings)
        block = make_block(self.place.block, self._lines())
        return f"in the scrontab of {self.settings.user}:\n\n{block}"

    def require_allowed(self) -> None:
        require_ledger_for_jobs(self.settings)
        self.program.read(timeout_s=_LOOK_TIMEOUT_S, must_be_enabled=True)

    def install(self) -> str:
        require_ledger_for_jobs(self.settings)
        lines = self._lines()
        self.place.make_folder()
        self.program.change(lambda old: with_block(old, self.place.block, lines))
        return f"never scancel its job: that would end all later rounds; its log: {self.place.log}"

    def uninstall(self) -> str | None:
        if not self.program.is_here or not self.program.remove(self.place.block):
            return None
        return "the entry in the scrontab"

    def look(self) -> str | None:
        if not self.program.is_here:
            return None
        block = find_block(self.program.read(timeout_s=_LOOK_TIMEOUT_S), self.place.block)
        if block is None:
            return None
        if DISABLED in block:
            return (
                "an entry in the scrontab, disabled because its job was cancelled; install it again"
            )
        return "an entry in the scrontab"

    def _lines(self) -> list[str]:
        return scrontab_lines(self.place, self.variables, self.options)


def scrontab_lines(
    place: Place, variables: Mapping[str, str], options: Sequence[str] = ()
) -> list[str]:
    """Return the lines between the marks.

    Raises:
        InputError: an option or the path of the log cannot be written there.
    """
    ours = (
        f"--job-name={place.round_name}",
        "--ntasks=1",
        "--cpus-per-task=1",
        "--mem=1G",
        "--time=00:10:00",
        "--dependency=singleton",
        "--open-mode=append",
        output_option(place.log),
    )
    return [
        f"# {place.rounds.remark.format(way=Scrontab.name)}",
        *(f"#SCRON {option}" for option in (*ours, *checked_options(options))),
        f"{SCHEDULE} {round_command(place, variables)}",
    ]
