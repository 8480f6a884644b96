"""Import no module and read no settings from the working directory: it may be another user's."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

#: `python -c` looks for modules in the working directory first. `python -P` does not, but only from
#: 3.11 on; the scripts in sbatch/ do the same.
LEAVE_IT: Final = "import sys; sys.path[:1] = [p for p in sys.path[:1] if p]; "
#: As `python -m MODULE WORD…`, but without its first entry of sys.path.
START: Final = (
    f"{LEAVE_IT}from runpy import run_module; "
    'sys.argv[:2] = sys.argv[1:2]; run_module(sys.argv[0], run_name="__main__", alter_sys=True)'
)


def own_python(module: str, *words: str) -> list[str]:
    """Return the command that executes ``module`` of this hpcflow."""
    return [sys.executable, "-c", START, module, *words]


def import_matplotlib() -> None:
    """Import matplotlib, which reads a ``matplotlibrc`` in the working directory before all others
    and executes parts of it.

    Raises:
        ValueError: matplotlib does not know a setting.
    """
    with _elsewhere():
        import matplotlib  # noqa: F401 - others use it


@contextmanager
def _elsewhere() -> Iterator[None]:
    """Change to the folder of Python's standard library within a ``with`` block."""
    try:
        here: int | None = os.open(".", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError:  # it is gone
        here = None
    os.chdir(Path(os.__file__).parent)
    try:
        yield
    finally:
        if here is not None:
            os.fchdir(here)
            os.close(here)
