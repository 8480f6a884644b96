"""Advice, and reasons for no advice."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Advice:
    """One thing to change.

    Attributes:
        what: memory, time limit, …
        key: the key of the config to change; None if it is not in the config.
        value: the new value of the key, as in a config.
        text: what to do and why, with numbers.
    """

    what: str
    key: str | None
    value: str | None
    text: str


@dataclass(frozen=True)
class Nothing:
    """Why there is no advice about ``what``."""

    what: str
    why: str
