"""A program that crashes at its start: what people are told, and when it is not sent again."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk

CONFIG = """
name: broken
command: [python3, train.py]
launch: {framework: none, launcher: none}
retry: {backoff: 1s}
"""
ERROR = "ModuleNotFoundError: No module named 'no_such_module'"


def config(desk: Desk, program: str) -> str:
    (desk.folder / "train.py").write_text(program)
    path = desk.folder / "broken.yaml"
    path.write_text(CONFIG)
    return str(path)


def crash_twice(desk: Desk, program: str) -> Any:
    """Run a program that fails, and let the daemon send it a second time."""
    run = desk.json("run", config(desk, program), "--wait", code=1)
    # A pause of a second or two comes first.
    poll(lambda: "go_on" in desk.say("daemon", "--once"), 60, lambda: desk.say("history", "broken"))
    desk.json("wait", "broken", code=1)
    return run


def test_a_program_that_crashes_at_import_is_stopped_after_its_second_attempt(desk: Desk) -> None:
    run = crash_twice(desk, "import no_such_module\n")
    assert "stop  (same_crash: attempts 1 and 2 failed" in desk.say("daemon", "--once")
    why = (
        "attempts 1 and 2 failed soon after their start, before the first train step, with the "
        "same last lines"
    )
    said = desk.say("show", "broken")
    assert said.startswith(f"{run['run_id']}  failed")
    assert f"  next           stop: same_crash: {why}\n" in said
    assert f"  error          {ERROR}\n" in said
    assert f"  raised at      {desk.folder / 'train.py'}:1\n" in said
    assert f"    {ERROR}\n" in said.partition("  last lines     of ")[2]

    told = desk.json("show", "broken")
    assert (told["state"], told["next_action"], told["next_rule"]) == (
        "failed",
        "stop",
        "same_crash",
    )
    assert len(told["attempts"]) == 2
    failure = told["failure"]
    assert (failure["attempt"], failure["error"], failure["rank"]) == (2, ERROR, None)
    assert failure["lines"][-1] == ERROR
    assert failure["log"] == f"{run['run_dir']}/attempts/0002/out.log"

    reason = desk.say("why", "broken")
    assert f"it was stopped (same_crash): {why}\n" in reason
    assert f"  error          {ERROR}\n" in reason
    go_on = f"hpcflow resume {run['run_id']} --set code=snapshot\n"
    assert f"correct the program, then: {go_on}" in reason
    assert f"  corrected?     {go_on}" in said
    assert desk.json("why", "broken")["failure"] == failure
    assert f"stop (same_crash): {why}" in desk.say("history", "broken")

    assert desk.say("daemon", "--once") == ""
    (desk.folder / "train.py").write_text("")
    desk.say("resume", "broken", "--set", "code=snapshot")
    assert desk.json("wait", "broken")["state"] == "completed", "its user has corrected it"
    assert desk.json("show", "broken")["failure"] is None
    assert "error" not in desk.say("show", "broken")


def test_a_program_that_fails_in_another_way_each_time_is_sent_again(desk: Desk) -> None:
    program = "import os\nraise OSError('disk ' + 'ab'[int(os.environ['HPCFLOW_ATTEMPT']) % 2])\n"
    crash_twice(desk, program)
    assert "same_crash" not in desk.say("daemon", "--once")


def test_a_program_that_has_trained_is_sent_again(desk: Desk) -> None:
    crash_twice(
        desk,
        "from hpcflow import runtime\n"
        "run = runtime.start()\n"
        "run.restore()\n"
        "for step in run.train_steps(5):\n"
        "    run.log(loss=1.0)\n"
        "    if step == 2:\n"
        "        raise OSError('stale file handle')\n",
    )
    assert "same_crash" not in desk.say("daemon", "--once")
    assert desk.json("show", "broken")["failure"]["error"] == "OSError: stale file handle"


def test_who_waits_or_follows_is_told_the_error(desk: Desk) -> None:
    path = config(desk, "print('\\x1b[31mred')\nimport no_such_module\n")
    for option in ("--wait", "--follow"):
        said = desk.say("run", path, option, code=1)
        assert f"  error          {ERROR}\n" in said
        assert "\x1b" not in said, "the program's own escape sequences do not reach the terminal"
        assert "hpcflow logs broken-" in said
    assert desk.json("run", path, "--wait", code=1)["failure"]["error"] == ERROR


def test_a_secret_in_an_error_is_not_shown(desk: Desk) -> None:
    secret = "hf_" + "aB3dE5gH7jK9mN1pQ3sT5vW7xZ9bC1dF3g"
    path = config(desk, f"raise OSError('401 for ' + 'hf_' + '{secret[3:]}')\n")
    said = desk.say("run", path, "--wait", code=1)
    assert "OSError: 401 for [redacted]" in said
    assert secret not in said
    assert secret not in json.dumps(desk.json("show", "broken")["failure"])


def test_a_log_that_is_gone_or_no_file_is_no_failure_of_the_command(desk: Desk) -> None:
    run = desk.json("run", config(desk, "import no_such_module\n"), "--wait", code=1)
    log = Path(run["run_dir"]) / "attempts/0001/out.log"
    log.unlink()
    assert desk.json("show", "broken")["failure"] is None
    os.mkfifo(log)
    assert "last lines" not in desk.say("show", "broken")
