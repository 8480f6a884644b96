"""Start a module of this hpcflow, and import nothing from the working directory."""

from __future__ import annotations

import sys
from typing import Final

#: What `python -m MODULE WORD…` does but for its first entry of sys.path: the working directory may
#: be others'. `python -P` does it only from 3.11 on; the scripts in sbatch/ do the same.
_START: Final = (
    "import sys; sys.path[:1] = [p for p in sys.path[:1] if p]; from runpy import run_module; "
    'sys.argv[:2] = sys.argv[1:2]; run_module(sys.argv[0], run_name="__main__", alter_sys=True)'
)


def own_python(module: str, *words: str) -> list[str]:
    """Return the command that executes ``module``."""
    return [sys.executable, "-c", _START, module, *words]
