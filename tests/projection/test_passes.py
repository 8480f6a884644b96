"""The ledger follows the files: once, in any order, in any portions, whatever happens to them."""

from __future__ import annotations

import os
import shutil
from collections.abc import Sequence
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from hpcflow.errors import LedgerError
from hpcflow.ledger.rows import Change
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.model.state import AttemptState, Cause
from hpcflow.projection import Summary, catch_up, catch_up_home, check, rebuild
from hpcflow.storage import lines
from hpcflow.storage.dirty_marks import dirty_runs, mark_dirty
from hpcflow.storage.layout import Home
from tests.ledger import lines as say
from tests.projection.files import everything, grow, new_run

JOURNAL = [
    *(make(number, number) for make in (say.intended, say.submitted) for number in (1, 2, 3)),
    say.refused(1, 4),
    say.withdrawn(2, 5),
    say.observed(1, AttemptState.RUNNING, 6, started_at=say.at(6), nodes=["n3"]),
    say.observed(2, AttemptState.QUEUED, 6, reason="Priority"),
    say.observed(2, AttemptState.UNKNOWN, 7, raw_state="MISSING"),
    say.ended(1, Cause.PREEMPTED, 8, ended_at=say.at(8)),
    say.ended(2, Cause.COMPLETED, 9),
    say.ended(3, Cause.FAILED, 9, exit_code=1),
    say.cancel_requested(10),
    say.resumed(11),
    say.removed_by_hand(20, made_in=1, minutes=12),
    say.removed_by_hand(30, made_in=2, minutes=12),
    b'{"record": "from_the_future"}\n',
    b"\n",
]
EVENTS = [
    say.started(1, 2),
    say.event("train_started", 2, train_step=0, resumed_from=None, total_train_steps=100),
    say.progress(10, 3, loss=0.5),
    say.progress(20, 4, loss=None, lr=0.1),
    say.event("progress", 5, train_step=25, total_train_steps=90, epoch=2.5, metrics={"lr": 0.2}),
    say.checkpoint(20, 4),
    say.checkpoint(30, 5, metrics={"loss": 0.3}),
    say.checkpoint(40, 5, metrics={"loss": 0.2}),
    say.checkpoint(50, 5, metrics={"loss": 0.2, "lr": 0.1}),
    say.removed(40, 6),
    say.checkpoint(30, 5, path="ckpt.pt", epoch=1.5),
    say.removed(20, 6),
    say.removed(30, 6),
    say.event("notice", 6, signal="TERM"),
    say.event("finished", 7, train_step=40, metrics={"accuracy": 0.9}, model="model.pt"),
    say.exited(0, 8),
    say.exited(75, 8),
    b"torn{\n",
    b"\r\n",
    b"x" * 700 + b"\n",  # longer than a line may be, here
]


MIRROR = [
    *(
        say.mirror(what, train_step, minutes)
        for minutes, what in enumerate(("began", "sending", "mirrored", "failed", "removed"))
        for train_step in (20, 30)
    ),
    say.mirror("mirrored", -1, 3),
    say.mirror("from the future", 20, 3),
    b"[]\n",
    b"torn{\n",
]


