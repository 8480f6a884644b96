"""The paths of all files of a run: the only module that knows their names.

::

    <scratch>/hpcflow/<project>/<run_id>/      0700: all that is large, and can be made again
      params.json                              its parameters, for the program
      adoption.json                            the program's own files that are not to be adopted
      cancel                                   exists once the user cancelled the run
      completed                                exists once the journal records that it completed;
                                               for jobs, which do not read the journal
      mirror.jsonl                             the state of each checkpoint in the object store
      mirror.lock                              held while this run is mirrored
      .mirror-sent.json                        the small files as last mirrored
      .mirror-progress.json                    progress of the running upload
      attempts/0001/
        job.sbatch  out.log                    the job script and its output
        events.jsonl                           events of the job
        claim                                  "<job id>": the one job that may execute this attempt
        notice                                 exists once the job was signalled to save and exit
        resubmit                               exists once the program asked to be resubmitted
        failed  terminated                     exists once a rank failed, or ended by SIGTERM
        killed                                 exists if the first failed rank was killed
        adopted                                "<job id>": the standby that is this attempt, by the
                                               journal
        ended                                  exists once the first rank ended with exit code 0
        program                                its process id; after its end also its exit code
        .usage/                                resource usage that each node measured
      checkpoints/<train_step>/  manifest.json complete when the manifest exists
      start/<train_step>/                      a checkpoint of another run that it starts from
      runtime/hpcflow/runtime/                 a copy of hpcflow.runtime, for PYTHONPATH
      code/                                    uncommitted changes to the user's code
      code/<digest>.tar.gz                     the code that the run executes; a dotfile if it may
                                               hold secrets
      artifacts/  tensorboard/                 made by the job when it starts
    <scratch>/hpcflow/<project>/.<run_id>.restore/   files being fetched from its mirror
    <scratch>/hpcflow/.runtime/<digest>/       target of the hard links in runtime/ of all runs
    <scratch>/hpcflow/.code/<digest>/          code that runs execute; see code_snapshot.py

    $HPCFLOW_HOME/  (~/.hpcflow)               0700
      config.yaml                              the user's settings: site, ledger
      ledger.sqlite                            the ledger, unless it is elsewhere
      compiled_templates                       cache of compiled templates
      runs/<run_id>/                           the record of a run: all that must outlive scratch
        run.json                               the frozen run, written once
        journal.jsonl                          intents, submissions, observations and decisions of
                                               the login side; empty at first
        submit.lock                            held while a job may be created
        scratch                                symbolic link to the run directory
        upgrade                                exists while an upgrade could not read scratch
        unapproved                             exists while what it executes comes from a store
        mirrored                               length and checksum of the journal last mirrored
        rows.json.gz                           backup of its rows in the ledger, when it was last at
                                               rest
      sweeps/<sweep_id>/                       a sweep; see sweeps.py
      unread/<run_id>                          mark: the ledger may not have read all of it
      unsettled/<run_id>                       mark: a cost of it is not yet settled in its budgets
      budgets/<kind>/<name>.jsonl              budgets and what was spent; one lock for all
      forgiven.jsonl                           nodes whose failures the user has forgiven
      restoring/<run_id>                       locked during its restore; how the restore ended
      restoring/<run_id>.cancelled             cancelled during its restore, or without a journal
      silent/<site>                            mark: its accounting recently did not answer
      mirror/                                  why the last mirror pass failed; the plain folders
                                               that it has sent to
      watch/<ledger>                           how long each run has made no progress
      daemon/<cluster>.log                     log of an installed daemon
      daemon/<cluster>.lease                   which process acts as the daemon
      daemon/<cluster>-sweeps.log              log of sweep ticks
      sites/*.yaml  templates/                 the user's own
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Final

from hpcflow.ownership import NO_TRUST, Trust, WeakPoint

#: In the folder of a run in the home: the link to its run directory.
SCRATCH: Final = "scratch"


@dataclass(frozen=True)
class AttemptDir:
    """Paths of one attempt."""

    path: Path

    @property
    def script(self) -> Path:
        return self.path / "job.sbatch"

    @property
    def log(self) -> Path:
        return self.path / "out.log"

    @property
    def events(self) -> Path:
        return self.path / "events.jsonl"

    @property
    def claim(self) -> Path:
        return self.path / "claim"

    @property
    def notice(self) -> Path:
        return self.path / "notice"

    @property
    def resubmit(self) -> Path:
        return self.path / "resubmit"

    @property
    def killed(self) -> Path:
        return self.path / "killed"

    @property
    def adopted(self) -> Path:
        return self.path / "adopted"

    @property
    def usage(self) -> Path:
        """Return the file with the sampler's newest usage event: JSON without its braces."""
        return self.path / ".usage/event"


