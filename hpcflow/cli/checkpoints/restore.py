"""``hpcflow restore``."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, TypedDict

import click

from hpcflow.cli.arguments import (
    complete_run,
    endpoint_option,
    json_option,
    plain_text,
    set_option,
    site_option,
)
from hpcflow.cli.output import picked, print_json, progress_bar, value_text
from hpcflow.cli.session import Session, warn
from hpcflow.errors import InputError, NotFoundError, StorageError, Where, shell_word
from hpcflow.model.units import counted, format_bytes
from hpcflow.terminal import echo, safe

if TYPE_CHECKING:
    from hpcflow.model.run import Run
    from hpcflow.restore.fetching import Outcome, Progress, Which
    from hpcflow.restore.request import Changes, Found


class Restored(TypedDict):
    """What was restored; `checkpoints` and the keys of `skipped` are train steps."""

    run_id: str
    run_dir: str
    url: str
    is_new: bool
    is_from_elsewhere: bool
    is_unknown: bool
    held: str | None
    checkpoints: list[int]
    skipped: dict[str, str]
    files: int
    left: list[str]
    refused: list[str]
    newest_train_step: int | None


#: A restore that a daemon starts must not slow down others on a login node.
_NICENESS = 10


def _which(_ctx: click.Context, param: click.Parameter, value: str) -> Which:
    if value == "newest":
        return "newest"
    if value == "all":
        return "all"
    if value.isdecimal() and value.isascii() and len(value) <= 18:
        return int(value)
    raise click.BadParameter(f"{value!r}: write newest, all, or a train step", param=param)


@click.command("restore", short_help="Fetch a run, or what it lacks, from its mirror.")
@click.argument("run", required=False, shell_complete=complete_run, callback=plain_text)
@click.option(
    "--from",
    "url",
    metavar="URL",
    callback=plain_text,
    help="The run in a store, such as s3://bucket/prefix/RUN. Default: the mirror of RUN.",
)
@click.option(
    "--checkpoint",
    "which",
    default="newest",
    show_default=True,
    metavar="newest|all|TRAIN_STEP",
    callback=_which,
    help="Which checkpoints to fetch. If one is damaged, hpcflow takes the one before it.",
)
@endpoint_option
@site_option
@set_option
@click.option(
    "--working-dir",
    type=click.Path(path_type=Path, file_okay=False),
    metavar="DIR",
    help="Working directory of its program here. Default: its previous path.",
)
@click.option(
    "--even-if-running",
    is_flag=True,
    help="Restore it even if it seems to be pending or running on another cluster.",
)
@click.option("--unattended", is_flag=True, hidden=True)
@json_option(Restored)
def command(
    run: str | None,
    url: str | None,
    which: Which,
    endpoint_url: str | None,
    site: str | None,
    overrides: tuple[str, ...],
    working_dir: Path | None,
    even_if_running: bool,
    unattended: bool,
    as_json: bool,
) -> int:
    """Restore RUN from its mirror after a purge: its run directory, or the files that are missing.

    With --from, restore a run of another cluster, or of a lost home: hpcflow creates its run
    directory on this cluster's scratch, with its history and its newest checkpoint, and holds it.
    `hpcflow resume RUN` continues it. --site, --set and --working-dir give what differs on this
    cluster.

    Existing files on scratch stay, except events that the mirror has longer, and checkpoints with
    missing or wrong-sized files. If hpcflow holds the run, `hpcflow resume` or `hpcflow release`
    approves it. If interrupted, run it again; it continues.
    """
    from hpcflow.restore.request import Changes
    from hpcflow.storage.restoring import restoring

    session = Session()
    if unattended:
        os.nice(_NICENESS)
    changes = Changes(
        site, overrides, working_dir and working_dir.absolute(), even_if_running, endpoint_url
    )
    folder, run_id = _named(session, run, url)
    with restoring(session.settings.home, run_id, session.clock, is_kept=unattended):
        try:
            found = _find(session, folder, run_id, changes)
        except NotFoundError:
            if unattended and _continues_without(session, run_id):
                return 0
            raise
        for warning in found.warnings:
            warn(warning)
        with _progress(shown=not (as_json or unattended)) as progress:
            outcome = _restore(session, found, which, always_record=unattended, progress=progress)
    if as_json:
        values = picked(
            Restored,
            outcome,
            run_dir=str(outcome.run_dir.path),
            is_from_elsewhere=found.place.is_move,
            checkpoints=sorted(outcome.checkpoints),
            newest_train_step=outcome.newest,
        )
        print_json(values)
    else:
        _print_outcome(outcome, is_move=found.place.is_move)
    return 1 if outcome.skipped and outcome.newest is None else 0


def _named(session: Session, run: str | None, url: str | None) -> tuple[str | None, str]:
    """Return the folder of all runs if a store was named, and the id of the run."""
    from hpcflow.restore.request import split_url

    if url is not None:
        return split_url(url, run)
    if run is None:
        raise InputError(
            "no run is named, and no place in a store",
            next_action="hpcflow restore RUN, or hpcflow restore --from s3://BUCKET/PREFIX/RUN",
        )
    try:
        return None, session.run_dir(run).path.name
    except NotFoundError as error:
        error.next_action = (
            "list yours: hpcflow ls; restore a run unknown here: hpcflow restore --from URL"
        )
        raise


def _find(session: Session, folder: str | None, run_id: str, changes: Changes) -> Found:
    from hpcflow.restore.request import mirror_of_gone, of_elsewhere, of_this_home, own_mirror

    settings, clock = session.settings, session.clock
    if folder is not None:
        site = session.site(changes.site_reference, named_in=Where(key="--site"))
        return of_elsewhere(folder, run_id, site, changes, settings=settings, clock=clock)
    if changes.site_reference or changes.overrides or changes.working_dir:
        raise InputError(
            "--site, --set and --working-dir are for a run of another cluster",
            next_action="name it by its place: hpcflow restore --from s3://BUCKET/PREFIX/RUN",
        )
    run_dir = session.run_dir(run_id)
    try:
        site_name = session.site_of(run_dir) or None
    except StorageError:  # it is neither in run.json nor in the ledger
        site_name = None
    the_site = session.site(site_name)
    mirror = mirror_of_gone(session.ledger, run_dir, the_site, settings)
    own = own_mirror(run_dir, the_site, settings)
    if changes.endpoint_url is not None:
        mirror = mirror.model_copy(update={"endpoint_url": changes.endpoint_url})
    return of_this_home(run_dir, mirror, clock, site=site_name, own=own)


def _continues_without(session: Session, run_id: str) -> bool:
    """Return whether a run that its store lacks is on scratch; if so, record it in its journal."""
    from hpcflow.restore.request import mirror_of_gone
    from hpcflow.restore.restore import note_nothing_there
    from hpcflow.storage.runs import is_gone

    run_dir = session.run_dir(run_id)
    if is_gone(run_dir):
        return False
    site = session.site(session.site_of(run_dir))
    mirror = mirror_of_gone(session.ledger, run_dir, site, session.settings)
    url = f"{mirror.url}/{run_id}"
    note_nothing_there(run_dir, url, settings=session.settings, clock=session.clock)
    return True


def _restore(
    session: Session, found: Found, which: Which, *, always_record: bool, progress: Progress
) -> Outcome:
    """Restore, and rebuild the rows in the ledger, because the files have changed."""
    from hpcflow.placement.run_paths import trust_on
    from hpcflow.projection import catch_up_home, rebuild
    from hpcflow.restore.restore import restore

    run_id = found.remote.run_id
    # First let the ledger read what is still readable, so that it is not lost.
    catch_up_home(session.ledger, session.settings.home, user=session.settings.user)
    run = found.place.run
    site = session.site(run.site)
    account = run.spec.resources.account or site.default_account
    outcome = restore(
        found.remote,
        found.place,
        settings=session.settings,
        clock=session.clock,
        cluster=session.connect(site).cluster(),
        trust=trust_on(site, session.settings, account),
        known=session.ledger.known([run_id]).get(run_id),
        which=which,
        always_record=always_record,
        progress=progress,
    )
    for problem in rebuild(session.ledger, [outcome.run_dir]).problems:
        warn(problem)
    return outcome


def _print_outcome(outcome: Outcome, *, is_move: bool) -> None:
    for step, why in outcome.skipped.items():
        warn(f"the checkpoint of train step {step} was skipped: {why}")
    for name in outcome.left:
        warn(f"{name} differs from the mirror's copy; hpcflow kept the one on scratch")
    if outcome.refused:
        some = ", ".join(outcome.refused[:3])
        names = counted(len(outcome.refused), "object")
        warn(f"skipped {names} with names that belong to no run: {some}")
    if outcome.is_nothing:
        echo(f"{outcome.run_id}: nothing is missing in {outcome.run_dir.path}")
        if outcome.is_unknown:
            _print_program(outcome)
        return
    steps = ", ".join(str(step) for step in sorted(outcome.checkpoints))
    what = f"checkpoint {steps}" if steps else "no checkpoint"
    files = counted(outcome.files, "small file")
    echo(f"{outcome.run_id}: {what} and {files} from {outcome.url}")
    echo(f"  {outcome.run_dir.path}")
    if is_move or outcome.is_unknown:
        _print_program(outcome)
    elif outcome.held is not None:
        echo(f"  the run is held: {safe(outcome.held)}")
        next_action = f"to continue: hpcflow resume {outcome.run_id}"
        echo(f"  → {next_action}; to end it: hpcflow cancel {outcome.run_id}", err=True)


def _print_program(outcome: Outcome) -> None:
    """Print what the run executes: it comes from the store, to which other users may write."""
    from hpcflow.storage.rundir import read_run

    run = read_run(outcome.run_dir)
    environment = run.spec.environment
    container = environment.container
    why = safe(outcome.held or "what it executes comes from the store")
    echo(f"  the run is held: {why}; it would execute:")
    for what, value in (
        ("command", " ".join(map(shell_word, [*run.spec.program, *run.spec.args]))),
        ("and to resume", " ".join(map(shell_word, run.spec.resume_args))),
        ("params", json.dumps(run.spec.params) if run.spec.params else None),
        ("code", _code(run)),
        ("working dir", run.working_dir),
        ("modules", " ".join(environment.modules)),
        ("venv", environment.venv),
        ("conda", environment.conda),
        ("container", container.image if container is not None else None),
        ("mounts", " ".join(map(str, container.mounts)) if container is not None else None),
        ("variables", " ".join(f"{k}={v}" for k, v in sorted(environment.variables.items()))),
        ("secrets", " ".join(f"{k}={v}" for k, v in sorted(environment.secrets.items()))),
        ("mirror", run.mirror.url if run.mirror is not None else None),
        ("umask", run.umask),
        *_other_sections(run),
    ):
        if value:
            echo(f"    {what}: {value}")
    next_action = f"check that this is what you want, then: hpcflow resume {outcome.run_id}"
    echo(f"  → {next_action}", err=True)


def _code(run: Run) -> str | None:
    """Return which files of the snapshot in the store the program executes."""
    from hpcflow.model.run import short_digest

    if run.code is None:
        return None
    files = ", ".join(f"{word} is {name} there" for word, name in sorted(run.code.files.items()))
    paths = "".join(f", Python imports from {name} there" for name in run.code.paths)
    archive = f"{run.run_dir}/code/{short_digest(run.code.digest)}.tar.gz"
    return f"the snapshot in {archive}: {files or 'no word of the command names it'}{paths}"


def _other_sections(run: Run) -> Iterator[tuple[str, str]]:
    """Yield the other keys of the config, such as the folder to adopt checkpoints from."""
    from hpcflow.model.spec import as_yaml_config

    shown = {"command", "script", "args", "resume_args", "params", "environment", "mirror"}
    for key, value in as_yaml_config(run.spec).items():
        if key not in shown:
            yield key, value_text(value)


@contextmanager
def _progress(*, shown: bool) -> Iterator[Progress]:
    from hpcflow.restore.fetching import Progress

    columns = ("DownloadColumn", "TransferSpeedColumn")
    with progress_bar(*columns, shown=shown, visible=False) as bar:

        def doing(what: str, size_bytes: int) -> None:
            text = f"{what}, {format_bytes(size_bytes)}"
            bar.reset(total=size_bytes, description=text, visible=True)

        yield Progress(doing, lambda size_bytes: bar.update(advance=size_bytes))
