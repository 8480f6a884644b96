"""`--json` is an interface: each command has a schema, and prints what it says."""

from __future__ import annotations

import json
from itertools import chain
from pathlib import Path
from typing import Any

import jsonschema
import pytest

from docs.generator.outputs import commands, json_option_of, schema_name
from hpcflow.cli.output import FORMAT, print_json_lines
from hpcflow.testing.cluster import poll
from tests.cli.cluster import ClusterDesk
from tests.cli.desk import Desk
from tests.cli.test_sweep_command import CONFIG, SWEEP, TRAIN
from tests.json_output import FOLDER, HELD_BY, checked, outputs_of
from tests.sites.test_detect_and_check import DEV


def _with_json() -> list[str]:
    return [name for name, command in commands() if json_option_of(command) is not None]


def test_every_command_with_json_has_a_schema_and_no_schema_is_left_over() -> None:
    wanted = {schema_name(name) for name in _with_json()} | {"error.schema.json"}
    assert {path.name for path in FOLDER.iterdir()} == wanted
    for name, command in commands():
        flags = [param for param in command.params if "--json" in param.opts]
        assert flags == [json_option_of(command)] * len(flags), f"{name}: use json_option"


def test_every_output_of_a_command_is_held_against_its_schema_by_a_test() -> None:
    outputs = chain.from_iterable(map(outputs_of, [*_with_json(), "error"]))
    assert sorted(chain(*HELD_BY.values())) == sorted(outputs)
    for test in HELD_BY:
        file, name = test.split("::")
        assert f"def {name}(" in (FOLDER.parents[2] / "tests" / file).read_text(), test


@pytest.mark.parametrize("path", sorted(FOLDER.iterdir()), ids=lambda path: path.name)
def test_a_schema_names_every_key_and_has_the_format(path: Path) -> None:
    schema = json.loads(path.read_text())
    jsonschema.Draft202012Validator.check_schema(schema)
    documents = schema.get("anyOf", [schema])
    for each in documents:
        assert each["properties"]["format"] == {"const": FORMAT}
        assert "format" in each["required"]
    for each in [*documents, *schema.get("$defs", {}).values()]:
        assert each["additionalProperties"] is False
        assert each["description"], "say what it is in the docstring"


def test_each_entry_of_a_long_list_is_printed_on_a_line(capsys: pytest.CaptureFixture[str]) -> None:
    """What JSON cannot hold, too: a path, and a number that is not finite."""
    runs = ({"number": n, "loss": float("nan"), "folder": Path("/runs")} for n in range(1001))
    print_json_lines({"project": "vision"}, runs=runs, trials=[])
    said = capsys.readouterr().out
    document = json.loads(said)
    assert list(document) == ["format", "project", "runs", "trials"]
    assert document["runs"][-1] == {"number": 1000, "loss": None, "folder": "/runs"}
    first, *lines, last = said.splitlines()
    assert first == '{"format": 1, "project": "vision", "runs": ['
    assert [json.loads(line.rstrip(",")) for line in lines] == document["runs"]
    assert last == '], "trials": []}'


def test_a_key_that_was_forgotten_and_one_that_is_missing_are_found() -> None:
    said = {"format": FORMAT, "hpcflow": "1", "python": "3"}
    assert checked(["version"], json.dumps(said)) == said
    for wrong in (
        {**said, "torch": "2"},
        {"format": FORMAT, "hpcflow": "1"},
        {**said, "format": 0},
    ):
        with pytest.raises(AssertionError, match="hpcflow version"):
            checked(["version"], json.dumps(wrong))


def test_what_needs_no_run(desk: Desk) -> None:
    assert desk.json("version")["format"] == FORMAT
    assert "local" in [each["name"] for each in desk.json("site", "list")["sites"]]
    shown = desk.json("site", "show", "perlmutter")["site"]
    assert shown["partitions"]["debug"]["time_limit_max_min"] == 30, "units are in the names"
    found = desk.json("estimate", "--parameters", "7e9", "--site", "perlmutter")
    assert found["total_bytes"] > 7e9
    assert found["activations_bytes"] is None
    assert desk.json("show", "nonesuch", code=2)["error"]["next_action"]


def test_a_run_and_its_logs(desk: Desk) -> None:
    config = desk.config("small", "true")
    assert desk.json("run", config, "--dry-run")["dry_run"] is True
    assert desk.json("render", config)["script"].startswith("#!")
    run_id = desk.json("run", config)["run_id"]
    done = desk.json("wait", run_id)
    (log,) = desk.json("logs", run_id)["logs"]
    assert log["path"] == f"{done['run_dir']}/attempts/0001/out.log"
    assert desk.json("ls")["runs"][0]["number_of_attempts"] == 1


def test_a_run_that_is_sent_again(desk: Desk) -> None:
    assert desk.json("run", desk.config("small", "exit 75"), "--wait", code=1)["attempt"] == 1
    assert desk.json("resume", "small")["attempt"] == 2
    assert desk.json("wait", "small", code=1)["number_of_attempts"] == 2


def test_budgets(desk: Desk) -> None:
    budget = desk.json("budget", "set", "project:tests", "--hard", "5", "--per", "month")
    assert desk.json("budget", "ls") == {"format": FORMAT, "budgets": [_without(budget, "format")]}
    assert desk.json("budget", "show", "project:tests")["changes"][0]["set"]["per"] == "month"
    assert desk.json("budget", "remove", "project:tests")["removed"] is True


def test_a_sweep_that_is_stopped_and_resumed(desk: Desk) -> None:
    for name, text in (("train.py", TRAIN), ("config.yaml", CONFIG), ("sweep.yaml", SWEEP)):
        (desk.folder / name).write_text(text)
    sweep = str(desk.folder / "sweep.yaml")
    assert desk.json("sweep", "start", sweep, "--dry-run")["combinations"] == 11
    desk.json("sweep", "start", sweep)
    assert desk.json("sweep", "stop", "quick")["rounds"] == []
    assert desk.json("sweep", "resume", "quick")["round"]["sweep_id"]
    desk.json("sweep", "tick")

    def over() -> bool:
        for round_ in desk.say("daemon", "--once", "--json").splitlines():
            checked(["daemon"], round_)
        return bool(desk.json("sweep", "status", "quick")["state"] == "over")

    poll(over, 300, lambda: desk.say("sweep", "status", "quick"))
    trials = desk.json("sweep", "export", "quick")["trials"]
    assert len(trials) == 5
    assert desk.json("sweep", "trials", "quick")["trials"] == trials


def test_a_site_that_is_detected_and_checked(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    class Recorded:
        """A cluster as it says it is."""

        cluster_info = staticmethod(lambda: DEV)
        standing = staticmethod(lambda _user: None)

    monkeypatch.setattr("hpcflow.cli.clusters.site._slurm", lambda _session: Recorded())
    written = desk.json("site", "detect", "--write")
    assert Path(written["path"]).read_text() == written["text"]
    there = ClusterDesk.at(desk, monkeypatch)
    found = there.json("site", "check", written["name"], code=1)
    assert {each["level"] for each in found["findings"]} >= {"error"}


def _without(document: dict[str, Any], key: str) -> dict[str, Any]:
    return {name: value for name, value in document.items() if name != key}
