"""``hpcflow sweep status --follow``."""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final

from hpcflow.cli.session import Session
from hpcflow.cli.sweeps.status import running_lines, status_lines, view_of
from hpcflow.terminal import echo, live_lines

if TYPE_CHECKING:
    from hpcflow.sweeps.view import SweepView

#: Only files are read; Slurm is not asked.
_POLL_S: Final = 1.0
_AT_REST: Final = ("over", "stopped")


def follow(session: Session, sweep: str, *, live: bool) -> None:
    """Wait until a sweep is over, stopped, or halted without active trials; show it if ``live``."""
    with _screen(live=live) as show:
        while True:
            view = view_of(session, sweep)
            show(session, view)
            if view.state in _AT_REST or (view.state == "halted" and not view.running):
                return
            session.clock.sleep(_POLL_S)


@contextmanager
def _screen(*, live: bool) -> Iterator[Callable[[Session, SweepView], None]]:
    if not live:
        yield lambda _session, _view: None
    elif not sys.stdout.isatty():
        yield _Lines().show
    else:
        with live_lines() as screen:

            def show(session: Session, view: SweepView) -> None:
                running = ((line,) for line in running_lines(view))
                screen.show([*status_lines(view, session.clock.now()), *running])

            yield show


class _Lines:
    """Print a line whenever something has changed, for a log file."""

    def __init__(self) -> None:
        self._last = ""

    def show(self, _session: Session, view: SweepView) -> None:
        ended = view.complete + view.pruned + view.failed
        of = f"/{view.max_trials}" if view.max_trials is not None else ""
        best = "".join(f"  best {name} {value:.5g}" for name, value in _best_values(view).items())
        line = f"{view.state}  {ended}{of} ended, {view.running} under way{best}"
        if line != self._last:
            echo(line)
            self._last = line


def _best_values(view: SweepView) -> dict[str, float]:
    return dict(view.best[0].values) if len(view.best) == 1 else {}