@settings(
    max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(
    journal=st.lists(st.sampled_from(JOURNAL), max_size=8),
    events=st.tuples(*[st.lists(st.sampled_from(EVENTS), max_size=6)] * 3),
    mirror=st.lists(st.sampled_from(MIRROR), max_size=6),
    growth=st.lists(st.tuples(st.integers(0, 4), st.integers(1, 900), st.booleans())),
)
def test_however_the_files_grew_the_ledger_is_that_of_a_rebuild(
    ledger: Ledger,
    tmp_path: Path,
    journal: list[bytes],
    events: tuple[list[bytes], ...],
    mirror: list[bytes],
    growth: list[tuple[int, int, bool]],
) -> None:
    run_dir = new_run(tmp_path, checkpoint={"keep_best": {"metric": "loss", "mode": "min"}})
    events_paths = [run_dir.attempt(number).events for number in (1, 2, 3)]
    paths = [run_dir.journal, *events_paths, run_dir.mirror]
    to_come = [b"".join(parts) for parts in (journal, *events, mirror)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(lines, "MAX_LINE_BYTES", 600)
        for file, size, look in growth:
            grow(paths[file], to_come[file][:size])
            to_come[file] = to_come[file][size:]
            if look:
                catch_up(ledger, [run_dir])
        for path, rest in zip(paths, to_come, strict=True):
            grow(path, rest)
        catch_up(ledger, [run_dir])
        followed = everything(ledger, [run_dir])
        assert catch_up(ledger, [run_dir]) == Summary(runs=1)
        assert rebuild(ledger, [run_dir]).problems == []
    assert everything(ledger, [run_dir]) == followed


@pytest.mark.parametrize("number", [1, 2])
def test_progress_alone_changes_what_a_rebuild_would(
    ledger: Ledger, tmp_path: Path, number: int
) -> None:
    run_dir = new_run(tmp_path)
    grow(run_dir.journal, *(make(n) for n in (1, 2) for make in (say.intended, say.submitted)))
    for each in (1, 2):
        grow(run_dir.attempt(each).events, say.started(each), say.progress(10, 3, loss=0.5))
    catch_up(ledger, [run_dir])
    before = everything(ledger, [run_dir])

    said = {"total_train_steps": 90, "epoch": 2.5, "metrics": {"lr": 0.2}}
    grow(run_dir.attempt(number).events, say.event("progress", 5, train_step=25, **said))
    assert catch_up(ledger, [run_dir]).lines == 1

    followed = everything(ledger, [run_dir])
    assert followed != before
    rebuild(ledger, [run_dir])
    assert everything(ledger, [run_dir]) == followed
    newest = ledger.runs()[0]
    assert (newest.train_step, newest.epoch) == ((25, 2.5) if number == 2 else (10, None))


@pytest.mark.parametrize(("mode", "values"), [("min", (0.3, 0.1, 0.1)), ("max", (0.7, 0.9, 0.9))])
def test_the_best_checkpoint_is_said_to_be_it_until_it_is_removed(
    ledger: Ledger, tmp_path: Path, mode: str, values: Sequence[float]
) -> None:
    run_dir = new_run(tmp_path, checkpoint={"keep_best": {"metric": "m", "mode": mode}})
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    events = run_dir.attempt(1).events
    grow(events, say.started(1), say.checkpoint(5), say.checkpoint(6, metrics={"other": 0.0}))

    def best() -> tuple[list[int], float | None]:
        catch_up(ledger, [run_dir])
        followed = everything(ledger, [run_dir])
        rebuild(ledger, [run_dir])
        assert everything(ledger, [run_dir]) == followed
        assert check(ledger, [run_dir]) == []
        detail = ledger.run(run_dir.path.name)
        steps = [saved.train_step for saved in detail.checkpoints if saved.is_best]
        return steps, detail.run.best_metric

    assert best() == ([], None)
    for train_step, value in zip((10, 20, 30), values, strict=True):
        grow(events, say.checkpoint(train_step, metrics={"m": value}))
    assert best() == ([20], values[1])
    grow(events, say.progress(31, m=0.5), say.removed(20))
    assert best() == ([30], values[1])
    grow(run_dir.journal, say.removed_by_hand(30, made_in=1), say.removed_by_hand(10, made_in=1))
    assert best() == ([], None)


def test_every_line_counts_once_and_bad_ones_are_counted(ledger: Ledger, tmp_path: Path) -> None:
    run_dir = new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), b"garbage\n", say.submitted(1)[:-20])
    first = catch_up(ledger, [run_dir])
    assert (first.lines, first.skipped_lines) == (2, 1)
    assert ledger.runs()[0].state.value == "submitting"

    grow(run_dir.journal, say.submitted(1)[-20:])
    grow(run_dir.attempt(1).events, say.started(1), say.progress(5), b"\xff\n")
    second = catch_up(ledger, [run_dir])
    assert (second.changed, second.lines, second.skipped_lines) == ([run_dir.path.name], 4, 1)
    assert ledger.runs()[0].train_step == 5


