"""A run goes on with other resources than it began with."""

from __future__ import annotations

import json
from itertools import count
from pathlib import Path

import pytest

from hpcflow.errors import InputError, SpecError
from hpcflow.launch import change
from hpcflow.launch import resume as resuming
from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import Changed, Intended
from hpcflow.model.run import Result
from hpcflow.model.state import RunState
from hpcflow.projection import check
from hpcflow.storage import journal, rundir
from hpcflow.storage.layout import RunDir
from hpcflow.storage.rundir import read_run
from tests.launch.desk import Desk
from tests.requeue.killing import Killer
from tests.runtime.published import publish


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


def _ended(desk: Desk) -> RunDir:
    launched = desk.launch()
    desk.slurm.end(launched.job_id, "PREEMPTED")
    desk.look()
    return desk.dir_of(launched)


def test_it_asks_for_more_from_now_on(desk: Desk) -> None:
    run_dir = _ended(desk)
    overrides = ["resources.nodes=2", "launch.launcher=srun", "params={lr: 0.5}"]
    desk.resume(run_dir, overrides=overrides)
    run = read_run(run_dir)
    assert (run.spec.resources.nodes, run.spec.resources.time_limit_min) == (2, 10)
    assert json.loads(run_dir.params_json.read_text()) == {"lr": 0.5}
    script = run_dir.attempt(2).script.read_text()
    assert "--nodes=2" in script
    (said,) = (each for each in journal.read(run_dir) if isinstance(each, Changed))
    assert said.overrides == overrides
    seen = desk.seen(run_dir.path.name)
    assert (seen.run.nodes, seen.resources["nodes"]) == (2, 2)
    with open_ledger(desk.settings.ledger_url) as ledger:
        assert check(ledger, [run_dir]) == []


def test_an_end_out_of_memory_does_not_hold_against_what_a_person_says(desk: Desk) -> None:
    desk.config.write_text(desk.config.read_text().replace("10m,", "10m, mem: 1G,"))
    run_dir = _ended(desk)
    desk.resume(run_dir, overrides=["resources.mem=2G"])
    intents = [each for each in journal.read(run_dir) if isinstance(each, Intended)]
    assert [each.mem_mb for each in intents] == [1024, 2048]


@pytest.mark.parametrize(
    ("override", "error"),
    [
        ("resources.nodes=many", SpecError),
        ("resources.partition=nowhere", SpecError),
        ("name=other", InputError),
        ("project=other", InputError),
        ("resources", SpecError),
    ],
)
def test_what_is_wrong_changes_nothing(desk: Desk, override: str, error: type[InputError]) -> None:
    run_dir = _ended(desk)
    before, said = run_dir.run_json.read_bytes(), run_dir.journal.read_bytes()
    with pytest.raises(error):
        desk.resume(run_dir, overrides=[override])
    assert (run_dir.run_json.read_bytes(), run_dir.journal.read_bytes()) == (before, said)
    assert desk.alive() == []


@pytest.mark.parametrize(
    ("overrides", "message"),
    [
        (["script={}/missing", "command=null"], "No such file"),
        (["environment.secrets.TOKEN={}/missing"], "No such file"),
        (["environment.secrets.TOKEN={}"], "is not a file"),
        (["environment.secrets.TOKEN={}/open"], "other users have access to"),
    ],
)
def test_files_that_the_new_spec_names_are_checked_before_anything_changes(
    desk: Desk, overrides: list[str], message: str
) -> None:
    (desk.folder / "open").touch()
    (desk.folder / "open").chmod(0o644)
    run_dir = _ended(desk)
    before, said = run_dir.run_json.read_bytes(), run_dir.journal.read_bytes()
    with pytest.raises(SpecError, match=message) as caught:
        desk.resume(run_dir, overrides=[each.format(desk.folder) for each in overrides])
    assert caught.value.exit_code == 2
    assert caught.value.where is not None
    assert (run_dir.run_json.read_bytes(), run_dir.journal.read_bytes()) == (before, said)
    assert desk.alive() == []


def test_a_file_that_was_deleted_since_is_told_before_anything_changes(desk: Desk) -> None:
    script = desk.folder / "train.py"
    script.touch()
    desk.config.write_text(
        desk.config.read_text().replace('command: ["true"]', f"script: {script}")
    )
    run_dir = _ended(desk)
    script.unlink()
    before = run_dir.run_json.read_bytes()
    with pytest.raises(SpecError, match=f"{script}: No such file"):
        desk.resume(run_dir, overrides=["resources.cpus_per_task=2"])
    assert run_dir.run_json.read_bytes() == before
    script.touch()
    desk.resume(run_dir, overrides=["resources.cpus_per_task=2"])


def test_a_run_that_is_under_way_is_not_changed(desk: Desk) -> None:
    run_dir = desk.dir_of(desk.launch())
    before = run_dir.run_json.read_bytes()
    with pytest.raises(InputError, match="still pending or running in Slurm"):
        desk.resume(run_dir, overrides=["resources.cpus_per_task=2"])
    assert run_dir.run_json.read_bytes() == before


def _completed(desk: Desk) -> RunDir:
    launched = desk.launch()
    run_dir = desk.dir_of(launched)
    facts = {"run_id": launched.run_id, "attempt": 1, "world_size": 1}
    publish(run_dir.checkpoints, 100, {"model.pt": b"weights"}, **facts)
    desk.slurm.end(launched.job_id, "COMPLETED")
    desk.look()
    return run_dir


@pytest.mark.parametrize("again", ["params.steps=8", "params.steps=9", None])
def test_a_completed_run_is_extended_once_wherever_that_was_killed(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, again: str | None
) -> None:
    killer = Killer(monkeypatch)
    killer.watch(change, "write_durably")
    killer.watch(rundir, "write_durably")
    killer.watch(resuming, "_go_on")
    for moment in count(1):
        run_dir = _completed(desk)
        before = read_run(run_dir)
        killer.aim_at(moment)
        with killer.armed():
            desk.resume(run_dir, overrides=["params.steps=8"])
        if not killer.has_struck:
            break
        if again is None and read_run(run_dir) == before:
            with pytest.raises(InputError, match="is completed"):
                desk.resume(run_dir)
            continue
        desk.resume(run_dir, overrides=[again] if again else [])
        run, steps = read_run(run_dir), int(again[-1]) if again else 8
        assert run.spec.params == json.loads(run_dir.params_json.read_text()) == {"steps": steps}
        assert run.results == [Result(attempt=1, train_step=100)], "once"
        records = journal.read(run_dir)
        assert next(each.extends for each in records if isinstance(each, Changed)) == 1
        assert [each.attempt for each in records if isinstance(each, Intended)] == [1, 2]
        assert desk.seen(run.run_id).run.state is RunState.RUNNING
        with open_ledger(desk.settings.ledger_url) as ledger:
            assert check(ledger, [run_dir]) == []
    assert moment > 6
