"""Unsafe files of one run, or an unsafe link to it: no command hangs, uses much memory, shows a
private file, or hides another run."""

from __future__ import annotations

from pathlib import Path
from typing import Final

import pytest

from hpcflow.cli.main import main
from hpcflow.storage.layout import Home, RunDir
from tests.hostile import KINDS, SECRET, bounded, held_run, put

#: File of a run -> the commands of that run that read it; those of all runs read it anyway.
LISTED: Final = ("checkpoint ls",)
FILES: Final[dict[str, tuple[str, ...]]] = {
    "run.json": ("show", "why", *LISTED),
    "params.json": (),
    "journal.jsonl": ("show", "history", "why", "logs"),
    "mirror.jsonl": ("mirror status", *LISTED),
    ".mirror-sent.json": ("mirror status",),
    ".mirror-progress.json": ("mirror status",),
    "submit.lock": ("hold",),
    "mirror.lock": (),
    "cancel": ("show",),
    "attempts": ("show", "logs"),
    "attempts/0001": ("show", "history", "logs"),
    "attempts/0001/events.jsonl": ("show", "history", "logs"),
    "attempts/0001/out.log": ("logs",),
    "attempts/0001/claim": ("show",),
    "attempts/0001/notice": ("show",),
    "checkpoints": LISTED,
    "checkpoints/000000020": (*LISTED, "checkpoint verify"),
    "checkpoints/000000020/manifest.json": (*LISTED, "checkpoint verify", "checkpoint prune"),
    "checkpoints/000000020/model.pt": (*LISTED, "checkpoint verify"),
    "checkpoints/000000010/manifest.json": LISTED,
}
OF_ALL: Final = (
    "ls",
    "daemon --once",
    "scratch",
    "mirror --once",
    "mirror status",
    "cost report",
    "cost wasted",
    "cost audit",
    "efficiency --by project",
    "nodes",
    "budget ls",
    "sweep ls",
    "ledger check",
    "ledger rebuild",
)
#: They list runs: the good one must be there, whatever the others are.
LISTING: Final = ("ls", "scratch")


@pytest.fixture
def place(home: Path, monkeypatch: pytest.MonkeyPatch) -> Home:
    """An empty home, of a user without a cluster."""
    home.mkdir(mode=0o700)
    monkeypatch.setenv("HPCFLOW_SITE", "local")
    return Home(home)


class Person:
    """Types commands, and gets all that they print."""

    def __init__(self, capfd: pytest.CaptureFixture[bytes]) -> None:
        self._capfd = capfd

    def says(self, command: str, run: RunDir | None = None) -> str:
        """Exit codes of a person's own mistakes, 2, are not among those of bad files."""
        words = command.split() + ([] if run is None else [run.path.name])
        self._capfd.readouterr()
        with bounded():
            code = main(words)
        captured = self._capfd.readouterr()
        said = (captured.out + captured.err).decode(errors="replace")
        assert code in ((0, 1) if run is None else (0, 1, 2)), (words, code, said)
        assert SECRET not in said, (words, said)
        return said


@pytest.mark.parametrize("kind", KINDS)
def test_one_bad_run_hides_no_other(
    place: Home, capfdbinary: pytest.CaptureFixture[bytes], kind: str
) -> None:
    person = Person(capfdbinary)
    good = held_run(place, name="good").path.name
    bad = {}
    for number, name in enumerate(FILES):
        # Every other one is under way: those are looked at in another way.
        run_dir = bad[name] = held_run(place, name=f"bad{number}", is_over=number % 2 == 0)
        is_record = name in ("run.json", "journal.jsonl", "submit.lock")
        put(kind, Path((is_record and run_dir.record) or run_dir.path) / name)
    link = place.scratch_link(held_run(place, name="link").path.name)
    put(kind, link)

    for command in OF_ALL:
        said = person.says(command)
        assert command not in LISTING or good in said, (command, said)
    for name, commands in FILES.items():
        for command in commands:
            if (kind, command) != ("three gigabytes", "logs"):  # a log may be as long as it likes
                person.says(command, bad[name])
    person.says("show", RunDir(link.parent))
    assert good in person.says("ls --all")


@pytest.mark.parametrize("kind", KINDS)
def test_a_link_is_followed_to_a_run_directory_alone(
    place: Home, capfdbinary: pytest.CaptureFixture[bytes], kind: str
) -> None:
    person = Person(capfdbinary)
    good = held_run(place, name="good").path.name
    bad = place.scratch_link(good.replace("good", "bad"))
    bad.parent.mkdir()
    put(kind, bad)
    for command in LISTING:
        said = person.says(command)
        assert good in said
        assert (bad.parent.name in said) == kind.startswith("link"), said  # no link is no run


@pytest.mark.parametrize("kind", KINDS)
def test_one_bad_sweep_hides_no_run_and_no_other_sweep(
    place: Home, capfdbinary: pytest.CaptureFixture[bytes], kind: str
) -> None:
    person = Person(capfdbinary)
    good = held_run(place, name="good").path.name
    ids = [f"{name}-20260301-aaaaaaaa" for name in ("whole", "frozen", "journal", "arrays")]
    for sweep_id in ids[1:]:
        (place.sweeps / sweep_id).mkdir(parents=True)
    put(kind, place.sweeps / ids[0])
    put(kind, place.sweeps / ids[1] / "sweep.json")
    put(kind, place.sweeps / ids[2] / "journal.jsonl")
    put(kind, place.sweeps / ids[3] / "arrays" / "0001.json")

    for command in ("sweep ls", "sweep ls --all", "sweep tick", "daemon --once", "budget ls"):
        person.says(command)
    for sweep_id in ids:
        for command in ("sweep status", "sweep trials", "sweep stop"):
            person.says(command, RunDir(place.sweeps / sweep_id))
    assert good in person.says("ls")


@pytest.mark.parametrize("kind", KINDS)
def test_what_is_remembered_in_the_home_is_no_condition(
    place: Home, capfdbinary: pytest.CaptureFixture[bytes], kind: str
) -> None:
    person = Person(capfdbinary)
    good = held_run(place, name="good").path.name
    for name in ("forgiven.jsonl", f"restoring/{good}", f"unread/{good}"):
        put(kind, place.path / name)
    for name in ("folders.jsonl", "problems.json"):
        put(kind, place.mirror / name)

    for command in ("nodes", "daemon --once", "mirror --once", "mirror status", "scratch"):
        person.says(command)
    assert good in person.says("ls")
