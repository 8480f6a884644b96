"""What is wrong with a run is said with file, line and key, wherever it comes to light."""

from __future__ import annotations

from datetime import datetime, timezone
from pathlib import Path

import pytest

from hpcflow.errors import SpecError, SubmissionRefused, Where
from hpcflow.launch.plan import Plan, make_plan
from hpcflow.launch.run import launch
from hpcflow.schedulers.base import JobRef, SubmitRequest
from hpcflow.settings import load_settings
from hpcflow.sites.loader import load_site, search_path
from hpcflow.testing.clock import FakeClock
from hpcflow.testing.fake_scheduler import FakeScheduler

CLOCK = FakeClock(datetime(2026, 3, 1, tzinfo=timezone.utc))

CONFIG = """\
name: small
command: [./train]
args: [--lr, "{{ params.lr }}"]
params: {lr: 0.1}
resources:
  nodes: 1
  qos: normal
environment:
  variables:
    OMP_NUM_THREADS: 1
"""


def plan(folder: Path, text: str = CONFIG, *overrides: str, site: str = "devcluster") -> Plan:
    """The plan for ``text`` in ``config.yaml``, made by somebody who is in its folder."""
    settings = load_settings(
        {"HPCFLOW_HOME": str(folder / "home"), "SCRATCH": str(folder / "scratch")}
    )
    (folder / "config.yaml").write_text(text)
    the_site = load_site(site, search=search_path(settings.home.path))
    return make_plan(
        Path("config.yaml"), settings=settings, clock=CLOCK, site=the_site, overrides=overrides
    )


def place_of_error(folder: Path, text: str, *overrides: str, site: str = "devcluster") -> str:
    with pytest.raises(SpecError) as caught:
        plan(folder, text, *overrides, site=site)
    return str(caught.value.where)


@pytest.fixture(autouse=True)
def _in_the_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)


def test_what_only_the_script_brings_to_light_points_into_the_file(tmp_path: Path) -> None:
    wrong = CONFIG.replace("params.lr", "params.rl")
    assert place_of_error(tmp_path, wrong) == "config.yaml:3, args[1]"
    wrong = CONFIG.replace("OMP_NUM_THREADS", "UID")
    assert place_of_error(tmp_path, wrong) == "config.yaml:10, environment.variables.UID"
    container = "  container:\n    runtime: pyxis\n    image: x\n"
    said = place_of_error(tmp_path, CONFIG + container, "resources.qos=null", site="local")
    assert said == "config.yaml:12, environment.container.runtime"


def test_what_an_override_brought_is_blamed_on_the_override(tmp_path: Path) -> None:
    said = place_of_error(tmp_path, CONFIG, 'args=[--lr, "{{ params.rl }}"]')
    assert said == "--set args[1]"
    said = place_of_error(tmp_path, CONFIG, "environment.variables.UID=1")
    assert said == "--set environment.variables.UID"


def test_what_another_file_brought_is_blamed_on_that_file(tmp_path: Path) -> None:
    (tmp_path / "base.yaml").write_text(CONFIG.replace("params.lr", "params.rl"))
    text = "extends: base.yaml\nname: mine\nresources: {nodes: 2}\n"
    assert place_of_error(tmp_path, text) == "base.yaml:3, args[1]"


def test_what_is_wrong_with_the_site_is_not_looked_for_in_the_config(tmp_path: Path) -> None:
    document = plan(tmp_path).document
    of_the_site = Where(key="variables.RANDOM of site here")
    assert document.located(of_the_site) == of_the_site
    known = Where(file="template.j2", line=3, key="args[0]")
    assert document.located(known) == known
    assert document.located(None) is None


@pytest.mark.parametrize(
    ("key", "overrides", "place"),
    [
        ("resources.qos", [], "config.yaml:7, resources.qos"),
        ("resources.qos", ["resources.nodes=2"], "config.yaml:7, resources.qos"),
        ("resources.qos", ["resources.qos=high"], "--set resources.qos"),
        ("resources.account", ["resources.nodes=2"], "config.yaml:5, resources.account"),
        ("resources", ["resources.nodes=2"], "config.yaml:5, resources"),
    ],
)
def test_what_slurm_refuses_points_into_the_file(
    tmp_path: Path, key: str, overrides: list[str], place: str
) -> None:
    class Refusing(FakeScheduler):
        def submit(self, request: SubmitRequest) -> JobRef:
            raise SubmissionRefused(f"no {request.job_name}", where=Where(key=key))

    made = plan(tmp_path, CONFIG, *overrides)
    slurm = Refusing(CLOCK, cluster_name="devcluster")
    settings = load_settings({"HPCFLOW_HOME": str(tmp_path / "home")})
    with pytest.raises(SubmissionRefused) as caught:
        launch(made, settings=settings, scheduler=slurm, clock=CLOCK)
    assert str(caught.value.where) == place
