"""The error of a run's last attempt, from its log, for every command that shows it."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final

from hpcflow.cli.next_words import next_words
from hpcflow.errors import shell_word
from hpcflow.model.next_action import STOP
from hpcflow.model.state import AttemptState, Cause
from hpcflow.storage.layout import Home
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.model.run import Run
    from hpcflow.model.views import RunDetail
    from hpcflow.storage.failure import Failure

_FAILED: Final = (Cause.FAILED, Cause.OUT_OF_MEMORY)


def failure_of(detail: RunDetail, home: Home) -> Failure | None:
    """Return what the log of the last attempt says, if that attempt failed.

    People paste it into messages, so secrets are redacted. ``hpcflow logs`` has every byte.
    """
    jobs = [each for each in detail.attempts if each.state is not AttemptState.WITHDRAWN]
    if not jobs or jobs[-1].cause not in _FAILED:
        return None
    from hpcflow.cli.shown_run import frozen_run
    from hpcflow.model.secret import redact
    from hpcflow.storage.failure import read_failure

    failure = read_failure(home.run_dir(detail.run.run_dir), jobs[-1].attempt)
    if failure is None:
        return None
    error = failure.error and redact(failure.error)
    at = failure.at and _in_own_folder(failure.at, frozen_run(detail, home))
    return replace(failure, error=error, at=at, lines=tuple(map(redact, failure.lines)))


def _in_own_folder(place: str, run: Run | None) -> str:
    """Return a place in the code snapshot as one in the folder that it was copied from."""
    if run is None or run.code is None or not place.startswith(f"{run.in_code()}/"):
        return place
    return run.code.root + place.removeprefix(run.in_code())


def print_failure(detail: RunDetail, home: Home) -> None:
    """Print the error of the last attempt and the last lines of its log, if it failed."""
    from hpcflow.cli.shown_run import frozen_run

    failure = failure_of(detail, home)
    if failure is None:
        return
    if failure.error is not None:
        rank = "" if failure.rank is None else f"rank {failure.rank}: "
        echo(f"  {'error':<14} {rank}{failure.error}", fg="red")
    if failure.at is not None:
        echo(f"  {'raised at':<14} {failure.at}")
    if failure.lines:
        echo(f"  {'last lines':<14} of {shell_word(failure.log)}")
        for line in failure.lines:
            echo(f"    {line}", dim=True)
    frozen = frozen_run(detail, home)
    if failure.error is not None and frozen is not None and frozen.code is not None:
        echo(f"  {'corrected?':<14} hpcflow resume {detail.run.run_id} --set code=snapshot")


def next_text(detail: RunDetail) -> str:
    """Return the next action of a run; if the run was stopped, with the reason."""
    run = detail.run
    why = f": {run.next_why}" if run.next_action == STOP and run.next_why else ""
    return next_words(run) + why
