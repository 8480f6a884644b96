"""The variables that the daemon needs where there are none: cron, a service manager, a job.

As few as possible: a line of cron holds a thousand characters, and what is not needed can only be
wrong one day.
"""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final

from hpcflow.errors import InputError, Where
from hpcflow.model.secret import is_secret
from hpcflow.requeue.install.place import require_one_line
from hpcflow.settings import Settings

#: What hpcflow and Slurm's programs read. SLURM_JWT is a secret, and ends after a while: no.
_READ: Final = ("SLURM_CONF", "SLURM_CONF_SERVER", "SCRATCH", "HPCFLOW_SITE", "HPCFLOW_LEDGER")
#: What Python may need to start at all, where it comes from a module.
_LIBRARIES: Final = ("LD_LIBRARY_PATH",)
_PROGRAMS: Final = ("sbatch", "squeue", "sacct", "scancel", "scontrol", "sinfo", "sacctmgr")
_SYSTEM: Final = ("/usr/bin", "/bin")
_START_TIMEOUT_S: Final = 120.0


def daemon_environment(
    settings: Settings,
    command: Sequence[str],
    *,
    starts: Callable[[Sequence[str], Mapping[str, str]], str | None] | None = None,
) -> dict[str, str]:
    """All variables that ``command`` needs to be the daemon of the caller.

    Args:
        starts: runs a command in an environment and no other; returns what is wrong. Really runs
            it if None.

    Raises:
        InputError: one of them holds a secret or a newline, or the command does not start.
    """
    environ = settings.environ
    found = {
        "HOME": environ.get("HOME") or str(settings.home.path.parent),
        "PATH": _path(environ.get("PATH", ""), command),
        "HPCFLOW_HOME": str(settings.home.path),
        **{name: environ[name] for name in _READ if environ.get(name)},
    }
    if "/" in found.get("HPCFLOW_SITE", ""):
        found["HPCFLOW_SITE"] = str(Path(found["HPCFLOW_SITE"]).absolute())
    if environ.get("PYTHONPATH"):
        found["PYTHONPATH"] = os.pathsep.join(
            str(Path(each).absolute()) for each in environ["PYTHONPATH"].split(os.pathsep) if each
        )
    _require_no_secret(found, settings)
    require_one_line(found)
    return _with_libraries(found, environ, command, starts or _start)


def _path(path: str, command: Sequence[str]) -> str:
    """The folders of ``path`` that hold hpcflow's, Slurm's and the system's programs; in order."""
    homes = [Path(command[0]).parent, *map(Path, _SYSTEM)]
    for program in _PROGRAMS:
        place = shutil.which(program, path=path)
        if place is not None:
            homes.append(Path(place).absolute().parent)
    needed = list(dict.fromkeys(map(str, homes)))
    theirs = [folder for folder in dict.fromkeys(path.split(os.pathsep)) if folder in needed]
    return os.pathsep.join([*theirs, *(folder for folder in needed if folder not in theirs)])


def _require_no_secret(found: Mapping[str, str], settings: Settings) -> None:
    for name, value in found.items():
        if is_secret(value) or "password" in value.partition("?")[2].lower():
            config = settings.home.config
            raise InputError(
                "holds a password, and what a daemon is started with can be seen by others",
                where=Where(key=name),
                next_action=f"write it as `ledger: …` in {config}, chmod 600 {config}, and "
                f"unset {name}",
            )


def _with_libraries(
    found: dict[str, str],
    environ: Mapping[str, str],
    command: Sequence[str],
    starts: Callable[[Sequence[str], Mapping[str, str]], str | None],
) -> dict[str, str]:
    problem = starts(command, found)
    libraries = {name: environ[name] for name in _LIBRARIES if environ.get(name)}
    if problem and libraries:
        require_one_line(libraries)
        found = {**found, **libraries}
        problem = starts(command, found)
    if problem:
        raise InputError(
            f"hpcflow does not start without the rest of your environment: {problem}",
            next_action=f"install it into a virtual environment of its own; to see it yourself: "
            f"env -i {command[0]} version",
        )
    return found


def _start(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    try:
        done = subprocess.run(
            [*command, "version"],
            env=dict(environment),
            cwd="/",
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            errors="replace",
            timeout=_START_TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        return str(error)
    if done.returncode == 0:
        return None
    return (done.stderr.strip().splitlines() or [f"exit code {done.returncode}"])[-1]
