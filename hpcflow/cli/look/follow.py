"""Wait for a run, with or without a live view of it."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from hpcflow.cli.look.shown_run import ShownRun, print_failure, shown_run
from hpcflow.cli.output import ChangingLine, metric_text, print_json, state_text, values_of
from hpcflow.cli.session import Session, warn
from hpcflow.errors import LedgerError
from hpcflow.model.next_action import HELD, SETTLE_STANDBY, STOP
from hpcflow.model.state import RunState
from hpcflow.model.units import format_duration
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.runs import is_gone
from hpcflow.terminal import echo, progress, safe, terminal_width

if TYPE_CHECKING:
    from rich.progress import Progress

    from hpcflow.launch.run import Launched
    from hpcflow.model.views import RunDetail, RunView

#: Events are read every second. Slurm is polled at growing intervals, as its manual pages request.
_POLL_S = 1.0
_ASK_FIRST_S = 2.0
_ASK_AT_MOST_S = 30.0
_ASK_GROWTH = 1.25
_BAR_CHARS = 20


@dataclass(frozen=True, kw_only=True)
class FollowedRun(ShownRun):
    """A run after the wait; `attempt` is the submitted one."""

    attempt: int


def wait_for_run(
    session: Session,
    run_id: str,
    *,
    live: bool,
    as_json: bool,
    launched: Launched | None = None,
) -> int:
    """Wait until no attempt is pending or running; return 0 if the run is completed, else 1."""
    run_dir = session.run_dir(run_id)
    try:
        with _view(live=live and not as_json) as show:
            run = _watch(session, run_dir, show)
    except KeyboardInterrupt:
        if as_json and launched:  # the job continues, and the reader needs its id
            print_json(launched)
        raise
    lost = is_gone(run_dir) and run.state is not RunState.COMPLETED
    if lost:
        warn(
            f"{run_dir.path} is gone (a scratch purge?); hpcflow submits no job of the run until "
            "it is restored"
        )
    unsupervised = session.unsupervised([run])
    if as_json:
        shown = shown_run(session.detail(run_id), session.settings.home, unsupervised)
        print_json(FollowedRun(**values_of(shown), attempt=launched.attempt) if launched else shown)
    else:
        _print_end(session.detail(run_id), session.settings.home, can_continue=not lost)
        session.warn_of_missing_daemon(unsupervised)
    return 0 if run.state is RunState.COMPLETED else 1


def _watch(session: Session, run_dir: RunDir, show: Callable[[RunView], None]) -> RunView:
    """Poll until no attempt is pending or running.

    As soon as the files of the last attempt have an exit code, ask Slurm.
    """
    ask_every_s, next_ask = _ASK_FIRST_S, 0.0
    while True:
        is_time = session.clock.monotonic() >= next_ask
        try:
            detail = _look(session, run_dir, ask=is_time)
        except LedgerError as error:
            session.continue_without_ledger(error)
            next_ask = 0.0
            continue
        if is_time:
            next_ask = session.clock.monotonic() + ask_every_s
            ask_every_s = min(ask_every_s * _ASK_GROWTH, _ASK_AT_MOST_S)
        show(detail.run)
        if is_inactive(detail.run) and (is_gone(run_dir) or not _may_continue(session, detail.run)):
            return detail.run
        last = detail.attempts[-1] if detail.attempts else None
        if last is not None and last.exit_code is not None:
            next_ask = min(next_ask, session.clock.monotonic() + _POLL_S)
        session.clock.sleep(_POLL_S)


def _look(session: Session, run_dir: RunDir, *, ask: bool) -> RunDetail:
    """Return the run from its files, and with ``ask`` from Slurm."""
    from hpcflow.projection import catch_up

    if ask:
        session.refresh()
    catch_up(session.ledger, [run_dir])
    return session.detail(run_dir.path.name)


def _may_continue(session: Session, run: RunView) -> bool:
    """Return whether the run may continue: by an active daemon, or a standby that is due."""
    if run.state in (RunState.COMPLETED, RunState.CANCELLED):
        return False
    if run.next_action in (STOP, HELD):
        return False
    if run.next_action == SETTLE_STANDBY:
        return True
    from hpcflow.requeue.daemon.supervision import supervision

    is_ours = run.user == session.settings.user
    return is_ours and supervision(session.settings, session.clock.now()).is_alive


def is_inactive(run: RunView) -> bool:
    """Return whether no attempt of the run is pending or running."""
    return run.state.is_final or run.state in (RunState.WAITING, RunState.CREATED)


def _print_end(detail: RunDetail, home: Home, *, can_continue: bool) -> None:
    run = detail.run
    colour = "green" if run.state is RunState.COMPLETED else "red"
    echo(f"{run.run_id}: {state_text(run)}", fg=colour, nl=False)
    echo(f"  {metric_text(run.metrics)}" if run.metrics else "")
    print_failure(detail, home)
    if run.state is not RunState.COMPLETED and can_continue:
        echo(f"  see its output  hpcflow logs {run.run_id}")
        echo(f"  continue it     hpcflow resume {run.run_id}")


@contextmanager
def _view(*, live: bool) -> Iterator[Callable[[RunView], None]]:
    if not live:
        yield lambda _: None
    elif not sys.stdout.isatty():
        line = ChangingLine()
        yield lambda run: line.show(
            f"{run.state.value}  {_steps(run)}  {metric_text(run.metrics)}".rstrip()
        )
    else:
        from rich.progress import BarColumn, TextColumn

        # Metric names are the program's, and would be read as markup.
        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(_BAR_CHARS),
            TextColumn("{task.fields[info]}", markup=False),
        )
        with progress(*columns) as bar:
            yield _Bar(bar).update


class _Bar:
    """Show a bar with state, train step, metrics and the remaining time, for a terminal."""

    def __init__(self, progress: Progress) -> None:
        self._progress = progress
        self._task = progress.add_task("", total=None, info="")
        self._first: tuple[float, int] | None = None

    def update(self, run: RunView) -> None:
        state, steps = run.state.value, _steps(run)
        room = (terminal_width() or 0) - _BAR_CHARS - 2
        is_wide = len(run.run_id) + len(state) + len(steps) + 2 <= room
        head = f"{run.run_id} {state}" if is_wide else state
        info = steps
        for part in (self._eta(run), safe(metric_text(run.metrics))):
            if part and len(head) + len(info) + len(part) + 2 <= room:
                info += f"  {part}"
        self._progress.update(
            self._task,
            description=head,
            total=run.total_train_steps,
            completed=run.train_step or 0,
            info=info,
        )

    def _eta(self, run: RunView) -> str:
        """Estimate from the pace since the view began: a resumed run did its first steps before."""
        if run.train_step is None or not run.total_train_steps:
            return ""
        now = time.monotonic()
        if self._first is None:
            self._first = (now, run.train_step)
        done = run.train_step - self._first[1]
        left = run.total_train_steps - run.train_step
        if done <= 0 or left <= 0:
            return ""
        return f"ETA {format_duration(left * (now - self._first[0]) / done)}"


def _steps(run: RunView) -> str:
    if run.train_step is None:
        return ""
    total = f"/{run.total_train_steps}" if run.total_train_steps else ""
    return f"train step {run.train_step}{total}"
