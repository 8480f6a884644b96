"""The files that are shipped with hpcflow: templates, site files, wrappers.

They lie at the top of the source tree, where people look for them, and inside the package once it
is installed; this is the one place that knows both.
"""

from __future__ import annotations

from pathlib import Path

from hpcflow.errors import HpcflowError


def resource_dir(name: str) -> Path:
    """The folder ``templates``, ``site_configs`` or ``sbatch``, wherever this installation has it.

    Raises:
        HpcflowError: the installation lacks it.
    """
    package = Path(__file__).resolve().parent
    for parent in (package, package.parent):
        folder = parent / name
        if folder.is_dir():
            return folder
    raise HpcflowError(
        f"this installation of hpcflow has no folder {name!r}",
        next_action="install it again: pip install --force-reinstall hpcflow",
    )
