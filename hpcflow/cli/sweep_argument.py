"""The argument SWEEP of commands."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import click


def complete_sweep(_ctx: click.Context, _param: click.Parameter, incomplete: str) -> list[str]:
    """Return sweep ids that begin with ``incomplete``."""
    from hpcflow.errors import HpcflowError
    from hpcflow.settings import load_settings
    from hpcflow.storage.sweeps import sweep_ids

    try:
        return [name for name in sweep_ids(load_settings().home) if name.startswith(incomplete)]
    except HpcflowError:
        return []


def sweep_argument(*, required: bool = True) -> Callable[[Any], Any]:
    """Add the argument SWEEP: an id, a name, or the beginning of an id."""
    return click.argument("sweep", required=required, shell_complete=complete_sweep)
