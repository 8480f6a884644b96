"""``python -m docs.generator``: write the pages and schemas into docs/ of the source tree."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any, Final

from docs.generator.commands import commands_page
from docs.generator.outputs import OUTPUT, output_schemas
from docs.generator.pages import configuration_page, site_page
from docs.generator.schemas import run_schema, site_schema, sweep_schema
from docs.generator.states import states_page
from docs.generator.sweeps import sweep_page

DOCS: Final = Path(__file__).resolve().parents[1]


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
