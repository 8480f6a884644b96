"""Whether an attempt has stalled, as a table; how silence is watched, whatever the clocks do."""

from __future__ import annotations

import json
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hpcflow.clock import to_text
from hpcflow.ledger.rhythm import Rhythm, add_sign, begin, rhythm_of
from hpcflow.requeue.stalls.policy import Act, Given, Terms, Watched, judge, patience
from hpcflow.requeue.stalls.watch import GAP_MAX_S, Entry, Look, Turn, Watch, WatchFile, pause_s
from hpcflow.storage.layout import Home

NOW = datetime(2026, 3, 1, 12, 0, tzinfo=timezone.utc)
TERMS = Terms(after_s=1800, factor=20, log=False, notice_s=120)
#: One event a second.
QUICK = Rhythm(signs=100, gaps={2: 99}, longest_s=3.0, starts=1, start_up_s=30.0)
NOTICED = Given(Act.NOTICE, 1800.0)
CANCELLED = Given(Act.CANCEL, 1920.0)

TABLE = {
    "all is well": (Watched(60, rhythm=QUICK), TERMS, None),
    "silent for almost as long as it may be": (Watched(1799, rhythm=QUICK), TERMS, None),
    "silent for longer": (Watched(1800, rhythm=QUICK), TERMS, ("notice", "floor")),
    "its train steps take five minutes": (
        Watched(5000, rhythm=replace(QUICK, gaps={19: 99})),
        TERMS,
        None,
    ),
    "and now one has taken two hours": (
        Watched(7300, rhythm=replace(QUICK, gaps={19: 99})),
        TERMS,
        ("notice", "rhythm"),
    ),
    "its validation once took 15 minutes": (
        Watched(2600, rhythm=replace(QUICK, longest_s=900)),
        TERMS,
        None,
    ),
    "and now it takes 50": (
        Watched(3000, rhythm=replace(QUICK, longest_s=900)),
        TERMS,
        ("notice", "longest"),
    ),
    "it starts, for half an hour": (Watched(1900, has_begun=False, rhythm=QUICK), TERMS, None),
    "it starts, for an hour": (
        Watched(3600, has_begun=False, rhythm=QUICK),
        TERMS,
        ("notice", "start_up"),
    ),
    "its start once took an hour": (
        Watched(10_000, has_begun=False, rhythm=replace(QUICK, start_up_s=3600)),
        TERMS,
        None,
    ),
    "its first progress event came after an hour": (
        Watched(10_000, rhythm=Rhythm(signs=1, starts=1, start_up_s=3600)),
        TERMS,
        None,
    ),
    "it has only ever reported checkpoints": (
        Watched(1e9, has_begun=False, rhythm=Rhythm(signs=5, gaps={9: 4}, longest_s=30)),
        TERMS,
        None,
    ),
    "it has never reported anything": (Watched(1e9, has_begun=False), TERMS, None),
    "nor has its log grown, which is watched": (
        Watched(3600, has_begun=False),
        replace(TERMS, log=True),
        ("notice", "start_up"),
    ),
    "its log once stood still for an hour": (
        Watched(10_000, log_gap_s=3600),
        replace(TERMS, log=True),
        None,
    ),
    "a clock was put right by 30 days": (
        Watched(4 * 3600, rhythm=replace(QUICK, longest_s=30 * 86400)),
        TERMS,
        ("notice", "longest"),
    ),
    "or before its first event": (
        Watched(4 * 3600, has_begun=False, rhythm=replace(QUICK, start_up_s=30 * 86400)),
        TERMS,
        ("notice", "start_up"),
    ),
    "what took long once is not doubled": (
        Watched(5400, rhythm=replace(QUICK, longest_s=1800), stalls=1),
        TERMS,
        ("notice", "longest"),
    ),
    "its train steps take five minutes, and it stalled once before": (
        Watched(14_400, rhythm=replace(QUICK, gaps={19: 99}), stalls=1),
        TERMS,
        None,
    ),
    "never": (Watched(1e9, rhythm=QUICK), replace(TERMS, after_s=None), None),
    "it stalled once before, and is silent as long again": (
        Watched(1900, rhythm=QUICK, stalls=1),
        TERMS,
        None,
    ),
    "and for twice as long": (Watched(3600, rhythm=QUICK, stalls=1), TERMS, ("notice", "floor")),
    "told to leave by the time limit": (Watched(1e9, rhythm=QUICK, is_leaving=True), TERMS, None),
    "a minute after the notice": (Watched(1860, rhythm=QUICK, given=NOTICED), TERMS, None),
    "two minutes after it": (
        Watched(1920, rhythm=QUICK, given=NOTICED),
        TERMS,
        ("cancel", "silent"),
    ),
    "moving after the notice": (
        Watched(0, rhythm=QUICK, given=NOTICED, has_moved=True),
        TERMS,
        ("withdraw", "moved"),
    ),
    "nobody remembers how long it was silent before the notice": (
        Watched(0, rhythm=QUICK, given=NOTICED),
        TERMS,
        None,
    ),
    "and it is silent for as long again": (
        Watched(1920, rhythm=QUICK, given=NOTICED),
        TERMS,
        ("cancel", "silent"),
    ),
    "leaving after the notice": (
        Watched(60, rhythm=QUICK, given=NOTICED, has_moved=True, is_leaving=True),
        TERMS,
        None,
    ),
    "leaving for too long": (
        Watched(120, rhythm=QUICK, given=NOTICED, has_moved=True, is_leaving=True),
        TERMS,
        ("cancel", "silent"),
    ),
    "leaving, and its saves take eight minutes": (
        Watched(1439, given=replace(NOTICED, longest_s=480), has_moved=True, is_leaving=True),
        TERMS,
        None,
    ),
    "and now it takes 24": (
        Watched(1440, given=replace(NOTICED, longest_s=480), has_moved=True, is_leaving=True),
        TERMS,
        ("cancel", "silent"),
    ),
    "leaving for half an hour": (
        Watched(1800, given=replace(NOTICED, longest_s=9999), has_moved=True, is_leaving=True),
        TERMS,
        ("cancel", "silent"),
    ),
    "cancelled, and it runs": (
        Watched(1980, rhythm=QUICK, given=CANCELLED),
        TERMS,
        ("cancel", "silent"),
    ),
    "cancelled, and it says something before it dies": (
        Watched(0, rhythm=QUICK, given=CANCELLED, has_moved=True, cancelled_s=200),
        TERMS,
        None,
    ),
    "cancelled, and it is not dying": (
        Watched(0, rhythm=QUICK, given=CANCELLED, has_moved=True, cancelled_s=240),
        TERMS,
        ("withdraw", "moved"),
    ),
    "cancelled, and it leaves": (
        Watched(60, rhythm=QUICK, given=CANCELLED, has_moved=True, is_leaving=True),
        TERMS,
        None,
    ),
}


