"""A Python function as the program of a run: what it is given, and what becomes of its result."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.runtime.harness import RunFolder

LIMIT_S = 120


class Called:
    """A function in a file, called as in a job."""

    def __init__(self, folder: RunFolder, file: Path) -> None:
        self.folder, self.file = folder, file
        self.stderr = ""
        self.params: dict[str, object] = {"lr": 0.5, "depth": 3}

    def command(self, text: str, *metrics: str, name: str = "objective") -> list[str]:
        self.file.write_text(text)
        said = f"{self.file}:{name}"
        return [sys.executable, "-u", "-m", "hpcflow.runtime", "call", said, *metrics]

    def environ(self) -> dict[str, str]:
        own = self.folder.environ()
        params = self.folder.path / "params.json"
        params.write_text(json.dumps(self.params))
        return {**os.environ, **own, "HPCFLOW_PARAMS": str(params)}

    def __call__(self, text: str, *metrics: str, name: str = "objective") -> int:
        done = subprocess.run(
            self.command(text, *metrics, name=name),
            env=self.environ(),
            capture_output=True,
            text=True,
            check=False,
            timeout=LIMIT_S,
        )
        self.stderr = done.stderr
        return done.returncode

    def finished(self) -> dict[str, float | None]:
        """The metrics of the one event that says that it is at its end."""
        (event,) = self.folder.events("finished")
        metrics = event["metrics"]
        assert isinstance(metrics, dict)
        return metrics


@pytest.fixture
def called(folder: RunFolder, tmp_path: Path) -> Called:
    return Called(folder, tmp_path / "my objective's.py")


# --- what it is given ---------------------------------------------------------------------------


def test_it_is_given_the_parameters_that_it_takes_by_name(called: Called) -> None:
    assert called("def objective(lr, other=7): return lr + other") == 0, called.stderr
    assert called.finished() == {"value": 7.5}


@pytest.mark.parametrize(
    "text",
    [
        "def objective(**values): return values['lr'] + values['depth']",
        "def objective(params): return params.lr + params['depth']",
        "def objective(lr, *, depth): return lr + depth",
    ],
)
def test_it_may_take_all_of_them(called: Called, text: str) -> None:
    assert called(text) == 0, called.stderr
    assert called.finished() == {"value": 3.5}


def test_a_parameter_that_is_called_params_is_one_as_any_other(called: Called) -> None:
    called.params = {"params": 4}
    assert called("def objective(params): return params * 2") == 0, called.stderr
    assert called.finished() == {"value": 8.0}


@pytest.mark.parametrize("mode", [0o777, 0o1777])
def test_nothing_is_imported_from_a_folder_in_which_others_can_create_files(
    called: Called, mode: int
) -> None:
    """Another user has put a module there that hides one of Python."""
    folder = called.file.parent
    (folder / "colorsys.py").write_text("raise SystemExit('planted')")
    folder.chmod(mode)
    assert called("import colorsys\ndef objective(lr): return lr") == 1
    assert "planted" not in called.stderr
    assert f"every user can create files in {folder} (mode {mode:04o})" in called.stderr
    assert "chmod -R go-w" in called.stderr
    assert not called.folder.events("finished")


def test_its_file_is_read_as_python_would_read_it(called: Called) -> None:
    (called.file.parent / "beside.py").write_text("FACTOR = 10\n")
    text = """
import sys
from dataclasses import dataclass
import beside

@dataclass
class Point:
    x: float

if __name__ == "__main__":
    raise RuntimeError("it is no program")

def objective(lr):
    assert sys.argv == [__file__]
    return Point(lr).x * beside.FACTOR
"""
    assert called(text) == 0, called.stderr
    assert called.finished() == {"value": 5.0}


def test_a_file_that_is_called_like_a_module_takes_its_place_from_nobody(called: Called) -> None:
    called.file = called.file.parent / "json.py"
    assert called("def objective(lr): return lr") == 0, called.stderr
    assert called.finished() == {"value": 0.5}


# --- what it returns ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("returned", "metrics", "reported"),
    [
        ("0.25", ["loss"], {"loss": 0.25}),
        ("7", [], {"value": 7.0}),
        ("{'loss': 1, 'accuracy': 0.5}", ["loss"], {"loss": 1.0, "accuracy": 0.5}),
        ("(1, 2.5)", ["loss", "seconds"], {"loss": 1.0, "seconds": 2.5}),
        ("[3]", ["loss"], {"loss": 3.0}),
        ("__import__('numpy').float32(0.5)", ["loss"], {"loss": 0.5}),
        ("__import__('fractions').Fraction(1, 4)", ["loss"], {"loss": 0.25}),
    ],
)
def test_numbers_are_metrics(
    called: Called, returned: str, metrics: list[str], reported: dict[str, float]
) -> None:
    assert called(f"def objective(): return {returned}", *metrics) == 0, called.stderr
    assert called.finished() == reported


@pytest.mark.parametrize("number", ["nan", "inf", "-inf"])
def test_what_is_no_number_is_reported_as_none_and_said(called: Called, number: str) -> None:
    assert called(f"def objective(): return float('{number}')", "loss") == 0
    assert called.finished() == {"loss": None}
    assert f"loss is {number}: it is recorded without a value" in called.stderr


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        ("None", "returned None, which is not a number; return a number, a dict"),
        ("'0.5'", "returned str '0.5', which is not a number"),
        ("(1, 2)", "returned 2 values for the one objective loss"),
        ("{'loss': None}", "returned a 'loss' that is None, which is not a number"),
        ("{'lost': 1}", "returned no 'loss'; the dict that it returned has: lost"),
        ("{}", "returned no 'loss'; the dict that it returned has: nothing"),
        ("10 ** 400", "which is not a number"),
        ("__import__('numpy').ones(3)", "which is not a number"),
    ],
)
def test_any_other_result_is_said_plainly_and_fails(
    called: Called, returned: str, said: str
) -> None:
    assert called(f"def objective(): return {returned}", "loss") == 1
    assert called.stderr.startswith("hpcflow: objective() returned ")
    assert said in called.stderr
    assert "Traceback" not in called.stderr
    assert called.folder.events("finished") == []


def test_several_objectives_need_as_many_values(called: Called) -> None:
    assert called("def objective(): return 1", "loss", "seconds") == 1
    assert "returned 1 value for the 2 objectives loss, seconds" in called.stderr


def test_what_it_raises_is_a_traceback_and_fails(called: Called) -> None:
    assert called("def objective(lr):\n    raise ValueError('too steep')\n") == 1
    assert called.stderr.startswith("Traceback (most recent call last):")
    assert called.stderr.endswith("ValueError: too steep\n")
    assert f'File "{called.file}", line 2, in objective' in called.stderr
    assert called.folder.events() == []


def test_on_other_ranks_than_the_first_it_reports_nothing(called: Called) -> None:
    called.folder.variables["RANK"] = "1"
    assert called("def objective(): return 1") == 0, called.stderr
    assert called.folder.events() == []


# --- on the way ---------------------------------------------------------------------------------

TRAINED = """
import os, signal

