"""The context of a command: the user, the home, the ledger, the sites and schedulers."""

from __future__ import annotations

import atexit
import logging
from collections.abc import Collection, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING

from hpcflow.clock import Clock, SystemClock
from hpcflow.errors import (
    HpcflowError,
    InputError,
    LedgerError,
    SiteError,
    StorageError,
    Where,
    in_one_line,
)
from hpcflow.ledger.url import parse_url
from hpcflow.ownership import temporary_folder
from hpcflow.settings import Settings, load_settings
from hpcflow.storage.own_runs import require_own
from hpcflow.storage.runs import find_run, is_gone
from hpcflow.terminal import echo, echo_message

if TYPE_CHECKING:
    from hpcflow.launch.plan import Plan
    from hpcflow.ledger.store import Ledger
    from hpcflow.model.run import Run
    from hpcflow.model.views import RunDetail, RunView
    from hpcflow.placement.choosing import Chooser
    from hpcflow.reconcile.context import RefreshContext
    from hpcflow.requeue.round_context import RoundContext
    from hpcflow.schedulers.base import Scheduler
    from hpcflow.sites.schema import Site
    from hpcflow.storage.layout import RunDir

_log = logging.getLogger(__name__)


def warn(message: str) -> None:
    """Print a warning on stderr, apart from the output that scripts read."""
    from hpcflow.model.secret import redact

    echo("warning: ", fg="yellow", nl=False, err=True)
    echo_message(redact(message), err=True)


@contextmanager
def only_warned() -> Iterator[None]:
    """Turn every error in a ``with`` block into a warning.

    A job was submitted before: on an exit code other than 0, a script would submit it again.
    """
    try:
        yield
    except Exception as error:
        _log.debug("after a job was sent", exc_info=True)
        warn(in_one_line(error))


