"""Whether a daemon that is a job may open the ledger on its compute node.

Trainings never open it there; a daemon that is a job has to. Postgres serves it on any host. SQLite
does not: its locks are unreliable on a file system that several machines share.
"""

from __future__ import annotations

from hpcflow.errors import InputError, Where
from hpcflow.filesystem import is_shared
from hpcflow.ledger.url import parse_url
from hpcflow.resources import doc_page
from hpcflow.settings import Settings


def require_ledger_for_jobs(settings: Settings) -> None:
    """Refuse a ledger that a job must not open, or would not find.

    SQLite is allowed if ledger and home are on a local disk: then the jobs run there too.

    Raises:
        InputError: where the ledger is, and what to do.
    """
    url = parse_url(settings.ledger_url)
    if not url.is_own:
        return
    action = (
        "run the daemon on a login node: hpcflow daemon install --cron, or --systemd; or move "
        f"the ledger to Postgres: {doc_page('ledger')}"
    )
    where = Where(key="ledger")
    if is_shared(url.path):
        raise InputError(
            f"the ledger is {url.path}, a SQLite file on a shared file system, and must not be "
            "opened on a compute node",
            where=where,
            next_action=action,
        )
    if is_shared(settings.home.path):
        raise InputError(
            f"the ledger is {url.path}, a SQLite file on this machine's local disk, which no "
            "compute node sees",
            where=where,
            next_action=action,
        )