def test_more_than_one_portion_is_read(
    ledger: Ledger, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(lines, "MAX_LINE_BYTES", 600)
    monkeypatch.setattr("hpcflow.projection.reading._PORTION_BYTES", 1000)
    run_dir = new_run(tmp_path)
    grow(run_dir.journal, say.intended(1))
    grow(run_dir.attempt(1).events, *(say.progress(step) for step in range(100)))
    assert catch_up(ledger, [run_dir]).lines == 101
    assert ledger.runs()[0].train_step == 99


def test_a_file_that_shrank_is_read_from_its_start(ledger: Ledger, tmp_path: Path) -> None:
    run_dir = new_run(tmp_path)
    events = run_dir.attempt(1).events
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    grow(events, say.started(1), say.progress(90, loss=0.1), say.checkpoint(90))
    catch_up(ledger, [run_dir])

    events.write_bytes(say.progress(7))
    summary = catch_up(ledger, [run_dir])

    assert "shorter" in summary.problems[0]
    assert (ledger.runs()[0].train_step, ledger.runs()[0].metrics) == (7, {})
    assert ledger.checkpoints([run_dir.path.name]) == []
    followed = everything(ledger, [run_dir])
    rebuild(ledger, [run_dir])
    assert everything(ledger, [run_dir]) == followed


def test_what_was_purged_stays_in_the_ledger(ledger: Ledger, tmp_path: Path) -> None:
    run_dir = new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    grow(run_dir.attempt(1).events, say.started(1), say.checkpoint(90))
    catch_up(ledger, [run_dir])
    before = everything(ledger, [run_dir])

    run_dir.attempt(1).events.unlink()
    assert catch_up(ledger, [run_dir]).gone == [run_dir.path.name]
    run_dir.path.rename(tmp_path / "elsewhere")
    assert catch_up(ledger, [run_dir]).gone == [run_dir.path.name]
    assert rebuild(ledger, [run_dir]).gone == [run_dir.path.name]

    assert everything(ledger, [run_dir]) == before


def test_a_run_that_cannot_be_read_does_not_stop_the_others(ledger: Ledger, tmp_path: Path) -> None:
    bad, worse, good = (new_run(tmp_path) for _ in range(3))
    bad.run_json.write_text("{")
    grow(worse.journal.parent / "run.json", b"\0")
    grow(good.journal, say.intended(1))
    summary = catch_up(ledger, [bad, worse, good])
    assert len(summary.problems) == 2
    assert ledger.run_ids() == {good.path.name}


def test_a_link_in_the_place_of_a_run_directory_is_a_problem_and_not_followed(
    ledger: Ledger, tmp_path: Path
) -> None:
    run_dir = new_run(tmp_path)
    grow(run_dir.journal, say.intended(1))
    catch_up(ledger, [run_dir])
    elsewhere = run_dir.path.rename(tmp_path / "elsewhere")
    run_dir.path.symlink_to(elsewhere)
    grow(run_dir.journal, say.submitted(1))
    events = run_dir.attempt(1).events
    grow(events, say.checkpoint(20))
    os.utime(events, (0, events.stat().st_mtime))
    assert f"is a link to {elsewhere}" in catch_up(ledger, [run_dir]).problems[0]
    assert events.stat().st_atime == 0


def test_a_run_json_of_another_run_is_a_problem(ledger: Ledger, tmp_path: Path) -> None:
    mine, other = new_run(tmp_path), new_run(tmp_path)
    mine.run_json.write_bytes(other.run_json.read_bytes())
    assert "another run" in catch_up(ledger, [mine]).problems[0]


def test_the_ledger_of_a_home_is_rebuilt_from_nothing(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    run_dirs = [new_run(tmp_path, name=f"run{number}") for number in range(5)]
    for run_dir in run_dirs:
        grow(run_dir.journal, say.intended(1), say.submitted(1))
        grow(run_dir.attempt(1).events, say.started(1), say.progress(5), say.checkpoint(5))
        catch_up(ledger, [run_dir])
    listed, rows = ledger.runs(), everything(ledger, run_dirs)

    connection = ledger.connection()
    for table in ("source", "checkpoint", "attempt", "run"):
        connection.execute(f"DELETE FROM {table}")
    if connection.is_sqlite:
        ledger.close()
        Path(ledger_url.removeprefix("sqlite:///")).unlink()
    summary = rebuild(ledger, run_dirs)

    assert (summary.runs, len(summary.changed), summary.problems) == (5, 5, [])
    assert (ledger.runs(), everything(ledger, run_dirs)) == (listed, rows)


def test_a_home_is_followed_without_looking_at_runs_at_rest(ledger: Ledger, tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    live, over = new_run(tmp_path), new_run(tmp_path)
    grow(live.journal, say.intended(1), say.submitted(1))
    grow(over.journal, say.intended(1), say.ended(1, Cause.FAILED, 5))
    assert catch_up_home(ledger, home, now=say.at(9)).runs == 2
    assert catch_up_home(ledger, home, now=say.at(9)).runs == 2  # its last lines may come late
    assert catch_up_home(ledger, home, now=say.at(60)).runs == 1

    started_later = new_run(tmp_path, at=say.at(60))
    assert catch_up_home(ledger, home, now=say.at(61)).changed == [started_later.path.name]


def test_a_run_that_moves_again_while_the_database_is_down_is_not_forgotten(
    ledger: Ledger, tmp_path: Path
) -> None:
    home, run_dir = Home(tmp_path / "home"), new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), say.ended(1, Cause.FAILED, 5))
    catch_up_home(ledger, home, now=say.at(60))

    mark_dirty(home, run_dir)
    grow(run_dir.journal, say.resumed(70), say.intended(2, 70))
    with pytest.raises(LedgerError):  # as the command that resumes it sees it
        open_ledger("postgresql://ada@127.0.0.1:1/hpcflow")

    assert catch_up_home(ledger, home, now=say.at(200)).changed == [run_dir.path.name]
    assert ledger.run(run_dir.path.name).run.state.value == "submitting"


def test_a_run_that_moves_again_is_not_forgotten_while_its_files_are_away(
    ledger: Ledger, tmp_path: Path
) -> None:
    home, run_dir = Home(tmp_path / "home"), new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), say.ended(1, Cause.FAILED, 5))
    catch_up_home(ledger, home, now=say.at(60))

    mark_dirty(home, run_dir)
    _let_marks_grow_old(home)
    grow(run_dir.journal, say.resumed(70), say.intended(2, 70))
    away = run_dir.journal.rename(tmp_path / "away")
    assert catch_up_home(ledger, home, now=say.at(200)).unread == {run_dir.path.name}
    assert dirty_runs(home) == [run_dir.path.name]

    away.rename(run_dir.journal)
    assert catch_up_home(ledger, home, now=say.at(201)).changed == [run_dir.path.name]
    assert dirty_runs(home) == []


