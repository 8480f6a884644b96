"""What the mirror says is in the ledger, also of a run that came to rest long ago."""

from __future__ import annotations

from pathlib import Path

from hpcflow.ledger.store import Ledger
from hpcflow.model.run import Mirror
from hpcflow.model.state import Cause
from hpcflow.model.views import MirrorLag
from hpcflow.projection import catch_up, catch_up_home, check, rebuild
from hpcflow.storage.dirty_marks import mark_dirty
from hpcflow.storage.layout import Home, RunDir
from hpcflow.storage.rundir import frozen_json, read_run
from tests.ledger import lines as say
from tests.projection.files import grow, new_run


def test_a_checkpoint_says_when_it_was_mirrored(ledger: Ledger, tmp_path: Path) -> None:
    run_dir = new_run(tmp_path)
    run_id = run_dir.path.name
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    for step in (20, 30):
        grow(run_dir.attempt(1).events, say.checkpoint(step, path=f"checkpoints/{step:09d}"))
    grow(run_dir.mirror, say.mirror("began", 20, 5), say.mirror("mirrored", 20, 6))
    catch_up(ledger, [run_dir])
    times = {each.train_step: each.mirrored_at for each in ledger.run(run_id).checkpoints}
    assert times == {20: say.at(6), 30: None}

    grow(run_dir.mirror, say.mirror("failed", 20, 7), say.mirror("mirrored", 30, 8))
    catch_up(ledger, [run_dir])
    times = {each.train_step: each.mirrored_at for each in ledger.run(run_id).checkpoints}
    assert times == {20: None, 30: say.at(8)}
    assert check(ledger, [run_dir]) == []


def test_it_may_be_said_before_the_ledger_knows_the_checkpoint(
    ledger: Ledger, tmp_path: Path
) -> None:
    run_dir = new_run(tmp_path)
    grow(run_dir.mirror, say.mirror("mirrored", 20, 6))
    catch_up(ledger, [run_dir])
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    grow(run_dir.attempt(1).events, say.checkpoint(20, path="checkpoints/000000020"))
    catch_up(ledger, [run_dir])
    (checkpoint,) = ledger.run(run_dir.path.name).checkpoints
    assert checkpoint.mirrored_at == say.at(6)


def test_how_far_the_mirror_is_behind_is_in_the_ledger(ledger: Ledger, tmp_path: Path) -> None:
    run_dir, other = new_run(tmp_path), new_run(tmp_path, name="other")
    run_id, url = run_dir.path.name, "s3://lab/ada"
    _is_mirrored_to(run_dir, url + "/")

    def lag() -> MirrorLag | None:
        catch_up(ledger, [run_dir, other])
        found = ledger.run(run_id).mirror
        said = ledger.connection().rows("SELECT run_id, newest, mirrored FROM mirror_lag")
        assert said == ([] if found is None else [(run_id, found.newest, found.mirrored)])
        assert check(ledger, [run_dir, other]) == []
        return found

    grow(run_dir.journal, say.intended(1), say.submitted(1))
    grow(other.journal, say.intended(1), say.submitted(1))
    grow(other.attempt(1).events, say.checkpoint(20, path="checkpoints/000000020"))
    assert lag() == MirrorLag(url, None, None, None)
    for step, minute in ((20, 4), (30, 6)):
        path = f"checkpoints/{step:09d}"
        grow(run_dir.attempt(1).events, say.checkpoint(step, minute, path=path))
    assert lag() == MirrorLag(url, 30, None, say.at(4))
    grow(run_dir.mirror, say.mirror("began", 20, 7), say.mirror("mirrored", 20, 8))
    assert lag() == MirrorLag(url, 30, 20, say.at(6))
    grow(run_dir.mirror, say.mirror("failed", 30, 9))
    assert lag() == MirrorLag(url, 30, 20, say.at(6))
    grow(run_dir.mirror, say.mirror("mirrored", 30, 9))
    assert lag() == MirrorLag(url, 30, 30, None)
    _is_mirrored_to(run_dir, "s3://another/runs")
    rebuild(ledger, [run_dir])  # as who restores it does
    assert lag() == MirrorLag("s3://another/runs", 30, None, say.at(4))


def test_what_was_made_after_the_newest_in_the_store_is_behind(
    ledger: Ledger, tmp_path: Path
) -> None:
    """A run that goes on from an older one makes lower train steps, later."""
    run_dir = new_run(tmp_path)
    url = "s3://lab/ada"
    _is_mirrored_to(run_dir, url)

    def lag() -> MirrorLag | None:
        catch_up(ledger, [run_dir])
        return ledger.run(run_dir.path.name).mirror

    def made(train_step: int, minute: float) -> None:
        path = f"checkpoints/{train_step:09d}"
        grow(run_dir.attempt(1).events, say.checkpoint(train_step, minute, path=path))

    grow(run_dir.journal, say.intended(1), say.submitted(1))
    for step, minute in ((400, 3), (900, 4), (1000, 5)):
        made(step, minute)
    grow(run_dir.mirror, say.mirror("mirrored", 400, 4), say.mirror("mirrored", 1000, 6))
    assert lag() == MirrorLag(url, 1000, 1000, None), "900 is older than what is there"
    made(500, 10)
    made(600, 12)
    assert lag() == MirrorLag(url, 1000, 1000, say.at(10))
    made(400, 8)
    assert lag() == MirrorLag(url, 1000, 1000, say.at(8))
    grow(run_dir.mirror, say.mirror("mirrored", 600, 14))
    assert lag() == MirrorLag(url, 1000, 1000, None)
    made(1000, 20)
    assert lag() == MirrorLag(url, 1000, 600, say.at(20))


def _is_mirrored_to(run_dir: RunDir, url: str) -> None:
    run = read_run(run_dir).model_copy(update={"mirror": Mirror(url=url)})
    run_dir.run_json.write_bytes(frozen_json(run))


def test_a_run_at_rest_is_read_again_when_it_is_marked(ledger: Ledger, tmp_path: Path) -> None:
    run_dir, home = new_run(tmp_path), Home(tmp_path / "home")
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    grow(run_dir.attempt(1).events, say.checkpoint(20, path="checkpoints/000000020"))
    grow(run_dir.journal, say.ended(1, Cause.COMPLETED, 9))
    catch_up_home(ledger, home)
    mark_dirty(home, run_dir)
    grow(run_dir.mirror, say.mirror("mirrored", 20, 6))
    catch_up_home(ledger, home)
    (checkpoint,) = ledger.run(run_dir.path.name).checkpoints
    assert checkpoint.mirrored_at == say.at(6)
