"""The result of a restore."""

from __future__ import annotations

from dataclasses import dataclass, field

from hpcflow.storage.layout import RunDir


@dataclass
class Outcome:
    """The result of a restore.

    Attributes:
        is_new: the run directory was created; else only what it lacked.
        checkpoints: train steps of the checkpoints that were fetched.
        skipped: train step -> why that checkpoint was not fetched.
        files: number of small files that were fetched, or written again from known content.
        left: names of files that differ here and in the mirror; the files here were kept.
        refused: names in the store that are not safe.
        newest: train step of the newest checkpoint here now; None without one.
        is_unknown: what the run executes comes from the store, and no user of this home has
            approved it: the run waits for `hpcflow resume`.
        held: why this restore holds the run; None if it does not.
    """

    run_id: str
    run_dir: RunDir
    url: str
    is_new: bool = False
    checkpoints: list[int] = field(default_factory=list)
    skipped: dict[int, str] = field(default_factory=dict)
    files: int = 0
    left: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    newest: int | None = None
    is_unknown: bool = False
    held: str | None = None

    @property
    def is_nothing(self) -> bool:
        """Whether nothing was missing."""
        return not (self.is_new or self.checkpoints or self.files)
