"""Fetch the checkpoints and small files of a run from its mirror."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Literal, TypeAlias

from hpcflow.errors import DamagedError, MirrorError, MissingObjectError, NotFoundError
from hpcflow.history import RunHistory
from hpcflow.model.events import finite_metrics, parse_event
from hpcflow.restore import local
from hpcflow.restore.moving import Place
from hpcflow.restore.objects import CLAIM, EVENTS, OF_ATTEMPT
from hpcflow.restore.remote_run import RemoteRun
from hpcflow.restore.staging import Staging
from hpcflow.runtime.files import NewFile
from hpcflow.runtime.reading import read_lines
from hpcflow.runtime.retention import look
from hpcflow.runtime.rule import COMPLETE
from hpcflow.runtime.successor import SEAL
from hpcflow.storage.disk_errors import storage_errors
from hpcflow.storage.layout import RunDir

#: Which checkpoints: the newest intact one, all, or that of one train step.
Which: TypeAlias = Literal["newest", "all"] | int
NEWEST: Which = "newest"
ALL: Which = "all"
#: Each takes a request, and a user with write access to the store can create a million.
_MOST_SKIPPED: Final = 1000


@dataclass(frozen=True)
class Progress:
    """Callbacks for the progress; called from several threads, one at a time.

    Attributes:
        on_doing: called with what is fetched now, and its size in bytes.
        on_bytes: called with the number of bytes fetched, or found here, since the last call.
    """

    on_doing: Callable[[str, int], object] = lambda _what, _size: None
    on_bytes: Callable[[int], object] = lambda _size: None


NO_PROGRESS: Final = Progress()


@dataclass
class Outcome:
    """The result of a restore.

    Attributes:
        is_new: the run directory was created; else only what it lacked.
        checkpoints: train steps of the checkpoints that were fetched.
        skipped: train step -> why that checkpoint was not fetched.
        files: number of small files that were fetched, or written again from known content.
        left: names of files that differ here and in the mirror; the files here were kept.
        refused: names in the store that are not safe.
        newest: train step of the newest checkpoint here now; None without one.
        is_unknown: what the run executes comes from the store, and no user of this home has
            approved it: the run waits for `hpcflow resume`.
        held: why this restore holds the run; None if it does not.
    """

    run_id: str
    run_dir: RunDir
    url: str
    is_new: bool = False
    checkpoints: list[int] = field(default_factory=list)
    skipped: dict[int, str] = field(default_factory=dict)
    files: int = 0
    left: list[str] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    newest: int | None = None
    is_unknown: bool = False
    held: str | None = None

    @property
    def is_nothing(self) -> bool:
        return not (self.is_new or self.checkpoints or self.files)


class Fetching:
    """Fetches the files of a restore into ``staged``.

    Attributes:
        size_bytes: number of bytes fetched.
    """

    def __init__(
        self,
        remote: RemoteRun,
        place: Place,
        staged: Staging,
        outcome: Outcome,
        progress: Progress,
    ) -> None:
        self._remote, self._place, self._staged = remote, place, staged
        self._outcome, self._progress = outcome, progress
        self._run_dir = place.run_dir
        self._is_search, self._of_use, self.size_bytes = False, 0, 0

    def checkpoints(self, which: Which) -> None:
        """Fetch the checkpoints ``which`` that are not here."""
        there = self._remote.objects.checkpoints
        if which not in (NEWEST, ALL):
            assert isinstance(which, int)
            self._fetch_one(which)
            return
        self._is_search = True
        newest = local.newest_whole(self._run_dir)
        wanted = [step for step in there if which == ALL or newest is None or step > newest]
        self._staged.keep_only(wanted if which == ALL else wanted[:1])
        for step in wanted:
            if which == ALL and local.is_whole(self._run_dir, step, reads_it=True):
                continue
            if self._fetch(step) and which == NEWEST and self._of_use >= step:
                break
            if len(self._outcome.skipped) >= _MOST_SKIPPED:
                raise MirrorError(
                    f"{_MOST_SKIPPED} checkpoints in {self._remote.url} are damaged",
                    next_action="find out who wrote them, and delete them; or name an intact one: "
                    f"hpcflow restore {self._remote.run_id} --checkpoint TRAIN_STEP",
                )

    def _fetch_one(self, train_step: int) -> None:
        """Fetch one checkpoint, unless it is here and intact."""
        there = self._remote.objects.checkpoints
        if train_step not in there:
            steps = ", ".join(str(step) for step in list(there)[:12]) or "none"
            raise NotFoundError(
                f"{self._remote.url} has no checkpoint of train step {train_step}",
                next_action=f"it has {steps}, the newest first",
            )
        self._staged.keep_only([train_step])
        if local.is_whole(self._run_dir, train_step, reads_it=True):
            return
        if not self._fetch(train_step):
            raise MirrorError(
                f"the checkpoint of train step {train_step} in {self._remote.url} is damaged: "
                f"{self._outcome.skipped[train_step]}",
                next_action="restore another: hpcflow restore "
                f"{self._remote.run_id} --checkpoint newest",
            )

    def _fetch(self, train_step: int) -> bool:
        """Fetch a checkpoint; return whether it is intact."""
        try:
            checkpoint = self._remote.checkpoint(train_step)
            self._progress.on_doing(f"train step {train_step}", checkpoint.size_bytes)
            folder = self._staged.fetch_checkpoint(
                self._remote, checkpoint, self._progress.on_bytes
            )
        except (DamagedError, MissingObjectError) as error:
            self._outcome.skipped[train_step] = error.message
            return False
        self._outcome.checkpoints.append(train_step)
        self.size_bytes += checkpoint.size_bytes
        # A resume does the same check.
        if look(folder.parent, train_step, self._remote.run_id).state == COMPLETE:
            self._of_use = max(self._of_use, train_step)
        return True

    def small(self, history: RunHistory) -> None:
        """Fetch missing small files, and events of which the mirror has more.

        Args:
            history: from the journal and the ledger.
        """
        were_jobs = history.submitted_attempts
        are_open = frozenset[int]() if self._place.is_move else history.attempts_without_end
        # The number of a refused attempt is used again, and a forged journal may count backwards.
        next_number = history.last.next_number
        names = []
        for name, entry in self._remote.objects.small.items():
            if name in (self._run_dir.journal.name, self._run_dir.run_json.name):
                continue
            match = OF_ATTEMPT.fullmatch(name)
            number = int(match[1]) if match else 0
            if match and not (number in were_jobs and number < next_number):
                continue  # it would count for a future job
            if match and match[2] == CLAIM and number in are_open:
                continue  # the job may be pending, and would not start if the attempt is claimed
            if local.is_missing(self._run_dir, name) or (
                EVENTS.fullmatch(name)
                and number not in are_open
                and entry.size_bytes > local.size_of_file(self._run_dir, name)
            ):
                names.append(name)
        self._outcome.files = len(names)
        if names:
            size = sum(self._remote.entry(name).size_bytes for name in names)
            self._progress.on_doing(f"{len(names)} small files", size)
            self._staged.fetch_small(self._remote, names, self._progress.on_bytes)
            drop_start_and_end(RunDir(self._staged.run), are_open)
            self.size_bytes += size
        self._outcome.files += self._seal(history)

    def _seal(self, history: RunHistory) -> int:
        """Write missing seals of attempts that no job may execute; return how many.

        A purge may have deleted them, or the folder before there was a seal.
        """
        next_number = history.last.next_number
        numbers = sorted(each for each in history.barred_attempts if each < next_number)
        names = [RunDir(Path()).attempt(number).claim.as_posix() for number in numbers]
        fetched = RunDir(self._staged.run)
        missing = [
            name
            for name in names
            if local.is_missing(self._run_dir, name) and local.is_missing(fetched, name)
        ]
        for name in missing:
            self._staged.put(name, f"{SEAL}\n".encode())
        return len(missing)

    def newest(self) -> int | None:
        """Return the newest checkpoint; None if one train step was requested, because the store may
        have newer ones."""
        if not self._is_search:
            return None
        return max(self._of_use, local.newest_whole(self._run_dir) or 0)


#: The kinds of the dropped events, as they appear in JSON.
_START_AND_END: Final = ('"started"', '"exited"')


def drop_start_and_end(run_dir: RunDir, attempts: Iterable[int]) -> None:
    """Rewrite the events of these attempts; a ``finished`` event becomes ``progress``.

    If the journal does not record how an attempt ended, its events would decide, and a user who can
    write to the store could complete a run. Without them, hpcflow asks Slurm.
    """
    for number in attempts:
        path = run_dir.attempt(number).events
        if path.exists():
            _rewrite(path)


def _sanitized(line: bytes) -> bytes | None:
    """Return the line as hpcflow would write it; None if it must be dropped.

    The job script greps for text and hpcflow parses JSON: both must find the same event.
    """
    event = parse_event(line)
    if event is None:
        return None
    if event["event"] == "finished":
        event = _as_progress(event)
    try:
        text = json.dumps(event)
    except RecursionError:
        return None
    return None if any(word in text for word in _START_AND_END) else text.encode()


def _as_progress(finished: dict[str, Any]) -> dict[str, Any]:
    said = {"at": finished["at"], "event": "progress"}
    if type(finished.get("train_step")) is int:
        said["train_step"] = finished["train_step"]
    metrics = dict(finite_metrics(finished.get("metrics")))
    return {**said, "metrics": metrics}


def _rewrite(path: Path) -> None:
    new = path.with_name(f".{path.name}.kept")
    with storage_errors("write", new):
        file = NewFile(new)
        try:
            for line in read_lines(path):
                sanitized = _sanitized(line)
                if sanitized is not None:
                    file.write(sanitized + b"\n")
        finally:
            file.close()
        new.replace(path)
