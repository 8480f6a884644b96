"""The URL of the database of all studies, beside the ledger, for Optuna and its dashboard.

For a ledger in a file that is ``studies.sqlite`` in the same folder; in Postgres each user has a
schema in the same database, because Optuna's tables do not record who wrote a row. Imports neither
Optuna nor a database driver.
"""

from __future__ import annotations

import re
from typing import Final
from urllib.parse import parse_qsl, quote, urlencode

from hpcflow.ledger.url import DatabaseUrl, parse_url, redact
from hpcflow.settings import Settings

FILE: Final = "studies.sqlite"
#: Query parameters of a URL that may be shown; any other may hold a password.
_HARMLESS: Final = ("host", "port", "sslmode")


def schema_of(settings: Settings) -> str:
    """Return the schema of the user's studies in Postgres, as an SQL identifier."""
    name = f"hpcflow_studies_{settings.user}"
    return name if re.fullmatch("[a-z0-9_]+", name) else '"{}"'.format(name.replace('"', '""'))


def study_url(settings: Settings) -> str:
    """Return the URL for ``optuna.load_study(storage=…)``. It may hold a password: never print."""
    return _url(database_of(settings), schema_of(settings), is_shown=False)


def shown_study_url(settings: Settings) -> str:
    """Return the URL without its password, which belongs in ``~/.pgpass`` or ``PGPASSWORD``."""
    return _url(database_of(settings), schema_of(settings), is_shown=True)


def database_of(settings: Settings) -> DatabaseUrl:
    """Return the database of the studies; a SQLite file need not exist."""
    ledger = parse_url(settings.ledger_url)
    if ledger.kind == "sqlite":
        return DatabaseUrl("sqlite", ledger.path.with_name(FILE))
    return ledger


def url_of_file(path: str) -> str:
    """Return the URL of a SQLite database for Optuna, with special characters escaped.

    Optuna substitutes text in single braces. SQLAlchemy ends a path at ``?``, and from 2.1 on reads
    ``%`` as an escape.
    """
    text = path.replace("%", "%25").replace("?", "%3F")
    return f"sqlite:///{text}".replace("{", "{{").replace("}", "}}")


def _url(database: DatabaseUrl, schema: str, *, is_shown: bool) -> str:
    if database.kind == "sqlite":
        return url_of_file(str(database.path))
    place, _, query = database.sqlalchemy.partition("?")
    said = parse_qsl(query, keep_blank_values=True)
    theirs = [value for name, value in said if name == "options"]
    rest = [(name, value) for name, value in said if name != "options"]
    if is_shown:
        place, theirs = redact(place), []
        rest = [(name, value) for name, value in rest if name in _HARMLESS]
    options = " ".join([*theirs, f"-csearch_path={schema}"])
    url = f"{place}?{urlencode([*rest, ('options', options)], quote_via=quote)}"
    return url.replace("{", "%7B").replace("}", "%7D")