@dataclass(frozen=True)
class RunDir:
    """Paths of one run.

    Attributes:
        path: its run directory, on scratch.
        record: its record, in the home; None if both are the same folder, as in a store. The
            home gives a text, because a round makes ten thousand of them.
    """

    path: Path
    record: Path | str | None = None

    def _recorded(self, name: str) -> Path:
        return Path(self.record or self.path, name)

    @property
    def run_json(self) -> Path:
        return self._recorded("run.json")

    @property
    def params_json(self) -> Path:
        return self.path / "params.json"

    @property
    def journal(self) -> Path:
        return self._recorded("journal.jsonl")

    @property
    def submit_lock(self) -> Path:
        return self._recorded("submit.lock")

    @property
    def unapproved(self) -> Path:
        return self._recorded("unapproved")

    @property
    def mirrored(self) -> Path:
        return self._recorded("mirrored")

    @property
    def rows_backup(self) -> Path:
        return self._recorded("rows.json.gz")

    @property
    def completed(self) -> Path:
        return self.path / "completed"

    @property
    def cancel(self) -> Path:
        return self.path / "cancel"

    @property
    def mirror(self) -> Path:
        return self.path / "mirror.jsonl"

    @property
    def mirror_lock(self) -> Path:
        return self.path / "mirror.lock"

    @property
    def mirror_sent(self) -> Path:
        return self.path / ".mirror-sent.json"

    @property
    def mirror_progress(self) -> Path:
        return self.path / ".mirror-progress.json"

    @property
    def checkpoints(self) -> Path:
        return self.path / "checkpoints"

    @property
    def runtime(self) -> Path:
        """Return the folder for the job's PYTHONPATH."""
        return self.path / "runtime"

    @property
    def runtime_init(self) -> Path:
        return self.runtime / "hpcflow" / "__init__.py"

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def restore(self) -> Path:
        """Return the folder for files fetched from the mirror until the restore is complete."""
        return self.path.parent / f".{self.path.name}.restore"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def attempt(self, number: int) -> AttemptDir:
        """Return the paths of attempt ``number``, counted from 1."""
        return AttemptDir(self.path / "attempts" / f"{number:04d}")

    def attempt_numbers(self) -> list[int]:
        folder = self.path / "attempts"
        if not folder.is_dir():
            return []
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal())


def _no_trust(_: str | None) -> Trust:
    return NO_TRUST


@dataclass(frozen=True)
class Home:
    """Paths in ``HPCFLOW_HOME``.

    Attributes:
        trust_of: run id -> the users that the run's site file trusts on the path to its directory;
            None -> the users that the user's site files trust.
    """

    path: Path
    trust_of: Callable[[str | None], Trust] = field(default=_no_trust, compare=False, repr=False)

    @cached_property
    def routes(self) -> dict[str, tuple[float, WeakPoint | None]]:
        """The cache of hpcflow.storage.runs: directory -> time of check, untrusted part of path."""
        return {}

    @property
    def config(self) -> Path:
        return self.path / "config.yaml"

    @property
    def ledger(self) -> Path:
        return self.path / "ledger.sqlite"

    @property
    def compiled_templates(self) -> Path:
        return self.path / "compiled_templates"

    @cached_property  # used for each of ten thousand links
    def runs(self) -> Path:
        return self.path / "runs"

    def run_dir(self, path: str | Path) -> RunDir:
        """Return the run with this run directory, whose name is its id."""
        path = Path(path)
        return RunDir(path, f"{self.runs}/{path.name}")

    def scratch_link(self, run_id: str) -> Path:
        return self.runs / run_id / SCRATCH

    @property
    def sweeps(self) -> Path:
        return self.path / "sweeps"

    @property
    def unread(self) -> Path:
        return self.path / "unread"

    @property
    def unsettled(self) -> Path:
        return self.path / "unsettled"

    @property
    def budgets(self) -> Path:
        return self.path / "budgets"

    @property
    def forgiven(self) -> Path:
        return self.path / "forgiven.jsonl"

    @property
    def older(self) -> Path:
        """Return a folder that only the home of an older hpcflow has."""
        return self.path / "frozen"

    @property
    def restoring(self) -> Path:
        return self.path / "restoring"

    @property
    def silent(self) -> Path:
        return self.path / "silent"

    @property
    def mirror(self) -> Path:
        return self.path / "mirror"

    @property
    def watch(self) -> Path:
        return self.path / "watch"

    @property
    def daemon(self) -> Path:
        """Return the folder for logs, and for the script of a daemon that runs as a job."""
        return self.path / "daemon"

    @property
    def sites(self) -> Path:
        return self.path / "sites"

    @property
    def templates(self) -> Path:
        return self.path / "templates"
