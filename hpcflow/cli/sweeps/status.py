"""Print the status of a sweep, and what a round of it did."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, TypedDict

from hpcflow.cli.output import value_text
from hpcflow.cli.session import Session
from hpcflow.model.units import counted, format_duration
from hpcflow.terminal import Line, Styled

if TYPE_CHECKING:
    from hpcflow.sweeps.round import TickReport
    from hpcflow.sweeps.view import SweepView, TrialView


class Trials(TypedDict):
    """Trials of a sweep."""

    sweep_id: str
    trials: list[TrialView]


COLOURS: Final = {
    "running": "cyan",
    "stopping": "yellow",
    "stopped": "yellow",
    "halted": "red",
    "over": "green",
    "complete": "green",
    "pruned": "magenta",
    "failed": "red",
}
_BAR_CHARS: Final = 30
#: The most active trials to show: a terminal has some fifty lines.
_SHOWN: Final = 20


def view_of(session: Session, sweep: str) -> SweepView:
    from hpcflow.storage.sweeps import find_sweep
    from hpcflow.sweeps.view import look, sweep_view

    found = look(find_sweep(session.settings.home, sweep))
    return sweep_view(*found, session.clock.now())


def running_lines(view: SweepView) -> list[str]:
    """Return lines about the active trials: values, progress, reported results."""
    running = [trial for trial in view.trials if trial.state == "running"]
    goal = next(iter(view.goals))
    rows = []
    for trial in running[:_SHOWN]:
        params = "  ".join(f"{name}={param_text(value)}" for name, value in trial.params.items())
        at = "" if trial.at is None else f"at {trial.at}"
        rows.append(f"  {trial.trial:>5}  {at:<8} {goal_text(trial, goal):<12} {params}")
    if len(running) > _SHOWN:
        rows.append(f"         and {len(running) - _SHOWN} more")
    return rows


def status_lines(view: SweepView, now: datetime) -> list[Line]:
    ended = view.complete + view.pruned + view.failed
    goals = ", ".join(f"{direction} {name}" for name, direction in view.goals.items())
    lines = [
        f"  {_bar(ended, view.running, view.max_trials)}",
        f"  trials    {ended} ended ({view.complete} complete, {view.pruned} pruned, "
        f"{view.failed} failed), {view.running} under way, {view.parallel} at once",
        f"  objective {goals}; sampler {view.sampler}, pruner {view.pruner}",
    ]
    lines += [f"  best      {_trial_text(best)}" for best in view.best[:5]]
    if len(view.best) > 5:
        lines.append(f"            and {len(view.best) - 5} more: hpcflow sweep best")
    money = f", {view.cost_usd} USD" if view.cost_usd is not None else ""
    lines.append(
        f"  took      {format_duration(view.seconds)} of attempts, "
        f"{view.gpu_hours:.4g} GPU hours{money}"
    )
    if view.pruned and view.pruner != "none":  # a population saves an unknown amount
        lines.append(
            f"  pruning   saved about {format_duration(view.saved_s)} of attempts, "
            f"{view.saved_gpu_hours:.4g} GPU hours"
        )
    if view.over_at is not None:
        left_s = (view.over_at - now).total_seconds()
        late = "overdue: trials take longer than before"
        lines.append(f"  ETA       {format_duration(left_s) if left_s >= 0 else late}")
    if view.why is not None:
        lines.append(f"  why       {view.why}")
    if view.next_action is not None:
        lines.append(f"  → {view.next_action}")
    state = Styled(view.state, fg=COLOURS.get(view.state))
    return [(Styled(view.sweep_id, bold=True), "  ", state), *((line,) for line in lines)]


def _bar(ended: int, running: int, most: int | None) -> str:
    if not most:
        return f"{counted(ended, 'trial')} ended"
    done = min(_BAR_CHARS, _BAR_CHARS * ended // most)
    begun = min(_BAR_CHARS - done, -(-_BAR_CHARS * running // most))
    bar = "█" * done + "▒" * begun + "·" * (_BAR_CHARS - done - begun)
    return f"{bar} {ended}/{most}"


def _trial_text(trial: TrialView) -> str:
    params = "  ".join(f"{name}={param_text(value)}" for name, value in trial.params.items())
    return f"trial {trial.trial}: {values_text(trial.values)}  ({params})"


def values_text(values: Mapping[str, float]) -> str:
    return "  ".join(f"{name} {value:.5g}" for name, value in values.items())


def goal_text(trial: TrialView, goal: str) -> str:
    if goal in trial.values:
        return f"{trial.values[goal]:.5g}"
    newest = trial.newest.get(goal)
    return f"({newest:.5g})" if newest is not None else ""


def param_text(value: Any) -> str:
    return f"{value:.5g}" if isinstance(value, float) else value_text(value)


def report_lines(report: TickReport, now: datetime) -> list[str]:
    """Return lines for a log; none if nothing happened."""
    parts = [
        f"{name} {', '.join(map(str, numbers))}"
        for name, numbers in (
            ("asked", report.asked),
            ("ended", report.told),
            ("pruned", report.pruned),
        )
        if numbers
    ]
    if report.sent:
        parts.append(f"sent {len(report.sent)}")
    return [
        f"{now:%Y-%m-%d %H:%M:%S}  {report.sweep_id}  {text}"
        for text in ["; ".join(parts), *report.said]
        if text
    ]
