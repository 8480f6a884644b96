"""The files that are shipped with hpcflow: templates, site files, wrappers, documentation.

They lie at the top of the source tree, and inside the package once it is installed.
"""

from __future__ import annotations

import sys
from pathlib import Path

from hpcflow.errors import HpcflowError, shell_word


def resource_dir(name: str) -> Path:
    """Return the folder ``templates``, ``site_configs``, ``sbatch`` or ``docs``."""
    folder = _find(name)
    if folder is None:
        raise HpcflowError(
            f"this installation of hpcflow has no folder {name!r}",
            next_action="install it again from its wheel, with --force-reinstall",
        )
    return folder


def docs_dir() -> Path:
    """Return the folder of the documentation; if it is missing, its name in the source tree.

    A message that names a page must not fail where a packager has left the pages out.
    """
    return _find("docs") or Path("docs")


def doc_page(name: str) -> str:
    """Return the path of a page of the documentation, for messages and help texts."""
    return str(docs_dir() / f"{name}.md")


def install_extra(name: str) -> str:
    """Return the command that adds an extra of setup.cfg to this installation."""
    command = f"{shell_word(sys.executable)} -m pip install 'hpcflow[{name}]'"
    return f"{command}; if it has no pip: {doc_page('installation')}"


def _find(name: str) -> Path | None:
    package = Path(__file__).resolve().parent
    folders = (parent / name for parent in (package, package.parent))
    return next((folder for folder in folders if folder.is_dir()), None)
