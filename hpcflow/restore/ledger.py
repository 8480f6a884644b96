"""Rebuild the ledger from the small files of all runs in a store, if scratch is lost.

The files are fetched into a private folder and read like those on scratch, so the rows are the
same. No checkpoint is fetched.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from hpcflow.errors import DamagedError, HpcflowError, InputError, MirrorError, Where, shell_word
from hpcflow.ledger.rows import Known
from hpcflow.ledger.store import Ledger
from hpcflow.mirror.download import Wanted, download
from hpcflow.mirror.layout import run_ids
from hpcflow.mirror.remote import Remote
from hpcflow.model.ids import is_run_id
from hpcflow.model.run import Run
from hpcflow.ownership import temporary_folder
from hpcflow.placement.run_paths import run_dir_on
from hpcflow.projection import rebuild
from hpcflow.projection.reading import MIRROR
from hpcflow.restore import journals
from hpcflow.restore.fetching import drop_start_and_end
from hpcflow.restore.local import journal_of, linked_here
from hpcflow.restore.objects import EVENTS, JOURNAL
from hpcflow.restore.remote_run import RemoteRun
from hpcflow.runtime.reading import read_file
from hpcflow.settings import Settings
from hpcflow.sites.loader import is_site_file
from hpcflow.sites.placement import place
from hpcflow.sites.schema import Site
from hpcflow.storage.approval import is_approved
from hpcflow.storage.files import write_durably
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import link_run
from hpcflow.storage.runs import is_gone

#: Runs whose small files are on this machine at once.
_BATCH: Final = 20
#: Limits of one file and of one run, because other users may fill the temporary folder. A batch
#: that exceeds the latter is rebuilt at once.
_MAX_EVENTS_BYTES: Final = 256 << 20
_MAX_RUN_BYTES: Final = 1 << 30


@dataclass
class FromStore:
    """The result of rebuilding the ledger from a store.

    Attributes:
        runs: ids of the runs that were read.
        lines: number of lines that were read.
        here: ids of runs that were read from their local run directory.
        ahead: ids of runs that were skipped because the ledger has more than the store.
        linked: ids of runs that were new to the home, which has a link to them now.
        others: ids of runs of other users, which were skipped.
        problems: one message for each run that could not be read.
    """

    runs: list[str] = field(default_factory=list)
    lines: int = 0
    here: list[str] = field(default_factory=list)
    ahead: list[str] = field(default_factory=list)
    linked: list[str] = field(default_factory=list)
    others: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


def rebuild_from(
    ledger: Ledger,
    remote: Remote,
    settings: Settings,
    *,
    site: Site | None = None,
    on_run: Callable[[int, int], object] = lambda _done, _all: None,
) -> FromStore:
    """Read all runs of this user in a store into the ledger.

    A run whose directory is here is read from it. If the ledger has read more of a run than the
    store has, its rows stay. The record of a run in the home takes precedence over the store's,
    which other users may have changed.

    Args:
        site: of this machine: runs from its scratch get a link to their earlier place, so that
            ``hpcflow restore`` finds them. It writes their record, and holds them.
        on_run: called with the number of runs done, and of all.

    Raises:
        InputError: the store has no runs.
    """
    found, ids = FromStore(), run_ids(remote)
    if not ids:
        raise _no_runs(remote.url)
    for begin in range(0, len(ids), _BATCH):
        with temporary_folder() as folder:
            batch = _Batch(ledger, remote, settings, site, found, Path(folder))
            batch.read(ids[begin : begin + _BATCH])
        on_run(min(begin + _BATCH, len(ids)), len(ids))
    return found


def _no_runs(url: str) -> InputError:
    folder, _, name = url.rstrip("/").rpartition("/")
    if is_run_id(name):
        next_action = "name the folder of all runs: hpcflow ledger rebuild --from " + shell_word(
            folder
        )
    else:
        next_action = (
            "name the folder of all runs, which is mirror.url of your site; see it: hpcflow site "
            "show; for another server: hpcflow ledger rebuild --from URL --endpoint-url URL"
        )
    return InputError(f"{url} has no runs", where=Where(key="--from"), next_action=next_action)


@dataclass
class _Batch:
    _ledger: Ledger
    _remote: Remote
    _settings: Settings
    _site: Site | None
    _found: FromStore
    _folder: Path
    _run_dirs: list[RunDir] = field(default_factory=list)
    _fetched_bytes: int = 0

    def read(self, ids: list[str]) -> None:
        found = self._found
        known = self._ledger.known(ids)
        for run_id in ids:
            here = linked_here(self._settings.home, run_id)
            if here is not None and not is_gone(here):
                found.here.append(run_id)
                self._run_dirs.append(here)
                continue
            there = RemoteRun(self._remote, run_id)
            try:
                run = there.run
                if run.user != self._settings.user:
                    found.others.append(run_id)
                    continue
                self._require_site(run)
                own = self._settings.home.run_dir(self._folder / run_id)
                lines = journal_of(own)
                if not journals.history_of(lines).records:
                    lines = there.journal
                if run_id in known and _has_more(known[run_id], there, len(lines)):
                    found.ahead.append(run_id)
                else:
                    self._run_dirs.append(self._fetched(there, own, lines))
                if here is None and self._has_place(run):
                    link_run(self._settings.home, Path(run.run_dir))
                    found.linked.append(run_id)
            except HpcflowError as error:
                if isinstance(error, MirrorError) and error.retryable:
                    self._remote.folders()  # raises if the store fails, not only this run
                found.problems.append(f"{run_id}: {error.message}")
            if self._fetched_bytes > _MAX_RUN_BYTES:
                self._rebuild()
        self._rebuild()

    def _rebuild(self) -> None:
        summary = rebuild(self._ledger, self._run_dirs)
        self._found.runs += [run_dir.path.name for run_dir in self._run_dirs]
        self._found.lines += summary.lines
        self._found.problems += summary.problems
        for run_dir in self._folder.iterdir():
            shutil.rmtree(run_dir)
        self._run_dirs, self._fetched_bytes = [], 0

    def _fetched(self, there: RemoteRun, own: RunDir, lines: bytes) -> RunDir:
        """Fetch the files that the ledger reads into a folder."""
        history = journals.history_of(lines)
        were_jobs = history.submitted_attempts
        names, run_bytes = [], 0
        for name, entry in there.objects.small.items():
            events = EVENTS.fullmatch(name)
            if name != MIRROR and (events is None or int(events[1]) not in were_jobs):
                continue
            run_bytes += entry.size_bytes
            if entry.size_bytes > _MAX_EVENTS_BYTES or run_bytes > _MAX_RUN_BYTES:
                raise there.too_large(name)
            names.append(name)
        self._fetched_bytes += run_bytes
        run_dir = RunDir(self._folder / there.run_id)
        run_dir.path.mkdir(mode=0o700)
        try:
            run_json = read_file(own.run_json) if is_approved(own) else there.run_json
            write_durably(run_dir.run_json, run_json)
            write_durably(run_dir.journal, lines)
            self._fetch(there, run_dir, names)
            drop_start_and_end(run_dir, history.attempts_without_end)
        except BaseException:
            shutil.rmtree(run_dir.path, ignore_errors=True)  # make room for the next runs
            raise
        return run_dir

    def _fetch(self, there: RemoteRun, run_dir: RunDir, names: list[str]) -> None:
        wanted = [
            Wanted(there.name(name), run_dir.path / name, there.entry(name).size_bytes)
            for name in names
        ]
        try:
            download(self._remote, wanted)
        except DamagedError:  # they have grown since they were listed
            for name in names:
                path = run_dir.path / name
                path.unlink(missing_ok=True)
                write_durably(path, self._remote.read(there.name(name), _MAX_EVENTS_BYTES))

    def _require_site(self, run: Run) -> None:
        """Check that the store does not choose a site file, whose commands jobs would execute."""
        if is_site_file(run.site) and not self._is_site(run):
            raise InputError(
                f"its run.json in the store names the site file {run.site[:200]!r}, which is not "
                "trusted",
                next_action=f"if it is right, name it: hpcflow restore --from "
                f"{shell_word(self._remote.url_of(run.run_id))} --site FILE",
            )

    def _is_site(self, run: Run) -> bool:
        site = self._site
        return site is not None and run.site in (
            site.name,
            None if site.file is None else str(Path(site.file).absolute()),
        )

    def _has_place(self, run: Run) -> bool:
        """Return whether its run directory is where this site puts it; a store can name any."""
        if self._site is None or not self._is_site(run):
            return False
        try:
            placement = place(run.spec, self._site, prefer=run.partition)
            here = run_dir_on(self._site, self._settings, placement, run.spec.project, run.run_id)
        except InputError:
            return False
        return str(here) == run.run_dir


def _has_more(known: Known, there: RemoteRun, journal_bytes: int) -> bool:
    """Return whether the ledger has read more of any file than the store has.

    ``mirror.jsonl`` does not count, because it is always a little behind in the store.
    """
    sizes = {name: entry.size_bytes for name, entry in there.objects.small.items()}
    sizes[JOURNAL] = journal_bytes
    return any(
        each.offset_bytes > sizes.get(each.path, 0) for each in known.sources if each.path != MIRROR
    )