@dataclass
class Session:
    """One call of a command. It opens resources when they are first needed."""

    settings: Settings = field(default_factory=load_settings)
    clock: Clock = field(default_factory=SystemClock)
    _schedulers: dict[str, Scheduler] = field(default_factory=dict)
    _warned: set[str] = field(default_factory=set)
    _is_daemon_missed: bool = False

    @cached_property
    def ledger(self) -> Ledger:
        """Return the ledger.

        Raises:
            LedgerError: it does not answer, or has another version's schema.
        """
        from hpcflow.ledger.store import open_ledger

        return open_ledger(self.settings.ledger_url, warn)

    @cached_property
    def own_sites(self) -> frozenset[str]:
        """Return the sites of this user's runs, as the runs name them.

        Raises:
            LedgerError: the database failed.
        """
        return frozenset(self.ledger.sites(filters={}))

    def site(self, name: str | None, *, named_in: Where | None = None) -> Site:
        """Return the site of that name, else the one of this machine."""
        from hpcflow.launch.connecting import resolve_site

        return resolve_site(self.settings, name, named_in=named_in)

    def site_in_report(self, name: str) -> Site:
        """Return the site that a report names.

        In a shared ledger other users can name any file. hpcflow reads only those that the runs of
        this user name, too.

        Raises:
            SiteError: there is no such site, or its file is wrong.
            LedgerError: the database failed.
        """
        from hpcflow.sites.loader import is_site_file

        if is_site_file(name) and name not in self.own_sites:
            raise SiteError(
                f"only runs of other users name the site file {name}, so hpcflow does not read it"
            )
        return self.site(name)

    def plan(self, config: Path, site: str | None, overrides: Sequence[str]) -> Plan:
        """Return what would be submitted for ``config``; print the warnings."""
        from hpcflow.launch.connecting import reference
        from hpcflow.launch.plan import make_plan

        self._require_no_run(config)
        the_site = self.site(site, named_in=Where(key="--site"))
        chooser = self.chooser(the_site, site)
        plan = make_plan(
            config,
            settings=self.settings,
            clock=self.clock,
            site=the_site,
            site_reference=reference(the_site, site or self.settings.site),
            overrides=overrides,
            chooser=chooser,
        )
        for message in (*chooser.warnings, *plan.warnings):
            warn(message)
        return plan

    def _require_no_run(self, config: Path) -> None:
        if config.exists():
            return
        try:
            run_id = find_run(self.settings.home, str(config), newest=True).path.name
        except HpcflowError:
            return  # the reader of the file reports the error
        raise InputError(
            f"{run_id} is a run, and this command needs a config",
            next_action=f"resubmit it: hpcflow resume {run_id}; or see it: hpcflow show {run_id}",
        )

    def chooser(self, site: Site, name: str | None, *, ignored_jobs: Sequence[str] = ()) -> Chooser:
        """Return the chooser for `auto` on ``site``.

        Args:
            name: the name under which the user gave the site.
            ignored_jobs: ids of jobs to treat as gone.
        """
        from hpcflow.launch.connecting import reference
        from hpcflow.placement.choosing import Chooser

        return Chooser(
            site,
            reference(site, name or self.settings.site),
            lambda: self.connect(site),
            settings=self.settings,
            clock=self.clock,
            ignored_jobs=ignored_jobs,
        )

    def scheduler(self, site_name: str) -> Scheduler:
        """Return the scheduler of a site, connected once."""
        if site_name not in self._schedulers:
            self._schedulers[site_name] = self.connect(self.site(site_name))
        return self._schedulers[site_name]

    def connect(self, site: Site) -> Scheduler:
        from hpcflow.launch.connecting import connect_scheduler

        return connect_scheduler(site, self.settings, self.clock)

    def run_dir(self, text: str, *, newest: bool = False) -> RunDir:
        """Return the run directory of a run id, or of an unambiguous beginning of one.

        Args:
            newest: take the newest of several runs with this name; for commands that only read.

        Raises:
            NotFoundError: there is none, or there are several.
            StorageError: it belongs to another user, and the command does more than read.
        """
        run_dir = find_run(self.settings.home, text, newest=newest)
        return run_dir if newest else require_own(run_dir)

    def site_of(self, run_dir: RunDir) -> str:
        """Return the name of the site of a run; after a purge, from the ledger.

        Raises:
            StorageError: it is neither in run.json nor in the ledger.
        """
        from hpcflow.storage.rundir import read_run

        try:
            return read_run(run_dir).site
        except StorageError as error:
            try:
                return self.detail(run_dir.path.name).run.site
            except HpcflowError:
                raise error from None

    def cluster_of(self, run_dir: RunDir) -> str | None:
        """Return the cluster of the last job of a run whose directory is gone; None if unknown."""
        if not is_gone(run_dir):
            return None
        try:
            known = self.ledger.known([run_dir.path.name]).get(run_dir.path.name)
        except HpcflowError:
            return None
        attempts = known.attempts if known is not None else []
        clusters = [row.journal.get("intended", {}).get("cluster") for row in attempts]
        return clusters[-1] if clusters else None

    def known_attempts(self, run_dir: RunDir) -> int:
        """Return the number of attempts of a run in the ledger; 0 while it is down."""
        try:
            return len(self.detail(run_dir.path.name).attempts)
        except HpcflowError:
            return 0

    def refresh_context(self, ledger: Ledger) -> RefreshContext:
        """Return the context of a refresh of ``ledger``."""
        from hpcflow.reconcile.context import RefreshContext

        return RefreshContext(
            ledger, self.settings, self.clock, connect=self.scheduler, find_site=self.site
        )

    def refresh(self) -> None:
        """Bring the ledger up to date; warn about problems, each once."""
        from hpcflow.reconcile.refresh import refresh

        for message in refresh(self.refresh_context(self.ledger)):
            if message not in self._warned:
                self._warned.add(message)
                warn(message)

    def continue_without_ledger(self, error: LedgerError) -> None:
        """Use a temporary ledger of this process from now on: the files have everything."""
        from hpcflow.ledger.store import open_ledger

        warn(_without_ledger(error))
        folder = temporary_folder()
        atexit.register(folder.cleanup)
        self.__dict__["ledger"] = open_ledger(str(Path(folder.name) / "ledger.sqlite"))

    def refresh_run(self, run_dir: RunDir) -> None:
        """Bring the journal of one run up to date, even while the ledger is down."""
        from hpcflow.reconcile.refresh import refresh_without_ledger

        try:
            self.refresh()
        except LedgerError as error:
            warn(_without_ledger(error))
            for message in refresh_without_ledger(run_dir, self.refresh_context):
                warn(message)

    def require_ledger_for_jobs(self) -> None:
        """Refuse a ledger that a compute node must not open: a round of scrontab is a job."""
        if self.settings.environ.get("SLURMD_NODENAME"):
            from hpcflow.requeue.install.ledger_for_jobs import require_ledger_for_jobs

            require_ledger_for_jobs(self.settings)

    def round_context(self, ledger: Ledger | None = None) -> RoundContext:
        """Return the context of rounds; without ``ledger``, with the one of this session."""
        from hpcflow.requeue.round_context import RoundContext

        return RoundContext(
            self.ledger if ledger is None else ledger,
            self.settings,
            self.clock,
            connect=self.scheduler,
            find_site=self.site,
        )

    def to_avoid(self, run: Run) -> list[str]:
        """Return the nodes that the next attempt of ``run`` should exclude; none if unknown.

        This is only advice: a ledger that is down does not prevent a submission, and one that could
        not be opened before is not tried again.
        """
        from hpcflow.requeue.exclusion import to_avoid
        from hpcflow.requeue.nodes import read_evidence

        if "ledger" not in self.__dict__:
            return []
        try:
            evidence = read_evidence(self.ledger, self.settings.home, self.clock.now())
        except (LedgerError, StorageError):
            return []
        return to_avoid(evidence, run, self.site(run.site))

    def warn_of_budgets(self, run: Run, site: Site) -> None:
        """Warn about exceeded soft limits of the budgets that a run counts against."""
        from hpcflow.launch.budgeted import has_budget

        if not has_budget(run, site, self.settings.home):
            return
        from hpcflow.launch.committing import warnings_about

        for text in warnings_about([(run, site)], self.settings.home, self.clock.now()):
            warn(text)

    def unsupervised(self, runs: Iterable[RunView]) -> frozenset[str]:
        """Return the ids of the runs that need a daemon and have none."""
        open_runs = [run for run in runs if not run.state.is_final]
        if not open_runs:  # avoids slow imports
            return frozenset()
        from hpcflow.requeue.daemon.supervision import unsupervised

        return unsupervised(open_runs, self.settings, self.clock.now(), self.site)

    def warn_if_unsupervised(self, run: Run, site: Site) -> None:
        """Warn if a run that was just submitted needs a daemon and has none."""
        from hpcflow.requeue.daemon.supervision import needs_daemon, supervision

        resubmissions = run.spec.retry.preemptions
        if not needs_daemon(site, run.partition, resubmissions, self.settings):
            return
        if not supervision(self.settings, self.clock.now()).has_rounds:
            self.warn_of_missing_daemon([run.run_id])

    def warn_of_missing_daemon(self, runs: Collection[str]) -> None:
        """Warn once that these runs, if any, need a daemon, and what to type."""
        if not runs or self._is_daemon_missed:
            return
        from hpcflow.requeue.daemon.supervision import warning

        self._is_daemon_missed = True
        warn(warning(self.settings))

    def catch_up(self, run_dir: RunDir) -> None:
        """Copy new lines of a run's journal to the ledger.

        The files have everything, so a ledger that is down is a warning, not an error.
        """
        from hpcflow.projection import catch_up

        try:
            catch_up(self.ledger, [run_dir])
        except LedgerError as error:
            warn(_without_ledger(error))

    def catch_up_if_shared(self, run_dir: RunDir) -> None:
        """Catch up a shared ledger. The user's own ledger catches up when it is next read."""
        if not parse_url(self.settings.ledger_url).is_own:
            self.catch_up(run_dir)

    def detail(self, run_id: str) -> RunDetail:
        return self.ledger.run(run_id)


def _without_ledger(error: LedgerError) -> str:
    """Return a warning that the ledger failed: it recovers by itself, or the user must act."""
    if error.retryable:
        return f"{error.message}; the ledger will catch up later"
    return in_one_line(error)
