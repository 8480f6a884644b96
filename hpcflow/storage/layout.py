"""The paths of all files of a run: the only module that knows their names.

::

    <scratch>/hpcflow/<project>/<run_id>/      0700
      run.json                                 the frozen run, written once
      params.json                              its parameters, for the program
      journal.jsonl                            what the login side intended, submitted, saw and
                                               decided; empty at first
      submit.lock                              held while a job may be created
      adoption.json                            what of the program's own files is not to be adopted
      cancel                                   exists once somebody asked the run to stop for good
      mirror.jsonl                             what became of each checkpoint in the object store
      mirror.lock                              held while this run is mirrored
      .mirror-sent.json                        the small files as they were when last mirrored
      .mirror-progress.json                    how far the upload under way is
      attempts/0001/
        job.sbatch  out.log                    what was sent; what it printed
        events.jsonl                           what the job says
        claim                                  "<job id>": the one job that may execute this attempt
        notice                                 exists once the job was told to save and leave
        resubmit                               exists once the program left with "send me again"
        failed  terminated                     exists once a rank of it failed, or ended of TERM
        killed                                 exists if the first rank that failed was killed
        ended                                  exists once the first rank ended with exit code 0
        program                                its process id; after its end also its exit code
        .usage/                                what each node has seen of what it uses
      checkpoints/<train_step>/  manifest.json complete when the manifest exists
      start/<train_step>/                      a checkpoint of another run that it begins from
      runtime/hpcflow/runtime/                 a copy of hpcflow.runtime, for PYTHONPATH
      code/                                    uncommitted changes to the user's code
      code/<digest>.tar.gz                     the code that the run executes; hidden if it may
                                               hold secrets
      artifacts/  tensorboard/
    <scratch>/hpcflow/<project>/.<run_id>.restore/   what is being fetched from its mirror
    <scratch>/hpcflow/.runtime/<digest>/       what the runtime/ of all runs are hard links to
    <scratch>/hpcflow/.code/<digest>/          code that runs execute; see code_snapshot.py

    $HPCFLOW_HOME/  (~/.hpcflow)               0700
      config.yaml                              the user's settings: site, ledger
      ledger.sqlite                            the ledger, unless it is elsewhere
      compiled_templates                       what rendering need not compile again
      runs/<run_id>                            symbolic link to the run directory: finds runs
      sweeps/<sweep_id>/                       a sweep; see sweeps.py
      unread/<run_id>                          mark: the ledger may not have read it to its end
      unsettled/<run_id>                       mark: a bill of it has to be settled in its budgets
      budgets/<kind>/<name>.jsonl              what may be spent, and what is; one lock for all
      frozen/<run_id>                          the checksum of its run.json
      forgiven.jsonl                           nodes that a person has spoken for
      restoring/<run_id>                       held while it is restored; how that ended
      restoring/<run_id>.cancelled             cancelled while its directory was gone
      journals/<run_id>                        its journal, as it was last mirrored
      silent/<site>                            mark: its accounting did not answer a moment ago
      mirror/                                  why the last pass of the mirror could not send; the
                                               plain folders that it has sent to
      watch/<ledger>                           how long the daemon has seen no progress, of each run
      daemon/<cluster>.log                     what a daemon says that was installed
      daemon/<cluster>.lease                   which process acts as the daemon
      daemon/<cluster>-sweeps.log              the same of the rounds of sweeps
      sites/*.yaml  templates/                 the user's own
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path

from hpcflow.ownership import NO_TRUST, Trust, WeakPoint


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
    def usage(self) -> Path:
        """The next usage event, as the sampler last wrote it: JSON without its braces."""
        return self.path / ".usage/event"


@dataclass(frozen=True)
class RunDir:
    """Paths of one run."""

    path: Path

    @property
    def run_json(self) -> Path:
        return self.path / "run.json"

    @property
    def params_json(self) -> Path:
        return self.path / "params.json"

    @property
    def journal(self) -> Path:
        return self.path / "journal.jsonl"

    @property
    def submit_lock(self) -> Path:
        return self.path / "submit.lock"

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
        """What goes on PYTHONPATH inside the job."""
        return self.path / "runtime"

    @property
    def code(self) -> Path:
        return self.path / "code"

    @property
    def artifacts(self) -> Path:
        return self.path / "artifacts"

    @property
    def restore(self) -> Path:
        """Beside it: where what is fetched from its mirror waits until it is whole."""
        return self.path.parent / f".{self.path.name}.restore"

    @property
    def tensorboard(self) -> Path:
        return self.path / "tensorboard"

    def attempt(self, number: int) -> AttemptDir:
        """Paths of attempt ``number``, counted from 1."""
        return AttemptDir(self.path / "attempts" / f"{number:04d}")

    def attempt_numbers(self) -> list[int]:
        """The attempts that have a folder, in order."""
        folder = self.path / "attempts"
        if not folder.is_dir():
            return []
        return sorted(int(entry.name) for entry in folder.iterdir() if entry.name.isdecimal())


def _no_trust(_: str | None) -> Trust:
    return NO_TRUST


@dataclass(frozen=True)
class Home:
    """Paths of what hpcflow keeps for a user.

    Attributes:
        trust_of: run id -> the users whom the run's own site file trusts on the path to its
            directory; None -> those whom the user's site files trust.
    """

    path: Path
    trust_of: Callable[[str | None], Trust] = field(default=_no_trust, compare=False, repr=False)

    @cached_property
    def routes(self) -> dict[str, tuple[float, WeakPoint | None]]:
        """Cache of hpcflow.storage.runs: directory -> time of the check, untrusted part of path."""
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

    @cached_property  # it is asked for with every link, and those are read by the ten thousand
    def runs(self) -> Path:
        return self.path / "runs"

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
    def frozen(self) -> Path:
        return self.path / "frozen"

    @property
    def journals(self) -> Path:
        return self.path / "journals"

    @property
    def restoring(self) -> Path:
        return self.path / "restoring"

    @property
    def silent(self) -> Path:
        return self.path / "silent"

    @property
    def mirror(self) -> Path:
        """What is remembered of the stores."""
        return self.path / "mirror"

    @property
    def watch(self) -> Path:
        return self.path / "watch"

    @property
    def daemon(self) -> Path:
        """Logs, and the script of a daemon that is a job."""
        return self.path / "daemon"

    @property
    def sites(self) -> Path:
        return self.path / "sites"

    @property
    def templates(self) -> Path:
        return self.path / "templates"
