"""Arguments and options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hpcflow.errors import HpcflowError
from hpcflow.resources import doc_page
from hpcflow.settings import load_settings

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., Any])


class JsonOption(click.Option):
    """``--json``, with the types that the command prints.

    The schemas in docs/schema/output are generated from them.
    """

    def __init__(self, *args: Any, outputs: tuple[type | str, ...], **options: Any) -> None:
        super().__init__(*args, **options)
        self.outputs = outputs


def json_option(
    *outputs: type | str, help_text: str = "Print JSON."
) -> Callable[[Command], Command]:
    """Add ``--json`` to a command.

    Args:
        outputs: the types that it prints, dataclasses or TypedDicts; ``module:name`` is imported
            later.
    """
    return click.option(
        "--json", "as_json", is_flag=True, help=help_text, cls=JsonOption, outputs=outputs
    )


def more_in(*pages: str) -> str:
    """Return the end of a help text: paths of pages of the documentation, not wrapped."""
    return "\b\nMore in:\n" + "\n".join(f"  {doc_page(page)}" for page in pages)


def complete_run(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return run ids that begin with ``incomplete``, from the links in HPCFLOW_HOME; no ledger."""
    from hpcflow.storage.runs import run_ids

    try:
        return [name for name in run_ids(load_settings().home) if name.startswith(incomplete)]
    except HpcflowError:
        return []  # completion must not print an error


def complete_sweep(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    from hpcflow.storage.sweeps import sweep_ids

    try:
        return [name for name in sweep_ids(load_settings().home) if name.startswith(incomplete)]
    except HpcflowError:
        return []


def complete_site(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Return names of sites, and site files. Open none of them."""
    from click.shell_completion import CompletionItem

    from hpcflow.sites.loader import search_path, site_files

    try:
        names = sorted(site_files(search_path(load_settings().home.path)))
    except HpcflowError:
        names = []
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def plain_text(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return ``value``; refuse bytes from the shell that are not text."""
    if value is not None and value.encode("utf-8", "replace").decode() != value:
        raise click.BadParameter(f"not UTF-8 text: {value!r}", param=param)
    return value


def _endpoint_url(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """Return the URL of a server; refuse others without showing them: they may have a password."""
    from hpcflow.model.kinds import check_endpoint_url

    if value is not None:
        try:
            check_endpoint_url(value)
        except ValueError as error:
            raise click.BadParameter(str(error), param=param) from None
    return value


def finite(_ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """Return ``value``; refuse NaN and infinity."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is not a number of seconds", param=param)
    return value


#: Click does not check the path: the errors of the file's reader are better.
config_argument = click.argument("config", type=click.Path(path_type=Path, readable=False))
run_argument = click.argument("run", shell_complete=complete_run)
runs_argument = click.argument(
    "runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run
)
endpoint_option = click.option(
    "--endpoint-url",
    metavar="URL",
    callback=_endpoint_url,
    help="The S3 server of the store, if it is not Amazon's. Default: from the site file, for a "
    "bucket named there; else from AWS_ENDPOINT_URL or ~/.aws/config.",
)
site_option = click.option(
    "--site",
    shell_complete=complete_site,
    help="Name of the cluster, or a site file. Default: the cluster of this machine.",
)
site_argument = click.argument("name", required=False, shell_complete=complete_site)
set_option = click.option(
    "--set",
    "overrides",
    multiple=True,
    metavar="KEY=VALUE",
    help="Override a key of the config. May be given several times.",
)


def sweep_argument(*, required: bool = True) -> Callable[[Any], Any]:
    """Add the argument SWEEP: an id, a name, or the beginning of an id."""
    return click.argument("sweep", required=required, shell_complete=complete_sweep)