@pytest.mark.parametrize("told", TABLE)
def test_the_table(told: str) -> None:
    watched, terms, expected = TABLE[told]
    verdict = judge(watched, terms)
    assert (verdict and (verdict.act.value, verdict.rule)) == expected


RHYTHMS = st.builds(
    Rhythm,
    signs=st.integers(0, 10**6),
    gaps=st.dictionaries(st.integers(0, 59), st.integers(1, 10**6), max_size=8),
    longest_s=st.floats(0, 1e9),
    starts=st.integers(0, 9),
    start_up_s=st.floats(0, 1e9),
)


@given(
    watched=st.builds(
        Watched,
        silent_s=st.floats(0, 1e6),
        has_begun=st.booleans(),
        rhythm=RHYTHMS,
        stalls=st.integers(0, 100),
    ),
    after_s=st.integers(1, 10**6),
)
def test_nobody_is_given_less_than_what_the_run_says(watched: Watched, after_s: int) -> None:
    terms = replace(TERMS, after_s=after_s)
    allowed = patience(watched, terms)
    assert allowed is None or allowed.seconds >= after_s
    verdict = judge(watched, terms)
    assert (verdict is not None) == (allowed is not None and watched.silent_s >= allowed.seconds)


@given(looks=st.lists(st.integers(-(10**9), 10**9), max_size=60))
def test_however_the_clock_jumps_silence_is_only_what_was_watched(looks: list[int]) -> None:
    entry = Entry(1, 5, TERMS)
    for elapsed_s in looks:
        before = entry.silent_s
        entry = entry.looked_at(5, None, Turn(elapsed_s))
        assert 0 <= entry.silent_s - before <= max(0, min(GAP_MAX_S, elapsed_s))
    assert entry.looked_at(6, None, Turn(60)).silent_s == 0


