"""``hpcflow sweep plot``: a person looks at a sweep in figures."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from hpcflow.cli.session import Session
from hpcflow.launch.context import LaunchContext
from hpcflow.storage.sweeps import SweepDir, append, read_sweep
from hpcflow.sweeps.starting import plan_sweep, start_sweep
from tests.cli.desk import Desk
from tests.sweeps.drawn import records_of

SWEEP = """
name: digits
base: config.yaml
space:
  lr: {low: 1.0e-5, high: 0.1, log: true}
  units: {low: 8, high: 128, step: 8}
objective: {metric: accuracy, direction: maximize}
budget: {trials: 100}
"""


@pytest.fixture
def sweep(desk: Desk) -> SweepDir:
    """One that was started, and has no trial yet."""
    desk.config("config", "true")
    path = desk.folder / "sweep.yaml"
    path.write_text(SWEEP)
    session = Session()
    site = session.site(None)
    context = LaunchContext(session.settings, site, session.connect(site), session.clock)
    plan = plan_sweep(path, context)
    return start_sweep(plan, session.settings)


def let_trials_end(sweep: SweepDir, trials: int) -> None:
    append(sweep, list(records_of(read_sweep(sweep).spec, trials)))


def test_the_figures_are_in_a_folder_named_after_the_sweep(
    desk: Desk, sweep: SweepDir, monkeypatch: pytest.MonkeyPatch
) -> None:
    let_trials_end(sweep, 10)
    monkeypatch.chdir(desk.folder)
    said = desk.say("sweep", "plot", "digits").splitlines()
    folder = desk.folder / f"{sweep.sweep_id}-plots"
    assert said == [
        str(folder),
        "  history               history.png  history.html",
        "  parallel_coordinates  parallel_coordinates.png  parallel_coordinates.html",
        "  slices                slices.png  slices.html",
        "  intermediate_values   intermediate_values.png  intermediate_values.html",
        "left out",
        "  importances           it needs 10 complete trials, and there are 5",
    ]
    assert len(list(folder.iterdir())) == 9, "and the script of the pages"


def test_a_script_gets_the_paths_and_the_reasons(desk: Desk, sweep: SweepDir) -> None:
    let_trials_end(sweep, 4)
    folder = desk.folder / "my plots"
    said = desk.json("sweep", "plot", sweep.sweep_id, "--output", str(folder))
    few = "it needs 2 complete trials, and there is 1"
    assert said == {
        "format": 1,
        "sweep_id": sweep.sweep_id,
        "folder": str(folder),
        "figures": [
            {
                "figure": name,
                "png": str(folder / f"{name}.png"),
                "html": str(folder / f"{name}.html"),
                "note": None,
            }
            for name in ("history", "intermediate_values")
        ],
        "left_out": [
            {"figure": "parallel_coordinates", "why": few},
            {"figure": "slices", "why": few},
            {
                "figure": "importances",
                "why": "it needs 10 complete trials, and there is 1",
            },
        ],
    }


def test_a_sweep_without_trials_has_nothing_to_draw(desk: Desk, sweep: SweepDir) -> None:
    folder = desk.folder / "plots"
    error = desk.error("sweep", "plot", "digits", "--output", str(folder))
    assert f"sweep {sweep.sweep_id} has nothing to draw: no trial is complete yet" in error
    assert f"→ see its progress: hpcflow sweep status {sweep.sweep_id}" in error
    assert not folder.exists()


def test_what_is_wrong_is_told(desk: Desk, sweep: SweepDir) -> None:
    let_trials_end(sweep, 4)
    assert "no sweep 'digit5'" in desk.error("sweep", "plot", "digit5")
    mine = desk.folder / "sweep.yaml"
    error = desk.error("sweep", "plot", "digits", "--output", str(mine))
    assert f"--output: {mine} is not a directory, or its parent does not exist" in error
    assert mine.read_text() == SWEEP
    target = desk.folder / "plots"
    (target / "history.png").mkdir(parents=True)
    error = desk.error("sweep", "plot", "digits", "--output", str(target), code=1)
    assert f"cannot write {target}/history.png" in error


@pytest.mark.parametrize(
    ("backend", "code"), [("TkAgg", 0), ("module://not.installed", 0), ("nonsense", 2)]
)
def test_no_display_is_needed(desk: Desk, sweep: SweepDir, backend: str, code: int) -> None:
    let_trials_end(sweep, 4)
    words = ["sweep", "plot", "digits", "--output", str(desk.folder / "plots")]
    done = subprocess.run(
        [sys.executable, "-c", "import sys; from hpcflow.cli.main import main; "
         "sys.exit(main(sys.argv[1:]))", *words],
        env={**os.environ, "MPLBACKEND": backend, "DISPLAY": ":99"},
        cwd=Path(__file__).parents[2],
        capture_output=True,
        text=True,
    )  # fmt: skip
    assert done.returncode == code, done.stderr
    if code:
        assert "unset MPLBACKEND; then repeat the command" in done.stderr
        assert "Traceback" not in done.stderr
        assert not (desk.folder / "plots").exists()
    else:
        # Matplotlib says so where it has never been used before.
        told = done.stderr.replace(
            "Matplotlib is building the font cache; this may take a moment.\n", ""
        )
        assert told == ""
        assert (desk.folder / "plots" / "history.png").exists()
