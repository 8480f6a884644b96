"""All trials of a sweep start from one checkpoint of another run, whatever becomes of that run."""

from __future__ import annotations

from pathlib import Path

import pytest

from hpcflow.errors import NotFoundError
from hpcflow.runtime.manifest import verify
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import read_run
from hpcflow.sweeps.view import look
from tests.restore.mirrored import purge, save
from tests.sweeps.searched import Searched

START = "start/000000000"


@pytest.fixture
def desk(tmp_path: Path) -> Searched:
    return Searched(tmp_path)


def pretrained(desk: Searched) -> RunDir:
    run_dir = desk.dir_of(desk.launch())
    save(run_dir, 100)
    return run_dir


def starts_from(desk: Searched, what: str) -> None:
    desk.config.write_text(f"{desk.config.read_text()}start_from: {what}\n")


def started_from(desk: Searched) -> list[int]:
    """The train step of each trial's copy, which is whole."""
    steps = [verify(desk.run_dir(each.number).path / START) for each in desk.progress.trials]
    return [each.train_step for each in steps]


@pytest.mark.parametrize("submit", ["single", "array"])
def test_all_trials_start_from_what_was_the_newest_when_the_sweep_was_started(
    desk: Searched, submit: str
) -> None:
    source = pretrained(desk)
    starts_from(desk, source.path.name)
    desk.begin(f"submit: {submit}\nparallel: 2\nbudget: {{trials: 4}}")
    save(source, 200)
    desk.round()
    assert started_from(desk) == [100, 100]
    purge(source)
    for trial in (0, 1):
        desk.completes(trial, 0.5)
    desk.round()
    assert started_from(desk) == [100] * 4
    assert look(desk.sweep_dir)[0].base.start_from == f"{source.path.name}@100"
    origins = {
        (run.started_from.run_id, run.started_from.place)
        for run in (read_run(desk.run_dir(each)) for each in range(4))
        if run.started_from is not None
    }
    assert origins == {(source.path.name, str(source.checkpoints / "000000100"))}


def test_a_sweep_whose_start_is_gone_before_its_first_trial_halts_and_says_so(
    desk: Searched,
) -> None:
    source = pretrained(desk)
    starts_from(desk, source.path.name)
    desk.begin()
    purge(source)
    report = desk.round()
    assert report.sent == {}
    assert f"run {source.path.name} has no complete checkpoint of train step 100" in report.said[0]


def test_a_sweep_is_not_started_from_what_is_not_there(desk: Searched) -> None:
    source = pretrained(desk)
    starts_from(desk, f"{source.path.name}@300")
    with pytest.raises(NotFoundError, match="of train step 300") as caught:
        desk.begin()
    assert caught.value.where is not None
    assert (caught.value.where.file, caught.value.where.key) == (str(desk.config), "start_from")
