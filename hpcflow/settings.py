"""The settings of the caller: home, ledger, site."""

from __future__ import annotations

import errno
import hashlib
import os
import pwd
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpcflow.errors import InputError, Where, shell_word
from hpcflow.ledger.url import parse_url
from hpcflow.model.scalars import shortened
from hpcflow.ownership import Trust, weak_point
from hpcflow.storage.layout import Home

if TYPE_CHECKING:
    from hpcflow.documents import Document

#: Linux limits paths to 4096 bytes; run ids and file names are appended to this one.
_LONGEST_PATH = 3000
#: A valid name of a user, and of the user's folder on scratch.
_NAME: Final = re.compile(r"\w[\w.@+\\-]*\$?", re.ASCII)
#: The keys of config.yaml.
KEYS = ("site", "ledger")

#: These errors mean that the path can never be a directory.
_NEVER_A_FOLDER = (errno.ENAMETOOLONG, errno.ELOOP, errno.ENOTDIR)


@dataclass(frozen=True)
class Settings:
    """The settings of the caller that are not in a config or a site file.

    Attributes:
        home: the directory of the user's runs and settings.
        user: the Unix user of the process's uid; from the environment if the uid has no name now.
        environ: the caller's environment.
        site: the site that the user chose; None to recognize it.
        site_named_in: where it was chosen, for an error about it.
        ledger_url: an SQLAlchemy URL.
    """

    home: Home
    user: str
    environ: Mapping[str, str]
    site: str | None
    ledger_url: str
    site_named_in: Where | None = None

    @property
    def mark(self) -> str:
        """Return a suffix for names of this home's daemon; empty for ``~/.hpcflow``.

        All paths to one home give the same suffix.
        """
        home = os.path.realpath(self.home.path)
        with suppress(InputError):  # the user has no home directory, so there is no default
            if home == os.path.realpath(_default_home(self.environ)):
                return ""
        return f"-{hashlib.sha256(os.fsencode(home)).hexdigest()[:8]}"


def load_settings(environ: Mapping[str, str] | None = None) -> Settings:
    """Return the settings of the calling user.

    Raises:
        InputError: ``config.yaml`` is wrong, or HPCFLOW_HOME is not an absolute path.
    """
    environ = dict(os.environ if environ is None else environ)
    home = _home(environ)
    _require_private(home.path)
    _require_safe_path(home.config)
    document = _read_choices(home.config)
    choices: dict[str, str] = document.data if document else {}
    site, site_named_in = choices.get("site"), None
    if environ.get("HPCFLOW_SITE"):
        site, site_named_in = environ["HPCFLOW_SITE"], Where(key="HPCFLOW_SITE")
    elif document and site:
        site_named_in = document.where(("site",))
    if choices.get("ledger") and parse_url(choices["ledger"]).has_password:
        _require_unreadable(home.config)
    ledger_url = (
        environ.get("HPCFLOW_LEDGER") or choices.get("ledger") or f"sqlite:///{home.ledger}"
    )
    ledger = parse_url(ledger_url)  # checked before anything is submitted
    if ledger.kind == "sqlite":
        _require_private_ledger(ledger.path)
    user = _user(environ)
    return Settings(
        home=replace(
            home, trust_of=partial(_trust_of, home=home, environ=environ, user=user, site=site)
        ),
        user=user,
        environ=environ,
        site=site,
        ledger_url=ledger_url,
        site_named_in=site_named_in,
    )


def _trust_of(
    run_id: str | None, *, home: Home, environ: Mapping[str, str], user: str, site: str | None
) -> Trust:
    from hpcflow.trusted import trust_of  # rarely needed; it imports all code of sites

    return trust_of(run_id, home=home, environ=environ, user=user, site=site)


def _home(environ: Mapping[str, str]) -> Home:
    text = environ.get("HPCFLOW_HOME")
    if not text:
        return Home(_default_home(environ))
    path = Path(text)
    if not path.is_absolute() or len(text) > _LONGEST_PATH:
        raise InputError(
            f"not an absolute path: {text[:200]!r}",
            where=Where(key="HPCFLOW_HOME"),
            next_action='export HPCFLOW_HOME="$HOME/.hpcflow"',
        )
    return Home(path)


def _default_home(environ: Mapping[str, str]) -> Path:
    return Path(environ.get("HOME") or _account_home()) / ".hpcflow"


