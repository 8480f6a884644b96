"""The ledger keeps what it is given, exactly, on both databases, and nobody counts twice."""

from __future__ import annotations

import json
import random
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from hpcflow.errors import InputError, LedgerError, NotFoundError
from hpcflow.ledger import connection, queries
from hpcflow.ledger.derive import derive_attempt, derive_run, run_row
from hpcflow.ledger.fold import RunFold, fold_events, fold_journal, outdates
from hpcflow.ledger.rows import BY_JOB, BY_PERSON, Change, CheckpointRow, SourceRow
from hpcflow.ledger.store import Ledger, open_ledger
from hpcflow.ledger.tables import Run as RunTable
from hpcflow.ledger.upgrade import make_engine
from hpcflow.ledger.url import parse_url
from hpcflow.model.run import Run
from hpcflow.model.state import AttemptState, Cause, RunState
from hpcflow.testing.cluster import Postgres
from tests.ledger.lines import (
    at,
    checkpoint,
    ended,
    intended,
    observed,
    progress,
    started,
    submitted,
)
from tests.storage.runs import make_run


def change_of(run: Run, journal: list[bytes], events: list[bytes], **options: Any) -> Change:
    """What a projector would write for a run whose attempt 1 said ``events``."""
    fold = RunFold(run.run_id)
    fold_journal(fold, journal)
    if events:
        fold_events(fold, 1, events)
    row = run_row(run)
    attempts = [derive_attempt(run.run_id, n, fold.attempts[n]) for n in sorted(fold.attempts)]
    derive_run(row, fold, attempts)
    sources = [SourceRow(run.run_id, "journal.jsonl", 2**40, True, 3)] if journal else []
    row.bytes_read = sum(source.offset_bytes for source in sources)
    change = Change(row, attempts, list(fold.checkpoints.values()), sources, None)
    return replace(change, **options)


LIVE = [intended(1), submitted(1, 1)]
SAID = [started(1, 2), progress(10, 3, loss=0.1, lr=1e-5), checkpoint(10, 4)]


#: sqlite3.SQLITE_LIMIT_VARIABLE_NUMBER, which Python 3.10 does not have.
_VARIABLE_NUMBER = 9


@pytest.mark.skipif(sys.version_info < (3, 11), reason="sqlite3 cannot lower the limit")
def test_an_old_sqlite_is_asked_about_many_runs_in_several_statements(tmp_path: Path) -> None:
    run = make_run(tmp_path)
    run_ids = [f"digits-20260301-{number:08d}" for number in range(2000)] + [run.run_id]
    with open_ledger(f"sqlite:///{tmp_path / 'ledger.sqlite'}") as ledger:
        ledger.apply([change_of(run, LIVE, [])])
        raw = ledger.connection().raw
        raw.setlimit(_VARIABLE_NUMBER, 999)
        assert list(ledger.known(run_ids)) == [run.run_id]
        assert list(ledger.how_far(run_ids)) == [run.run_id]
        assert ledger.checkpoints(run_ids) == []


@pytest.mark.postgres
def test_a_server_parses_one_statement_for_any_number_of_runs(
    postgres_server: Postgres, tmp_path: Path
) -> None:
    with open_ledger(postgres_server.url()) as ledger:
        run = make_run(tmp_path)
        ledger.apply([change_of(run, LIVE, SAID)])
        for others in range(20):
            run_ids = [run.run_id, *(f"run-{number}" for number in range(others))]
            assert list(ledger.known(run_ids)) == list(ledger.how_far(run_ids)) == [run.run_id]
            assert list(ledger.owners(run_ids)) == list(ledger.bytes_read(run_ids)) == [run.run_id]
        sql = "SELECT count(*) FROM pg_prepared_statements WHERE statement LIKE '%WHERE run_id%'"
        ((prepared,),) = ledger.connection().rows(sql.replace("%", "%%"))
        assert prepared == 7  # of known(): three


