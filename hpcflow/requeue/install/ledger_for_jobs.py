"""Whether a daemon that is a job may open the ledger on its compute node.

Trainings never open it there. A daemon that is a job has to, and is the one exception: it is one
process, and Postgres serves it wherever it is. SQLite does not: on a file system that several
machines share, its locks are not to be trusted.
"""

from __future__ import annotations

from hpcflow.errors import InputError, Where
from hpcflow.filesystem import is_shared
from hpcflow.ledger.url import parse_url
from hpcflow.resources import doc_page
from hpcflow.settings import Settings


def require_ledger_for_jobs(settings: Settings) -> None:
    """Refuse a ledger that a job must not open, or would not find.

    SQLite is left where everything lies on one machine's own disk, so the jobs run there, too.

    Raises:
        InputError: says where the ledger lies, and what to do.
    """
    url = parse_url(settings.ledger_url)
    if not url.is_own:
        return
    action = (
        "let the daemon live on a login node: hpcflow daemon install --cron, or --systemd; or put "
        f"the ledger into Postgres: {doc_page('ledger')}"
    )
    where = Where(key="ledger")
    if is_shared(url.path):
        raise InputError(
            f"the ledger is {url.path}, a SQLite file on a file system of several machines, and "
            "must not be opened on a compute node",
            where=where,
            next_action=action,
        )
    if is_shared(settings.home.path):
        raise InputError(
            f"the ledger is {url.path}, a SQLite file on a disk of this machine alone, which no "
            "compute node sees",
            where=where,
            next_action=action,
        )
