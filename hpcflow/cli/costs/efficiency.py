"""``hpcflow efficiency``."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any, Final, TypedDict

import click

from hpcflow.cli.arguments import complete_run, json_option
from hpcflow.cli.columns import Column, painted, print_table
from hpcflow.cli.costs.rows import is_of_everyone, since_option
from hpcflow.cli.output import jsonable, print_json
from hpcflow.cli.session import Session, warn
from hpcflow.errors import HpcflowError
from hpcflow.model.units import format_bytes, format_duration
from hpcflow.rightsizing.advice import advise
from hpcflow.rightsizing.report import Line, report
from hpcflow.rightsizing.use import Use, uses_of
from hpcflow.terminal import echo, safe

if TYPE_CHECKING:
    from hpcflow.ledger.used import UsedRow
    from hpcflow.model.measured import Measured
    from hpcflow.rightsizing.evidence import Advice, Nothing
    from hpcflow.sites.schema import Partition, Site
    from hpcflow.storage.layout import RunDir


class RunEfficiency(TypedDict):
    """What the attempts of a run used; `nothing` lists resources without advice, and why."""

    run_id: str
    attempts: list[Use]
    advice: list[Advice]
    nothing: list[Nothing]


class _By(TypedDict, total=False):
    user: str
    project: str
    partition: str
    account: str


class EfficiencyLine(_By):
    """What some attempts used, `_used` of `_had`; `measured` counts those with measurements."""

    runs: int
    attempts: int
    measured: int
    gpu_hours: float
    gpu_hours_had: float
    gpu_hours_used: float
    gpu_hours_wasted: float
    cpu_hours_had: float
    cpu_hours_used: float
    cpu_hours_wasted: float
    mem_gib_hours_had: float
    mem_gib_hours_used: float
    limit_hours: float
    limit_hours_used: float


class EfficiencyBy(TypedDict):
    """Sums across runs, by `by`."""

    by: str
    lines: list[EfficiencyLine]
    total: EfficiencyLine


_BY: Final = ("user", "project", "partition", "account")
_MOST_NAMED: Final = 10


@click.command("efficiency", short_help="Compare resources requested with resources used.")
@click.argument("run", required=False, shell_complete=complete_run)
@click.option("--by", "key", type=click.Choice(_BY), help="Sum up runs by this field.")
@since_option
@click.option("--project", help="With --by: only this project.")
@click.option("--user", help="With --by: only this user.")
@json_option(RunEfficiency, EfficiencyBy)
def command(
    run: str | None,
    key: str | None,
    since: datetime | timedelta | None,
    project: str | None,
    user: str | None,
    as_json: bool,
) -> int:
    """Compare the resources that RUN requested with those that it used, and advise what to request.

    With --by, compare the sums over all runs.

    \b
    hpcflow efficiency digits
    hpcflow efficiency --by user --since 30d
    """
    if (run is None) == (key is None):
        raise click.UsageError("give a RUN, or --by user, project, partition or account")
    if run is not None and (since or project or user):
        raise click.UsageError("--since, --project and --user need --by")
    session = Session()
    if run is not None:
        return _of_run(session, run, as_json=as_json)
    filters = {"project": project, "user_name": user}
    wanted = {name: value for name, value in filters.items() if value is not None}
    return _across(session, str(key), since, wanted, as_json=as_json)


def _of_run(session: Session, run: str, *, as_json: bool) -> int:
    run_dir = session.run_dir(run, newest=True)
    run_id = run_dir.path.name
    session.refresh()
    rows = session.ledger.used(run_id=run_id)
    now = session.clock.now()
    pairs, damaged = uses_of(rows, now)
    _warn_of(damaged)
    uses = [use for _, use in pairs]
    found = advise(uses, **_site_gpus(session, rows), notice_s=_notice_s(run_dir))
    running = [use for use in uses if use.is_running and use.gpus]
    idle = [use for use in running if use.measured and use.measured.gpus_idle]
    if as_json:
        print_json(
            RunEfficiency(run_id=run_id, attempts=uses, advice=found.advice, nothing=found.nothing)
        )
        return 0
    if not uses:
        echo(f"{run_id} has not started yet")
        return 0
    _print(run_id, uses)
    for use in idle:
        if use.measured is not None:
            count = min(use.measured.gpus_idle, use.gpus)
            warn(idle_text(count, use.measured.gpus_idle_names))
    for each in found.advice:
        echo(f"  → {each.text}")
        if each.key is not None:
            echo(f"      --set {each.key}={each.value}")
    for nothing in found.nothing:
        echo(f"  {nothing.what}: {nothing.why}", dim=True)
    return 0


def _warn_of(damaged: list[UsedRow]) -> None:
    for run_id, user in sorted({(row.run_id, row.user) for row in damaged})[:_MOST_NAMED]:
        warn(
            f"run {run_id[:80]} of user {user[:80]} is left out: a row of it in the ledger is "
            "damaged; its owner can rebuild it: hpcflow ledger rebuild"
        )


def idle_text(count: int, names: tuple[str, ...]) -> str:
    """Return a warning about allocated GPUs that are idle."""
    which = ", ".join(names) + (", …" if count > len(names) else "")
    what = "1 GPU is" if count == 1 else f"{count} GPUs are"
    return f"{what} allocated, but idle for ten minutes or more: {safe(which)}"


def _site_gpus(session: Session, rows: list[UsedRow]) -> dict[str, Any]:
    """Return the GPUs of the site for the advice; nothing if its file cannot be read here."""
    if not rows:
        return {}
    try:
        site = session.site(rows[-1].site)
    except HpcflowError:
        return {}
    partition = site.partitions.get(rows[-1].partition)
    own = _gpu_types(partition, site) if partition is not None else set[str]()
    others: dict[str, str] = {}
    for name, each in site.partitions.items():
        for gpu_type in _gpu_types(each, site) - own:
            others.setdefault(gpu_type, name)
    sizes = {name: site.gpu_types[name].mem_mb for name in (*own, *others)}
    return {
        "whole_nodes": partition is not None and partition.whole_nodes,
        "gpu_mem_mb": {name: mem for name, mem in sizes.items() if mem is not None},
        "gpu_partitions": others,
    }


def _gpu_types(partition: Partition, site: Site) -> set[str]:
    if not partition.gpus_per_node:
        return set()
    every = set(site.gpu_types)
    return every if partition.gpu_type is None else every & {partition.gpu_type}


def _notice_s(run_dir: RunDir) -> int | None:
    from hpcflow.storage.rundir import read_run

    try:
        return read_run(run_dir).spec.checkpoint.notice_s
    except HpcflowError:  # purged
        return None


def _print(run_id: str, uses: list[Use]) -> None:
    echo(run_id, bold=True)
    titles = "TIME, CORES 3, MEMORY 2, GPUS, BUSY 1, GPU_MEM 4, STEPS/S 6, DATA_WAIT 5"
    rows = [
        [str(use.attempt), use.cause or ("running" if use.is_running else ""), *_cells(use)]
        for use in uses
    ]
    print_table([*Column.plain("ATTEMPT, CAUSE"), *Column.numbers(titles)], rows)
    echo("used/requested per node; ?: not known")


def _cells(use: Use) -> list[str]:
    seen = use.measured
    limit = "?" if use.time_limit_min is None else format_duration(use.time_limit_min * 60)
    took = "?" if use.elapsed_s is None else format_duration(use.elapsed_s)
    return [
        f"{took}/{limit}",
        f"{_known(seen.cores_mean if seen else None, '.1f')}/{_known(use.cpus, 'd')}",
        f"{_size(seen.mem_peak_mb if seen else None)}/{_size(use.mem_mb)}",
        *(_gpu_cells(use, seen) if use.gpus else ["", "", ""]),
        "" if use.steps_per_s is None else f"{use.steps_per_s:.3g}",
        "" if use.data_wait is None else f"{100 * use.data_wait:.0f}%",
    ]


def _gpu_cells(use: Use, seen: Measured | None) -> list[str]:
    if seen is None or not seen.gpus:
        return [f"?/{use.gpus}", "?", "?"]
    used = str(min(seen.gpus - seen.gpus_unused, use.gpus)) if seen.gpus >= use.gpus else "?"
    return [
        f"{used}/{use.gpus}",
        "?" if seen.gpu_busy_mean is None else f"{seen.gpu_busy_mean:.0f}%",
        f"{_size(seen.gpu_mem_peak_mb)}/{_size(seen.gpu_mem_total_mb)}",
    ]


def _known(number: float | None, form: str) -> str:
    return "?" if number is None else format(number, form)


def _size(mb: int | None) -> str:
    return "?" if mb is None else format_bytes(mb << 20)


def _across(
    session: Session,
    key: str,
    since: datetime | timedelta | None,
    filters: Mapping[str, str],
    *,
    as_json: bool,
) -> int:
    session.refresh()
    now = session.clock.now()
    begin = now - since if isinstance(since, timedelta) else since
    rows = session.ledger.used(
        since=begin, filters=filters, everyone=is_of_everyone(session, filters)
    )
    pairs, damaged = uses_of(rows, now)
    _warn_of(damaged)
    lines, total = report(pairs, key)
    if as_json:
        values = [_line_values(key, line) for line in lines]
        print_json({"by": key, "lines": values, "total": _line_values(key, total)})
    elif not lines:
        echo("no attempts ran in this time")
    else:
        _print_lines(key, lines, total)
    return 0


def _line_values(key: str, line: Line) -> dict[str, Any]:
    values = {
        name: round(value, 4) if isinstance(value, float) else value
        for name, value in jsonable(line).items()
        if name not in ("by", "run_ids")
    }
    wasted = {
        "gpu_hours_wasted": round(line.gpu_hours_wasted, 4),
        "cpu_hours_wasted": round(line.cpu_hours_wasted, 4),
    }
    return {key: line.by, "runs": len(line.run_ids), **values, **wasted}


def _print_lines(key: str, lines: list[Line], total: Line) -> None:
    titles = "RUNS 5, ATTEMPTS 6, SEEN 7, GPU_H, WASTED, GPU 1, CPU 2, MEMORY 3, TIME 4"
    rows = []
    for line in [*lines, total]:
        cells = (
            "total" if line is total else line.by or "-",
            str(len(line.run_ids)),
            str(line.attempts),
            str(line.measured),
            f"{line.gpu_hours:.1f}",
            f"{line.gpu_hours_wasted:.1f}" if line.gpu_hours_had else "?",
            _share(line.gpu_hours_used, line.gpu_hours_had),
            _share(line.cpu_hours_used, line.cpu_hours_had),
            _share(line.mem_gib_hours_used, line.mem_gib_hours_had),
            _share(line.limit_hours_used, line.limit_hours),
        )
        rows.append(painted(cells, bold=line is total or None))
    print_table([Column(key.upper()), *Column.numbers(titles)], rows)
    echo("used share of the requested amount; SEEN: attempts with measurements")


def _share(used: float, had: float) -> str:
    return f"{100 * used / had:.0f}%" if had else "?"
