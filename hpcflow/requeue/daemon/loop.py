"""Run :func:`~hpcflow.requeue.tick.tick` in a loop, in one process at a time, until told to exit.

A process needs two leases: one in HPCFLOW_HOME, which daemons with other ledgers see too, and one
in the ledger. If a lease is taken, it waits, so a second daemon is a spare. If the database does
not answer, the tick is repeated.
"""

from __future__ import annotations

import logging
import os
import secrets
import socket
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Final

from hpcflow.clock import Clock
from hpcflow.errors import HpcflowError, LedgerError, StorageError, next_step
from hpcflow.ledger.lease import Lease, acquire, holds, look, release, renew
from hpcflow.requeue.daemon.home_lease import HomeLease
from hpcflow.requeue.daemon.home_lease import look as look_at_home
from hpcflow.requeue.round_context import RoundContext
from hpcflow.requeue.tick import Report, tick
from hpcflow.settings import Settings
from hpcflow.sites.slurm_conf import configured_name
from hpcflow.storage.files import read_from
from hpcflow.storage.layout import RunDir
from hpcflow.storage.own_runs import OwnRuns

if TYPE_CHECKING:
    from hpcflow.requeue.mirroring import Mirroring

#: A lease that was not renewed for this long is free. Longer than any one action of a tick: sbatch
#: may take three minutes, and the lease is checked before each action.
TTL_S: Final = 300.0
#: Between two ticks. Slurm's manual pages ask for "some seconds".
INTERVAL_S: Final = 10.0
#: The shortest time between two ticks, if a job reports that it is about to exit.
SOON_S: Final = 2.0
_LISTEN_S: Final = 0.5
_PIECE_S: Final = 0.2
#: After so many unexpected failures in a row the process exits, so that a new one is started. The
#: pause doubles after each, five minutes in all, because in tmux nothing starts a new one.
_MOST_FAILED: Final = 6
#: How many jobs are watched. With more, one ends at any moment, and the reads would load scratch.
MOST: Final = 200
#: How long an announced exit is expected. The notice of a time limit comes minutes before the exit,
#: which the job then announces again.
_NEAR_S: Final = 30.0
_TAIL_BYTES: Final = 4096
#: With the key, because a metric may have such a name.
_WORDS: Final = (b'"event": "notice"', b'"event": "exited"')
_log = logging.getLogger(__name__)


def lease_name(settings: Settings) -> str:
    """Return the lease's name: there is one for each user, cluster and HPCFLOW_HOME.

    A daemon supervises the runs of one of each. Clusters may share a home directory, and a user may
    have several HPCFLOW_HOMEs.
    """
    cluster = configured_name(settings.environ)
    return f"requeue/{settings.user}" + (f"@{cluster}" if cluster else "") + settings.mark


class ExitRequest:
    """A request that the daemon exits, and sleeps that end soon after it.

    Attributes:
        wakes: called during a sleep; True ends it early.
    """

    def __init__(self, clock: Clock) -> None:
        self.is_over = False
        self.wakes: Callable[[], bool] = lambda: False
        self._clock = clock

    def sleep(self, seconds: float) -> None:
        """Return after ``seconds``, or soon after ``is_over`` or ``wakes()`` is true."""
        begin = self._clock.monotonic()
        ask_at = begin + SOON_S
        while not self.is_over and (left := begin + seconds - self._clock.monotonic()) > 0:
            if self._clock.monotonic() >= ask_at:
                if self.wakes():
                    return
                ask_at += _LISTEN_S
            self._clock.sleep(min(left, _PIECE_S))


