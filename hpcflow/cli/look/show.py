"""``hpcflow show``."""

from __future__ import annotations

import errno
import re
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime
from decimal import Decimal
from typing import TYPE_CHECKING, Final

import click

from hpcflow.cli.arguments import json_option, run_argument
from hpcflow.cli.columns import Column, print_table
from hpcflow.cli.look.shown_run import ShownRun, frozen_run, next_text, print_failure, shown_run
from hpcflow.cli.output import (
    STATE_COLOURS,
    metric_text,
    next_words,
    print_json,
    site_text,
    state_text,
    state_word,
    value_text,
    values_of,
)
from hpcflow.cli.session import Session, warn
from hpcflow.errors import HpcflowError, NotFoundError, StorageError
from hpcflow.model.state import RunState
from hpcflow.model.units import counted, format_bytes, format_duration
from hpcflow.storage.checkpoints import is_complete
from hpcflow.storage.layout import RunDir
from hpcflow.storage.runs import is_gone
from hpcflow.terminal import echo

if TYPE_CHECKING:
    from hpcflow.budgets.amounts import Amounts
    from hpcflow.model.run import Provenance, Run
    from hpcflow.model.views import AttemptView, CheckpointView, RunDetail, RunView


@dataclass(frozen=True, kw_only=True)
class Shown(ShownRun):
    """A run; `unbilled_so_far` is what attempts without a bill used, as decimal texts by unit."""

    unbilled_so_far: dict[str, str] | None


#: A valid name or id of a run, or the beginning of one.
_WORD: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,99}", re.ASCII)
#: The number of checkpoints to list.
_SHOWN: Final = 10


@click.command("show", short_help="Show one run: attempts, checkpoints, metrics.")
@run_argument
@json_option(Shown)
def command(run: str, as_json: bool) -> int:
    """Show the state, attempts, checkpoints and metrics of RUN.

    If the last attempt failed, it also shows the error, and the last lines of the log. If several
    runs have the name, it shows the newest. For a run of another user, or of another HPCFLOW_HOME,
    it shows what the ledger has.
    """
    session = Session()
    try:
        run_id = session.run_dir(run, newest=True).path.name
    except NotFoundError as error:
        return _show_shared(session, run, error, as_json=as_json)
    session.refresh()
    detail = session.detail(run_id)
    unbilled = _unbilled(session, detail)
    unsupervised = session.unsupervised([detail.run])
    if as_json:
        so_far = None if unbilled is None else unbilled.to_json()
        shown = shown_run(detail, session.settings.home, unsupervised)
        print_json(Shown(**values_of(shown), unbilled_so_far=so_far))
        return 0
    _print(session, detail, unbilled)
    session.warn_of_missing_daemon(unsupervised)
    if detail.run.save_error is None and not detail.run.state.is_final:
        _warn_of_room(session, session.settings.home.run_dir(detail.run.run_dir))
    if detail.run.state is RunState.RUNNING and detail.run.gpus:
        _warn_of_idle_gpus(session, run_id)
    return 0


def _show_shared(session: Session, text: str, error: NotFoundError, *, as_json: bool) -> int:
    """Show a run that is not in this home from the ledger, without opening its run directory."""
    detail = session.ledger.shared_run(text) if _WORD.fullmatch(text) else None
    if detail is None:
        raise error
    if as_json:
        shown = shown_run(detail, session.settings.home, is_here=False)
        print_json(Shown(**values_of(shown), unbilled_so_far=None))
    else:
        _print(session, detail, None, is_here=False)
    return 0


def _warn_of_idle_gpus(session: Session, run_id: str) -> None:
    from hpcflow.cli.costs.efficiency import idle_text
    from hpcflow.model.measured import measured

    last = session.ledger.used(run_id=run_id)[-1:]
    for row in last:
        seen = measured(row.report.get("usage"))
        if seen is not None and seen.gpus_idle:
            text = idle_text(min(seen.gpus_idle, row.gpus), seen.gpus_idle_names)
            warn(f"{text} → see: hpcflow efficiency {run_id}")


