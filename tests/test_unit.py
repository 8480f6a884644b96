"""`make unit`: a test that fails only beside others gets a second try; what is broken stays red."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

TREE = Path(__file__).resolve().parents[1]
SUMMARY = "failed beside others, passed alone: mend them"

FAILS_ONCE = """
import pytest
from pathlib import Path

@pytest.mark.xdist_group("of a group")
@pytest.mark.parametrize("name", ["a@b c::d", "second"])
def test_it(name, request):
    seen = Path("seen-" + name.replace(":", ""))
    first = not seen.exists()
    seen.touch()
    assert not first
"""
PASSES = "def test_it():\n    pass\n"
ALWAYS_FAILS = "def test_it():\n    assert False\n"
SIX_FAIL_ONCE = FAILS_ONCE.replace('["a@b c::d", "second"]', "list('abcdef')")
CRASHES_ONCE = FAILS_ONCE.replace("assert not first", "import os\n    if first: os._exit(1)")
TEARDOWN_FAILS = (
    "import pytest\n@pytest.fixture\ndef f():\n    yield\n    1 / 0\ndef test_it(f): pass\n"
)
SKIPS_AGAIN = FAILS_ONCE.replace("assert not first", "if not first: pytest.skip()\n    assert 0")


OPTION = """
def pytest_addoption(parser):
    parser.addoption("--slurm")
"""
FAILS_ONCE_WITH_IT = FAILS_ONCE.replace(
    "first = not", "assert request.config.getoption('slurm') == '26.05'\n    first = not"
)


def run(folder: Path, *options: str, **files: str) -> subprocess.CompletedProcess[str]:
    for name, text in files.items():
        (folder / f"test_{name}.py").write_text(text)
    # Only xdist: the other plugins take seconds to import, and prove nothing here.
    environment = {
        name: value for name, value in os.environ.items() if not name.startswith("PYTEST_")
    }
    settings = {"PYTHONPATH": str(TREE), "PYTEST_PLUGINS": "xdist.plugin"}
    settings["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    argv = [sys.executable, "-m", "tests.unit", "-q", "-ra", "--numprocesses=1", "--dist=loadgroup"]
    return subprocess.run(
        [*argv, *options],
        cwd=folder,
        env=environment | settings,
        capture_output=True,
        text=True,
    )


def test_tests_that_failed_beside_others_and_pass_alone_are_named_and_the_run_passes(
    tmp_path: Path,
) -> None:
    done = run(tmp_path, passes=PASSES, fails_once=FAILS_ONCE)
    assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.rpartition(SUMMARY)[2].split("\n") == [
        "",
        "  test_fails_once.py::test_it[a@b c::d]",
        "  test_fails_once.py::test_it[second]",
        "",
    ]


def test_the_second_try_has_the_same_options(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(OPTION)
    done = run(tmp_path, "--slurm=26.05", fails_once=FAILS_ONCE_WITH_IT)
    assert (done.returncode, SUMMARY in done.stdout) == (0, True), done.stdout + done.stderr


@pytest.mark.parametrize(
    "files",
    [
        pytest.param({"fails": ALWAYS_FAILS, "once": FAILS_ONCE}, id="one fails alone too"),
        pytest.param({"fails": TEARDOWN_FAILS}, id="a fixture fails at the end"),
        pytest.param({"skips": SKIPS_AGAIN}, id="it is skipped the second time"),
        pytest.param({"six": SIX_FAIL_ONCE}, id="more than five failed"),
        pytest.param({"crash": CRASHES_ONCE}, id="a process crashed"),
        pytest.param({"syntax": "def", "once": FAILS_ONCE}, id="a file that cannot be imported"),
        pytest.param({}, id="no tests"),
    ],
)
def test_what_is_broken_fails_the_run(tmp_path: Path, files: dict[str, str]) -> None:
    done = run(tmp_path, **files)
    assert done.returncode != 0, done.stdout + done.stderr
    assert SUMMARY not in done.stdout


def test_a_run_without_failures_has_no_second_try(tmp_path: Path) -> None:
    done = run(tmp_path, passes=PASSES)
    assert (done.returncode, "alone" in done.stdout) == (0, False), done.stdout + done.stderr