def test_nothing_is_silent_that_was_not_looked_at_four_times() -> None:
    entry = Entry(1, 5, replace(TERMS, after_s=8))
    for _ in range(4):
        assert entry.silent_s < 8
        entry = entry.looked_at(5, None, Turn(3600))
    assert entry.silent_s == 8


def test_the_next_look_is_soon_enough_for_the_most_impatient() -> None:
    assert pause_s([]) == pause_s([Entry(1, 0, TERMS)]) == 60
    assert pause_s([Entry(1, 0, TERMS), Entry(1, 0, replace(TERMS, after_s=80))]) == 10
    assert pause_s([Entry(1, 0, TERMS, is_suspected=True)]) == 30
    assert pause_s([Entry(1, 0, replace(TERMS, after_s=None))]) == 60


@given(
    looks=st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 600)), max_size=40),
    skew_s=st.integers(-(10**6), 10**6),
)
def test_hosts_that_take_turns_count_no_time_twice(
    looks: list[tuple[str, int]], skew_s: int
) -> None:
    watch, true_s, counted_s = Watch(), 0, 0.0
    for host, after_s in looks:
        true_s += after_s
        now = NOW + timedelta(seconds=true_s + (skew_s if host == "b" else 0))
        turn = watch.turn(host, now)
        counted_s += turn.elapsed_s
        watch = replace(watch, looks=watch.looks_after(turn, host, now))
        assert counted_s <= true_s
    firsts = [[host for host, _ in looks].index(host) for host in {host for host, _ in looks}]
    assert counted_s >= true_s - sum(after for _, after in looks[: max(firsts, default=-1) + 1])


@given(
    looks=st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 400), st.booleans())),
    skew_s=st.tuples(*[st.integers(-(10**6), 10**6)] * 3),
)
def test_whoever_of_them_saw_it_move_none_counts_the_time_before(
    looks: list[tuple[str, int, bool]], skew_s: tuple[int, int, int]
) -> None:
    watch, entry, true_s, moved_s = Watch(), Entry(1, 0, TERMS), 0, 0
    for host, after_s, has_moved in looks:
        true_s += after_s
        now = NOW + timedelta(seconds=true_s + skew_s["abc".index(host)])
        turn = watch.turn(host, now)
        entry = entry.looked_at(entry.signs + has_moved, None, turn)
        moved_s = true_s if has_moved else moved_s
        assert entry.silent_s <= true_s - moved_s
        watch = replace(watch, looks=watch.looks_after(turn, host, now))


ENTRIES = st.builds(
    Entry,
    attempt=st.integers(1, 999),
    signs=st.integers(0, 10**9),
    terms=st.builds(
        Terms,
        after_s=st.none() | st.integers(1, 10**6),
        factor=st.integers(1, 100),
        log=st.booleans(),
        notice_s=st.integers(0, 10**4),
    ),
    log_bytes=st.none() | st.integers(0, 10**12),
    silent_s=st.floats(0, 1e9),
    log_gap_s=st.floats(0, 1e9),
    log_grew=st.booleans(),
    before=RHYTHMS,
    stalls=st.integers(0, 9),
    is_suspected=st.booleans(),
    was_told=st.booleans(),
    cancelled_s=st.floats(0, 1e9),
    since=st.integers(0, 10**9),
)


