"""Fixtures for all tests: the real parts, and a home that is nobody's."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import settings

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


def pytest_addoption(parser: pytest.Parser) -> None:
    """Let tests run on another Slurm than the installed one."""
    parser.addoption("--slurm", metavar="VERSION", help="of the test clusters, such as 26.05")


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test with the mark ``every_slurm`` on the installed Slurm and on those of newer Debian
    releases. If --slurm or HPCFLOW_CLUSTER_DIR chooses one, run it only there."""
    is_marked = metafunc.definition.get_closest_marker("every_slurm") is not None
    is_chosen = metafunc.config.getoption("slurm") is not None or DIRECTORY_VARIABLE in os.environ
    if is_marked and "cluster" in metafunc.fixturenames and not is_chosen:
        ids = ["installed", *SUITES]
        metafunc.parametrize("cluster", [None, *SUITES], ids=ids, indirect=True, scope="session")


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Tests on a cluster begin first, for they take the longest; those of a file stay together.

    Half of the files are for one process, half for another, each with a cluster of its own. One
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
    longest_s: dict[Path, float] = {}
    with_crontab = set()
    for item in on_cluster:
        limit = item.get_closest_marker("timeout")
        longest_s[item.path] = max(longest_s.get(item.path, 0), limit.args[0] if limit else 0)
        if "cron" in getattr(item, "fixturenames", ()):
            with_crontab.add(item.path)
    files = sorted(
        longest_s, key=lambda path: (path not in with_crontab, -longest_s[path], path.name)
    )
    count = 1 if DIRECTORY_VARIABLE in os.environ else CLUSTERS
    group = {path: 0 if path in with_crontab else i % count for i, path in enumerate(files)}
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
    """Leave what is there for good to no garbage collection: items, and the modules of torch."""
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


def _suite(item: pytest.Item) -> str | None:
    """Return the Debian release whose Slurm the test needs; None: the installed one."""
    call = getattr(item, "callspec", None)
    suite = call.params.get("cluster") if call is not None else None
    return suite if isinstance(suite, str) else None


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
