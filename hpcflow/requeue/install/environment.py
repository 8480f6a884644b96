"""The environment variables of a daemon that is started by cron, a service manager or a job.

They are as few as possible: a line of cron has at most a thousand characters, and an old value can
be wrong one day.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Final
from urllib.parse import unquote

from hpcflow.errors import InputError, Where, shell_word
from hpcflow.ledger.url import parse_url
from hpcflow.model.secret import is_secret
from hpcflow.programs import run_program
from hpcflow.requeue.install.place import require_one_line
from hpcflow.settings import Settings

#: Read by hpcflow and Slurm's programs. Not SLURM_JWT: it is a secret and expires.
_READ: Final = ("SLURM_CONF", "SLURM_CONF_SERVER", "SCRATCH", "HPCFLOW_SITE", "HPCFLOW_LEDGER")
#: Needed to connect to Postgres. Not PGPASSWORD: it is a secret.
_POSTGRES: Final = (
    *("PGHOST", "PGPORT", "PGUSER", "PGDATABASE", "PGSERVICE", "PGSERVICEFILE", "PGSYSCONFDIR"),
    *("PGPASSFILE", "PGSSLMODE", "PGSSLROOTCERT", "PGSSLCERT", "PGSSLKEY", "PGSSLCRL"),
    *("PGGSSENCMODE", "PGKRBSRVNAME", "PGCHANNELBINDING"),
)
#: Needed to connect to S3. Not AWS_SECRET_ACCESS_KEY: it is a secret.
_S3: Final = (
    *("AWS_PROFILE", "AWS_REGION", "AWS_DEFAULT_REGION", "AWS_ENDPOINT_URL", "AWS_ENDPOINT_URL_S3"),
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE"),
)
#: Paths: they must be absolute, because a daemon starts in another directory.
_ABSOLUTE: Final = (
    *("SLURM_CONF", "SCRATCH", "PGSERVICEFILE", "PGSYSCONFDIR", "PGPASSFILE"),
    *("PGSSLCERT", "PGSSLKEY", "PGSSLCRL"),
    *("AWS_CONFIG_FILE", "AWS_SHARED_CREDENTIALS_FILE", "AWS_CA_BUNDLE"),
)
#: What a Python from an environment module may need to start.
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
    """Return all variables that ``command`` needs to be the daemon of the caller.

    Args:
        starts: runs a command with exactly this environment and returns its error; for tests.

    Raises:
        InputError: a variable has a secret or a newline, the command does not start, or cannot
            log in to Postgres.
    """
    environ = settings.environ
    found = {
        "HOME": environ.get("HOME") or str(settings.home.path.parent),
        "PATH": _path(environ.get("PATH", ""), command),
        "HPCFLOW_HOME": str(settings.home.path),
        "LOGNAME": settings.user,  # for when the name service is down
        **{name: environ[name] for name in (*_READ, *_S3) if environ.get(name)},
    }
    is_postgres = not parse_url(settings.ledger_url).is_own
    if is_postgres:
        _require_password_file(environ, settings)
        found.update((name, environ[name]) for name in _POSTGRES if environ.get(name))
    if "/" in found.get("HPCFLOW_SITE", ""):
        found["HPCFLOW_SITE"] = str(Path(found["HPCFLOW_SITE"]).absolute())
    if environ.get("PYTHONPATH"):
        found["PYTHONPATH"] = os.pathsep.join(
            str(Path(each).absolute()) for each in environ["PYTHONPATH"].split(os.pathsep) if each
        )
    _require_no_secret(found, settings)
    require_one_line(found)
    _require_absolute(found)
    starts = starts or _start
    found = _with_libraries(found, environ, command, starts)
    if is_postgres and (problem := starts([*command, "ls"], found)):
        raise InputError(
            f"the ledger cannot be opened without the rest of your environment: {problem}",
            where=Where(key="ledger"),
            next_action="add what is missing to its URL, ~/.pgpass or ~/.pg_service.conf",
        )
    return found


def _path(path: str, command: Sequence[str]) -> str:
    """Return the folders of ``path`` with hpcflow's, Slurm's or system programs, in order."""
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
        if is_secret(value) or "password" in unquote(value.partition("?")[2]).lower():
            config = settings.home.config
            raise InputError(
                "has a password, and a daemon's environment is readable by other users",
                where=Where(key=name),
                next_action=f"write it as `ledger: …` in {config}, chmod 600 {shell_word(config)}, "
                f"and unset {shell_word(name)}",
            )


def _require_password_file(environ: Mapping[str, str], settings: Settings) -> None:
    home = Path(environ.get("HOME") or settings.home.path.parent)
    passwords = Path(environ.get("PGPASSFILE") or home / ".pgpass")
    if environ.get("PGPASSWORD") and not is_secret(settings.ledger_url) and not passwords.exists():
        raise InputError(
            "has the ledger's password, which the daemon does not get: other users could read it",
            where=Where(key="PGPASSWORD"),
            next_action=f"write it to {passwords}, as HOST:5432:DATABASE:USER:PASSWORD, "
            f"chmod 600 {passwords}, and unset PGPASSWORD",
        )


def _require_absolute(found: Mapping[str, str]) -> None:
    for name in _ABSOLUTE:
        if name in found and not found[name].startswith("/"):
            raise InputError(
                f"is not an absolute path: {found[name][:200]!r}",
                where=Where(key=name),
                next_action="a daemon starts in another directory; begin the path with a slash",
            )


def _with_libraries(
    found: dict[str, str],
    environ: Mapping[str, str],
    command: Sequence[str],
    starts: Callable[[Sequence[str], Mapping[str, str]], str | None],
) -> dict[str, str]:
    problem = starts([*command, "version"], found)
    libraries = {name: environ[name] for name in _LIBRARIES if environ.get(name)}
    if problem and libraries:
        require_one_line(libraries)
        found = {**found, **libraries}
        problem = starts([*command, "version"], found)
    if problem:
        raise InputError(
            f"hpcflow does not start without the rest of your environment: {problem}",
            next_action=f"install it into its own virtual environment; to see the error: "
            f"env -i {command[0]} version",
        )
    return found


def _start(command: Sequence[str], environment: Mapping[str, str]) -> str | None:
    try:
        done = run_program(
            command, environment=environment, timeout_s=_START_TIMEOUT_S, cwd=Path("/")
        )
    except OSError as error:
        return str(error)
    return done.problem.splitlines()[-1] if done.problem else None
