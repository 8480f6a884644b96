"""Settle bills: replace the budgets' commitments for an attempt by its bill.

A bill is journaled even if its budgets cannot be written. Then the run is marked first in
``HPCFLOW_HOME/unsettled/``, and the next look settles it.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from contextlib import suppress
from functools import cached_property, partial

from hpcflow.budgets.commitments import settle
from hpcflow.budgets.folder import BudgetFolder, budgets_of
from hpcflow.errors import HpcflowError, StorageError
from hpcflow.launch.committing import settlement_of
from hpcflow.model.ids import is_run_id
from hpcflow.model.journal import Accounted
from hpcflow.sites.schema import Site
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.files import FOLDER_MODE
from hpcflow.storage.journal import Journal
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import is_path_untrusted, linked


class Settling:
    """Settle the bills of one look at one site.

    After an error of the budgets, the other bills are only marked, so that none waits for it.
    """

    def __init__(self, find_site: Callable[[], Site], home: Home, warnings: list[str]) -> None:
        """``warnings`` receives what could not be settled now."""
        self._find_site, self._home, self._warnings = find_site, home, warnings
        self._is_silent = False

    @cached_property
    def _folder(self) -> BudgetFolder:
        return budgets_of(self._find_site(), self._home)

    def settle(self, run_dir: RunDir, record: Accounted, *, is_own: bool) -> None:
        """Settle a bill in every budget that counts it, or mark the run for a later look.

        An estimate is not settled here if its times may be from a store: then
        :mod:`hpcflow.reconcile.budgets` settles what was committed.

        Args:
            is_own: whether the id of the attempt's job is from Slurm's answer to this user.
        """
        is_own = is_own or record.source == "accounting"
        if is_own and not self._is_settled(run_dir, record):
            _mark(self._home, run_dir)

    def _is_settled(self, run_dir: RunDir, record: Accounted) -> bool:
        if self._is_silent:
            return False
        try:
            if self._folder.is_there():
                settle(self._folder, settlement_of(record, read_run(run_dir)))
            elif self._folder.site is not None:
                return False  # it is not mounted now
        except StorageError as error:
            self._is_silent = True
            self._warnings.append(f"budgets: {error.message}")
            return False
        return True

    def settle_again(self, run_dir: RunDir) -> bool:
        """Settle all own bills in the journal of a run; return whether they are settled now."""
        own_bills = Journal(run_dir).history.own_bills
        return all(self._is_settled(run_dir, each) for each in own_bills)


def settle_marked(home: Home, find_site: Callable[[str], Site]) -> list[str]:
    """Settle what an earlier look could not; return warnings."""
    try:
        marked = [name for name in os.listdir(home.unsettled) if is_run_id(name)]  # noqa: PTH208 - names
    except OSError:
        return []
    warnings: list[str] = []
    by_site: dict[str, Settling] = {}
    for run_id in sorted(marked):
        if is_path_untrusted(home, run_id):
            continue
        run_dirs = linked(home, [run_id])
        with suppress(HpcflowError, OSError):  # a missing site file or scratch: reported elsewhere
            if run_dirs:
                name = read_run(run_dirs[0]).site
                if name not in by_site:
                    by_site[name] = Settling(partial(find_site, name), home, warnings)
                if not by_site[name].settle_again(run_dirs[0]):
                    continue
            (home.unsettled / run_id).unlink(missing_ok=True)
    return warnings


def _mark(home: Home, run_dir: RunDir) -> None:
    mark = home.unsettled / run_dir.path.name
    with storage_errors("write", mark):
        home.unsettled.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
        mark.touch(mode=0o600)
