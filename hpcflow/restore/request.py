"""Find a run in a store, and its place here, for a user or the daemon."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from pathlib import Path
from typing import Final

from hpcflow.clock import Clock, from_text
from hpcflow.config import change_spec
from hpcflow.errors import InputError, NotFoundError, Where, shell_word
from hpcflow.history import RunHistory
from hpcflow.ledger.rows import Known
from hpcflow.ledger.store import Ledger
from hpcflow.mirror.stores import open_store
from hpcflow.mirror.survey import mirror_of_run
from hpcflow.model.events import parse_event
from hpcflow.model.ids import is_run_id
from hpcflow.model.run import Mirror, Run
from hpcflow.model.spec import RunSpec
from hpcflow.placement.run_paths import endpoint_of, variables
from hpcflow.restore.journals import history_of
from hpcflow.restore.local import frozen, journal_of, linked_here
from hpcflow.restore.moving import (
    Place,
    mirrored_to,
    missing_environment,
    moved,
    place_on,
    where_it_was,
)
from hpcflow.restore.remote_run import RemoteRun
from hpcflow.settings import Settings
from hpcflow.sites.mirror import mirror_of
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone

#: Longer than the lag of a mirror, and than most programs take between two events.
FRESH: Final = timedelta(hours=1)
#: Enough for the last lines of a file of events.
_TAIL_BYTES: Final = 64 << 10
#: The suggested commands contain this name, which comes from the store: accept no shell syntax.
_MACHINE: Final = re.compile(r"[A-Za-z0-9][\w.-]{0,63}", re.ASCII)


@dataclass(frozen=True)
class Found:
    """A run in a store, and its place here.

    Attributes:
        warnings: to read before the run is submitted.
    """

    remote: RemoteRun
    place: Place
    warnings: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Changes:
    """Changes to a run that comes from another cluster.

    Attributes:
        site_reference: name or file of its site here; the site's name if None.
        overrides: as for ``--set``.
        working_dir: working directory of its program; the earlier one if None.
        even_if_running: take it over even if it seems active elsewhere.
        endpoint_url: of the store's server; from :func:`endpoint_of` if None.
    """

    site_reference: str | None = None
    overrides: Sequence[str] = ()
    working_dir: Path | None = None
    even_if_running: bool = False
    endpoint_url: str | None = None


def mirror_of_gone(ledger: Ledger, run_dir: RunDir, site: Site, settings: Settings) -> Mirror:
    """Return where a run of this home was mirrored.

    Sources, in this order: its ``run.json``, the ledger, its site.

    Raises:
        InputError: none of them has a mirror.
    """
    run_id = run_dir.path.name
    mirror = mirror_of_run(run_dir)  # None also if run.json is damaged
    if mirror is None:
        known = ledger.known([run_id]).get(run_id)
        url = _known_url(ledger, known) if known is not None else None
        # It was sent from this site, so to this site's server.
        endpoint_url = site.mirror.endpoint_url if site.mirror is not None else None
        mirror = None if url is None else Mirror(url=url, endpoint_url=endpoint_url)
    if mirror is None:
        account = known.run.resources.get("account") if known is not None else None
        mirror = _mirror_of_site(site, settings, account)
    if mirror is None:
        raise InputError(
            f"site {site.name} has no mirror, and hpcflow knows no other mirror of run {run_id}",
            next_action=f"name the place: hpcflow restore --from s3://BUCKET/PREFIX/{run_id}",
        )
    return mirror


def own_mirror(run_dir: RunDir, site: Site, settings: Settings) -> Mirror | None:
    """Return where a run of this home is mirrored, from its own files or its site.

    The ledger does not count, because it may have read data from a store.
    """
    return mirror_of_run(run_dir) or _mirror_of_site(site, settings, site.default_account)


def _mirror_of_site(site: Site, settings: Settings, account: str | None) -> Mirror | None:
    spec = RunSpec(name="any", command=["true"])  # the run's own spec is lost
    return mirror_of(spec, site, variables(settings), user=settings.user, account=account)


def of_this_home(
    run_dir: RunDir,
    mirror: Mirror,
    clock: Clock,
    *,
    site: str | None,
    own: Mirror | None,
) -> Found:
    """Find a run that this home has a link to, at its earlier place.

    Args:
        mirror: where it was mirrored, from :func:`mirror_of_gone`.
        own: the same from :func:`own_mirror`.
        site: its site, if known.

    Raises:
        NotFoundError: the store does not have it.
        InputError: it was moved to another place, or its scratch does not exist here.
    """
    run_id = run_dir.path.name
    if is_gone(run_dir) and not run_dir.path.parents[2].is_dir():
        raise InputError(
            f"{run_dir.path.parents[2]} is missing, and so is the run directory of {run_id}",
            next_action="repeat it where that scratch is mounted; to restore the run to another: "
            f"hpcflow restore --from {shell_word(f'{mirror.url}/{run_id}')}",
        )
    remote = RemoteRun(open_store(mirror, clock=clock), run_id)
    try:
        run = remote.run
    except NotFoundError as error:
        if not is_gone(run_dir):
            error.next_action = (
                f"only scratch has files of it; see them: hpcflow show {run_id}; continue from "
                f"them: hpcflow resume {run_id}"
            )
        raise
    there = where_it_was(run, run_dir, remote.url, site=site, mirror=own)
    return Found(remote, there, _mirrored_no_more(run, there.run))


def _mirrored_no_more(before: Run, run: Run) -> list[str]:
    """Return a warning about a run whose mirror only its lost ``run.json`` named."""
    if before.mirror is None or run.mirror is not None or run.spec.mirror == "never":
        return []
    return [
        f"run {run.run_id} is not mirrored any more, because its run.json was lost here; to mirror "
        f"it: hpcflow resume {run.run_id} --set mirror=URL"
    ]


def of_elsewhere(
    folder: str, run_id: str, site: Site, changes: Changes, *, settings: Settings, clock: Clock
) -> Found:
    """Find a run by its place in a store.

    Args:
        folder: URL of the folder of all runs.
        site: where to restore it, unless this home has it already.

    Raises:
        InputError: the run does not fit this site, or seems to be active elsewhere.
        NotFoundError: the store does not have it.
    """
    endpoint_url = changes.endpoint_url or endpoint_of(folder, site, settings)
    mirror = Mirror(url=folder, endpoint_url=endpoint_url)
    remote = RemoteRun(open_store(mirror, clock=clock), run_id)
    linked = linked_here(settings.home, run_id)
    if linked is not None:
        run = frozen(linked)
        if run is None and _was(linked, remote.run, site, changes):
            run = mirrored_to(remote.run, own_mirror(linked, site, settings) or mirror)
        if run is not None:
            return _here(remote, Place(linked, run, run), changes, clock)
    place = place_on(
        site,
        remote.run,
        settings=settings,
        url=remote.url,
        site_reference=changes.site_reference,
        overrides=changes.overrides,
        working_dir=changes.working_dir,
        mirror=mirror,
    )
    if (run := frozen(place.run_dir)) is not None:  # only its link is missing
        here = Place(settings.home.run_dir(run.run_dir), run, run)
        return _here(remote, here, changes, clock)
    warnings = missing_environment(place.run) + _at_rest(remote, changes, clock)
    return Found(remote, place, warnings)


def _was(linked: RunDir, run: Run, site: Site, changes: Changes) -> bool:
    """Return whether the run in the store was at this place, whose ``run.json`` is lost."""
    names = (changes.site_reference, site.name)
    return Path(run.run_dir) == linked.path and run.site in names


def _at_rest(remote: RemoteRun, changes: Changes, clock: Clock) -> list[str]:
    """Return warnings about a run to take over; raise InputError if it may be active."""
    if changes.even_if_running:
        return []
    warned = require_at_rest(remote, history_of(remote.journal), clock.now())
    return [warned] if warned is not None else []


def split_url(url: str, run: str | None) -> tuple[str, str]:
    """Return the URL of the folder of all runs, and the run id.

    Args:
        url: of the run; or of the folder of all runs, if ``run`` is the id.

    Raises:
        InputError: ``url`` and ``run`` name no run, or two.
    """
    folder, _, name = url.rstrip("/").rpartition("/")
    if folder and is_run_id(name):
        if run not in (None, name):
            raise InputError(
                f"{url} is of run {name}, not of {run}",
                where=Where(key="--from"),
                next_action="omit one of the two",
            )
        return folder, name
    if run is None or not is_run_id(run):
        raise InputError(
            f"{url[:200]!r} does not end in the id of a run",
            where=Where(key="--from"),
            next_action="write it like s3://BUCKET/PREFIX/digits-20260301-abcdefgh",
        )
    return url, run


def _known_url(ledger: Ledger, known: Known) -> str | None:
    """Return where a run was last mirrored, or the mirror of its last submission."""
    sent = ledger.mirrored([known.run.run_id])
    newest = max(sent, key=lambda row: row.at, default=None)
    if newest is not None:
        return newest.url
    rows = sorted(known.attempts, key=lambda row: row.attempt)
    urls = [row.journal.get("intended", {}).get("mirror") for row in rows]
    return next((url for url in reversed(urls) if url), None)


def _here(remote: RemoteRun, place: Place, changes: Changes, clock: Clock) -> Found:
    """Find a run that is here already; it stays as frozen, so that a restore can be repeated.

    If the run continued at another place since, it is taken over from there.
    """
    run, warnings = place.run, []
    is_elsewhere = changes.working_dir is not None and str(changes.working_dir) != run.working_dir
    if is_elsewhere or change_spec(run.spec, changes.overrides) != run.spec:
        warnings = [f"run {run.run_id} is here already; its frozen config does not change"]
    if not _knows_all(remote, run, place.run_dir):
        place = replace(place, run=moved(run, remote.run), before=remote.run)
        warnings += _at_rest(remote, changes, clock)
    return Found(remote, place, warnings)


def _knows_all(remote: RemoteRun, run: Run, run_dir: RunDir) -> bool:
    """Return whether the store's run is from here, or the run here has all of the store's journal
    since it was taken over from there."""
    there = remote.run.place_id
    if there == run.place_id or not remote.has_journal:
        return True
    return there == run.place_before and journal_of(run_dir).startswith(remote.journal)


def require_at_rest(remote: RemoteRun, history: RunHistory, now: datetime) -> str | None:
    """Check that a run to take over does not seem to be active elsewhere.

    The mirror is some minutes late, so this is only a warning, not a lock: a job that is pending
    for days, or a cluster without access to the store, gives no sign.

    Returns:
        A warning if no terminal state is recorded; else None.

    Raises:
        InputError: it has no terminal state, and its last sign is newer than ``FRESH``.
    """
    if history.is_at_rest:
        return None
    where = _where(history)
    sign = last_sign(remote, history)
    hold = f"on {where}: hpcflow hold {remote.run_id}"
    if sign is not None and now - sign < FRESH:
        minutes = max(0, round((now - sign).total_seconds() / 60))
        raise InputError(
            f"run {remote.run_id} may be active on {where}: its last sign is {minutes} minutes "
            "old, and two clusters must not train it at once",
            next_action=f"{hold}; once that is mirrored, repeat the restore. If {where} is lost: "
            f"hpcflow restore --from {shell_word(remote.url)} --even-if-running",
        )
    return f"no terminal state is recorded; if it is still submitted there, {hold}"


def last_sign(remote: RemoteRun, history: RunHistory) -> datetime | None:
    """Return the time of the newest mirrored journal record or event of the last job."""
    times = [record.at for record in history.records]
    numbers = history.intended_attempts
    name = f"attempts/{numbers[-1]:04d}/events.jsonl" if numbers else ""
    if name in remote.objects.small:
        end = remote.entry(name).size_bytes
        tail = remote.remote.read_range(remote.name(name), max(0, end - _TAIL_BYTES), end)
        for line in tail.split(b"\n"):
            if (event := parse_event(line)) is not None:
                try:
                    times.append(from_text(event["at"]))
                except (ValueError, OverflowError):
                    continue
    return max(times, default=None)


def _where(history: RunHistory) -> str:
    intent = history.last.intent
    if intent is None:
        return "another machine"
    name = intent.cluster or (intent.host or "").removesuffix(" (array)")
    return name if _MACHINE.fullmatch(name) else "another machine"
