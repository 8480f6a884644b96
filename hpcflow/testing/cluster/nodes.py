"""Query the states of nodes, wait for nodes, and resume them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from hpcflow.testing.cluster import slurm
from hpcflow.testing.cluster.polling import poll

_USABLE = {"idle", "mixed", "allocated", "completing"}
_STUCK = {"down", "drained", "draining", "drain", "inval", "error", "fail"}


def states(folder: Path) -> dict[str, str]:
    """Return node name -> sinfo's state, with flags such as ``*`` (does not answer).

    Empty if slurmctld does not answer.
    """
    lines = slurm.command(folder, "sinfo", "-a", "-h", "-N", "-o", "%N %T").splitlines()
    return dict(line.split(maxsplit=1) for line in lines if " " in line)


def usable(folder: Path) -> set[str]:
    return {name for name, state in states(folder).items() if state in _USABLE}


def wait_usable(
    folder: Path, names: Sequence[str], deadline_s: float, *, revive: bool = False
) -> None:
    """Wait until these nodes take jobs; ``revive`` resumes those that are down or drained."""
    last: dict[str, str] = {}

    def ready() -> bool:
        last.clear()
        last.update(states(folder))
        if revive:
            resume(folder, [name for name in names if last.get(name, "").rstrip("*") in _STUCK])
        return all(last.get(name) in _USABLE for name in names)

    poll(ready, deadline_s, lambda: f"the nodes are {last or 'unknown: slurmctld is silent'}")


def resume(folder: Path, names: Sequence[str]) -> None:
    if names:
        slurm.run(folder, "scontrol", "update", f"nodename={','.join(names)}", "state=resume",
                  check=False)  # fmt: skip