def test_events_that_a_purge_took_keep_no_mark(ledger: Ledger, tmp_path: Path) -> None:
    home, run_dir = Home(tmp_path / "home"), new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), say.ended(1, Cause.FAILED, 5))
    grow(run_dir.attempt(1).events, say.started(1, 2))
    catch_up_home(ledger, home, now=say.at(60))
    mark_dirty(home, run_dir)
    _let_marks_grow_old(home)
    run_dir.attempt(1).events.unlink()
    assert catch_up_home(ledger, home, now=say.at(200)).gone == [run_dir.path.name]
    assert dirty_runs(home) == [], "the journal was read, which says whether it moves"


def test_a_run_that_a_purge_took_keeps_no_mark(ledger: Ledger, tmp_path: Path) -> None:
    home, run_dir = Home(tmp_path / "home"), new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), say.ended(1, Cause.FAILED, 5))
    catch_up_home(ledger, home, now=say.at(60))
    mark_dirty(home, run_dir)
    _let_marks_grow_old(home)
    shutil.rmtree(run_dir.path)
    assert catch_up_home(ledger, home, now=say.at(200)).gone == [run_dir.path.name]
    assert dirty_runs(home) == []


def test_a_reader_whose_clock_is_ahead_forgets_no_run_that_is_about_to_move(
    ledger: Ledger, tmp_path: Path
) -> None:
    home, run_dir = Home(tmp_path / "home"), new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), say.ended(1, Cause.FAILED, 5))
    ahead = datetime.now(timezone.utc) + timedelta(hours=2)
    catch_up_home(ledger, home, now=ahead)
    mark_dirty(home, run_dir)
    assert catch_up_home(ledger, home, now=ahead).changed == []
    grow(run_dir.journal, say.resumed(70), say.intended(2, 70))
    assert catch_up_home(ledger, home, now=ahead).changed == [run_dir.path.name]


