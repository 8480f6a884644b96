"""A person whose runs are mirrored into a folder, and who restores them."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from hpcflow.errors import NotFoundError
from hpcflow.ledger.store import open_ledger
from hpcflow.mirror.passes import Pass, Report
from hpcflow.mirror.remote import Remote
from hpcflow.mirror.stores import Stores, open_remote
from hpcflow.projection import rebuild
from hpcflow.restore.fetching import Outcome
from hpcflow.restore.moving import Place, place_on, where_it_was
from hpcflow.restore.remote_run import RemoteRun
from hpcflow.restore.request import own_mirror
from hpcflow.restore.restore import note_nothing_there, restore
from hpcflow.sites.schema import SiteMirror
from hpcflow.storage.layout import RunDir
from hpcflow.storage.restoring import restoring
from hpcflow.storage.runs import is_gone, run_dir_of
from hpcflow.testing.fake_scheduler import FakeScheduler
from tests.requeue.watched import Watched
from tests.restore.mirrored import mirror, save


class Owner(Watched):
    """A desk with a bucket."""

    def __post_init__(self) -> None:
        super().__post_init__()
        url = str(self.folder / "bucket")
        Path(url).mkdir(exist_ok=True)
        self.remote: Remote = open_remote(url)
        self.site = self.site.model_copy(update={"mirror": SiteMirror(url=url)})

    def trained(self, *train_steps: int, end: str | None = "PREEMPTED") -> RunDir:
        """A run that made these checkpoints, and ended so; seen by the ledger."""
        launched = self.launch()
        run_dir = self.dir_of(launched)
        for step in train_steps:
            save(run_dir, step)
        if end is not None:
            self.end(launched.job_id, end, checkpoint=max(train_steps, default=None))
        self.look()
        return run_dir

    def mirrored(self, *train_steps: int, end: str | None = "PREEMPTED") -> RunDir:
        run_dir = self.trained(*train_steps, end=end)
        self.mirror(run_dir)
        return run_dir

    def mirror(self, run_dir: RunDir) -> None:
        """As a pass of the mirror does."""
        mirror(run_dir, self.remote)

    def lose_record(self, run_dir: RunDir) -> None:
        """The home is lost, but for the link to the run directory and the ledger."""
        for path in (run_dir.run_json, run_dir.journal, run_dir.mirrored):
            path.unlink(missing_ok=True)

    def mirror_pass(self, run_dir: RunDir) -> Report:
        with Stores(self.clock) as stores:
            return Pass(self.settings.home, self.clock, stores).run(lambda: [run_dir])

    def there(self, run_id: str, remote: Remote | None = None) -> RemoteRun:
        return RemoteRun(remote or self.remote, run_id)

    def restore(self, run_dir: RunDir, *, remote: Remote | None = None, **how: Any) -> Outcome:
        """As ``hpcflow restore RUN`` does, ledger included."""
        there = self.there(run_dir.path.name, remote)
        with restoring(self.settings.home, there.run_id, self.clock):
            place = where_it_was(
                there.run,
                run_dir,
                there.url,
                site=self.site.name,
                mirror=own_mirror(run_dir, self.site, self.settings),
            )
            return self.put(there, place, **how)

    def restores_for_the_daemon(self) -> None:
        """What the daemon has started does its work."""
        while self.restoring:
            run_dir = run_dir_of(self.settings.home, self.restoring.pop())
            try:
                self.restore(run_dir, always_record=True)
            except NotFoundError:
                if is_gone(run_dir):
                    raise
                url = self.remote.url_of(run_dir.path.name)
                note_nothing_there(run_dir, url, settings=self.settings, clock=self.clock)

    def fetch(self, run_id: str, remote: Remote, **how: Any) -> Outcome:
        """As ``hpcflow restore --from`` does in a home that does not know the run."""
        there = self.there(run_id, remote)
        place = place_on(
            self.site,
            there.run,
            settings=self.settings,
            url=there.url,
            working_dir=self.folder,
        )
        return self.put(there, place, **how)

    def put(self, there: RemoteRun, place: Place, **how: Any) -> Outcome:
        with open_ledger(self.settings.ledger_url) as ledger:
            known = ledger.known([there.run_id]).get(there.run_id)
            outcome = restore(
                there,
                place,
                settings=self.settings,
                clock=self.clock,
                cluster=self.slurm.cluster(),
                known=known,
                **how,
            )
            rebuild(ledger, [outcome.run_dir])
        return outcome


def home_of(folder: Path) -> Owner:
    """Another person's, or another cluster's: nothing in common but the bucket."""
    folder.mkdir()
    return Owner(folder)


def elsewhere(owner: Owner) -> Owner:
    """Another cluster, with a scratch and a home of its own, and the same bucket."""
    other = home_of(owner.folder / "other")
    other.slurm = FakeScheduler(other.clock, cluster_name="elsewhere")
    other.site = other.site.model_copy(
        update={"name": "elsewhere", "cluster_name": "elsewhere", "mirror": None}
    )
    other.remote = owner.remote
    other.clock.advance(timedelta(hours=3).total_seconds())
    return other
