"""The directory of a user's runs on a site: ``scratch.path`` with its variables filled in."""

from __future__ import annotations

import grp
import pwd
import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import Final

from hpcflow.errors import SiteError, shell_word
from hpcflow.ownership import Trust
from hpcflow.sites.schema import Site

_VARIABLE: Final = re.compile(
    r"\$(?:\{([A-Za-z_][A-Za-z0-9_]*)\}|([A-Za-z_][A-Za-z0-9_]*))", re.ASCII
)


def expand_scratch(
    site: Site, environ: Mapping[str, str], *, user: str, account: str | None = None
) -> Path:
    """Return the folder that ``site.scratch.path`` names for this user, without a shell.

    Args:
        environ: the user's environment, for ``$NAME``.
        user: the Unix user, for ``$USER``, whatever the environment has.
        account: the account that the run is charged to, for ``$ACCOUNT``.

    Raises:
        SiteError: a variable is unset or empty, or the result is not an absolute path.
    """
    text = site.scratch.path
    path = fill_in(
        text,
        {**environ, "USER": user, "ACCOUNT": account or ""},
        lambda name: _unset(site, name),
    )
    parts = PurePosixPath(path).parts
    if not path.startswith("/") or ".." in parts or "$" in path or not path.isprintable():
        raise SiteError(
            f"scratch of site {site.name} is {text!r}, which became {path!r}: "
            "not an absolute path without '..' and '$'",
            where=site.where("scratch", "path"),
            next_action="check the variables in your environment, or set another path in the "
            f"site file: hpcflow site show {shell_word(site.name)}",
        )
    return Path(path)


def scratch_trust(
    site: Site, environ: Mapping[str, str], *, user: str, account: str | None = None
) -> Trust:
    """Return the users and groups that ``site.scratch`` trusts on the path to it.

    Args:
        environ, user, account: see :func:`expand_scratch`.

    Raises:
        SiteError: this machine has no such user or group.
    """
    known = {**environ, "USER": user, "ACCOUNT": account or ""}

    def ids(key: str, names: list[str], find: Callable[[str], int]) -> frozenset[int]:
        def unset(name: str) -> SiteError:
            return _unset(site, name)

        found = set()
        for text in names:
            name = fill_in(text, known, unset)
            try:
                found.add(int(name) if name.isdecimal() else find(name))
            except KeyError:
                raise SiteError(
                    f"no {key.removeprefix('trusted_').removesuffix('s')} {name!r} on this machine",
                    where=site.where("scratch", key),
                    next_action="correct the name; see your own with: id",
                ) from None
        return frozenset(found)

    return Trust(
        users=ids("trusted_users", site.scratch.trusted_users, lambda n: pwd.getpwnam(n).pw_uid),
        groups=ids("trusted_groups", site.scratch.trusted_groups, lambda n: grp.getgrnam(n).gr_gid),
    )


def trusted_users(
    site: Site, environ: Mapping[str, str], *, user: str, account: str | None
) -> frozenset[int]:
    """Return the ids of those ``trusted_users`` that exist on this machine.

    Args:
        account: without one, an entry with ``$ACCOUNT`` is skipped.
    """
    known, found = {**environ, "USER": user, "ACCOUNT": account or ""}, set()
    for text in site.scratch.trusted_users:
        with suppress(SiteError, KeyError):
            name = fill_in(text, known, lambda name: _unset(site, name))
            found.add(int(name) if name.isdecimal() else pwd.getpwnam(name).pw_uid)
    return frozenset(found)


def fill_in(text: str, known: Mapping[str, str], unset: Callable[[str], SiteError]) -> str:
    """Return ``text`` with its variables filled in; ``unset`` makes the error for a missing one."""

    def value(match: re.Match[str]) -> str:
        name = match[1] or match[2]
        if not known.get(name):
            raise unset(name)
        return known[name]

    return _VARIABLE.sub(value, text)


def _unset(site: Site, name: str) -> SiteError:
    message = f"scratch of site {site.name} is {site.scratch.path!r}, and ${name} is not set"
    if name == "ACCOUNT":
        action = "name the account in the config: resources.account"
    else:
        action = f"export {name}=/your/folder/on/scratch"
    return SiteError(message, where=site.where("scratch", "path"), next_action=action)