def _warn_of_room(session: Session, run_dir: RunDir) -> None:
    """Warn about a full disk: on it, a job cannot even report that its save failed."""
    from hpcflow.launch.preflight import shortage
    from hpcflow.storage.rundir import read_run

    with suppress(StorageError):  # perhaps purged, which other lines report
        if (short := shortage(read_run(run_dir), session.settings)) is not None:
            warn(short)


def _unbilled(session: Session, detail: RunDetail) -> Amounts | None:
    """Return what running and unbilled attempts have used so far; None if none or unknown."""
    if all(each.billed_by is not None or each.started_at is None for each in detail.attempts):
        return None
    from hpcflow.costs.running import unbilled
    from hpcflow.storage.rundir import read_run

    try:
        run = read_run(session.settings.home.run_dir(detail.run.run_dir))
        return unbilled(run, detail.attempts, session.site(run.site), session.clock.now())
    except HpcflowError:  # run.json cannot be read, or its site is gone
        return None


def _print(
    session: Session, detail: RunDetail, unbilled: Amounts | None, *, is_here: bool = True
) -> None:
    run, home = detail.run, session.settings.home
    run_dir = home.run_dir(run.run_dir)
    frozen = frozen_run(detail, home) if is_here else None
    provenance = frozen.provenance if frozen is not None else None
    origin = frozen.started_from if frozen is not None else None
    echo(run.run_id, bold=True, nl=False)
    echo(f"  {state_text(run)}", fg=STATE_COLOURS[state_word(run)])
    progress = ""
    if run.train_step is not None:
        total = f" of {run.total_train_steps}" if run.total_train_steps else ""
        progress = f"train step {run.train_step}{total}"
    lines = {
        "user": run.user + ("" if is_here else " (from the ledger: no run of this HPCFLOW_HOME)"),
        "project": run.project,
        "sweep": run.parent_sweep or "",
        "tags": ", ".join(run.tags),
        "site": f"{site_text(run.site)}, partition {run.partition}",
        "resources": f"{counted(run.nodes, 'node')}, {counted(run.gpus, 'GPU')}"
        + (f" ({run.gpu_type})" if run.gpu_type else ""),
        "command": " ".join(detail.command),
        "params": "  ".join(f"{name}={value_text(value)}" for name, value in detail.params.items()),
        "overrides": "  ".join(provenance.overrides) if provenance else "",
        "commit": _commit(provenance),
        "code": _code(frozen) if frozen else "",
        "started from": f"{origin}, {origin.place}" if origin else "",
        "progress": progress,
        "metrics": metric_text(run.metrics),
        "results": _results(frozen),
        "next": next_text(detail) if is_here else next_words(run),
        "mirror": _mirror(detail),
        "cost": cost_text(detail, unbilled),
        "run directory": run.run_dir + (" (gone)" if is_here and is_gone(run_dir) else ""),
    }
    for key, value in lines.items():
        if value:
            echo(f"  {key:<14} {value}")
    if is_here:
        print_failure(detail, home)
    if run.save_error is not None:
        warn(_unsaved(run, detail.checkpoints))
    if detail.attempts:
        echo()
        _print_attempts(detail.attempts)
    if detail.checkpoints:
        echo()
        _print_checkpoints(run_dir if is_here else None, detail.checkpoints)


def _commit(provenance: Provenance | None) -> str:
    if provenance is None or provenance.git_commit is None:
        return ""
    return provenance.git_commit + (", with uncommitted changes" if provenance.git_dirty else "")


def _code(run: Run) -> str:
    from hpcflow.model.run import short_digest

    if run.code is None:
        return "read live by each attempt"
    return f"snapshot {short_digest(run.code.digest)} of {run.code.root}"


def _results(frozen: Run | None) -> str:
    results = frozen.results if frozen is not None else []
    return ", ".join(f"train step {each.train_step} by attempt {each.attempt}" for each in results)


