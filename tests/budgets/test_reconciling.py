"""What a look makes of budgets that were left behind, and what it leaves alone."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from hpcflow.budgets import compaction, folder
from hpcflow.budgets.amounts import NOTHING, Amounts
from hpcflow.budgets.budget_check import Pledge
from hpcflow.budgets.commitments import Settlement, commit, release, settle
from hpcflow.budgets.folder import BudgetFolder
from hpcflow.budgets.records import Change, Opening, Terms, entry_line
from hpcflow.budgets.scope import Scope
from hpcflow.budgets.state import Budget
from hpcflow.errors import SchedulerUnavailable, StorageError, SubmissionInDoubt
from hpcflow.launch.committing import commitment_of
from hpcflow.launch.run import Launched
from hpcflow.ledger.store import open_ledger
from hpcflow.model.journal import Restored
from hpcflow.reconcile import budgets
from hpcflow.sites.placement import place
from hpcflow.storage import journal
from hpcflow.storage.layout import RunDir
from hpcflow.storage.locks import submit_lock
from hpcflow.storage.rundir import read_run
from hpcflow.storage.runs import list_runs
from hpcflow.testing.fake_scheduler import Fault
from tests.budgets.desk import CONFIG, VISION, BudgetDesk
from tests.hostile import KINDS, bounded, put

HOUR_S = 3600


@pytest.fixture
def desk(tmp_path: Path) -> BudgetDesk:
    return BudgetDesk(tmp_path)


def pledge_of(desk: BudgetDesk, run_dir: RunDir, attempt: int = 1) -> Pledge:
    """As whoever sends it makes it."""
    run, home = read_run(run_dir), desk.settings.home
    placement = place(run.spec, desk.site)
    return commitment_of(
        run, attempt, placement, site=desk.site, home=home, clock=desk.clock
    ).pledge


def unsent(desk: BudgetDesk) -> RunDir:
    """A run whose first attempt Slurm did not take: the number is free again."""
    desk.slurm.faults.append(Fault.UNAVAILABLE)
    with pytest.raises(SchedulerUnavailable) as caught:
        desk.launch()
    return desk.settings.home.run_dir(Path(str(caught.value.details["run_dir"])))


def billed(launched: Launched, desk: BudgetDesk) -> Settlement:
    amounts, now = Amounts(), desk.clock.now()
    return Settlement(
        launched.run_id, 1, desk.settings.user, (VISION,), amounts, now, True, billed_at=now
    )


def test_what_is_about_to_be_sent_again_is_not_released_for_what_was_said_before(
    desk: BudgetDesk,
) -> None:
    desk.set(hard="10")
    run_dir = unsent(desk)
    desk.clock.advance(1)
    commit(desk.budgets, [pledge_of(desk, run_dir)], desk.clock)  # and nothing is intended yet
    desk.clock.advance(HOUR_S / 2)
    desk.look()
    assert desk.usd() == ("0.00", "3.00"), "whoever does that may be slow"
    desk.clock.advance(HOUR_S)
    desk.look()
    assert desk.usd() == ("0.00", "0.00"), "or was killed"


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_lies_in_the_place_of_one_budget_the_others_are_brought_up_to_date(
    desk: BudgetDesk, kind: str
) -> None:
    desk.set(hard="10")
    run_dir = unsent(desk)
    commit(desk.budgets, [pledge_of(desk, run_dir)], desk.clock)
    put(kind, desk.budgets.file(Scope("project", "a")))
    desk.clock.advance(2 * HOUR_S)
    with bounded():
        desk.look()
    assert desk.usd() == ("0.00", "0.00")


@pytest.mark.parametrize(
    "error", [StorageError("denied"), ValueError("damaged"), RecursionError(), OSError("slow")]
)
@pytest.mark.parametrize("where", ["look", "append"])
def test_each_budget_that_fails_is_named_and_the_others_are_brought_up_to_date(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch, error: Exception, where: str
) -> None:
    mine = f"user:{desk.settings.user}"
    names = ("project:vision", "project:a", mine)
    for name in names:
        desk.set(name, hard="10")
    run_dir = unsent(desk)
    commit(desk.budgets, [pledge_of(desk, run_dir)], desk.clock)
    desk.clock.advance(2 * HOUR_S)
    real = getattr(BudgetFolder, where)

    def fail(self: BudgetFolder, scope: Scope, *args: object) -> object:
        if str(scope) != "project:vision" and (where == "look" or str(scope) == mine):
            if isinstance(error, StorageError):
                raise StorageError(f"{self.file(scope)}: denied")
            raise error
        return real(self, scope, *args)

    monkeypatch.setattr(BudgetFolder, where, fail)
    said = desk.look()
    monkeypatch.undo()
    assert desk.usd("project:vision") == ("0.00", "0.00")
    failed = names[1:] if where == "look" else names[2:]
    assert len(said) == len(failed)
    for name in failed:
        kind, _, of = name.partition(":")
        assert any(f"{kind}/{of}.jsonl" in each for each in said)


def test_what_a_run_is_to_take_that_is_made_at_this_moment_stays_committed(
    desk: BudgetDesk,
) -> None:
    desk.set(hard="10")
    run_dir = unsent(desk)
    run_dir.journal.write_text("")  # made, and nothing intended
    commit(desk.budgets, [pledge_of(desk, run_dir)], desk.clock)
    desk.clock.advance(HOUR_S / 2)
    desk.look()
    assert desk.usd() == ("0.00", "3.00")


def test_nothing_is_released_while_scratch_is_not_mounted(desk: BudgetDesk) -> None:
    desk.set(hard="10")
    desk.slurm.faults.append(Fault.CONTROLLER_DIES)
    with pytest.raises(SubmissionInDoubt):
        desk.launch()
    scratch = list_runs(desk.settings.home)[0].path.parent
    shutil.move(scratch, desk.folder / "away")
    desk.clock.advance(3 * HOUR_S)
    desk.look()
    assert desk.usd() == ("0.00", "3.00"), "its job may wait"
    shutil.move(desk.folder / "away", scratch)
    desk.slurm.is_controller_down = False
    desk.look()
    assert desk.usd() == ("0.00", "3.00")
    assert len(desk.alive()) == 1


def test_a_bill_that_could_not_be_settled_is_settled_though_its_run_is_purged(
    desk: BudgetDesk,
) -> None:
    desk.set(hard="10")
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    desk.look()
    desk.clock.advance(600)
    desk.slurm.end(launched.job_id, "COMPLETED")
    desk.look()
    desk.clock.advance(60)
    with desk.budgets.lock():
        desk.look()
    marks = desk.settings.home.unsettled
    assert [each.name for each in marks.iterdir()] == [launched.run_id]
    shutil.rmtree(launched.run_dir)
    desk.look()
    assert list(marks.iterdir()) == []
    assert desk.usd() == ("1.00", "0.00")
    assert [line.get("is_final") for line in desk.lines()][-1] is True


def test_a_job_that_lives_counts_although_somebody_has_given_it_up(desk: BudgetDesk) -> None:
    desk.set(hard="10")
    launched = desk.launch()
    release(
        desk.budgets,
        [pledge_of(desk, desk.dir_of(launched))],
        desk.clock.now(),
        why="taken for one that never became a job",
    )
    assert desk.usd() == ("0.00", "0.00")
    desk.look()
    assert desk.usd() == ("0.00", "3.00")


def test_whoever_has_written_since_is_not_written_over(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    desk.set(hard="10")
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    lock = BudgetFolder.lock
    scope_line = entry_line(
        "began", desk.clock.now(), "ada", launched.run_id, 1, began_at=desk.clock.now()
    )

    @contextmanager
    def behind_another(self: BudgetFolder, *args: object, **options: object) -> Iterator[bool]:
        with lock(self, *args, **options) as is_reliable:  # type: ignore[arg-type]
            self.append(VISION, [scope_line])
            yield is_reliable

    with monkeypatch.context() as patch:
        patch.setattr(BudgetFolder, "lock", behind_another)
        desk.look()
    assert [line["record"] for line in desk.lines()] == ["set", "committed", "began"]


def test_what_was_settled_long_ago_is_not_taken_for_new(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A ledger that was rebuilt does not know yet how an attempt has ended."""
    monkeypatch.setattr(compaction, "AFTER_LINES", 4)
    desk.set(hard="100")
    old = desk.launch()
    settle(desk.budgets, billed(old, desk))
    for _ in range(4):
        settle(desk.budgets, billed(desk.launch(), desk))
    assert (old.run_id, 1) not in desk.budget().entries, "it is carried on in a sum"
    folder._CACHE.clear()  # as in another process
    size = desk.budgets.size(VISION)
    reads: list[bool] = []
    read = BudgetFolder.read

    def counted(self: BudgetFolder, scope: Scope, *, whole: bool = False) -> Budget:
        reads.append(whole)
        return read(self, scope, whole=whole)

    monkeypatch.setattr(BudgetFolder, "read", counted)
    for _ in range(3):
        desk.look()
    assert desk.budgets.size(VISION) == size
    assert sum(reads) == 1, "from its first line once, not in each look"


