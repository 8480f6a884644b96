"""``hpcflow.sweep(function, space, …)``: a sweep from Python.

The program of its trials is any function that cloudpickle can pickle: also a lambda, a closure, or
a function of a notebook. In a job, :mod:`hpcflow.sweeps.call` calls it, in the environment of this
process.
"""

from __future__ import annotations

import hashlib
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import hpcflow
from hpcflow.clock import Clock, SystemClock
from hpcflow.config.function_sweep import goals_of, load_function, name_from
from hpcflow.config.signature import signature_of
from hpcflow.documents import Document, Place
from hpcflow.errors import HpcflowError, InputError, Where
from hpcflow.launch.connecting import connect_scheduler, resolve_site
from hpcflow.launch.context import LaunchContext
from hpcflow.ledger.store import open_ledger
from hpcflow.model.ids import make_run_id
from hpcflow.model.sweep_records import StopRequested
from hpcflow.ownership import require_closed_folder
from hpcflow.requeue.round_context import RoundContext
from hpcflow.schedulers.base import Scheduler
from hpcflow.settings import Settings, load_settings
from hpcflow.sites.schema import Site
from hpcflow.storage.sweeps import SweepDir, append
from hpcflow.sweeps.round import TickReport
from hpcflow.sweeps.rounds import look_and_tick
from hpcflow.sweeps.starting import plan_sweep, start_sweep
from hpcflow.sweeps.state import SweepProgress, SweepState
from hpcflow.sweeps.view import SweepView, TrialView, look, sweep_view
from hpcflow.working_dir import own_python

#: Stands in messages in place of a file name.
_CALL: Final = "hpcflow.sweep()"
_PICKLE: Final = "function.pkl"


@dataclass(frozen=True)
class Best:
    """The parameters and the objective of the best trial."""

    params: Mapping[str, Any]
    value: float


class StartedSweep:
    """A started sweep. Each :meth:`tick`, or each round of cron or the daemon, drives it on.

    Attributes:
        sweep_id: its id in ``hpcflow sweep status`` and the other commands.
    """

    def __init__(self, sweep_dir: SweepDir, settings: Settings, clock: Clock) -> None:
        self.sweep_id = sweep_dir.sweep_id
        self._dir, self._settings, self._clock = sweep_dir, settings, clock
        self._sites: dict[str, Site] = {}
        self._schedulers: dict[str, Scheduler] = {}

    def tick(self) -> TickReport | None:
        """Run one round: collect, tell, prune, ask, submit. None if another process runs one."""
        with open_ledger(self._settings.ledger_url) as ledger:
            around = RoundContext(
                ledger,
                self._settings,
                self._clock,
                connect=self._scheduler,
                find_site=self._site,
            )
            _, reports = look_and_tick(around, only=self._dir)
        return reports[0] if reports else None

    def wait(self, poll_s: float = 30.0) -> None:
        """Run rounds until the sweep is over or stopped.

        Args:
            poll_s: seconds between two rounds.

        Raises:
            HpcflowError: the sweep halted; the message says why and what to do.
        """
        while True:
            self.tick()
            progress = self._progress()
            if progress.state is SweepState.HALTED and progress.halted is not None:
                halted = progress.halted
                raise HpcflowError(halted.why, next_action=halted.next_action)
            if progress.is_at_rest:
                return
            self._clock.sleep(poll_s)

    def trials(self) -> list[TrialView]:
        """Return all trials so far: values, state, time and cost."""
        return self._view().trials

    @property
    def best(self) -> Best | None:
        """Return the best complete trial; None if no trial is complete.

        Raises:
            InputError: the sweep has several objectives.
        """
        view = self._view()
        if len(view.goals) > 1:
            raise InputError(
                f"the sweep has {len(view.goals)} objectives, so no single trial is the best",
                next_action=f"list the best: hpcflow sweep best {self.sweep_id}; or use trials()",
            )
        if not view.best:
            return None
        (value,) = view.best[0].values.values()
        return Best(view.best[0].params, value)

    def stop(self) -> None:
        """Ask for no more trials; active ones run to their end."""
        if self._progress().over is None:
            append(self._dir, [StopRequested(at=self._clock.now(), by=self._settings.user)])

    def _progress(self) -> SweepProgress:
        return look(self._dir)[1]

    def _view(self) -> SweepView:
        return sweep_view(*look(self._dir), self._clock.now())

    def _site(self, name: str) -> Site:
        if name not in self._sites:
            self._sites[name] = resolve_site(self._settings, name)
        return self._sites[name]

    def _scheduler(self, name: str) -> Scheduler:
        if name not in self._schedulers:
            self._schedulers[name] = connect_scheduler(
                self._site(name), self._settings, self._clock
            )
        return self._schedulers[name]