class ExpectedExits:
    """Watch the events of running jobs between two rounds, without asking Slurm.

    A job that is told to save and exit reports both the notice and its exit code. So the daemon
    need not wait for its next round to submit the next attempt.
    """

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._heard_bytes: dict[Path, int] = {}
        self._announced_at: dict[Path, float] = {}

    def listen_to(self, running: Iterable[tuple[str, int]]) -> None:
        """Watch these attempts from now on; none if they are more than :data:`MOST`.

        Args:
            running: run directory and attempt number of each running attempt.
        """
        files = {RunDir(Path(path)).attempt(number).events for path, number in running}
        if len(files) > MOST:
            files = set()
        self._heard_bytes = {path: self._heard_bytes.get(path, -1) for path in files}
        self._announced_at = {
            path: at for path, at in self._announced_at.items() if path in self._heard_bytes
        }

    def is_near(self) -> bool:
        """Return whether a job has announced its exit within the last 30 s."""
        now = self._clock.monotonic()
        for path in self._heard_bytes:
            if self._announces(path):
                self._announced_at[path] = now
        return any(now - at < _NEAR_S for at in self._announced_at.values())

    def _announces(self, path: Path) -> bool:
        with suppress(OSError, StorageError):
            size = path.stat().st_size
            heard, self._heard_bytes[path] = self._heard_bytes[path], size
            if size <= heard:
                return False
            # The tail is enough.
            begin = max(0, heard - len(_WORDS[0]), size - _TAIL_BYTES)
            text = read_from(path, begin, _TAIL_BYTES)
            return any(word in text for word in _WORDS)
        return False