def _let_marks_grow_old(home: Home) -> None:
    for mark in home.unread.iterdir():
        then = mark.stat().st_mtime - 2 * 3600
        os.utime(mark, (then, then))


def test_runs_of_others_in_a_shared_ledger_are_theirs_to_read(
    ledger: Ledger, tmp_path: Path
) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    mine, theirs = new_run(tmp_path / "a"), new_run(tmp_path / "b")
    grow(theirs.journal, say.intended(1))
    catch_up_home(ledger, Home(tmp_path / "b/home"))
    assert catch_up_home(ledger, Home(tmp_path / "a/home")).changed == [mine.path.name]
    assert ledger.run_ids() == {mine.path.name, theirs.path.name}


class FasterOther(Ledger):
    """A ledger into which somebody else writes the same run just before every one of our writes."""

    losses = 1

    def apply(self, changes: Sequence[Change]) -> list[str]:
        if self.losses:
            self.losses -= 1
            for change in changes:
                row = replace(change.run, bytes_read=change.run.bytes_read + 1000 + self.losses)
                super().apply([replace(change, run=row, sources=[])])
        return super().apply(changes)


def test_who_is_too_late_reads_again(ledger_url: str, tmp_path: Path) -> None:
    from hpcflow.ledger.url import parse_url

    run_dir = new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    ledger = FasterOther(parse_url(ledger_url))
    with ledger:
        assert catch_up(ledger, [run_dir]).changed == [run_dir.path.name]
        assert ledger.known([run_dir.path.name])[run_dir.path.name].sources[0].offset_bytes > 0
        ledger.losses = 100
        grow(run_dir.journal, say.ended(1, Cause.FAILED))
        with pytest.raises(LedgerError, match="other processes keep writing"):
            catch_up(ledger, [run_dir])


@pytest.mark.parametrize("also", ["nothing", "shorter events", "gone too"])
def test_without_its_journal_a_run_keeps_its_rows(
    ledger: Ledger, tmp_path: Path, also: str
) -> None:
    """What became of its jobs, and what they cost, no other file says."""
    run_dir = new_run(tmp_path)
    grow(run_dir.journal, say.intended(1), say.submitted(1))
    grow(run_dir.attempt(1).events, say.started(1), say.progress(5), say.checkpoint(90))
    catch_up(ledger, [run_dir])
    run_dir.journal.unlink()
    if also == "gone too":
        run_dir.path.rename(tmp_path / "purged")
    before = everything(ledger, [run_dir])
    if also == "shorter events":
        run_dir.attempt(1).events.write_bytes(b"")
    for summary in (rebuild(ledger, [run_dir]), catch_up(ledger, [run_dir])):
        assert run_dir.path.name in summary.gone
        assert summary.unread == {run_dir.path.name}
    assert everything(ledger, [run_dir]) == before