def test_budgets_that_would_fill_the_memory_are_left_out_and_not_ones_own(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A teammate writes one that sorts before, and one of another user."""
    desk.set(hard="100")
    desk.set("user:eve", hard="100")
    launched = desk.launch()
    eve = json.loads(desk.budgets.file(VISION).read_text().splitlines()[-1]) | {"by": "eve"}
    for kind, name in (("project", "a"), ("user", "eve")):
        with (desk.budgets.path / kind / f"{name}.jsonl").open("a") as file:
            file.write(f"{json.dumps(desk.lines()[0])}\n")
            for number in range(1, 2000):
                file.write(f"{json.dumps(eve | {'attempt': number})}\n")
    monkeypatch.setattr(budgets, "MOST_MEMORY", 1 << 20)
    desk.slurm.start(launched.job_id)
    (warning,) = desk.look()
    assert "project/a.jsonl is left out: the budgets of its folder take more than 1 MiB" in warning
    assert desk.lines()[-1]["record"] == "began"
    assert desk.budgets.file(Scope("user", "eve")) not in folder._CACHE, "nothing is ada's there"


def test_what_counts_in_one_folder_does_not_count_in_another(desk: BudgetDesk) -> None:
    desk.set(hard="100")
    team = desk.folder / "team"
    team.mkdir()
    desk.site = desk.site.model_copy(update={"budgets_dir": str(team)})
    desk.launch()
    desk.look()
    own = BudgetFolder(desk.settings.home.budgets).read(VISION)
    assert own.entries == {}


def test_an_estimate_from_before_a_budget_is_corrected_in_it(desk: BudgetDesk) -> None:
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    desk.look()
    desk.clock.advance(600)
    desk.slurm.end(launched.job_id, "COMPLETED")
    records, desk.slurm._records = desk.slurm._records, list  # type: ignore[method-assign]
    for _ in range(2):
        desk.look()
        desk.clock.advance(10)
    desk.set(hard="10")
    assert desk.usd() == ("1.00", "0.00")
    assert [line["record"] for line in desk.lines()] == ["set", "settled"]
    desk.slurm._records = records  # type: ignore[method-assign]
    desk.clock.advance(60)
    desk.look()
    assert desk.usd() == ("1.00", "0.00")
    assert [line.get("is_final") for line in desk.lines()] == [None, False, True]


def test_nothing_is_settled_in_a_budget_that_was_removed(desk: BudgetDesk) -> None:
    desk.set(hard="100")
    launched = desk.launch()
    with desk.budgets.lock():
        change = Change(desk.clock.now(), desk.settings.user, None)
        desk.budgets.append(VISION, [change.to_line()])
    desk.train(launched.job_id, minutes=10)
    assert [line["record"] for line in desk.lines()] == ["set", "committed", "removed"]


def test_what_is_settled_nobody_opens_again(desk: BudgetDesk) -> None:
    """Somebody who was slow writes what was so a moment ago."""
    desk.set(hard="100")
    launched = desk.launch()
    late = [
        pledge_of(desk, desk.dir_of(launched)).to_line(desk.clock.now()),
        *(
            entry_line(name, desk.clock.now(), "ada", launched.run_id, 1, began_at=desk.clock.now())
            for name in ("began", "released")
        ),
    ]
    desk.train(launched.job_id, minutes=10)
    desk.budgets.append(VISION, late)
    assert desk.usd() == ("1.00", "0.00")


def test_what_is_committed_twice_is_counted_once(desk: BudgetDesk) -> None:
    desk.set(hard="6")
    run_dir = unsent(desk)
    first, second = (pledge_of(desk, run_dir, attempt=number) for number in (1, 2))
    for _ in range(3):  # by whoever was killed, and those who came after
        commit(desk.budgets, [first], desk.clock)
    assert desk.usd() == ("0.00", "3.00")
    commit(desk.budgets, [first, second], desk.clock)
    assert desk.usd() == ("0.00", "6.00")


def test_of_two_who_set_a_budget_at_once_the_second_begins_nothing_anew(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    lock, run_dir = BudgetFolder.lock, unsent(desk)
    theirs = Change(desk.clock.now(), "grace", Terms({}), opening=Opening(NOTHING))
    lines = [theirs.to_line(), pledge_of(desk, run_dir, attempt=7).to_line(desk.clock.now())]

    @contextmanager
    def behind_another(self: BudgetFolder, *args: object, **options: object) -> Iterator[bool]:
        with lock(self, *args, **options) as is_reliable:  # type: ignore[arg-type]
            self.append(VISION, lines)
            yield is_reliable

    with monkeypatch.context() as patch:
        patch.setattr(BudgetFolder, "lock", behind_another)
        desk.set(hard="10")
    assert desk.usd() == ("0.00", "3.00"), "what was committed to meanwhile counts"
    assert [each.by for each in desk.budget().changes] == ["grace", desk.settings.user]


def forge(
    desk: BudgetDesk, run_id: str, numbers: range, scope: Scope = VISION, **more: object
) -> None:
    """A teammate writes lines in the name of this user, of attempts that never were."""
    at, by = desk.clock.now(), desk.settings.user
    desk.budgets.append(
        scope,
        [
            entry_line("committed", at, by, run_id, number, amounts=NOTHING, limit_s=60, **more)
            for number in numbers
        ],
    )


def reconcile_budgets(desk: BudgetDesk, scope: Scope | None = None) -> None:
    """Look at the budgets alone."""
    with open_ledger(desk.settings.ledger_url) as ledger:
        budgets.reconcile_budgets(desk.context(ledger), [desk.budgets], scope)


def counted(desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch, run_id: str) -> tuple[int, int, int]:
    """How often a look at the budgets reads the journal of a run, takes its submit lock, and looks
    its link up."""
    found = {"read": 0, "submit_lock": 0, "linked": 0}

    def count(name: str, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(of: Any, *args: Any, **options: Any) -> Any:
            of_run = args[0] == [run_id] if name == "linked" else of.path.name == run_id
            found[name] += of_run
            return real(of, *args, **options)

        return call

    with monkeypatch.context() as patch:
        for module, name in (
            (journal, "read"), (budgets, "submit_lock"), (budgets, "linked"),
        ):  # fmt: skip
            patch.setattr(module, name, count(name, getattr(module, name)))
        reconcile_budgets(desk)
    return found["read"], found["submit_lock"], found["linked"]


@pytest.mark.parametrize("run", ["ended", "running", "refused", "never made", "locked"])
@pytest.mark.parametrize("is_home_said", [False, True])
def test_a_look_reads_a_journal_once_however_many_lines_name_its_run(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch, run: str, is_home_said: bool
) -> None:
    scopes = [VISION, Scope("user", desk.settings.user), Scope("project", "another")]
    for scope in scopes:
        desk.set(str(scope), hard="100")
    run_id = "small-20260101-aaaaaaaa"
    if run == "refused":
        run_id = unsent(desk).path.name
    elif run != "never made":
        launched = desk.launch()
        run_id = launched.run_id
        if run == "ended":
            desk.train(launched.job_id, minutes=10)
        else:
            desk.slurm.start(launched.job_id)
            desk.look()
    home = {"home": str(desk.settings.home.path.resolve())} if is_home_said else {}
    for scope in scopes:
        forge(desk, run_id, range(100, 200), scope, **home)
    for hours in (0, 0.5, 2):  # while it may be sent, by a fast process or a slow one; after that
        desk.clock.advance(hours * HOUR_S)
        with ExitStack() as stack:
            if run == "locked":
                stack.enter_context(submit_lock(desk.dir_of(launched), wait_s=0))
            assert max(counted(desk, monkeypatch, run_id)) <= 1
    is_kept = run == "locked" or (run == "never made" and not is_home_said)
    for scope in scopes:
        live = [each for each in desk.budget(str(scope)).committed_to() if each.attempt >= 100]
        assert len(live) == (100 if is_kept else 0)


@pytest.mark.parametrize("is_restored", [False, True])
def test_a_look_reads_a_journal_once_however_many_of_its_attempts_are_to_be_settled(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch, is_restored: bool
) -> None:
    """A teammate commits to it in the name of this user, in other budgets."""
    others = [Scope("project", f"p{number}") for number in range(5)]
    for scope in (VISION, *others):
        desk.set(str(scope), hard="100")
    launched = desk.launch()
    desk.train(launched.job_id, minutes=10)
    if is_restored:
        restored = Restored(
            at=desk.clock.now(), by="ada", url="s3://x", journal=True, after=1, site="devcluster"
        )
        journal.append(desk.dir_of(launched), restored)
    for scope in others:
        forge(desk, launched.run_id, range(1, 2), scope)
    assert max(counted(desk, monkeypatch, launched.run_id)) <= 1
    finals = {desk.budget(str(each)).entries[launched.run_id, 1].is_final for each in others}
    assert finals == {not is_restored}


def test_a_look_adds_so_many_lines_and_what_the_ledger_has_comes_first(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "_MOST_LINES", 20)
    desk.set(hard="100")
    run_dir = unsent(desk)
    forge(desk, run_dir.path.name, range(100, 150))
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    desk.clock.advance(2 * HOUR_S)
    sizes = [len(desk.lines())]
    for _ in range(4):
        desk.look()
        sizes.append(len(desk.lines()))
    assert [later - one for one, later in pairwise(sizes)] == [21, 20, 10, 0]
    first = desk.lines()[sizes[0] : sizes[1]]
    assert [each["record"] for each in first] == ["began"] + ["released"] * 20


@pytest.mark.parametrize("kind", ["valid", *KINDS])
def test_however_many_files_there_are_a_look_reads_those_of_own_runs_and_so_many_others(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(budgets, "_MOST_OTHERS", 3, raising=False)
    desk.set(hard="100")
    for name in ("asked", "quiet"):
        desk.set(f"project:{name}", hard="100")
    desk.config.write_text(CONFIG.replace("project: vision", "project: quiet"))
    over = desk.launch()
    desk.train(over.job_id, minutes=0)
    desk.config.write_text(CONFIG)
    launched = desk.launch()
    forge(desk, unsent(desk).path.name, range(100, 101), Scope("project", "asked"))
    forge(desk, over.run_id, range(2, 3), Scope("project", "quiet"))  # as of a standby
    desk.clock.advance(2 * HOUR_S)
    first = desk.budgets.file(VISION).read_text().splitlines(keepends=True)[0]
    for number in range(12):
        path = desk.budgets.file(Scope("project", f"a{number:02}"))
        if kind == "valid":
            path.write_text(first)
        else:
            put("garbage" if kind == "three gigabytes" else kind, path)
    desk.slurm.start(launched.job_id)
    reads: list[Scope] = []
    for name in ("look", "size"):
        real = getattr(BudgetFolder, name)

        def read(self: BudgetFolder, scope: Scope, real: Callable[..., Any] = real) -> object:
            reads.append(scope)
            return real(self, scope)

        monkeypatch.setattr(BudgetFolder, name, read)
    with bounded():
        said = desk.look()
    assert len({each for each in reads if each.name.startswith("a")}) == 2
    (warning,) = (each for each in said if "not read: hpcflow reads" in each)
    folder = desk.budgets.path / "project"
    assert f"budgets: 11 files in {folder} not read" in warning
    assert warning.endswith(f"remove them: ls -lt {folder}")
    assert desk.lines()[-1]["record"] == "began"
    assert Scope("project", "asked") not in reads
    assert desk.lines("project:quiet")[-1]["record"] == "released", "a run that is over is in it"
    reconcile_budgets(desk, Scope("project", "asked"))
    assert desk.lines("project:asked")[-1]["record"] == "released"


def test_a_round_reads_no_budget_of_other_projects_to_tell_whether_a_run_has_to_stop(
    desk: BudgetDesk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(budgets, "_MOST_OTHERS", 0, raising=False)
    desk.set(hard="100")
    launched = desk.launch()
    desk.slurm.start(launched.job_id)
    desk.tick()
    for number in range(5):
        put("garbage", desk.budgets.file(Scope("project", f"a{number}")))
    reads: list[Scope] = []
    look = BudgetFolder.look

    def looked(self: BudgetFolder, scope: Scope) -> Budget:
        reads.append(scope)
        return look(self, scope)

    monkeypatch.setattr(BudgetFolder, "look", looked)
    desk.tick()
    assert set(reads) == {VISION}
