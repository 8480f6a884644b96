"""Each mistake of the table is answered with its place and a next step, and the step works."""

from __future__ import annotations

import re
import shlex
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cli.cluster import ClusterDesk
from tests.cli.desk import Desk
from tests.cli.mistakes import (
    COMMANDS,
    CONFIG,
    CONFIGS,
    ON_LOGIN_NODE,
    SITE,
    SITES,
    SWEEP,
    SWEEPS,
    Step,
    Typed,
    Wrong,
)

FILES = {"config.yaml": CONFIG, "sweep.yaml": SWEEP, "mine.yaml": SITE}
#: The command that reads a file, and mistakes in that file.
MISTAKES = {
    ("render", "config.yaml"): CONFIGS,
    ("run", "config.yaml", "--dry-run"): ON_LOGIN_NODE,
    ("sweep", "start", "sweep.yaml", "--dry-run"): SWEEPS,
    ("site", "show", "./mine.yaml"): SITES,
}
OF_FILES = [
    pytest.param(words, wrong, id=f"{wrong.place}: {wrong.said}")
    for words, table in MISTAKES.items()
    for wrong in table
]


@pytest.fixture
def person(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> ClusterDesk:
    """Somebody with a good config, sweep and site file, on a login node of a cluster in memory."""
    there = ClusterDesk.at(desk, monkeypatch)
    monkeypatch.chdir(there.folder)
    for name, text in FILES.items():
        Path(name).write_text(text)
    Path("base.yaml").write_text("project: lab\n")
    Path("train.py").write_text("print('trained')\n")
    Path("key").write_text("secret\n")
    Path("key").chmod(0o600)
    return there


def test_there_are_a_hundred() -> None:
    assert len(OF_FILES) + len(COMMANDS) >= 100


def test_the_files_are_good(person: ClusterDesk) -> None:
    for words in MISTAKES:
        person.say(*words)


@pytest.mark.parametrize(("words", "wrong"), OF_FILES)
def test_a_mistake_in_a_file(person: ClusterDesk, words: tuple[str, ...], wrong: Wrong) -> None:
    file = next(name for name in FILES if any(word.endswith(name) for word in words))
    assert FILES[file].count(wrong.old) >= 1
    Path(file).write_text(FILES[file].replace(wrong.old, wrong.new, 1))
    answer = person.error(*words)
    line_and_key = wrong.place if wrong.place.startswith(",") else f":{wrong.place}"
    assert answer.startswith(f"error: {file}{line_and_key}: "), answer
    assert wrong.said in answer
    assert "  → " in answer
    assert not (person.folder.parent / "scratch").exists()
    if wrong.step is Step.TYPE:
        (typed,) = re.findall(r"hpcflow ([^;`]+)\n", answer)
        person.say(*shlex.split(typed))
        return
    if isinstance(wrong.step, str):
        Path(file).write_text(FILES[file].replace(wrong.old, wrong.step, 1))
    else:
        take(wrong.step, answer, Path(file), wrong)
    person.say(*words)


def take(step: Step, answer: str, file: Path, wrong: Wrong) -> None:
    """Do what ``answer`` says, by its words alone."""
    line, _, dotted = wrong.place.partition(", ")
    if step is Step.WRITE and not dotted:  # no YAML yet
        (right,) = re.findall(r"write it like `(.*)`", answer)
        lines = file.read_text().splitlines()
        number = int(line) - 1
        indent = re.match(r"\s*", lines[number])
        lines[number] = f"{indent[0] if indent else ''}{right}"
        file.write_text("\n".join(lines) + "\n")
        return
    data = yaml.safe_load(file.read_text())
    path = [int(key) if key.isdigit() else key for key in re.findall(r"[^.\[\]]+", dotted)]
    if step is Step.RENAME:
        meant, belongs = renamed(answer)
        value = removed(data, path)
        put(data, [*(path[:-1] if belongs is None else belongs), meant], value)
    elif step is Step.WRITE and (found := re.search(r"write it like `(.*?)`", answer)):
        ((key, value),) = yaml.safe_load(found[1]).items()
        assert key == path[-1]
        put(data, path, value)
    else:
        put(data, path, value_told(step, answer, data, path))
    file.write_text(yaml.safe_dump(data))


def renamed(answer: str) -> tuple[str, list[str] | None]:
    """The right key, and the section that it belongs under if that is another one."""
    near = re.search(r"did you mean '(\w+)'\?", answer)
    belongs = re.search(r"'(\w+)' belongs (?:at the top|under '([\w.]+)')", answer)
    if belongs is None:
        assert near is not None
        return near[1], None
    return belongs[1], belongs[2].split(".") if belongs[2] else []


def value_told(step: Step, answer: str, data: Any, path: list[Any]) -> Any:
    patterns = {
        Step.CHOOSE: r"did you mean '?([\w.]+?)'?\?",
        Step.WRITE: r"like ([\w.]+),",
        Step.SET: rf"set {re.escape('.'.join(map(str, path)))}=(\S+)",
        Step.MOST: r"ask for (\S+) or",
    }
    if step is Step.QUOTE:
        assert "put it in quotes" in answer
        return str(at(data, path)).lower()
    found = re.search(patterns[step], answer)
    assert found is not None, answer
    return yaml.safe_load(found[1]) if step is not Step.WRITE else found[1]


def at(data: Any, path: list[Any]) -> Any:
    for key in path:
        data = data[key]
    return data


def put(data: Any, path: list[Any], value: Any) -> None:
    for key in path[:-1]:
        data = data.setdefault(key, {})
    data[path[-1]] = value


def removed(data: Any, path: list[Any]) -> Any:
    return at(data, path[:-1]).pop(path[-1])


@pytest.mark.parametrize("typed", COMMANDS, ids=lambda each: each.words)
def test_a_mistake_on_the_command_line(person: ClusterDesk, typed: Typed) -> None:
    runs = {}
    if "{live}" in typed.words + typed.step or typed.words.startswith("show sm"):
        runs["live"] = person.say("run", "config.yaml").split()[0]
    if "{done}" in typed.words + typed.step:
        runs["done"] = person.say("run", "config.yaml").split()[0]
        (job,) = person.slurm.queue()
        person.slurm.start(job.job_id)
        person.slurm.end(job.job_id, "COMPLETED")
        person.say("ls")
    answer = person.error(*typed.words.format(**runs).split())
    assert typed.said in answer
    assert "Traceback" not in answer
    assert not ("Did you mean" in answer and "→" in answer), "one advice"
    person.say(*typed.step.format(**runs).split())