class Daemon:
    """One process that supervises runs.

    Args:
        context: the context of each tick; its ``may_act`` is replaced.
        exit_request: ends the loop; the current tick ends before its next action.
        on_report: receives the report of each tick.
        on_text: receives all other messages.
        mirroring: tended after each round while this daemon has the lease; None for single rounds.
        also: called after each round, when the ledger is up to date: the sweeps.
    """

    def __init__(
        self,
        context: RoundContext,
        exit_request: ExitRequest,
        *,
        on_report: Callable[[Report], None],
        on_text: Callable[[str], None],
        interval_s: float = INTERVAL_S,
        mirroring: Mirroring | None = None,
        also: Callable[[], None] = lambda: None,
    ) -> None:
        self._also = also
        self._context = replace(context, may_act=self._may_act)
        self._exit_request = exit_request
        self._on_report, self._on_text = on_report, on_text
        self._interval_s = interval_s
        self._mirroring = mirroring
        self._is_spare = False
        self._departures = ExpectedExits(context.clock)
        exit_request.wakes = self._departures.is_near
        self._name = lease_name(context.settings)
        self._holder = f"{socket.gethostname()}:{os.getpid()}:{secrets.token_hex(8)}"
        self._lease: Lease | None = None
        self._home_lease = HomeLease(
            context.settings, context.clock, self._holder, socket.gethostname(), os.getpid(), TTL_S
        )
        self._last_text = ""

    def once(self) -> Report | None:
        """Run one tick; return None, silently, if another process has a lease."""
        if not self._take():
            return None
        try:
            report = tick(self._context)
            self._do_also(report)
            return report
        finally:
            self._give_back()

    def run(self) -> None:
        """Run ticks until told to exit.

        Raises:
            HpcflowError: :data:`_MOST_FAILED` rounds in a row failed unexpectedly.
        """
        failed = 0
        try:
            while not self._exit_request.is_over:
                pause_s = self._interval_s
                try:
                    self._round()
                    self._tend_mirror()
                    failed = 0
                except Exception as error:  # a bug must not end supervision at once
                    _log.debug("round", exc_info=True)
                    failed += 1
                    if failed == _MOST_FAILED:
                        raise _unexpected(error) from error
                    self._say(f"{type(error).__name__}: {error}; trying again")
                    self._give_back()  # another process may not have this error
                    self._departures.listen_to([])  # so that nothing ends the pause early
                    pause_s = max(pause_s, INTERVAL_S * 2 ** (failed - 1))
                self._exit_request.sleep(pause_s)
        finally:
            if self._mirroring is not None:
                self._mirroring.close()
            self._give_back()

    def _round(self) -> None:
        try:
            self._is_spare = not self._take()
            if self._is_spare:
                self._log_owner()
                return
            report = tick(self._context)
        except LedgerError as error:
            self._lease = None
            self._give_back()  # another process may reach its ledger
            again = "; trying again" if error.retryable else ""
            self._say(f"{error.message}{again}{next_step(error)}")
            return
        except HpcflowError as error:
            self._say(f"{error.message}; trying again{next_step(error)}")
            return
        except OSError as error:  # such as an unmounted home
            self._say(f"{error}; trying again")
            return
        self._last_text = ""
        if report.has_lost_lease and not self._exit_request.is_over:
            self._is_spare = True
            self._give_back()
            self._say("another process has taken over")
        self._on_report(report)
        self._do_also(report)
        with suppress(LedgerError):  # the next round reports it
            self._departures.listen_to(self._at_work())

    def _do_also(self, report: Report) -> None:
        """Call ``also``; its error delays no run."""
        if report.has_lost_lease or self._exit_request.is_over:
            return
        try:
            self._also()
        except HpcflowError as error:
            self._say(f"{error.message}; trying again{next_step(error)}")

    def _tend_mirror(self) -> None:
        """Tend the mirror, even while the ledger is down: the mirror does not need it."""
        if self._mirroring is not None and not self._is_spare and not self._exit_request.is_over:
            self._mirroring.tend()

    def _at_work(self) -> list[tuple[str, int]]:
        """Return run directory and attempt number of the running attempts of this home."""
        settings, own = self._context.settings, OwnRuns(self._context.settings.home)
        found = self._context.ledger.at_work(user=settings.user, limit=MOST + 1)
        return [each for each in found if own.has(Path(each[0]).name, each[0])]

    def _take(self) -> bool:
        """Take or renew both leases for :data:`TTL_S`; return whether this process has them."""
        if not self._home_lease.take():
            return False
        try:
            is_taken = self._take_of_ledger()
        except LedgerError:
            self._home_lease.give_back()
            raise
        if not is_taken:
            self._home_lease.give_back()
        return is_taken

    def _take_of_ledger(self) -> bool:
        ledger, now = self._context.ledger, self._context.clock.now()
        if self._lease is not None and renew(ledger, self._lease, ttl_s=TTL_S, now=now):
            return True
        self._lease = acquire(
            ledger,
            self._name,
            holder=self._holder,
            host=socket.gethostname(),
            pid=os.getpid(),
            ttl_s=TTL_S,
            now=now,
        )
        return self._lease is not None

    def _log_owner(self) -> None:
        now, other = self._context.clock.now(), look_at_home(self._context.settings)
        if other is None or not other.is_alive(now):
            other = look(self._context.ledger, self._name)
        if other is not None:
            self._say(f"process {other.pid} on {other.host} is the active daemon; waiting")

    def _may_act(self) -> bool:
        return (
            not self._exit_request.is_over
            and self._home_lease.holds()
            and self._lease is not None
            and holds(self._context.ledger, self._lease)
        )

    def _give_back(self) -> None:
        lease, self._lease = self._lease, None
        try:
            if lease is not None:
                release(self._context.ledger, lease, now=self._context.clock.now())
        except LedgerError as error:
            self._say(f"{error.message}; the lease expires by itself")
        try:
            self._home_lease.give_back()
        except HpcflowError as error:
            self._say(f"{error.message}; the lease expires by itself")

    def _say(self, text: str) -> None:
        if text != self._last_text:
            self._last_text = text
            self._on_text(text)


def _unexpected(error: Exception) -> HpcflowError:
    return HpcflowError(
        f"the last {_MOST_FAILED} rounds failed: {type(error).__name__}: {error}",
        next_action="start it again; if that does not help, report it with the output of: "
        "HPCFLOW_DEBUG=1 hpcflow daemon --once",
    )