def _require_private(home: Path) -> None:
    """Refuse a home that another user can write to: its templates become shell code of jobs."""
    where = Where(key="HPCFLOW_HOME")
    try:
        status = home.stat()
    except OSError as error:
        if error.errno not in _NEVER_A_FOLDER:
            return  # created, or reported, when it is first used
        raise InputError(
            f"{shortened(str(home))} cannot be a directory: {error.strerror}",
            where=where,
            next_action='name another one: export HPCFLOW_HOME="$HOME/.hpcflow"',
        ) from None
    if not stat.S_ISDIR(status.st_mode):
        raise InputError(
            f"{home} is not a directory, and hpcflow keeps your runs and settings there",
            where=where,
            next_action='move it away, or name a directory: export HPCFLOW_HOME="$HOME/.hpcflow"',
        )
    if status.st_uid != os.geteuid():
        raise InputError(
            f"{home} belongs to another user, who could change what your jobs run",
            where=where,
            next_action='name your own directory: export HPCFLOW_HOME="$HOME/.hpcflow"',
        )
    if status.st_mode & 0o022:
        raise InputError(
            f"other users can write to {home}, and so change what your jobs run",
            where=where,
            next_action=f"close it: chmod go-w {shell_word(home)}",
        )


def _require_safe_path(path: Path) -> None:
    """Refuse a home that other users could replace, and a config.yaml that they can write."""
    try:
        weak = weak_point(path)
    except OSError:
        return  # reported when the home is used
    if weak is None:
        return
    away = 'name your own directory: export HPCFLOW_HOME="$HOME/.hpcflow"'
    raise InputError(
        f"{weak}, on the path to {path}, and so could change what your jobs run",
        where=Where(key="HPCFLOW_HOME"),
        next_action=weak.remedy if weak.is_own else away,
    )


def _require_unreadable(config: Path) -> None:
    """Refuse a password in a file that other users can read, as libpq does."""
    is_closed = not config.is_symlink() and not config.parent.stat().st_mode & 0o011
    if not is_closed and config.stat().st_mode & 0o044:
        raise InputError(
            "other users can read this file, and it has the password of the ledger",
            where=Where(file=str(config)),
            next_action=f"chmod 600 {shell_word(config)}, and change the password",
        )


def _require_private_ledger(path: Path) -> None:
    """Refuse an SQLite file in a folder where other users can create files.

    SQLite trusts a journal beside it: it copies the journal's content into the file, and deletes a
    file that the journal names.
    """
    try:
        weak = weak_point(path)
        folder = (Path(os.path.realpath(path)) if path.is_symlink() else path).parent
        is_open = weak is None and folder.is_dir() and folder.stat().st_mode & 0o022
    except OSError:
        return  # reported when the ledger is used
    # A sticky folder keeps others from replacing a file, but not from adding one.
    if weak is None and not (is_open and folder.stat().st_mode & stat.S_ISVTX):
        return
    raise InputError(
        f"{weak or f'other users can write to {folder}'}, and SQLite would read what they put "
        "beside the ledger",
        where=Where(key="ledger"),
        next_action=weak.remedy
        if weak is not None and weak.is_own
        else "name a file in your own directory, or a Postgres database",
    )


def _account_home() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_dir
    except KeyError:
        raise InputError(
            "this user has no home directory",
            where=Where(key="HOME"),
            next_action="export HPCFLOW_HOME=/a/private/folder",
        ) from None


def _user(environ: Mapping[str, str]) -> str:
    """Return the name that runs and leases are stored under; it must not change between calls.

    While the name service is down, use the environment, where login, cron or systemd put the name.
    If that has none either, as in some containers, use the uid.
    """
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        name = environ.get("LOGNAME") or environ.get("USER") or ""
        return name if _NAME.fullmatch(name) else str(os.getuid())


def _read_choices(path: Path) -> Document | None:
    """Return the user's config.yaml; None if there is none."""
    if not path.exists():
        return None
    from hpcflow.documents import read_document

    document = read_document(path, InputError)
    for key, value in document.data.items():
        if key not in KEYS:
            raise InputError(
                f"unknown key {key!r}",
                where=document.where((key,)),
                next_action=f"the keys of {path} are `site` and `ledger`",
            )
        if not isinstance(value, str):
            raise InputError("not text", where=document.where((key,)), next_action=f"edit {path}")
    return document
