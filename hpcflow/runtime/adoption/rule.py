"""The rule of a config for the checkpoints that the program writes by itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

#: Where the train step comes from: the name, or a count. Anything else is ``FILE:KEY``.
BY_NAME, BY_COUNT = "name", "count"


@dataclass(frozen=True)
class AdoptRule:
    """How to find the checkpoints that the program writes by itself.

    Attributes:
        folder: where they are; it need not exist yet.
        pattern: their paths below it, with ``*``, ``?`` and ``[…]`` in each part.
        marker: a file that is written last: in a folder, or beside a file with this suffix.
        stable_s: seconds without a change after which one is complete.
        renamed: whether they appear complete under their names, and are never changed.
        train_step: where their train step comes from: BY_NAME, BY_COUNT, or ``FILE:KEY``.
        put_back: whether the program looks for the newest only where it wrote it.
    """

    folder: Path
    pattern: str
    marker: str | None = None
    stable_s: float = 30
    renamed: bool = False
    train_step: str = BY_NAME
    put_back: bool = False


def parse_adopt_rule(text: str) -> AdoptRule:
    """Parse a rule: a JSON object with the attributes of :class:`AdoptRule`.

    Raises:
        ValueError: the text is not a rule.
    """
    given = json.loads(text)
    try:
        rule = AdoptRule(**{**given, "folder": Path(given["folder"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a rule: {error!r}") from None
    texts = (rule.pattern, rule.marker or "", rule.train_step)
    if not all(isinstance(each, str) for each in texts) or rule.stable_s < 0:
        raise ValueError("not a rule")
    if not rule.folder.is_absolute():
        raise ValueError(f"not a rule: {str(rule.folder)!r} does not begin with /")
    return rule