def cost_text(detail: RunDetail, unbilled: Amounts | None) -> str:
    """Return the cost so far, including running attempts, and the estimate for one attempt."""
    run, parts = detail.run, []
    # A bill without a price is not 0, so the sum is unknown, too.
    has_bills = any(each.billed_by is not None for each in detail.attempts)
    money = [
        f"{Decimal(billed or 0) + (more or 0):.2f} {unit}"
        for unit, billed, more in (
            ("USD", run.cost_usd, unbilled and unbilled.cost_usd),
            ("SU", run.cost_su, unbilled and unbilled.cost_su),
        )
        if billed is not None or (more is not None and not has_bills)
    ]
    if money:
        about = "about " if run.is_estimate or unbilled is not None else ""
        more = ""
        if unbilled is not None and unbilled.cost_usd is None and unbilled.cost_su is None:
            more = f", and {unbilled.gpu_hours or 0:.2f} GPU hours without a price"
        parts.append(f"{about}{', '.join(money)} so far{more}")
    elif unbilled is not None:
        parts.append(f"about {unbilled.gpu_hours or 0:.2f} GPU hours so far, without a price")
    if run.estimated_cost_usd:
        parts.append(f"an attempt with its full time limit: estimated {run.estimated_cost_usd} USD")
    return "; ".join(parts)


def _unsaved(run: RunView, checkpoints: list[CheckpointView]) -> str:
    """Return that the last save failed, the newest checkpoint, and what to do."""
    newest = f"that of train step {checkpoints[-1].train_step}" if checkpoints else "none"
    text = f"the last save failed: {run.save_error}; the newest checkpoint is {newest}"
    if any(f"[Errno {number}]" in text for number in (errno.ENOSPC, errno.EDQUOT)):
        prune = f"hpcflow checkpoint prune {run.run_id} --keep-last 1"
        text += f" → make room: {prune}; see what uses it: hpcflow scratch"
    return text


def _print_attempts(attempts: list[AttemptView]) -> None:
    columns = Column.numbers("ATTEMPT") + Column.plain("JOB, STATE, CAUSE")
    columns += Column.texts("NODES 4") + Column.plain("STARTED 3") + Column.numbers("RAN 1, EXIT 2")
    rows = [
        [
            str(attempt.attempt),
            attempt.job_id or "",
            attempt.raw_state or attempt.state.value,
            attempt.cause.value if attempt.cause else attempt.reason or "",
            ", ".join(attempt.nodes),
            _when(attempt.started_at),
            _ran(attempt),
            "" if attempt.exit_code is None else str(attempt.exit_code),
        ]
        for attempt in attempts
    ]
    print_table(columns, rows)


def _ran(attempt: AttemptView) -> str:
    if not attempt.started_at or not attempt.ended_at:
        return ""
    return format_duration((attempt.ended_at - attempt.started_at).total_seconds())


def _mirror(detail: RunDetail) -> str:
    lag = detail.mirror
    if lag is None or lag.newest is None:
        return ""
    there = "nothing yet" if lag.mirrored is None else f"train step {lag.mirrored}"
    if lag.behind_since is None:
        return f"{there}, the newest"
    return f"{there}; train step {lag.newest} is to follow (behind since {_when(lag.behind_since)})"


def _print_checkpoints(run_dir: RunDir | None, checkpoints: list[CheckpointView]) -> None:
    columns = Column.plain("CHECKPOINT") + Column.numbers("ATTEMPT 3, SIZE")
    columns += Column.plain("WRITTEN 1, MIRRORED 2") + Column.texts("METRICS 1")
    rows = [
        [
            f"{each.train_step}{' (best)' if each.is_best else ''}{_lacks(run_dir, each.path)}",
            str(each.attempt),
            format_bytes(each.size_bytes),
            _when(each.created_at),
            _when(each.mirrored_at),
            metric_text(each.metrics),
        ]
        for each in checkpoints[-_SHOWN:]
    ]
    print_table(columns, rows)
    if len(checkpoints) > _SHOWN:
        echo(
            f"the last {_SHOWN} of {len(checkpoints)}; "
            f"all: hpcflow checkpoint ls {checkpoints[0].run_id}"
        )


def _when(moment: datetime | None) -> str:
    return "" if moment is None else f"{moment:%Y-%m-%d %H:%M:%S}"


def _lacks(run_dir: RunDir | None, path: str) -> str:
    """Return a mark for a checkpoint that is no longer complete."""
    if run_dir is None or is_complete(run_dir, path):
        return ""
    return " (incomplete)" if (run_dir.path / path).is_dir() else " (gone)"
