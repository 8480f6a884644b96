"""Every table, at 80, 120 and 200 columns: no number, no unit and no id is cut.

Each function of the commands that prints a table is called once, to learn its columns. The table is
then printed with long values, such as there are on a large cluster.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timezone
from decimal import Decimal
from importlib import import_module
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

import hpcflow.cli
from hpcflow.cli.columns import Cell, Column, painted, print_table
from hpcflow.costs.checkpoint_costs import StorageLine, StorageReport
from hpcflow.costs.report import USD, Line, Report, Team
from hpcflow.rightsizing.report import Line as Used
from tests.cli.desk import Desk
from tests.cli.terminal import Terminal
from tests.cli.trained import Trained

WIDTHS = (80, 120, 200)
NOW = datetime(2026, 11, 29, tzinfo=timezone.utc)
RUN = "llama-3-70b-finetune-instruct-lr-3e-4-warmup-20261129-abcdefgh"

#: Title -> the longest value that is likely there.
LONG: dict[str, str] = {
    **{"RUN": RUN, "SWEEP": RUN, "BUDGET": f"run:{RUN}", "FILE": "rank_00127/optimizer-of-9.pt"},
    **{"STATE": "completed", "CAUSE": "out_of_memory", "NEXT": "wait: backoff, 1h 04m"},
    **{"SITE": "perlmutter/gpu_shared_interactive", "JOB": "123456789_1023", "NODE": "nid001234"},
    **{"SIZE": "1023.9 GiB", "PROGRESS": "2700000/10000000", "AGE": "103d 23h"},
    **{"METRICS": "loss 1.235e-05  val_loss 0.003483  accuracy 0.9712  grad_norm 12.34"},
    **{"TRIALS": "1000/1000", "RUNNING": "128", "BEST": "val_loss 0.0034832", "USD": "123456.78"},
    **{"TRIAL": "1023", "TOOK": "103d 23h", "AT": "2700000", "lr": "0.00031416", "score": "0.123"},
    **{"GPU_H": "1234567.89", "HOURS": "1234567.89", "SU": "1234567.89", "WASTED": "12345.67"},
    **{"SAVED": "12345.67", "SHARE": "100.0 %", "RUNS": "10000", "ATTEMPTS": "12345"},
    **{"PROJECT": "climate-downscaling-europe", "USER": "bartholomew", "CHECKPOINTS": "12345"},
    **{"CHECKPOINTS IN": "s3://checkpoints-of-the-lab", "GB-MONTHS": "123456.78"},
    **{"GB FETCHED": "123456.78", "UNIT": "service units", "SPENT": "123456.78?"},
    **{"COMMITTED": "123456.78", "LEFT": "-123456.78", "SOFT": "123456.78", "HARD": "1234567.89"},
    **{"PER": "month", "PARTITION": "gpu_shared_interactive", "ACCOUNT": "m1234_g (default)"},
    **{"GPUS": "1024 a100_80gb", "STARTS": "in 103d 23h", "DONE": f"{'━' * 20} 100 %"},
    **{"FAIR SHARE": "0.123", "SCORE": "12345.67", "NEWEST": "2700000", "MIRRORED": "2700000"},
    **{"NOT MIRRORED": "123 of them, the newest too", "PURGED": "any moment (since 2026-11-29)"},
    **{"EXCLUDED": "from gpu_shared_interactive", "LAST": "103d 23h", "BEHIND": "103d 23h"},
    **{"TO GO": "1023.9 GiB", "QOS": "normal, gpu_interactive, preempt", "PRIORITY": "4294967294"},
    **{"USAGE FACTOR": "12.5 x", "PREEMPTS": "gpu_preempt, gpu_debug", "FLAGS": "DenyOnLimit"},
    **{"IN USE NOW": "128 jobs, 1024 nodes, 131072 CPUs, 4096 GPUs", "ATTEMPT": "1023"},
    **{"TIME": "103d 23h/104d 0h", "CORES": "127.9/128", "MEMORY": "1023.9 GiB/1023.9 GiB"},
    **{"BUSY": "100%", "GPU_MEM": "79.9 GiB/80.0 GiB", "STEPS/S": "0.00123", "DATA_WAIT": "100%"},
    **{"SEEN": "12345", "GPU": "100%", "CPU": "100%", "TRAIN STEP": "2700000", "EPOCH": "1234.5"},
    **{"WRITTEN": "2026-11-29 10:11:12", "KEPT": "one of the last 2; best: loss 1.235e-05"},
    **{"SHA256": "0123456789abcdef" * 4, "NODES": "nid001234, nid001235, nid001236, nid001237"},
    **{"STARTED": "2026-11-29 10:11:12", "RAN": "103d 23h", "EXIT": "137"},
    **{"CHECKPOINT": "2700000 (best) (incomplete)", "LIMIT": "123"},
    **{"CHECK": "daemon install", "LEVEL": "warning"},
    "FOUND": "no daemon supervises your runs, so no run is resubmitted after a failure",
    "WHY": "3 failures of 2 runs (node_fail, out_of_memory), the last one 12 h ago, 1023.9 GiB; "
    "not excluded, because the partition would lose too many nodes",
}  # fmt: skip


def _plan(module: Any) -> None:
    placement = SimpleNamespace(
        partition="a", nodes=1, gpus_per_node=1, gpu_type="a100", options=SimpleNamespace()
    )
    placement.options.preemptible = False
    candidate = SimpleNamespace(
        placement=placement, account="m1", waits_s=1.0, runs_s=1.0, fair_share=0.5, start=None
    )
    module._print([SimpleNamespace(candidate=candidate, cost=Decimal(1), score=1.0, unit="USD")])


def _trials(module: Any) -> None:
    trial = SimpleNamespace(trial=1, state="complete", params={"lr": 0.1}, values={"score": 1.0})
    trial.at, trial.seconds, trial.why = 1, 1.0, None
    module._print_trials([trial], ["score"])


def _keeping(module: Any) -> None:
    kept = StorageReport(("project",), [StorageLine(("a",), "scratch")], StorageLine((), ""))
    module.print_storage(kept)


FOLDER = Path(hpcflow.cli.__path__[0])
#: Each function that prints a table -> how it is called.
CALLS: dict[str, Callable[[Any], object]] = {
    "costs.budget_look.print_budgets": lambda module: module.print_budgets([], NOW),
    "checkpoints.checkpoint._print_files": lambda module: module._print_files({}),
    "checkpoints.checkpoint._print_table": lambda module: module._print_table(
        SimpleNamespace(found=[], hidden=[]), {}
    ),
    "costs.showback._print": lambda module: module._print(
        "project", [Team("a", Line(("a",)), USD, [])]
    ),
    "costs.table.print_report": lambda module: module.print_report(
        Report(("project", "user"), [], Line(("", ""), cost_su=Decimal(1)))
    ),
    "costs.table.print_storage": _keeping,
    "clusters.doctor.print_checks": lambda module: module.print_checks([]),
    "costs.efficiency._print": lambda module: module._print(RUN, []),
    "costs.efficiency._print_lines": lambda module: module._print_lines("user", [], Used("")),
    "costs.limits._print_accounts": lambda module: module._print_accounts([]),
    "costs.limits._print_qos": lambda module: module._print_qos([]),
    "look.ls._print": lambda module: module._print([], NOW),
    "checkpoints.mirror._print_status": lambda module: module._print_status([]),
    "control.nodes._print": lambda module: module._print([], NOW),
    "submit.plan._print": _plan,
    "checkpoints.scratch._print_runs": lambda module: module._print_runs([], NOW),
    "look.show._print_attempts": lambda module: module._print_attempts([]),
    "look.show._print_checkpoints": lambda module: module._print_checkpoints(None, []),
    "sweeps.look._print_sweeps": lambda module: module._print_sweeps([], NOW),
    "sweeps.look._print_trials": _trials,
}


def printing_functions() -> set[str]:
    """Return the functions of the commands that print a table."""
    found = set()
    for path in FOLDER.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if not isinstance(node, ast.FunctionDef):
                continue
            calls = [each.func for each in ast.walk(node) if isinstance(each, ast.Call)]
            if any(isinstance(call, ast.Name) and call.id == "print_table" for call in calls):
                module = ".".join(path.relative_to(FOLDER).with_suffix("").parts)
                found.add(f"{module}.{node.name}")
    return found


def test_every_table_goes_through_the_one_presenter_and_is_looked_at_here() -> None:
    assert printing_functions() == set(CALLS)
    for path in FOLDER.rglob("*.py"):
        assert "rich.table" not in path.read_text(), path.name


def columns_of(name: str, monkeypatch: pytest.MonkeyPatch) -> list[Column]:
    module = import_module(f"hpcflow.cli.{name.rpartition('.')[0]}")
    seen: list[Sequence[Column]] = []
    with monkeypatch.context() as patch:
        patch.setattr(module, "print_table", lambda columns, _rows: seen.append(columns))
        CALLS[name](module)
    return list(seen[0])


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("name", sorted(CALLS))
def test_no_number_no_unit_and_no_id_is_cut(
    name: str, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    columns = columns_of(name, monkeypatch)
    long = [LONG[column.title] for column in columns]
    rows: list[list[Cell]] = [[*long], [*painted(long, "red")], [""] * len(columns)]
    require_whole(Terminal(width).show(lambda: print_table(columns, rows)), columns, long, width)


def require_whole(shown: str, columns: Sequence[Column], long: list[str], width: int) -> None:
    """Each line fits or is one word; each value is there as a whole, or its column is named."""
    text = re.sub(r"\x1b\[[0-9;]*m", "", shown).replace("\r\n", "\n")
    lines = text.splitlines()
    for line in lines:
        assert len(line) <= width or " " not in line.strip(), (line, text)
    hidden = text.partition("hidden because")[2].replace("\n", " ")
    said = {word for value in long for word in value.split()}
    for column, value in zip(columns, long, strict=True):
        in_a_line = [each for each in lines if value in each]
        if len(in_a_line) < 2 and not column.is_text:
            assert f" {column.title}" in hidden and column.rank, (column.title, text)
        for number in re.findall(r"[0-9.]+ (?:GiB|x|GPUs|CPUs|nodes|failures|h)\b", value):
            assert column.title in hidden or any(number in line for line in lines), (number, text)
        said |= set(column.title.split())
    words = set(text.partition("hidden because")[0].split())
    assert words <= {*said, "-"}, (words - said, text)


def test_a_terminal_that_fits_nothing_gets_cards(capsys: pytest.CaptureFixture[str]) -> None:
    columns = [Column("RUN"), Column("SIZE", is_number=True), Column("WHY", is_text=True)]
    shown = Terminal(40).show(lambda: print_table(columns, [[RUN, "1.5 GiB", LONG["WHY"]]]))
    lines = re.sub(r"\x1b\[[0-9;]*m", "", shown).splitlines()
    assert lines[:3] == [RUN, "  SIZE  1.5 GiB", "  WHY   3 failures of 2 runs (node_fail,"]
    assert capsys.readouterr().out == ""


def test_a_pipe_gets_every_column_and_each_row_on_a_line(
    capsys: pytest.CaptureFixture[str],
) -> None:
    columns = [Column("RUN"), Column("LAST", 9), Column("WHY", is_text=True)]
    print_table(columns, [[RUN, "1h 02m", LONG["WHY"]]])
    assert capsys.readouterr().out.splitlines()[1] == f"{RUN}  1h 02m  {LONG['WHY']}"


def test_wide_characters_stand_below_each_other(capsys: pytest.CaptureFixture[str]) -> None:
    print_table([Column("NAME"), Column("N", is_number=True)], [["東京", "10"], ["ab", "9"]])
    assert capsys.readouterr().out == "NAME   N\n東京  10\nab     9\n"


@pytest.mark.parametrize("width", WIDTHS)
def test_what_real_commands_show_has_no_word_that_a_pipe_does_not_get(
    desk: Desk, width: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    monkeypatch.setenv("TERM", "xterm-256color")
    trained = Trained(desk)
    for train_step in (2_699_900, 2_700_000):
        trained.save(train_step, loss=1.23456e-05, val_loss=0.00348321, accuracy=0.97123)
    commands = [
        *(("ls",), ("ls", "--all"), ("show", trained.run_id), ("scratch",)),
        *(("checkpoint", "ls", trained.run_id), ("checkpoint", "show", trained.run_id, "2700000")),
        *(("cost", "report", "--by", "run", "--by", "user"), ("cost", "showback")),
        *(("efficiency", trained.run_id), ("efficiency", "--by", "project")),
    ]
    for command in commands:
        piped = set(desk.say(*command).split())
        shown = Terminal(width).type(*command).rpartition("\x1b[2K")[2]  # after a progress bar
        shown = re.sub(r"\x1b\[[0-9;]*m", "", shown)
        words = set(re.split(r"\s+", shown.partition("hidden because")[0].strip()))
        clocks = {word for word in words - piped if re.fullmatch(r"\d+[smh]", word)}
        assert words - piped - clocks <= {"→", "warning:"}, (command, words - piped, shown)
