"""``python -m hpcflow.reference``: write the pages and schemas into docs/ of the source tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

import hpcflow
from hpcflow.reference.commands import commands_page
from hpcflow.reference.outputs import OUTPUT, output_schemas
from hpcflow.reference.pages import configuration_page, site_page
from hpcflow.reference.rules import states_page
from hpcflow.reference.schemas import run_schema, site_schema, sweep_schema
from hpcflow.reference.sweeps import sweep_page

DOCS: Final = Path(hpcflow.__file__).resolve().parent.parent / "docs"


def made() -> dict[str, str]:
    """Return path below docs/ -> its content."""
    return {
        "commands.md": commands_page(),
        "configuration.md": configuration_page(),
        "states.md": states_page(DOCS),
        "site_reference.md": site_page(),
        "sweep_reference.md": sweep_page(),
        "schema/run.schema.json": _json(run_schema()),
        "schema/site.schema.json": _json(site_schema()),
        "schema/sweep.schema.json": _json(sweep_schema()),
        **{f"{OUTPUT}/{name}": _json(each) for name, each in output_schemas().items()},
    }


def _json(schema: dict[str, Any]) -> str:
    return json.dumps(schema, indent=2, ensure_ascii=False) + "\n"


def main() -> None:
    for name, text in made().items():
        path = DOCS / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
        print(path)


if __name__ == "__main__":
    main()
