"""``hpcflow render``."""

from __future__ import annotations

from pathlib import Path

import click

from hpcflow.cli.arguments import config_argument, json_option, set_option, site_option
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session
from hpcflow.terminal import echo_as_is


@click.command("render", short_help="Print the job script that `run` would submit.")
@config_argument
@site_option
@set_option
@json_option
def command(config: Path, site: str | None, overrides: tuple[str, ...], as_json: bool) -> int:
    """Print exactly the script that `hpcflow run` would submit for CONFIG.

    Only the random end of the run id differs from call to call. A terminal shows U+FFFD for each
    control or invisible character; a pipe or a file gets every byte.
    """
    plan = Session().plan(config, site, overrides)
    if as_json:
        print_json({"run_id": plan.run.run_id, "site": plan.run.site, "script": plan.script})
    else:
        echo_as_is(plan.script)
    return 0
