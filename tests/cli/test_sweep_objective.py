"""`hpcflow sweep start FILE.py:FUNCTION`, over real trials on this machine."""

from __future__ import annotations

import shlex
import subprocess
import sys
from typing import Any

import pytest

from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk
from tests.cli.test_sweep_command import until_over
from tests.fenced import blocks_of

PROGRAMS = [
    each.text for each in blocks_of("docs/sweeps_objective.md") if each.language == "python"
]
SPACE = "{lr: {low: 0.0, high: 1.0}}"
MINIMIZE = ("--direction", "minimize")
FEW = ("--set", "budget.trials=3", "--set", "parallel=3", "--set", "base.retry.failures=0")


@pytest.fixture
def desk(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> Desk:
    """Somebody in the folder that their function is in."""
    monkeypatch.chdir(desk.folder)
    return desk


def write(desk: Desk, text: str, name: str = "objective.py") -> None:
    (desk.folder / name).write_text(text)


def start(desk: Desk, *more: str, said: str = "objective.py:objective", space: str = SPACE) -> Any:
    return desk.json("sweep", "start", said, "--space", space, *more)


def refusal(desk: Desk, *args: str) -> str:
    told = desk.error("sweep", "start", *args)
    assert "Traceback" not in told
    assert "→ " in told
    assert desk.json("sweep", "ls", "--all")["sweeps"] == [], "nothing was created"
    return told


def until_at_rest(desk: Desk, name: str) -> Any:
    """Rounds, as cron makes them, until nobody makes another one."""

    def at_rest() -> Any:
        seen = desk.json("sweep", "status", name)
        if seen["state"] == "over" or (seen["state"] == "halted" and not seen["running"]):
            return seen
        desk.say("sweep", "tick")
        return None

    return poll(at_rest, 300, lambda: desk.say("sweep", "status", name))


# --- to the end ---------------------------------------------------------------------------------


def test_a_function_is_a_sweep_without_any_other_file(desk: Desk) -> None:
    write(desk, "def objective(lr, depth=2):\n    return abs(lr - 0.3) + depth\n")
    shown = desk.say("sweep", "start", "objective.py:objective", "--space", SPACE, *MINIMIZE, *FEW,
                     "--dry-run")  # fmt: skip
    assert "trials                       3" in shown
    assert desk.json("sweep", "ls", "--all")["sweeps"] == [], "nothing was created"
    start(desk, *MINIMIZE, *FEW)
    seen = until_over(desk, "objective")
    assert (seen["complete"], seen["goals"]) == (3, {"value": "minimize"})
    (best,) = desk.json("sweep", "best", "objective")["trials"]
    assert best["values"]["value"] == pytest.approx(abs(best["params"]["lr"] - 0.3) + 2)
    config = desk.say("sweep", "best", "objective", "--render")
    (desk.folder / "best.yaml").write_text(config)
    again = desk.json("run", str(desk.folder / "best.yaml"), "--wait")
    assert again["metrics"] == best["values"]


def test_its_space_and_base_may_be_files_and_keys_of_both_are_set(desk: Desk) -> None:
    (desk.folder / "sub").mkdir()
    write(desk, "import os\ndef train(lr, size, seed):\n"
          "    assert os.environ['COLOUR'] == 'red'\n    return lr, size + seed\n",
          "sub/train it.py")  # fmt: skip
    (desk.folder / "space.yaml").write_text("lr: {choices: [0.1, 0.2]}\nsize: 5\n")
    (desk.folder / "base.yaml").write_text(
        "name: base\nscript: gone.py\nargs: ['{{ params.nothing }}']\nparams: {seed: 3}\n"
        "environment: {variables: {COLOUR: blue}}\n"
    )
    start(desk, "--base", "base.yaml", "--name", "two", "--metric", "loss", *MINIMIZE,
          "--metric", "size", "--direction", "maximize", "--set", "sampler=grid", "--set",
          "parallel=2", "--set", "base.environment.variables.COLOUR=red",
          said="sub/train it.py:train", space="space.yaml")  # fmt: skip
    seen = until_over(desk, "two")
    assert (seen["complete"], seen["why"]) == (2, "every combination of the grid has its trial")
    assert seen["goals"] == {"loss": "minimize", "size": "maximize"}
    trials = desk.json("sweep", "trials", "two")["trials"]
    assert {(t["params"]["lr"], t["values"]["loss"], t["values"]["size"]) for t in trials} == {
        (0.1, 0.1, 8.0),
        (0.2, 0.2, 8.0),
    }


def test_one_that_reports_on_the_way_is_pruned(desk: Desk) -> None:
    write(desk, """
import time

def objective(lr, run):
    run.restore()
    for step in run.train_steps(400):
        run.log(loss=lr)
        time.sleep(0.1 if lr > 0.5 else 0)
    return lr
""")  # fmt: skip
    start(desk, *MINIMIZE, "--metric", "loss", "--set", "sampler=grid", "--set", "parallel=2",
          "--set", "pruner={type: threshold, upper: 0.5}",
          space="{lr: {choices: [0.25, 0.75]}}")  # fmt: skip
    seen = until_over(desk, "objective")
    assert (seen["complete"], seen["pruned"]) == (1, 1)
    for trial in desk.json("sweep", "trials", "objective")["trials"]:
        assert trial["state"] == ("pruned" if trial["params"]["lr"] == 0.75 else "complete")


@pytest.mark.parametrize(
    ("body", "logged"),
    [
        ("raise RuntimeError('too steep')", "RuntimeError: too steep"),
        ("return None", "objective() returned None, which is not a number"),
    ],
)
def test_a_function_that_always_fails_halts_its_sweep(desk: Desk, body: str, logged: str) -> None:
    write(desk, f"def objective(lr):\n    {body}\n")
    start(desk, *MINIMIZE, "--set", "budget.trials=9", "--set", "parallel=3",
          "--set", "base.retry.failures=0")  # fmt: skip
    seen = until_at_rest(desk, "objective")
    assert (seen["state"], seen["complete"]) == ("halted", 0)
    assert 3 <= seen["failed"] <= 6, "three ended before, and as many were sent at the most"
    run_id = desk.json("sweep", "trials", "objective")["trials"][0]["runs"][0]
    assert logged in desk.say("logs", run_id)


def test_a_trial_without_a_number_has_failed_and_the_others_go_on(desk: Desk) -> None:
    write(desk, "def objective(lr):\n    return float('nan') if lr == 2 else lr\n")
    start(desk, *MINIMIZE, "--set", "sampler=grid", "--set", "parallel=3",
          space="{lr: {choices: [1, 2, 3]}}")  # fmt: skip
    seen = until_over(desk, "objective")
    assert (seen["complete"], seen["failed"]) == (2, 1)
    (failed,) = desk.json("sweep", "trials", "objective", "--state", "failed")["trials"]
    assert (failed["params"]["lr"], failed["why"]) == (2, "its last value was not finite")


# --- the page -----------------------------------------------------------------------------------


def test_the_function_of_the_page_that_takes_the_run_is_pruned_and_resumed(desk: Desk) -> None:
    write(desk, PROGRAMS[1])
    start(desk, *MINIMIZE, *FEW, "--metric", "loss", "--set", "pruner=median")
    seen = until_over(desk, "objective")
    assert seen["complete"] + seen["pruned"] == 3
    assert desk.json("sweep", "trials", "objective")["trials"][0]["at"] == 100


def test_the_call_of_the_page_from_python_runs_as_it_stands(desk: Desk) -> None:
    write(desk, PROGRAMS[2], "search.py")
    done = subprocess.run(
        [sys.executable, "search.py"], capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stderr
    (sweep,) = desk.json("sweep", "ls", "--all")["sweeps"]
    (best,) = desk.json("sweep", "best", sweep["sweep_id"])["trials"]
    (value,) = best["values"].values()
    assert done.stdout == f"{best['params']} {value}\n"


# --- what was given wrongly ---------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "said"),
    [
        (None, "objective.py: cannot be read: No such file or directory"),
        ("def objective(lr:\n", "objective.py:1: not Python: '(' was never closed"),
        ("x = '\0'\n", "objective.py: not Python: source code string cannot contain null bytes"),
        ("def objectiv(lr): ...\n", "no function 'objective' at its top level; did you mean obj"),
        ("x = 1\n", "no function 'objective' at its top level; there are: none"),
        (
            "class A:\n    def objective(self, lr): ...\n",
            "no function 'objective' at its top level",
        ),
        ("\nasync def objective(lr): ...\n", "objective.py:2: objective() is async"),
        (
            "def objective(\n    lr,\n    depth,\n): ...\n",
            "objective.py:3: objective() needs depth, which no trial has",
        ),
        (
            "def objective(rate=1): ...\n",
            "objective.py:1, space.lr: objective() does not take lr, which varies",
        ),
        ("def objective(lr, /): ...\n", "takes lr only by position, but is called by name"),
        ("def objective(lr, *, depth): ...\n", "objective() needs depth, which no trial has"),
        pytest.param(
            "def objective(lr): ...\n" + "#" * (256 << 10),
            "objective.py: larger than 256 KiB",
            id="a large file",
        ),
        pytest.param("x" + ".a" * 100_000, "objective.py: not Python: ", id="a deep expression"),
        pytest.param(
            "if 1:\n 0\n" + "elif 1:\n 0\n" * 2000,
            "no function 'objective' at its top level",
            id="a deep statement",
        ),
        pytest.param(
            "".join(f"def a{n}(): 0\n" for n in range(9999)),
            ", a19 and 9979 more",
            id="many functions",
        ),
    ],
)
def test_a_function_that_no_trial_could_call_is_refused(
    desk: Desk, text: str | None, said: str
) -> None:
    if text is not None:
        write(desk, text)
    assert said in refusal(desk, "objective.py:objective", "--space", SPACE, *MINIMIZE, *FEW)


def test_a_function_beside_which_others_can_create_modules_is_refused(desk: Desk) -> None:
    folder = desk.folder / "shared"
    folder.mkdir()
    write(desk, "def objective(lr): return lr\n", "shared/objective.py")
    for mode in (0o777, 0o1777):
        folder.chmod(mode)
        told = refusal(desk, "shared/objective.py:objective", "--space", SPACE, *MINIMIZE, *FEW)
        told = " ".join(told.split())
        assert f"every user can create files in {folder} (mode {mode:04o})" in told
        assert f"chmod -R go-w {shlex.quote(str(folder))}" in told
    folder.chmod(0o755)
    start(desk, *MINIMIZE, *FEW, said="shared/objective.py:objective")
    assert until_over(desk, "objective")["complete"] == 3


@pytest.mark.parametrize("size", [1 << 30, 1 << 40])
def test_a_file_of_any_size_is_refused_before_it_takes_memory(desk: Desk, size: int) -> None:
    with (desk.folder / "objective.py").open("wb") as file:
        file.write(b"def objective(lr): ...\n")
        file.truncate(size)
    told = refusal(desk, "objective.py:objective", "--space", SPACE, *MINIMIZE, *FEW)
    assert "objective.py: larger than 256 KiB" in told
    assert "into a smaller file" in told


def test_nothing_of_the_file_is_executed_where_it_is_checked(desk: Desk) -> None:
    write(desk, "open('executed', 'w')\ndef objective(lr): ...\n")
    desk.say("sweep", "start", "objective.py:objective", "--space", SPACE, *MINIMIZE, *FEW,
             "--dry-run")  # fmt: skip
    assert not (desk.folder / "executed").exists()


@pytest.mark.parametrize(
    ("args", "said"),
    [
        (["--space", SPACE], "--direction: no direction is given, so hpcflow"),
        (MINIMIZE, "--space: no parameter space is given"),
        (["--space", SPACE, *MINIMIZE], "objective.py, budget: needs a limit"),
        (["--space", "{lr: ", *MINIMIZE], "--space: not YAML"),
        (["--space", "{lr: 1}", *MINIMIZE, *FEW], "--space, space: nothing varies"),
        (["--space", "{lr: {low: 1}}", *MINIMIZE, *FEW], "--space, space.lr: `high` is missing"),
        (["--space", "gone.yaml", *MINIMIZE, *FEW], "gone.yaml: cannot be read"),
        (["--space", "space.yaml", *MINIMIZE, *FEW], "space.yaml:2, space.lr.high: must be more"),
        (["--space", SPACE, *MINIMIZE, *FEW, "--base", "no.yaml"], "--base: there is no file"),
        (["--space", SPACE, *MINIMIZE, *FEW, "--name", "a b"], "objective.py, name: not a name"),
        (["--space", SPACE, *MINIMIZE, *FEW, "--metric", "-x"], "cannot begin with '-': -x"),
        (
            ["--space", SPACE, *MINIMIZE, *FEW, "--metric", "a", "--metric", "b"],
            "direction: the numbers of metrics and directions differ: 2 and 1",
        ),
        (
            ["--space", SPACE, *MINIMIZE, *FEW, "--set", "base.resources.time_limit=1"],
            "--set base, resources.time_limit: a number without a unit",
        ),
        (
            ["--space", "{run: {low: 0, high: 1}}", *MINIMIZE, *FEW],
            "space.run: `run` is reserved",
        ),
        (
            ["--space", "{o: {choices: [a, b]}, lr: {low: 0, high: 1, when: {o: a}}}", *MINIMIZE,
             *FEW],
            "objective.py:1: objective() needs lr, which not all trials have",
        ),
    ],
)  # fmt: skip
def test_what_is_wrong_around_it_is_told(desk: Desk, args: list[str], said: str) -> None:
    write(desk, "def objective(lr): return lr\n")
    (desk.folder / "space.yaml").write_text("# of lr\nlr: {low: 3, high: 1}\n")
    told = refusal(desk, "objective.py:objective", *args)
    assert said in told


def test_a_file_of_python_needs_the_name_of_a_function(desk: Desk) -> None:
    write(desk, "def objective(lr): return lr\n")
    for file in ("objective.py", "objective.py:", "objective.py:a b"):
        assert "which function of this file?" in refusal(desk, file, "--space", SPACE, *MINIMIZE)


def test_options_of_a_function_do_not_go_with_a_file(desk: Desk) -> None:
    told = refusal(desk, "sweep.yaml", "--metric", "loss")
    assert "--metric: --metric needs a Python function, and sweep.yaml is a sweep's" in told