def test_a_watch_is_remembered(tmp_path: Path) -> None:
    home = Home(tmp_path / "home")
    home.path.mkdir()
    file = WatchFile(home, "sqlite:///x", "alpha")
    file.save(Watch(60, {}))
    assert not home.watch.exists(), "there is nothing to remember"

    @given(entries=st.dictionaries(st.text(min_size=1, max_size=9), ENTRIES, max_size=5))
    def remembers(entries: dict[str, Entry]) -> None:
        watch = Watch(
            12.5, entries, {"r": "its files cannot be read"}, {"login1": Look(NOW, 7.5, 3)}
        )
        file.save(watch)
        if entries:
            assert file.load() == watch
            assert file.head() == replace(watch, entries={})

    remembers()
    file.save(Watch(60, {"r": Entry(1, 2, TERMS)}))
    assert WatchFile(home, "sqlite:///x", "beta").load() == Watch(), "another cluster's daemon"
    (path,) = home.watch.iterdir()
    assert path.stat().st_mode & 0o777 == 0o600
    head, entries = path.read_text().splitlines()
    entry = json.loads(entries)["r"]
    wrong = [json.dumps({"r": {**entry, name: "x"}}) for name in (*entry, "silent_s", "before")]
    broken = [f"{head}\n{each}\n" for each in ("", "[]", '{"r": {}}', *wrong)]
    for damaged in ("", "[]", "{", '{"format": 1}', head, *broken):
        path.write_text(damaged)
        assert file.load() == Watch()


def _events(*seconds: float) -> dict[str, object]:
    report: dict[str, object] = {}
    begin(report, to_text(NOW))
    for each in seconds:
        add_sign(report, "progress", to_text(NOW + timedelta(seconds=each)))
    return report


def test_the_rhythm_is_told_by_the_jobs_own_clock() -> None:
    rhythm = rhythm_of([_events(30, 31, 32, 33, 133)])
    assert (rhythm.signs, rhythm.start_up_s, rhythm.longest_s) == (5, 30, 100)
    assert 1 <= rhythm.median_s <= 1.5
    both = rhythm_of([_events(30, 31), _events(60, 61, 68)])
    assert (both.signs, both.start_up_s, both.longest_s) == (5, 60, 7)
    assert rhythm_of([]) == Rhythm()


def test_a_clock_that_was_set_back_tells_no_gap() -> None:
    rhythm = rhythm_of([_events(3600, 3601, 2, 3)])
    assert (rhythm.signs, rhythm.longest_s, sum(rhythm.gaps.values())) == (4, 1, 2)


def test_what_a_restarted_job_waited_for_is_no_gap() -> None:
    report = _events(10, 11)
    begin(report, to_text(NOW + timedelta(hours=5)))
    add_sign(report, "progress", to_text(NOW + timedelta(hours=5, seconds=20)))
    rhythm = rhythm_of([report])
    assert (rhythm.longest_s, rhythm.start_up_s) == (1, 20)


def test_a_time_that_is_none_is_a_sign_all_the_same() -> None:
    report = _events(10)
    add_sign(report, "progress", "yesterday")
    assert rhythm_of([report]).signs == 2


@given(gaps=st.lists(st.integers(500, 10**8), min_size=1, max_size=50))
def test_the_median_is_right_up_to_the_class_of_its_histogram(gaps: list[int]) -> None:
    moments, at = [0.0], 0
    for gap_ms in gaps:
        at += gap_ms
        moments.append(at / 1000)
    rhythm = rhythm_of([_events(*moments)])
    median_s = sorted(gaps)[(len(gaps) - 1) // 2] / 1000
    assert median_s * 0.999 <= rhythm.median_s <= median_s * 1.5