def sweep(
    function: Callable[..., Any],
    space: Mapping[str, Any],
    *,
    direction: str | Sequence[str],
    metric: str | Sequence[str] = (),
    trials: int | None = None,
    parallel: int | None = None,
    sampler: str | Mapping[str, Any] = "tpe",
    pruner: str | Mapping[str, Any] = "none",
    resources: Mapping[str, Any] | None = None,
    site: str | None = None,
    name: str | None = None,
    settings: Settings | None = None,
) -> StartedSweep:
    """Start a sweep in which each trial calls ``function`` in a job; submit its first trials.

    Args:
        function: its arguments are the parameters of the trial, by name. An argument ``params``
            receives all of them, ``run`` receives :class:`hpcflow.runtime.Run`. It returns a
            number, or a dict or tuple of numbers: one for each metric.
        space: as ``space`` of a sweep's file: ``{"lr": {"low": 1e-5, "high": 0.1, "log": True}}``.
        direction: ``minimize`` or ``maximize``; a list of them for several objectives.
        metric: name of the returned value, or a list of names; ``value`` by default.
        trials: number of trials; only a grid and pbt end without it.
        parallel: how many are pending or running in Slurm at once; by default 1, for pbt its
            population.
        sampler, pruner: as in a sweep's file.
        resources: as in a run's file: ``{"gpus_per_node": 1, "time_limit": "1h"}``.
        site: name of a site, or path of a site file; recognized from this machine if None.
        name: of the sweep; the name of the function if None.

    Raises:
        hpcflow.errors.HpcflowError: the message says what is wrong and what to do next.
    """
    settings, clock = settings or load_settings(), SystemClock()
    signature, content = signature_of(function), _pickled(function)
    for folder in _own_folders():
        require_closed_folder(folder)
    named_in = Where(key="site") if site else None
    the_site = resolve_site(settings, site, named_in=named_in)
    called = name or name_from(signature.name)
    source = Path(signature.file or "")
    source = source if source.is_file() else Path.cwd()
    said = {
        "name": called,
        "base": str(source.absolute()),
        "space": _plain(space),
        **goals_of(_listed(metric), _listed(direction)),
        "sampler": _plain(sampler),
        "pruner": _plain(pruner),
        "parallel": parallel,
        "budget": {} if trials is None else {"trials": trials},
    }
    sweep_id = make_run_id(name_from(called), clock.now(), os.urandom(8))
    pickle = settings.home.sweeps / sweep_id / _PICKLE
    loaded = load_function(
        Document(None, said, Place(_CALL, None)),
        signature,
        lambda metrics: _command(pickle, content, metrics),
        [_around_the_call(resources or {})],
        source=source.absolute(),
        working_dir=Path.cwd(),
    )
    scheduler = connect_scheduler(the_site, settings, clock)
    plan = plan_sweep(
        None,
        LaunchContext(settings, the_site, scheduler, clock),
        loaded=loaded,
        site_name=site,
        sweep_id=sweep_id,
    )
    started = StartedSweep(start_sweep(plan, settings, files={_PICKLE: content}), settings, clock)
    started.tick()
    return started


def _pickled(function: Callable[..., Any]) -> bytes:
    import cloudpickle
    from submitit.core.utils import DelayedSubmission

    try:
        return bytes(cloudpickle.dumps(DelayedSubmission(function)))
    except Exception as error:  # an object's own pickling code may raise anything
        raise InputError(
            f"this function cannot be sent to a job: {type(error).__name__}: {error}",
            where=Where(key=getattr(function, "__name__", None)),
            next_action="open files, connections and locks inside the function, not outside",
        ) from None


def _command(pickle: Path, content: bytes, metrics: Sequence[str]) -> list[str]:
    checksum = hashlib.sha256(content).hexdigest()
    words = (str(pickle), checksum, ":".join(map(str, _own_folders())), *metrics)
    python, *start = own_python("hpcflow.sweeps.call", *words)
    return [python, "-u", *start]


def _around_the_call(resources: Mapping[str, Any]) -> Document:
    """Return the resources of a trial, and the path of hpcflow if it is not installed."""
    changes: dict[str, Any] = {"resources": _plain(resources)}
    package = Path(hpcflow.__file__).absolute().parents[1]
    if not _is_installed(package) and ":" not in str(package):
        changes["environment"] = {"variables": {"PYTHONPATH": str(package)}}
    return Document(None, changes, Place(_CALL, None))


def _own_folders() -> list[Path]:
    """Return the folders in which this process finds modules that are not installed."""
    folders = [Path(each).absolute() for each in sys.path]
    own = [each for each in folders if not _is_installed(each) and ":" not in str(each)]
    return list(dict.fromkeys(own))


def _is_installed(folder: Path) -> bool:
    return any(folder.is_relative_to(root) for root in (sys.prefix, sys.base_prefix))


def _listed(value: str | Sequence[str]) -> list[str]:
    return [value] if isinstance(value, str) else list(value)


def _plain(value: Any) -> Any:
    """Return ``value`` with mappings as dicts with text keys, and tuples as lists, as in YAML."""
    if isinstance(value, Mapping):
        return {str(key): _plain(item) for key, item in value.items()}
    return [_plain(item) for item in value] if isinstance(value, (list, tuple)) else value
