"""The position of a training in its data: epoch and batches done."""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from typing import Any


@dataclass(frozen=True)
class Position:
    """``batch`` of the ``batches`` of epoch ``epoch``, counted from 0, are done.

    ``batches`` is None if the loader has no length.
    """

    epoch: int = 0
    batch: int = 0
    batches: int | None = None

    @property
    def as_epochs(self) -> float:
        """Return the epochs done, including the part of the current one."""
        part = self.batch / self.batches if self.batches else 0.0
        return round(self.epoch + part, 4)

    def among(self, batches: int | None) -> Position:
        """Return the same position for epochs of ``batches`` batches."""
        if not batches or not self.batches or batches == self.batches:
            return replace(self, batches=batches)
        return Position(self.epoch, round(self.batch * batches / self.batches), batches)

    def as_json(self) -> dict[str, Any]:
        return asdict(self)


def position_from(data: dict[str, Any]) -> Position:
    """Read a position from :meth:`Position.as_json`.

    Raises:
        ValueError, TypeError, KeyError: the data is invalid.
    """
    batches = data["batches"]
    return Position(
        int(data["epoch"]), int(data["batch"]), None if batches is None else int(batches)
    )
