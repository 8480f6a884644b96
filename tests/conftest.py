"""Fixtures for all tests: the real parts, and a home that is nobody's."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import settings

from hpcflow.rendering import templates
from hpcflow.resources import resource_dir
from hpcflow.testing.cluster.releases import SUITES
from hpcflow.testing.cluster.settings import DIRECTORY_VARIABLE
from tests.json_output import HELD_BY, seen

pytest_plugins = ["tests.cluster_fixture"]

MEMORY = Path("/dev/shm")
#: Containers often have 64 MiB there. Four processes may write a file of 2 GiB each.
ROOM = 8 << 30
if os.access(MEMORY, os.W_OK) and shutil.disk_usage(MEMORY).free >= ROOM:
    # Where pytest makes its folders. hpcflow syncs whatever it writes, and tests write tens of
    # thousands of files: on a disk they wait for it most of the time.
    os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", str(MEMORY))

# Four processes share the cores. A training whose threads spin while they wait stops the others.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# How long an example takes says something of the machine, and nothing of the code.
settings.register_profile("hpcflow", deadline=None)
settings.load_profile("hpcflow")


#: So many processes of xdist have a cluster. More would have all cores, and what waits for a train
#: step of several ranks would wait for each process to have its turn.
CLUSTERS = 2

#: Seconds that the longest files of tests on a cluster took in a whole run; a guess for the others.
TOOK_S = {
    "test_sweep.py": 180,
    "test_daemon_faults.py": 130,
    "test_restored.py": 120,
    "test_cron.py": 120,
    "test_advice.py": 100,
    "test_requeued_by_slurm.py": 100,
    "test_by_hand.py": 100,
    "test_main_job.py": 90,
    "test_why.py": 80,
    "test_every_slurm.py": 80,
    "test_costs.py": 70,
}
OTHERS_TOOK_S = 50


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let tests run on another Slurm than the installed one."""
    parser.addoption("--slurm", metavar="VERSION", help="of the test clusters, such as 26.05")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the mark ``every_slurm`` on the installed Slurm, and by `make soak` on those
    of newer Debian releases. If --slurm or HPCFLOW_CLUSTER_DIR chooses one, run it only there."""
    is_marked = metafunc.definition.get_closest_marker("every_slurm") is not None
    is_chosen = metafunc.config.getoption("slurm") is not None or DIRECTORY_VARIABLE in os.environ
    if is_marked and "cluster" in metafunc.fixturenames and not is_chosen:
        newer = [pytest.param(suite, marks=pytest.mark.soak) for suite in SUITES]
        ids = ["installed", *SUITES]
        metafunc.parametrize("cluster", [None, *newer], ids=ids, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on a cluster begin first, for they take the longest; those of a file stay together.

    Each of two processes has a cluster of its own, and files for about the same time. A cluster
    that HPCFLOW_CLUSTER_DIR names is there but once: then one process has all these tests. The
    users of both clusters are the same, and so are their crontabs: one process has all tests that
    use these.
    """
    on_cluster = [
        item
        for item in items
        if "cluster" in getattr(item, "fixturenames", ())
        and item.get_closest_marker("xdist_group") is None
    ]
    with_crontab = {item.path for item in on_cluster if "cron" in getattr(item, "fixturenames", ())}
    files = sorted(
        {item.path for item in on_cluster},
        key=lambda path: (path not in with_crontab, -_took_s(path), path.name),
    )
    count = 1 if DIRECTORY_VARIABLE in os.environ else CLUSTERS
    group, taken_s = {}, [0.0] * count
    for path in files:
        group[path] = 0 if path in with_crontab else taken_s.index(min(taken_s))
        taken_s[group[path]] += _took_s(path)
    for item in on_cluster:
        suite = _suite(item)
        name = suite if suite is not None else str(group[item.path])
        item.add_marker(pytest.mark.xdist_group(f"cluster-{name}"))
    place = {path: number for number, path in enumerate(files)}
    items.sort(
        key=lambda item: (
            item.get_closest_marker("xdist_group") is None,
            place.get(item.path, len(files)),
        )
    )


def pytest_collection_finish() -> None:
    """Exempt what stays to the end, as the tests and torch, from garbage collection."""
    gc.collect()
    gc.freeze()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Iterator[None]:
    """A test that HELD_BY names and that passes has seen valid JSON of the commands named there."""
    seen.clear()
    yield
    test = item.nodeid.partition("[")[0].removeprefix("tests/")
    missing = set(HELD_BY.get(test, ())) - seen
    assert not missing, f"no valid JSON of {sorted(missing)}"


def _took_s(path: Path) -> int:
    return TOOK_S.get(path.name, OTHERS_TOOK_S)


def _suite(item: pytest.Item) -> str | None:
    """Return the Debian release whose Slurm the test needs; None: the installed one."""
    call = getattr(item, "callspec", None)
    suite = call.params.get("cluster") if call is not None else None
    return suite if isinstance(suite, str) else None


@pytest.fixture(scope="session", autouse=True)
def shipped_templates_are_compiled_once() -> Iterator[None]:
    """A new home has none that are compiled, and to compile them takes longer than most tests."""
    compile_ = templates._Environment.compile
    shipped = str(resource_dir("templates"))
    compiled = cache(compile_)
    environment = templates._environment((), None)

    def once(self: Any, source: Any, name: Any = None, filename: Any = None, **how: Any) -> Any:
        if isinstance(source, str) and str(filename).startswith(shipped) and not how:
            return compiled(environment, source, name, filename)
        return compile_(self, source, name, filename, **how)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(templates._Environment, "compile", once)
        yield


@pytest.fixture
def weird_tmp_path(tmp_path: Path) -> Path:
    """A folder whose name breaks whoever forgets to quote it."""
    path = tmp_path / "it's $(touch owned); \"here\" & 'there' *"
    path.mkdir()
    return path


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """An empty HPCFLOW_HOME, and an environment that names neither site nor ledger."""
    folder = tmp_path / "home"
    monkeypatch.setenv("HPCFLOW_HOME", str(folder))
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("HPCFLOW_SITE", "HPCFLOW_LEDGER", "SLURM_CONF", "SCRATCH"):
        monkeypatch.delenv(name, raising=False)
    yield folder
