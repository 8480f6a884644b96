"""``hpcflow version``."""

from __future__ import annotations

import platform
from typing import TypedDict

import click

from hpcflow import __version__
from hpcflow.cli.arguments import json_option
from hpcflow.cli.output import print_json
from hpcflow.terminal import echo


class Versions(TypedDict):
    """The versions of hpcflow and of its Python."""

    hpcflow: str
    python: str


@click.command("version", short_help="Print versions.")
@json_option(Versions)
def command(as_json: bool) -> int:
    """Print the versions of hpcflow and of the Python that it runs on."""
    if as_json:
        print_json(Versions(hpcflow=__version__, python=platform.python_version()))
    else:
        echo(f"hpcflow {__version__} (Python {platform.python_version()})")
    return 0
