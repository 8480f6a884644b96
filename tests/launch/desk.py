"""A person with runs on a cluster that is in memory, and a clock that stands still."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from tempfile import TemporaryDirectory

from hpcflow.errors import HpcflowError
from hpcflow.launch.cancel import end_jobs, request_cancel
from hpcflow.launch.context import LaunchContext
from hpcflow.launch.plan import make_plan
from hpcflow.launch.resume import resume
from hpcflow.launch.run import Launched, launch
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.state import AttemptState, RunState
from hpcflow.model.views import RunDetail
from hpcflow.reconcile.context import RefreshContext
from hpcflow.reconcile.refresh import refresh
from hpcflow.resources import resource_dir
from hpcflow.settings import load_settings
from hpcflow.sites.loader import load_site
from hpcflow.sites.schema import Site
from hpcflow.storage.layout import RunDir
from hpcflow.testing.clock import FakeClock
from hpcflow.testing.fake_scheduler import FakeScheduler

CONFIG = """
name: small
command: ["true"]
launch: {framework: none, launcher: none}
resources: {time_limit: 10m, account: physics}
"""


@dataclass
class Desk:
    """A person, a cluster in memory, and a clock that stands still."""

    folder: Path

    def __post_init__(self) -> None:
        self.clock = FakeClock(datetime(2026, 3, 1, tzinfo=timezone.utc))
        self.slurm = FakeScheduler(self.clock, cluster_name="devcluster")
        self.settings = load_settings(
            {"HPCFLOW_HOME": str(self.folder / "home"), "SCRATCH": str(self.folder / "scratch")}
        )
        # Its jobs end at their time limits, so that what they may cost is easy to compute.
        self.site = _shipped_site().model_copy(update={"time_limit_overrun_s": 0})
        self.config = self.folder / "config.yaml"
        self.config.write_text(CONFIG)
        self.begin_home()

    def begin_home(self) -> None:
        """As after a first run: with tables in its ledger, and with templates that are compiled."""
        self.settings.home.path.mkdir(0o700)
        for name, content in _files_of_a_home().items():
            path = self.settings.home.path / name
            path.touch(0o600)
            path.write_bytes(content)

    def dir_of(self, launched: Launched) -> RunDir:
        return self.settings.home.run_dir(launched.run_dir)

    def launch(self) -> Launched:
        plan = make_plan(
            self.config, settings=self.settings, clock=self.clock, site=self.site, overrides=()
        )
        return launch(plan, settings=self.settings, scheduler=self.slurm, clock=self.clock)

    def resume(
        self,
        run_dir: RunDir,
        *,
        known_attempts: int = 0,
        avoid: Sequence[str] = (),
        overrides: Sequence[str] = (),
        warn: Callable[[str], object] = lambda _: None,
    ) -> Launched:
        return resume(
            LaunchContext(self.settings, self.site, self.slurm, self.clock),
            run_dir,
            known_attempts=known_attempts,
            avoid=avoid,
            overrides=overrides,
            warn=warn,
        )

    def cancel(self, run_dir: RunDir) -> str | None:
        """As the command does it: jobs are ended also where the request cannot be written."""
        failed: HpcflowError | None = None
        try:
            request_cancel(run_dir, settings=self.settings, clock=self.clock)
        except HpcflowError as error:
            failed = error
        job_id = None
        try:
            job_id = end_jobs(run_dir, scheduler=self.slurm, clock=self.clock)
        except HpcflowError as error:
            failed = failed or error
        if failed is not None:
            raise failed
        return job_id

    def look(self) -> list[str]:
        """What `ls` does before it shows anything; returns its warnings."""
        with open_ledger(self.settings.ledger_url) as ledger:
            return refresh(self.context(ledger))

    def context(self, ledger: Ledger) -> RefreshContext:
        return RefreshContext(
            ledger,
            self.settings,
            self.clock,
            connect=lambda _: self.slurm,
            find_site=lambda _: self.site,
        )

    def seen(self, run_id: str) -> RunDetail:
        """The run, after a look at everything."""
        with open_ledger(self.settings.ledger_url) as ledger:
            refresh(self.context(ledger))
            return ledger.run(run_id)

    def state(self, run_id: str) -> tuple[RunState, str | None]:
        """The run's state and the reason of its last attempt, after a look at everything."""
        found = self.seen(run_id)
        return found.run.state, found.attempts[-1].reason if found.attempts else None

    def alive(self) -> list[str]:
        return [job.job_id for job in self.slurm.queue() if job.state is not AttemptState.ENDED]


class _Newcomer(Desk):
    """A person without a home."""

    def begin_home(self) -> None:
        pass


@lru_cache(maxsize=1)
def _shipped_site() -> Site:
    return load_site("devcluster", search=[resource_dir("site_configs")])


@lru_cache(maxsize=1)
def _files_of_a_home() -> dict[str, bytes]:
    """Name -> content of what takes longer to make than most tests."""
    with TemporaryDirectory() as folder:
        desk = _Newcomer(Path(folder))
        desk.launch()
        compiled = desk.settings.home.compiled_templates
        ledger = desk.folder / desk.settings.home.ledger.name
        open_ledger(f"sqlite:///{ledger}").close()
        return {each.name: each.read_bytes() for each in (compiled, ledger)}
