"""``hpcflow render``."""

from __future__ import annotations

from pathlib import Path
from typing import TypedDict

import click

from hpcflow.cli.arguments import config_argument, json_option, set_option, site_option
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session
from hpcflow.terminal import echo_as_is


class Rendered(TypedDict):
    """The script that a run would submit."""

    run_id: str
    site: str
    script: str


@click.command("render", short_help="Print the job script that `run` would submit.")
@config_argument
@site_option
@set_option
@json_option(Rendered)
def command(config: Path, site: str | None, overrides: tuple[str, ...], as_json: bool) -> int:
    """Print exactly the script that `hpcflow run` would submit for CONFIG.

    Only the random end of the run id differs from call to call. A terminal shows U+FFFD for each
    control or invisible character; a pipe or a file gets every byte.
    """
    plan = Session().plan(config, site, overrides)
    if as_json:
        run = plan.run
        print_json(Rendered(run_id=run.run_id, site=run.site, script=plan.script))
    else:
        echo_as_is(plan.script)
    return 0
