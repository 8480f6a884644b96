"""Explain why a study could not be published, and what to type. Never shows a password."""

from __future__ import annotations

from typing import Final

from hpcflow.errors import LedgerError, shell_word
from hpcflow.ledger.url import DatabaseUrl, redact
from hpcflow.resources import install_extra
from hpcflow.settings import Settings
from hpcflow.sweeps.published.place import database_of, schema_of, shown_study_url

_REFUSED: Final = "42501"
_HELD: Final = ("locked", "lock timeout", "statement timeout")
_DAMAGED: Final = ("malformed", "not a database", "no such", "unsupported file format", "corrupt")
_UNREACHABLE: Final = ("readonly", "unable to open")


def warning_for(settings: Settings, error: Exception) -> str:
    """Return what went wrong, and what to do about it."""
    database = database_of(settings)
    text, hint = _words(settings, database, _innermost(error))
    place = str(database)
    return f"the study in {place} is not up to date: {text} → {hint}"


def _innermost(error: BaseException) -> BaseException:
    """Return the driver's error, which SQLAlchemy and Optuna have wrapped."""
    while True:
        below = getattr(error, "orig", None) or error.__cause__
        if not isinstance(below, BaseException):
            return error
        error = below


def _words(settings: Settings, database: DatabaseUrl, error: BaseException) -> tuple[str, str]:
    if isinstance(error, LedgerError):  # hpcflow's own, without a password
        return error.message, error.next_action or ""
    said = str(error).strip().split("\n")[0]
    if "no longer compatible" in said:
        return _version(settings, said)
    if database.kind == "sqlite":
        return _of_file(database, error, said)
    if getattr(error, "sqlstate", None) == _REFUSED:
        return said, f"let a DBA type: {_grants(settings, database)}"
    if any(word in said for word in _HELD):
        return said, "another session holds a lock; the next round tries again"
    if isinstance(error, ImportError):
        return said, "install the driver: " + install_extra("postgres")
    name = type(error).__name__
    safe = _without_password(database, said) or name
    return safe, "is the server up? Nothing is lost; the next round tries again"


def _version(settings: Settings, said: str) -> tuple[str, str]:
    if "storage upgrade" in said:
        url = shell_word(shown_study_url(settings))
        return "an older Optuna made its tables", f"optuna storage upgrade --storage {url}"
    return "a newer Optuna made its tables", "pip install --upgrade optuna"


def _of_file(database: DatabaseUrl, error: BaseException, said: str) -> tuple[str, str]:
    path, folder = shell_word(database.path), shell_word(database.path.parent)
    if any(word in said for word in _HELD):
        return said, f"see who has it open: fuser -v {path}; the next round tries again"
    if any(word in said for word in _DAMAGED):
        return said, f"rm {path}; the next round rebuilds it from the journals"
    if "full" in said or "No space" in said or "quota" in said:
        return said, f"make room: df -h {folder}"
    if isinstance(error, OSError) or any(word in said for word in _UNREACHABLE):
        return said, f"see who owns it: ls -la {folder}"
    text = f"{type(error).__name__}: {said}"
    return text, f"if it persists: rm {path}; the next round rebuilds it from the journals"


def _grants(settings: Settings, database: DatabaseUrl) -> str:
    """Return the command that creates the schema of this user's studies, if it is missing."""
    login, at, _ = redact(database.dsn).removeprefix("postgresql://").rpartition("@")
    role = '"' + (login if at else settings.user).replace('"', '""') + '"'
    name = database.dsn.partition("?")[0].rpartition("/")[2]
    schema = schema_of(settings)
    sql = f"CREATE SCHEMA IF NOT EXISTS {schema}; ALTER SCHEMA {schema} OWNER TO {role}"
    return f"psql {shell_word(name)} -c {shell_word(sql)}"


def _without_password(database: DatabaseUrl, said: str) -> str:
    """Return ``said``; empty if it contains a secret part of the URL."""
    hidden = set(database.dsn.replace("?", "&").split("&")[1:])
    login = database.dsn.partition("://")[2].rpartition("@")[0]
    hidden.add(login.partition(":")[2])
    return "" if any(each and each in said for each in hidden) else said
