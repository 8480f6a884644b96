"""Arguments and options that several commands share."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

import click

from hpcflow.resources import doc_page

if TYPE_CHECKING:
    from click.shell_completion import CompletionItem

Command = TypeVar("Command", bound=Callable[..., Any])


class JsonOption(click.Option):
    """``--json``, which names the types of what the command prints.

    The schemas in docs/schema/output are made from them.
    """

    def __init__(self, *args: Any, outputs: tuple[type | str, ...], **options: Any) -> None:
        super().__init__(*args, **options)
        self.outputs = outputs


def json_option(
    *outputs: type | str, help_text: str = "Print JSON."
) -> Callable[[Command], Command]:
    """Give a command ``--json``.

    Args:
        outputs: the types of what it prints, a dataclass or a TypedDict each; ``module:name`` for
            one that is not to be imported yet.
    """
    return click.option(
        "--json", "as_json", is_flag=True, help=help_text, cls=JsonOption, outputs=outputs
    )


def more_in(*pages: str) -> str:
    """Return the end of a help text: the paths of pages of the documentation, none of them cut."""
    return "\b\nMore in:\n" + "\n".join(f"  {doc_page(page)}" for page in pages)


def complete_run(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Run ids that begin with what was typed, from the links in HPCFLOW_HOME; no ledger."""
    from hpcflow.errors import HpcflowError
    from hpcflow.settings import load_settings
    from hpcflow.storage.runs import run_ids

    try:
        return [name for name in run_ids(load_settings().home) if name.startswith(incomplete)]
    except HpcflowError:
        return []  # a shell that completes is no place for an error


def complete_site(
    _ctx: click.Context, _param: click.Parameter, incomplete: str
) -> list[CompletionItem]:
    """Names of sites, and site files; none of them is opened."""
    from click.shell_completion import CompletionItem

    from hpcflow.errors import HpcflowError
    from hpcflow.settings import load_settings
    from hpcflow.sites.loader import search_path, site_files

    try:
        names = sorted(site_files(search_path(load_settings().home.path)))
    except HpcflowError:
        names = []
    found = [CompletionItem(name) for name in names if name.startswith(incomplete)]
    return found or [CompletionItem(incomplete, type="file")]


def plain_text(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """``value``, which a shell may have passed on as bytes that are no text: no run has those."""
    if value is not None and value.encode("utf-8", "replace").decode() != value:
        raise click.BadParameter(f"not UTF-8 text: {value!r}", param=param)
    return value


def _endpoint_url(_ctx: click.Context, param: click.Parameter, value: str | None) -> str | None:
    """``value``, if it is the URL of a server; what is none is not repeated, for its password."""
    from hpcflow.model.kinds import check_endpoint_url

    if value is not None:
        try:
            check_endpoint_url(value)
        except ValueError as error:
            raise click.BadParameter(str(error), param=param) from None
    return value


def finite(_ctx: click.Context, param: click.Parameter, value: float | None) -> float | None:
    """``value``, unless it is one of those that are numbers for Python only."""
    if value is not None and not math.isfinite(value):
        raise click.BadParameter(f"{value} is no number of seconds", param=param)
    return value


#: The reader of the file says whether it can be read and what to type, not click.
config_argument = click.argument("config", type=click.Path(path_type=Path, readable=False))
run_argument = click.argument("run", shell_complete=complete_run)
runs_argument = click.argument(
    "runs", nargs=-1, required=True, metavar="RUN...", shell_complete=complete_run
)
endpoint_option = click.option(
    "--endpoint-url",
    metavar="URL",
    callback=_endpoint_url,
    help="The server of the store, if it speaks S3 and is not Amazon's. Default: the site's, for a "
    "bucket of the site's; else AWS_ENDPOINT_URL, or what ~/.aws/config says.",
)
site_option = click.option(
    "--site",
    shell_complete=complete_site,
    help="The cluster, or a site file. Default: the one of this machine.",
)
site_argument = click.argument("name", required=False, shell_complete=complete_site)
set_option = click.option(
    "--set", "overrides", multiple=True, metavar="KEY=VALUE", help="Override a key."
)
