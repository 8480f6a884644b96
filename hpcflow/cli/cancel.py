"""``hpcflow cancel``."""

from __future__ import annotations

import click

from hpcflow.cli.arguments import json_option, runs_argument
from hpcflow.cli.output import print_json
from hpcflow.cli.session import Session


@click.command("cancel", short_help="Stop runs for good.")
@runs_argument
@json_option
def command(runs: tuple[str, ...], as_json: bool) -> int:
    """Stop each RUN for good. Its checkpoints stay; `hpcflow resume` can bring it back."""
    from hpcflow.launch.run import cancel

    session = Session()
    cancelled = []
    for run_dir in [session.run_dir(text) for text in runs]:
        run_id = run_dir.path.name
        job_id = cancel(
            run_dir,
            settings=session.settings,
            scheduler=session.scheduler(session.site_of(run_dir)),
            clock=session.clock,
        )
        cancelled.append((run_dir, {"run_id": run_id, "job_id": job_id}))
        if not as_json:
            job = f"job {job_id} is being ended" if job_id else "no job of it was alive"
            click.echo(f"{run_id}: {job}")
    if as_json:
        print_json([said for _, said in cancelled])
    for run_dir, _ in cancelled:
        session.catch_up(run_dir)
    return 0
