"""Read the name of the cluster from slurm.conf, without a query."""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Final

from hpcflow.runtime.reading import read_file

#: The case of keys does not matter, and a comment may follow.
_CLUSTER_NAME: Final = re.compile(
    r"^[ \t]*ClusterName[ \t]*=[ \t]*\"?([^\s#\"]+)", re.MULTILINE | re.IGNORECASE
)
#: Used by Slurm's commands without SLURM_CONF; the second, if slurmd got the file from slurmctld
#: ("configless").
_PLACES: Final = (Path("/etc/slurm/slurm.conf"), Path("/run/slurm/conf/slurm.conf"))


def configured_name(environ: Mapping[str, str] = os.environ) -> str | None:
    """Return ClusterName from slurm.conf, but not from its includes; None if it is not there.

    Slurm's commands usually read the same file; wrappers may use another one.
    """
    named = environ.get("SLURM_CONF")
    for path in (Path(named),) if named else _PLACES:
        try:
            text = read_file(path, follow=True, any_owner=True).decode(errors="replace")
        except (OSError, ValueError):
            continue
        found = _CLUSTER_NAME.findall(text)
        return str(found[-1]) if found else None
    return None
