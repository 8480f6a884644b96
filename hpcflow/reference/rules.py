"""The table of the requeue daemon's rules, as a part of docs/states.md."""

from __future__ import annotations

from pathlib import Path
from typing import Final

from hpcflow.requeue.table import EXAMPLES, Example

BEGIN: Final = (
    "<!-- Made by `python -m hpcflow.reference` from hpcflow/requeue/table.py; edit that. -->"
)
END: Final = "<!-- End of what is made. -->"


def states_page(docs: Path) -> str:
    """docs/states.md as it is, with the table of today between its two marks.

    Raises:
        ValueError: the marks are not there.
    """
    text = (docs / "states.md").read_text(encoding="utf-8")
    head, begin, rest = text.partition(BEGIN)
    _, end, tail = rest.partition(END)
    if not begin or not end:
        raise ValueError("docs/states.md has lost the marks around its table of rules")
    return f"{head}{BEGIN}\n\n{rules_table()}\n{END}{tail}"


def rules_table() -> str:
    """The examples as Markdown."""
    lines = ["| the run | then | rule |", "|---|---|---|"]
    lines += [f"| {example.told} | {_then(example)} | `{example.rule}` |" for example in EXAMPLES]
    return "\n".join(lines) + "\n"


def _then(example: Example) -> str:
    if example.mem_mb is not None:
        return f"{example.action.value} with {example.mem_mb:,} MB"
    return {"none": "nothing"}.get(example.action.value, example.action.value)