def objective(lr, run):
    state = {"done": []}
    run.restore(state=state)
    for train_step in run.train_steps(4):
        state["done"].append(train_step)
        run.log(loss=lr / train_step)
        if train_step == 2 and "HURT" in os.environ:
            os.kill(os.getpid(), signal.SIGUSR2)
    assert state["done"] == [1, 2, 3, 4]
    return lr
"""


def test_with_the_run_it_reports_on_the_way_and_is_resumed(called: Called) -> None:
    called.folder.variables["HURT"] = "yes"
    assert called(TRAINED, "loss") == 75, called.stderr
    assert called.folder.complete() == [2]
    assert called.folder.resubmit.exists()
    assert called.folder.events("finished") == []

    del called.folder.variables["HURT"]
    called.folder.attempt = 2
    assert called(TRAINED, "loss") == 0, called.stderr
    (started,) = called.folder.events("train_started")
    assert started["train_step"] == 2
    assert called.finished() == {"loss": 0.5}
    assert called.folder.events("progress")[0]["metrics"] == {"loss": 0.5 / 3}


def test_one_that_is_not_worth_its_end_saves_nothing_more(called: Called) -> None:
    called.folder.path.mkdir(parents=True)
    (called.folder.path / "cancel").write_text("pruned\n")
    assert called(TRAINED, "loss") == 75, called.stderr
    assert called.folder.complete() == []
    assert called.folder.events("progress")[0]["metrics"] == {"loss": 0.5}


def test_with_the_run_it_may_report_without_a_loop_and_return_nothing(called: Called) -> None:
    text = "def objective(lr, run): run.log(loss=lr)"
    assert called(text, "loss") == 0, called.stderr
    assert called.folder.events("progress")[0]["metrics"] == {"loss": 0.5}
    assert called.finished() == {}


def test_what_it_has_finished_itself_is_not_finished_twice(called: Called) -> None:
    text = "def objective(lr, run):\n    run.restore()\n    run.finish(loss=lr)\n"
    assert called(text, "loss") == 0, called.stderr
    assert called.finished() == {"loss": 0.5}


@pytest.mark.parametrize("number", [signal.SIGUSR2, signal.SIGTERM])
def test_without_the_run_a_notice_ends_the_call_and_it_begins_anew(
    called: Called, tmp_path: Path, number: signal.Signals
) -> None:
    text = f"""
import time, pathlib

def objective(lr):
    pathlib.Path({str(tmp_path / "begun")!r}).touch()
    try:
        time.sleep({LIMIT_S})
    finally:
        pathlib.Path({str(tmp_path / "tidied")!r}).touch()
    return lr
"""
    # As the job script starts it: who does not listen to USR2 is not killed by it.
    command = ["/bin/sh", "-c", 'trap "" USR2; exec "$@"', "sh", *called.command(text)]
    process = subprocess.Popen(command, env=called.environ())
    try:
        deadline = time.monotonic() + LIMIT_S
        while not (tmp_path / "begun").exists():
            assert time.monotonic() < deadline
            assert process.poll() is None
            time.sleep(0.01)
        process.send_signal(number)
        assert process.wait(LIMIT_S / 2) == 75
    finally:
        process.kill()
    assert (tmp_path / "tidied").exists()
    assert called.folder.resubmit.exists()
    (notice,) = called.folder.events("notice")
    assert notice["signal"] == number.name[3:]
    assert called.folder.events("finished") == []


# --- what was given wrongly ---------------------------------------------------------------------


def test_a_function_that_is_gone_is_said(called: Called) -> None:
    assert called("def other(): return 1") == 1
    assert "has no function 'objective' any more" in called.stderr
    assert "Traceback" not in called.stderr


def test_an_attribute_that_the_file_itself_misses_is_its_own_error(called: Called) -> None:
    assert called("import os\nos.nothing\ndef objective(): return 1") == 1
    assert called.stderr.endswith("has no attribute 'nothing'\n")
    assert "Traceback" in called.stderr


@pytest.mark.parametrize("said", ["objective", "nowhere.py:objective", "{file}:", "{file}:a b"])
def test_what_names_no_function_is_wrong_usage(called: Called, said: str) -> None:
    command = called.command("def objective(): return 1")
    command[-1] = said.format(file=called.file)
    done = subprocess.run(command, env=called.environ(), capture_output=True, text=True)
    assert done.returncode == 2
    assert "is not FILE.py:FUNCTION" in done.stderr
