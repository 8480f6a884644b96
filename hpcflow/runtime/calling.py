"""Call a Python function as the program of a run, with the run's parameters; report its result.

``python3 -m hpcflow.runtime call FILE:FUNCTION METRIC…`` calls a function in a file. Its folder is
added to ``sys.path`` after hpcflow has been imported, and only if no other user can create modules
there. hpcflow checked at submission that the function accepts the parameters. Exceptions of the
function are not caught.
"""

from __future__ import annotations

import importlib.util
import inspect
import math
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

from hpcflow.runtime.creators import OpenFolder, require_closed
from hpcflow.runtime.events import EventLog
from hpcflow.runtime.files import create_marker
from hpcflow.runtime.job import Job, read_params
from hpcflow.runtime.metrics import add_metrics, held
from hpcflow.runtime.notice import NAMES, TERM, USR2
from hpcflow.runtime.parameters import Params
from hpcflow.runtime.warn import warn

if TYPE_CHECKING:
    from hpcflow.runtime.run import Run

#: The name of a result without a name.
VALUE = "value"
#: The parameter that gets the :class:`~hpcflow.runtime.run.Run`.
RUN = "run"
#: The parameter that gets all parameters, if it is the only one.
PARAMS = "params"

_SIGNALS = {signal.SIGUSR2: NAMES[USR2], signal.SIGTERM: NAMES[TERM]}
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)


class UnusableResult(Exception):
    """The value that a function returned is not a metric."""


def call_in_file(name: str, metrics: Sequence[str], job: Job) -> int:
    """Call the function ``name``, written ``FILE:FUNCTION``; return the exit code."""
    file, _, name = name.rpartition(":")
    function = getattr(_load(Path(file).absolute()), name, None)
    if function is None:
        warn(f"{file} has no function {name!r} any more")
        return 1
    return call(function, metrics, job)


def call(function: Callable[..., Any], metrics: Sequence[str], job: Job) -> int:
    """Call ``function`` with the run's parameters, report its result, and return the exit code.

    A function with a parameter ``run`` gets the :class:`~hpcflow.runtime.run.Run`, and resumes by
    itself. Otherwise a notice ends the call, and the next attempt starts it again.

    Args:
        metrics: the names of the returned values, in order; empty for :data:`VALUE`.
    """
    given, takes_run = _arguments(function, read_params(job.params_file))
    run = None
    if takes_run:
        from hpcflow.runtime import start

        given[RUN] = run = start()
    elif job.attempt_dir is not None:
        _exit_on_notice(job)
    result, names = function(**given), metrics or [VALUE]
    try:
        found = {} if run and result is None else _metrics(result, names, must_have_all=run is None)
    except UnusableResult as problem:
        warn(f"{getattr(function, '__name__', 'the function')}() returned {problem}")
        return 1
    for name, value in found.items():
        if not math.isfinite(value):
            warn(f"{name} is {value}: it is recorded without a value")
    return _finish(run, job, found)


def look_in(folders: Sequence[str]) -> None:
    """Add ``folders`` to ``sys.path``, but import neither hpcflow nor torch from there.

    Raises:
        SystemExit: another user can create files in one of them; after a warning.
    """
    import hpcflow.runtime.run  # noqa: F401 - before the folders can shadow it

    found = []
    for folder in folders:
        try:
            require_closed(folder)
        except OpenFolder as problem:
            warn(f"{problem}; {problem.next_action}; then start the sweep again")
            raise SystemExit(1) from None
        except OSError:
            continue  # nothing can be imported from there
        found.append(folder)
    sys.meta_path.insert(0, _Installed(sys.path.copy()))
    sys.path[:0] = found


class _Installed:
    """Finds torch as if the folders of a function were not in ``sys.path``."""

    def __init__(self, path: list[str]) -> None:
        self._path = path

    def find_spec(self, name: str, *_: object) -> ModuleSpec | None:
        return PathFinder.find_spec(name, self._path) if name == "torch" else None


