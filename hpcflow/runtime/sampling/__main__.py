"""``python3 -S -m hpcflow.runtime.sampling``: see :mod:`hpcflow.runtime.sampling.command`."""

from __future__ import annotations

import sys

from hpcflow.runtime.sampling.command import main

if __name__ == "__main__":
    sys.exit(main())