def test_rows_come_back_as_they_were_written(ledger: Ledger, tmp_path: Path) -> None:
    change = change_of(make_run(tmp_path), LIVE, SAID)
    change.run.metrics = {"loss": 0.1, "tiny": 5e-324, "grün": 1e300}
    change.run.estimated_cost_usd = "1234567890123456789.123456789"
    change.run.train_step = 2**63 - 1
    assert ledger.apply([change]) == []

    known = ledger.known([change.run.run_id])[change.run.run_id]
    assert known.run == change.run
    assert known.attempts == change.attempts
    assert known.sources == change.sources
    assert ledger.checkpoints([change.run.run_id]) == change.checkpoints


def test_a_run_is_shown_with_all_that_belongs_to_it(ledger: Ledger, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    ledger.apply([change_of(run, LIVE, SAID)])

    detail = ledger.run(run.run_id)
    assert detail.run.state is RunState.RUNNING
    assert detail.run.user == "ada"
    assert detail.run.created_at == run.created_at
    assert detail.run.estimated_cost_usd == "12.50"
    assert detail.run.metrics == {"loss": 0.1, "lr": 1e-5}
    assert detail.command == ["python3", "train.py", "--epochs", "3"]
    assert detail.resources["nodes"] == 2
    (attempt,), (saved,) = detail.attempts, detail.checkpoints
    assert (attempt.state, attempt.job_id, attempt.started_at) == (
        AttemptState.RUNNING,
        "101",
        at(2),
    )
    assert (saved.path, saved.is_best, saved.created_at) == ("checkpoints/10", False, at(4))


def test_an_unknown_run_is_not_found(ledger: Ledger) -> None:
    with pytest.raises(NotFoundError, match="hpcflow ls"):
        ledger.run("digits-20260301-aaaaaaaa")


def test_runs_are_listed_newest_first_and_filtered(ledger: Ledger, tmp_path: Path) -> None:
    old = make_run(tmp_path, name="old", tags=["paper", "a_b"])
    new = make_run(tmp_path, name="new", at=at(60), project="nlp", tags=["PAPER", "axb"])
    over = [*LIVE, ended(1, Cause.COMPLETED, 9)]
    ledger.apply([change_of(old, over, []), change_of(new, LIVE, [])])

    def names(**filters: Any) -> list[str]:
        return [view.name for view in ledger.runs(**filters)]

    assert names() == ["new", "old"]
    assert names(limit=1) == ["new"]
    assert names(states=[RunState.QUEUED]) == ["new"]
    assert names(states=[]) == []
    assert names(project="vision") == ["old"]
    assert names(user="grace") == []
    assert names(user="ada", tag="paper") == ["old"]
    assert names(tag="a_b") == ["old"]
    assert names(tag="pape") == []


def test_what_is_under_way_is_listed_with_its_run(ledger: Ledger, tmp_path: Path) -> None:
    live, over = make_run(tmp_path), make_run(tmp_path)
    ledger.apply(
        [
            change_of(live, [*LIVE, ended(1, Cause.PREEMPTED, 5), intended(2, 6)], []),
            change_of(over, [*LIVE, ended(1, Cause.FAILED, 5)], []),
        ]
    )
    ((run, attempt),) = ledger.live_attempts(user="ada")
    assert (run.run_id, attempt.attempt) == (live.run_id, 2)
    assert ledger.live_attempts(user="grace") == []


def test_runs_at_rest_are_left_alone_after_a_while(ledger: Ledger, tmp_path: Path) -> None:
    live, over, kept = (make_run(tmp_path) for _ in range(3))
    ledger.apply(
        [
            change_of(live, LIVE, []),
            change_of(over, [*LIVE, ended(1, Cause.COMPLETED, 5)], []),
            change_of(kept, [], []),
        ]
    )
    assert ledger.run_ids() == {live.run_id, over.run_id, kept.run_id}
    assert ledger.unsettled(at(9)) == {live.run_id, over.run_id, kept.run_id}
    assert ledger.unsettled(at(14)) == {live.run_id, over.run_id}
    assert ledger.unsettled(at(16)) == {live.run_id}


def test_who_waits_for_nodes_and_not_for_any_is_found(ledger: Ledger, tmp_path: Path) -> None:
    waits = {"raw_state": "PENDING", "reason": "ReqNodeNotAvail, UnavailableNodes:n1"}
    sent = json.loads(intended(1, 0))
    ids = []
    for fields in ({"excluded": ["n2"]}, {}):
        run = make_run(tmp_path)
        lines = [json.dumps({**sent, **fields}).encode(), submitted(1, 1)]
        lines.append(observed(1, AttemptState.QUEUED, 2, **waits))
        ledger.apply([change_of(run, lines, [])])
        ids.append(run.run_id)
    assert ledger.pending_for_nodes(user="ada") == ids[:1]
    assert ledger.pending_for_nodes(user="grace") == []


def test_only_one_of_two_who_read_the_same_lines_writes(ledger: Ledger, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    first, second = change_of(run, [], []), change_of(run, LIVE, [])
    assert ledger.apply([first]) == []
    assert ledger.apply([second]) == [run.run_id]  # it thought that it was the first
    assert ledger.known([run.run_id])[run.run_id].attempts == []

    second.bytes_before = 0
    assert ledger.apply([second]) == []
    assert ledger.apply([second]) == [run.run_id]
    assert len(ledger.known([run.run_id])[run.run_id].attempts) == 1


def test_a_lost_claim_does_not_keep_others_from_being_written(
    ledger: Ledger, tmp_path: Path
) -> None:
    taken, free = make_run(tmp_path), make_run(tmp_path)
    ledger.apply([change_of(taken, [], [])])
    assert ledger.apply([change_of(taken, LIVE, SAID), change_of(free, LIVE, SAID)]) == [
        taken.run_id
    ]
    assert [row.run_id for row in ledger.checkpoints([taken.run_id, free.run_id])] == [free.run_id]


def test_many_that_write_to_the_same_runs_at_once_share_them_out(
    ledger: Ledger, ledger_url: str, tmp_path: Path
) -> None:
    """New runs and known ones, in all orders: nobody waits for one who waits for them."""
    runs = [make_run(tmp_path) for _ in range(60)]
    ledger.apply([change_of(run, [], []) for run in runs[::2]])
    before = {run.run_id: 0 for run in runs[::2]}

    def write(seed: int) -> set[str]:
        mine = random.Random(seed).sample(runs, len(runs))
        changes = [change_of(run, LIVE, SAID, bytes_before=before.get(run.run_id)) for run in mine]
        with open_ledger(ledger_url) as own:
            return {run.run_id for run in runs}.difference(own.apply(changes))

    with ThreadPoolExecutor(6) as pool:
        written = list(pool.map(write, range(12)))
    assert sorted(run_id for each in written for run_id in each) == sorted(r.run_id for r in runs)
    known = ledger.known([run.run_id for run in runs])
    assert [len(each.attempts) for each in known.values()] == [1] * len(runs)


def test_reading_anew_replaces_everything_of_a_run(ledger: Ledger, tmp_path: Path) -> None:
    run, other = make_run(tmp_path), make_run(tmp_path)
    ledger.apply([change_of(run, LIVE, SAID), change_of(other, LIVE, SAID)])
    ledger.apply([change_of(run, [], [], bytes_before=2**40, from_zero=True)])

    known = ledger.known([run.run_id, other.run_id])
    assert (known[run.run_id].attempts, known[run.run_id].sources) == ([], [])
    assert known[run.run_id].run.state == "created"
    assert len(known[other.run_id].attempts) == 1
    assert len(ledger.checkpoints([run.run_id, other.run_id])) == 1


def test_the_checkpoint_of_the_later_attempt_stays_at_a_path(
    ledger: Ledger, tmp_path: Path
) -> None:
    run = make_run(tmp_path)
    by_second = CheckpointRow(run.run_id, "ckpt.pt", 2, 50, None, 1, {}, False, at(9))
    by_first = replace(by_second, attempt=1, train_step=10, created_at=at(2))
    ledger.apply([change_of(run, [], [], checkpoints=[by_second])])
    ledger.apply([change_of(run, [], [], checkpoints=[by_first], bytes_before=0)])
    assert ledger.checkpoints([run.run_id]) == [by_second]
    newer = replace(by_second, train_step=60)
    ledger.apply([change_of(run, [], [], checkpoints=[newer], bytes_before=0)])
    assert ledger.checkpoints([run.run_id]) == [newer]


@pytest.mark.parametrize("new", [None, BY_JOB, BY_PERSON])
@pytest.mark.parametrize("old", [None, BY_JOB, BY_PERSON])
@pytest.mark.parametrize("attempt", [1, 2, 3])
def test_the_database_knows_as_the_fold_does_which_word_on_a_checkpoint_counts(
    ledger: Ledger, tmp_path: Path, attempt: int, old: str | None, new: str | None
) -> None:
    run = make_run(tmp_path)
    before = CheckpointRow(run.run_id, "c", 2, 50, None, 1, {}, False, at(9), old)
    after = replace(before, attempt=attempt, size_bytes=2, removed=new)
    ledger.apply([change_of(run, [], [], checkpoints=[before])])
    ledger.apply([change_of(run, [], [], checkpoints=[after], bytes_before=0)])
    expected = after if outdates(after, before) else before
    assert ledger.checkpoints([run.run_id]) == [expected]
    shown = [saved.size_bytes for saved in ledger.run(run.run_id).checkpoints]
    assert shown == ([] if expected.removed else [expected.size_bytes])


def test_a_failure_in_the_middle_writes_nothing(ledger: Ledger, tmp_path: Path) -> None:
    run = make_run(tmp_path)
    change = change_of(run, LIVE, SAID)
    change.checkpoints[0].run_id = "nobody"  # no such run: the foreign key refuses it
    with pytest.raises(LedgerError):
        ledger.apply([change])
    assert ledger.run_ids() == set()
    change.checkpoints[0].run_id = run.run_id
    assert ledger.apply([change]) == []


def test_an_orm_sees_the_same_values(ledger: Ledger, ledger_url: str, tmp_path: Path) -> None:
    from sqlmodel import Session, select

    run = make_run(tmp_path)
    ledger.apply([change_of(run, LIVE, SAID)])
    engine = make_engine(parse_url(ledger_url))
    with Session(engine) as session:
        row = session.exec(select(RunTable)).one()
        assert row.created_at == run.created_at
        assert row.created_at.utcoffset() == timedelta(0)
        assert row.estimated_cost_usd == Decimal("12.50")
        assert row.tags == ["paper"]
    engine.dispose()


def test_the_database_file_is_for_its_owner_only(tmp_path: Path) -> None:
    with open_ledger(f"sqlite:///{tmp_path}/home/ledger.sqlite") as ledger:
        ledger.apply([change_of(make_run(tmp_path), [], [])])
        for path in (tmp_path / "home", *(tmp_path / "home").iterdir()):
            assert path.stat().st_mode & 0o077 == 0, path


def test_a_path_alone_is_a_sqlite_ledger(weird_tmp_path: Path) -> None:
    with open_ledger(str(weird_tmp_path / "100%?#.sqlite")) as ledger:
        assert ledger.runs() == []
    assert (weird_tmp_path / "100%?#.sqlite").stat().st_size > 0


@pytest.mark.parametrize("url", ["", "mysql://h/d", "sqlite://", "http://u:secret@h"])
def test_what_is_no_database_is_bad_input(url: str) -> None:
    with pytest.raises(InputError, match="not a ledger") as caught:
        open_ledger(url)
    assert "secret" not in str(caught.value)


def test_a_damaged_file_names_the_way_out(tmp_path: Path) -> None:
    path = tmp_path / "ledger.sqlite"
    path.write_bytes(b"not a database, not at all" * 100)
    with pytest.raises(LedgerError, match="hpcflow ledger rebuild"):
        open_ledger(str(path))


def test_a_folder_in_the_way_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(LedgerError, match="unable to open"):
        open_ledger(str(tmp_path))
    with pytest.raises(LedgerError):
        open_ledger("/dev/null/ledger.sqlite")


SECRET = "p@ss-7cc9c43b"


@pytest.mark.parametrize(
    "url",
    [
        f"postgresql://ada:{SECRET.replace('@', '%40')}@127.0.0.1:1/hpcflow",
        f"postgresql+psycopg://127.0.0.1:1/hpcflow?user=ada&password={SECRET.replace('@', '%40')}",
    ],
)
def test_a_server_that_is_down_is_said_at_once_and_without_the_password(url: str) -> None:
    with pytest.raises(LedgerError, match="does not work") as caught:
        open_ledger(url)
    assert caught.value.retryable
    shown = repr(caught.value) + str(caught.value) + repr(caught.value.__cause__)
    assert SECRET not in shown
    assert SECRET.removeprefix("p@") not in shown
    assert caught.value.__suppress_context__


@pytest.mark.postgres
def test_a_connection_that_was_lost_is_opened_anew(postgres_server: Postgres) -> None:
    url = postgres_server.create_database("ledger_lost")
    with open_ledger(url) as ledger, open_ledger(url) as other:
        kill = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid <> "
        other.connection().execute(
            f"{kill} pg_backend_pid() AND datname = current_database()"
        ).fetchall()
        with pytest.raises(LedgerError) as caught:
            ledger.runs()
        assert caught.value.retryable
        assert ledger.runs() == []
    postgres_server.drop_database("ledger_lost")


@pytest.mark.postgres
def test_who_is_stopped_in_the_midst_of_writing_keeps_nobody_else_from_it(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = postgres_server.create_database("ledger_stopped")
    run = make_run(tmp_path)
    monkeypatch.setattr(connection, "IDLE_TIMEOUT_S", 2.0)
    with open_ledger(url) as stopped, open_ledger(url) as other:
        other.apply([change_of(run, [], [])])
        writing = stopped.connection()
        with pytest.raises(LedgerError) as caught, writing.transaction(write=True):
            assert queries.bytes_read(writing, [run.run_id]) == {run.run_id: 0}
            assert other.apply([change_of(run, LIVE, SAID, bytes_before=0)]) == []
            writing.rows("SELECT 1")  # it wakes up
        assert caught.value.retryable
        assert len(stopped.known([run.run_id])[run.run_id].attempts) == 1
    postgres_server.drop_database("ledger_stopped")


@pytest.mark.postgres
def test_a_server_that_accepts_and_does_not_answer_is_not_waited_for(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    url = postgres_server.create_database("ledger_held")
    open_ledger(url).close()
    monkeypatch.setattr(connection, "BUSY_TIMEOUT_S", 0.2)
    with open_ledger(url) as ledger, open_ledger(url) as other, other.connection().raw as held:
        held.execute("BEGIN; LOCK TABLE run IN ACCESS EXCLUSIVE MODE")
        for ask in (
            ledger.runs,
            lambda: ledger.live_attempts(user="ada"),
            lambda: ledger.apply([change_of(make_run(tmp_path), LIVE, SAID)]),
        ):
            with pytest.raises(LedgerError, match=r"lock timeout.*\n.*try again") as caught:
                ask()
            assert caught.value.retryable
        held.execute("ROLLBACK")
        assert ledger.runs() == []
    postgres_server.drop_database("ledger_held")


@pytest.mark.postgres
def test_a_statement_that_never_ends_is_ended(
    postgres_server: Postgres, monkeypatch: pytest.MonkeyPatch
) -> None:
    url = postgres_server.create_database("ledger_slow")
    monkeypatch.setattr(connection, "STATEMENT_TIMEOUT_S", 1.0)
    with open_ledger(url) as ledger:
        with pytest.raises(LedgerError, match="statement timeout"):
            ledger.connection().rows("SELECT pg_sleep(30)")
        options = ledger.connection().raw.info.get_parameters()
        assert int(options["tcp_user_timeout"]) > 0
    postgres_server.drop_database("ledger_slow")


def test_opening_a_ledger_that_exists_imports_nothing_heavy(ledger_url: str) -> None:
    open_ledger(ledger_url).close()
    program = (
        "import sys; from hpcflow.ledger.store import open_ledger; "
        "open_ledger(sys.argv[1]).runs(); print(*sys.modules)"
    )
    done = subprocess.run(
        [sys.executable, "-c", program, ledger_url], capture_output=True, text=True, check=True
    )
    loaded = set(done.stdout.split())
    assert loaded & {"sqlalchemy", "sqlmodel", "alembic", "pydantic"} == set()
    assert ("psycopg" in loaded) == bool(re.match("postgres", ledger_url))