def _load(path: Path) -> ModuleType:
    """Import the file ``path``; it can import what ``python path`` could import beside it."""
    look_in([str(path.parent)])
    sys.argv = [str(path)]
    name = path.stem
    # A file with the name of a loaded module must not replace it.
    name = name if name not in sys.modules else "hpcflow_objective"
    spec = importlib.util.spec_from_file_location(name, str(path))
    assert spec is not None
    assert spec.loader is not None
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def _arguments(function: Callable[..., Any], params: dict[str, Any]) -> tuple[dict[str, Any], bool]:
    """Return those of ``params`` that a function takes, and whether it takes the run."""
    parameters = inspect.signature(function).parameters.values()
    names = [each.name for each in parameters if each.kind in _BY_NAME]
    takes_run = RUN in names
    names = [name for name in names if name != RUN]
    if any(each.kind is inspect.Parameter.VAR_KEYWORD for each in parameters):
        return {name: value for name, value in params.items() if name != RUN}, takes_run
    if names == [PARAMS] and PARAMS not in params:
        return {PARAMS: Params(params)}, takes_run
    return {name: params[name] for name in names if name in params}, takes_run


def _exit_on_notice(job: Job) -> None:
    """Handle the notice's signals: exit at once, because there is nothing to save."""

    def on_signal(number: int, _frame: object) -> None:
        for each in _SIGNALS:
            signal.signal(each, signal.SIG_IGN)
        if job.rank == 0 and job.attempt_dir is not None:
            EventLog(job.events).append("notice", signal=_SIGNALS[signal.Signals(number)])
            try:
                create_marker(job.attempt_dir / "resubmit")
            except OSError as error:
                warn(f"cannot record the request for a resubmission: {error}")
        raise SystemExit(job.exit_code)

    if threading.current_thread() is threading.main_thread():
        for number in _SIGNALS:
            signal.signal(number, on_signal)


def _metrics(result: Any, names: Sequence[str], *, must_have_all: bool) -> dict[str, float]:
    """Return the values in the result of a function, by name.

    Args:
        must_have_all: whether each of ``names`` is required: the function had no run to report to.
    """
    if isinstance(result, dict):
        found = {str(name): _number(value, f"a {name!r} that is") for name, value in result.items()}
        missing = [name for name in names if name not in found]
        if missing and must_have_all:
            has = ", ".join(found) or "nothing"
            raise UnusableResult(f"no {missing[0]!r}; the dict that it returned has: {has}")
        return found
    values = list(result) if isinstance(result, (list, tuple)) else [result]
    if len(values) != len(names):
        several = "1 value" if len(values) == 1 else f"{len(values)} values"
        objectives = "the one objective" if len(names) == 1 else f"the {len(names)} objectives"
        raise UnusableResult(f"{several} for {objectives} {', '.join(names)}")
    return {name: _number(value) for name, value in zip(names, values)}  # noqa: B905 - since 3.10


def _number(value: Any, head: str = "") -> float:
    try:
        held("", value)
        return float(value)
    except (TypeError, ValueError, OverflowError):
        kind = "None" if value is None else f"{type(value).__name__} {repr(value)[:80]}"
        shown = f"{head} {kind}".lstrip()
        raise UnusableResult(
            f"{shown}, which is not a number; return a number, a dict of numbers, or a tuple of "
            "them"
        ) from None


def _finish(run: Run | None, job: Job, metrics: dict[str, float]) -> int:
    """Report the end of the training, with its last metrics."""
    if run is not None and not run._is_finished:
        if run._saving is not None and not run._is_restored:
            run.restore()  # finish() needs it; the function had no loop to resume
        run.finish(**metrics)
        return 0
    if job.rank != 0 or (run is not None and not metrics):
        return 0
    events = EventLog(job.events)
    train_step = 0 if run is None else run.train_step
    if run is not None:
        add_metrics(job, events, train_step, metrics)
    events.append("finished", train_step=train_step, metrics=metrics)
    return 1 if events.lost else 0
