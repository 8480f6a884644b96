"""``hpcflow cancel``."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, TypedDict

import click

from hpcflow.cli.arguments import json_option, runs_argument
from hpcflow.cli.output import ErrorJson, error_json, exit_code_of, print_error, print_json
from hpcflow.cli.session import Session
from hpcflow.errors import HpcflowError
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.storage.layout import RunDir


@dataclass
class _Cancelled:
    """The result for one run; ``run_id`` is the typed text if there is no such run."""

    run_id: str
    run_dir: RunDir | None = None
    job_id: str | None = None
    error: HpcflowError | None = None


class CancelledRun(TypedDict):
    """The result for one run; `job_id` is the job that is being cancelled."""

    run_id: str
    job_id: str | None
    error: ErrorJson | None


class CancelledRuns(TypedDict):
    """The result for each run."""

    runs: list[CancelledRun]


@click.command("cancel", short_help="Cancel runs. Their checkpoints stay.")
@runs_argument
@json_option(CancelledRuns)
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """Cancel each RUN. Its checkpoints stay; `hpcflow resume` continues it.

    An error with one run does not affect the others.
    """
    session = Session()
    # All requests first: they stay recorded if the scheduler does not answer.
    found = {each.run_id: each for each in [_request(session, text) for text in runs]}
    for each in found.values():
        _end(session, each)
        if not as_json:
            _print_result(each)
    if as_json:
        print_json(CancelledRuns(runs=[_as_json(each) for each in found.values()]))
    for each in found.values():
        if each.run_dir is not None:
            session.catch_up(each.run_dir)
    return exit_code_of(each.error.exit_code if each.error else 0 for each in found.values())


def _request(session: Session, text: str) -> _Cancelled:
    from hpcflow.launch.cancel import request_cancel

    each = _Cancelled(text)
    try:
        each.run_dir = session.run_dir(text)
        each.run_id = each.run_dir.path.name
        request_cancel(each.run_dir, settings=session.settings, clock=session.clock)
    except HpcflowError as error:
        each.error = error
    return each


def _end(session: Session, each: _Cancelled) -> None:
    """End the jobs of the run, even if the request could not be written."""
    from hpcflow.launch.cancel import end_jobs

    if each.run_dir is None:
        return
    try:
        scheduler = session.scheduler(session.site_of(each.run_dir))
        cluster = session.cluster_of(each.run_dir)
        each.job_id = end_jobs(
            each.run_dir, scheduler=scheduler, clock=session.clock, cluster=cluster
        )
    except HpcflowError as error:
        job_id = error.details.get("job_id")
        each.job_id = str(job_id) if job_id is not None else None
        each.error = each.error or error


def _print_result(each: _Cancelled) -> None:
    if each.error is not None:
        if each.run_dir is not None:
            echo(f"{each.run_id}: ", nl=False, err=True)
        print_error(each.error)
        if each.job_id is not None:
            echo(f"{each.run_id}: job {each.job_id} is being cancelled anyway")
    else:
        job = f"job {each.job_id} is being cancelled" if each.job_id else "no job was active"
        echo(f"{each.run_id}: {job}")


def _as_json(each: _Cancelled) -> CancelledRun:
    error = None if each.error is None else error_json(each.error)
    return {"run_id": each.run_id, "job_id": each.job_id, "error": error}
