"""The sentences that advice is made of."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """One thing to change.

    Attributes:
        what: memory, time limit, …
        key: of the config; None where it is not hpcflow's to say.
        value: for the key, as a config takes it.
        text: what to do and why, in numbers.
    """

    what: str
    key: str | None
    value: str | None
    text: str


@dataclass(frozen=True)
class Nothing:
    """Why nothing is advised about ``what``."""

    what: str
    why: str
