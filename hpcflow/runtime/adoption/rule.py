"""What a config says of the checkpoints that a program writes by itself."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path

#: Where a train step stands: in the name, or nowhere. Anything else is ``FILE:KEY``.
BY_NAME, BY_COUNT = "name", "count"


@dataclass(frozen=True)
class AdoptRule:
    """How checkpoints look that the program writes by itself.

    Attributes:
        folder: where they are; it need not be there yet.
        pattern: what they are called below it, with ``*``, ``?`` and ``[…]`` in each part.
        marker: a file that is written last: in a folder, or with this name more beside a file.
        stable_s: how long nothing may have changed in one that is complete.
        renamed: whether they appear complete under their names, and are never changed.
        train_step: where their train step stands: BY_NAME, BY_COUNT, or a JSON file and its key.
        put_back: whether the program looks for the newest where it wrote it, and nowhere else.
    """

    folder: Path
    pattern: str
    marker: str | None = None
    stable_s: float = 30
    renamed: bool = False
    train_step: str = BY_NAME
    put_back: bool = False


def parse_adopt_rule(text: str) -> AdoptRule:
    """The rule that ``text`` says: a JSON object with the attributes of :class:`AdoptRule`.

    Raises:
        ValueError: it says none.
    """
    said = json.loads(text)
    try:
        rule = AdoptRule(**{**said, "folder": Path(said["folder"])})
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a rule: {error!r}") from None
    texts = (rule.pattern, rule.marker or "", rule.train_step)
    if not all(isinstance(each, str) for each in texts) or rule.stable_s < 0:
        raise ValueError("not a rule")
    if not rule.folder.is_absolute():
        raise ValueError(f"not a rule: {str(rule.folder)!r} does not begin with /")
    return rule
