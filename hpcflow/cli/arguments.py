"""Arguments and options that several commands share."""

from __future__ import annotations

import click


def complete_run(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Run ids that begin with what was typed, from the links in HPCFLOW_HOME; no ledger."""
    from hpcflow.errors import HpcflowError
    from hpcflow.settings import load_settings
    from hpcflow.storage.runs import run_ids

    try:
        return [name for name in run_ids(load_settings().home) if name.startswith(incomplete)]
    except HpcflowError:
        return []  # a shell that completes is no place for an error


run_argument = click.argument("run", shell_complete=complete_run)
runs_argument = click.argument(
    "runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
site_option = click.option(
    "--site", help="The cluster, or a site file. Default: the one of this machine."
)
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key."
)
