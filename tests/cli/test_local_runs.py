"""The commands, over real runs on this machine: no Slurm, one small program."""

from __future__ import annotations

import shutil
from functools import partial
from pathlib import Path

import pytest

from hpcflow.cli.main import main
from hpcflow.ledger.store import open_ledger
from hpcflow.resources import resource_dir
from hpcflow.testing.cluster import poll
from tests.cli.desk import Desk


def test_a_run_from_its_start_to_its_end(desk: Desk) -> None:
    run = desk.json("run", desk.config("hello", "echo hello from the run"), "--wait")
    assert run["state"] == "completed"
    assert run["attempts"][0]["exit_code"] == 0
    assert "hello from the run" in desk.say("logs", "hello")
    assert run["run_id"] in desk.say("ls")
    assert "completed" in desk.say("show", run["run_id"])
    assert Path(run["run_dir"]).stat().st_mode & 0o777 == 0o700


def test_a_failed_run_says_so_and_can_be_sent_again(desk: Desk) -> None:
    config = desk.config("fragile", "test -e mended")
    run = desk.json("run", config, "--wait", code=1)
    assert (run["state"], run["cause"]) == ("failed", "failed")
    (desk.folder / "mended").touch()
    again = desk.json("resume", "fragile", "--wait")
    assert again["state"] == "completed"
    assert [attempt["attempt"] for attempt in again["attempts"]] == [1, 2]


def test_a_job_that_runs_is_seen_running(desk: Desk) -> None:
    run = desk.json("run", desk.config("slow", "until test -e go; do sleep 0.1; done"))
    poll(lambda: desk.json("show", "slow")["attempts"][0]["started_at"], 60, "it never started")
    (attempt,) = desk.json("show", "slow")["attempts"]
    (desk.folder / "go").touch()
    assert (attempt["state"], attempt["raw_state"]) == ("running", "RUNNING")
    assert desk.json("wait", run["run_id"])["state"] == "completed"


def test_on_the_second_day_the_name_is_enough_to_look_and_not_to_cancel(desk: Desk) -> None:
    first, second = (
        desk.json("run", desk.config("daily", f"echo day {day}"), "--wait")["run_id"]
        for day in (1, 2)
    )
    assert desk.json("show", "daily")["run_id"] == second
    assert desk.json("wait", "daily")["run_id"] == second
    assert "day 2" in desk.say("logs", "daily")
    (cancelled,) = desk.json("cancel", "daily", code=2)["runs"]
    resumed = desk.json("resume", "daily", code=2)
    for error in (cancelled["error"], resumed["error"]):
        assert f"matches 2 runs: {second}, {first}" in error["message"]


def test_send_me_again_is_no_failure(desk: Desk) -> None:
    run = desk.json("run", desk.config("patient", "exit 75"), "--wait", code=1)
    assert (run["state"], run["cause"]) == ("waiting", "checkpointed")


def test_a_completed_run_is_not_sent_again(desk: Desk) -> None:
    desk.json("run", desk.config("done", "true"), "--wait")
    error = desk.json("resume", "done", code=2)["error"]
    assert "completed" in error["message"]


def test_dry_run_and_render_create_nothing(desk: Desk, home: Path) -> None:
    config = desk.config("thought", "true")
    plan = desk.json("run", config, "--dry-run")
    script = desk.say("render", config)
    ids = plan["run_id"], script.split("--job-name=")[1].split(":")[0]
    assert plan["script"].replace(ids[0], "ID") == script.replace(ids[1], "ID")
    assert not (home / "runs").exists()


def test_what_is_rendered_is_what_is_submitted(desk: Desk) -> None:
    config = desk.config("same", "true")
    rendered = desk.json("render", config)
    run = desk.json("run", config, "--wait")
    submitted = (Path(run["run_dir"]) / "attempts" / "0001" / "job.sbatch").read_text()
    assert rendered["script"].replace(rendered["run_id"], run["run_id"]) == submitted


def test_ls_filters(desk: Desk) -> None:
    desk.json("run", desk.config("good", "true"), "--wait")
    desk.json("run", desk.config("bad", "false"), "--wait", code=1)
    assert [run["name"] for run in desk.json("ls")["runs"]] == ["bad", "good"]
    assert [run["name"] for run in desk.json("ls", "--state", "failed")["runs"]] == ["bad"]
    assert desk.json("ls", "--tag", "nonesuch")["runs"] == []
    assert len(desk.json("ls", "--tag", "quick", "--project", "tests")["runs"]) == 2


def test_cancel_ends_what_runs(desk: Desk) -> None:
    run = desk.json("run", desk.config("endless", "sleep 300"))
    poll(lambda: desk.json("show", "endless")["state"] == "running", 120, "it never ran")
    desk.say("cancel", "endless")
    shown = desk.json("wait", "endless", code=1)
    assert (shown["state"], shown["cause"]) == ("cancelled", "cancelled")
    assert shown["run_id"] == run["run_id"]


def _has_begun(desk: Desk, name: str) -> bool:
    return "up\n" in desk.say("logs", name)


def test_cancel_handles_every_run_by_itself(desk: Desk) -> None:
    names = ("first", "second")
    runs = [desk.json("run", desk.config(name, "echo up; sleep 300")) for name in names]
    for name in names:  # a job that only begins sees the request, and may leave before it is ended
        poll(partial(_has_begun, desk, name), 120, "it never ran")
    said = desk.json("cancel", "first", "nonesuch", "second", "first", code=1)["runs"]
    assert [(each["run_id"], each["job_id"]) for each in said] == [
        (runs[0]["run_id"], runs[0]["job_id"]),
        ("nonesuch", None),
        (runs[1]["run_id"], runs[1]["job_id"]),
    ]
    assert [each["error"] is not None for each in said] == [False, True, False]
    assert said[1]["error"]["kind"] == "NotFoundError"
    for name in ("first", "second"):
        assert desk.json("wait", name, code=1)["state"] == "cancelled"


def test_logs_follow_to_the_end(desk: Desk) -> None:
    desk.json("run", desk.config("slow", "for i in 1 2 3; do echo line $i; sleep 0.3; done"))
    said = desk.say("logs", "-f", "slow")
    assert [f"line {number}" for number in (1, 2, 3)] == [
        line for line in said.splitlines() if line.startswith("line ")
    ]


def test_logs_follow_ends_for_an_attempt_that_never_became_a_job(desk: Desk, home: Path) -> None:
    home.mkdir(mode=0o700)
    (home / "local").symlink_to("/sys")  # no job can be made there
    config = desk.config("unsent", "true")
    desk.say("run", config, code=1)
    assert desk.say("logs", "-f", "unsent") == ""
    (home / "local").unlink()
    run = desk.json("resume", "unsent", "--wait")
    assert run["state"] == "completed"
    (Path(run["run_dir"]) / "attempts" / "0007").mkdir()  # killed before anything was journaled
    assert desk.say("logs", "-f", "unsent") == ""


def test_a_checkpoint_that_is_gone_is_not_called_complete(desk: Desk) -> None:
    saving = "mkdir -p s; echo 1 > s/w; for n in 1 2 3; do "
    saving += "python3 -m hpcflow.runtime checkpoint s --train-step $n; done"
    run = desk.json("run", desk.config("saving", saving), "--wait")
    first, second, _ = (Path(run["run_dir"]) / saved["path"] for saved in run["checkpoints"])
    assert [saved["complete"] for saved in run["checkpoints"]] == [True] * 3
    shutil.rmtree(first)
    (second / "manifest.json").unlink()
    shown = desk.json("show", "saving")["checkpoints"]
    assert [saved["complete"] for saved in shown] == [False, False, True]
    table = desk.say("show", "saving")
    assert "1 (gone)" in table
    assert "2 (incomplete)" in table
    assert "3 (" not in table


def test_follow_shows_the_progress_and_ends_with_the_run(desk: Desk) -> None:
    said = desk.say("run", desk.config("shown", "true"), "--follow")
    assert "completed" in said


def test_the_ledger_is_checked_and_rebuilt(desk: Desk, home: Path) -> None:
    desk.json("run", desk.config("kept", "true"), "--wait")
    before = desk.say("ls", "--json")
    assert desk.json("ledger", "check") == {"format": 1, "runs": 1, "differences": []}
    for path in home.glob("ledger.sqlite*"):
        path.unlink()
    assert desk.json("ledger", "rebuild")["runs"] == 1
    assert desk.say("ls", "--json") == before
    desk.json("ledger", "upgrade")


def test_a_run_whose_directory_is_purged_under_its_job_ends_as_its_job_does(
    desk: Desk, capfd: pytest.CaptureFixture[str]
) -> None:
    may_end = desk.folder.parent / "may-end"
    waits = f"until test -e {may_end}; do sleep 0.1; done; exit 3"
    run = desk.json("run", desk.config("lost", waits))
    program = Path(run["run_dir"]) / "attempts/0001/program"
    poll(program.exists, 120, "it never ran")
    assert desk.json("show", "lost")["state"] == "running"

    def is_removed() -> bool:  # what Python compiles appears meanwhile
        shutil.rmtree(run["run_dir"], ignore_errors=True)
        return not Path(run["run_dir"]).exists()

    poll(is_removed, 60, "it cannot be removed")
    for words in (["ls"], ["show", "lost"]):
        assert main(words) == 0
        shown = capfd.readouterr()
        assert f"{run['run_id']}: its run directory is gone" in shown.err
        assert "running" in shown.out
    may_end.touch()
    assert main(["wait", "lost"]) == 1
    said = capfd.readouterr()
    assert f"{run['run_dir']} is gone" in said.err
    assert "hpcflow resume" not in said.out
    assert main(["show", "lost"]) == 0
    shown = capfd.readouterr()
    assert shown.err == ""
    assert "failed" in shown.out
    assert main(["ledger", "check"]) == 1
    said = capfd.readouterr()
    assert ": its run directory is gone" in said.out
    assert "hpcflow restore RUN" in said.err
    assert "rebuild" not in said.err
    assert desk.json("cancel", "lost")["runs"] == [
        {"run_id": run["run_id"], "job_id": None, "error": None}
    ]


@pytest.mark.parametrize("words", [["ls"], ["ledger", "rebuild"]])
def test_a_run_that_was_thrown_away_unsent_is_forgotten(
    desk: Desk, home: Path, words: list[str]
) -> None:
    home.mkdir(mode=0o700)
    (home / "local").symlink_to("/sys")  # no job can be made there
    run = desk.json("run", desk.config("ghost", "true"), code=1)["error"]
    assert [listed["run_id"] for listed in desk.json("ls")["runs"]] == [run["run_id"]]
    shutil.rmtree(home / "runs" / run["run_id"])
    shutil.rmtree(run["run_dir"])
    desk.say(*words)
    with open_ledger(str(home / "ledger.sqlite")) as ledger:
        assert ledger.run_ids() == set()
    assert desk.json("ledger", "check") == {"format": 1, "runs": 0, "differences": []}
    assert desk.json("ls")["runs"] == []


def test_a_run_without_its_journal_is_kept_and_no_rebuild_is_suggested(
    desk: Desk, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = desk.json("run", desk.config("kept", "true"), "--wait")
    before = desk.say("ls", "--json")
    (home / "runs" / run["run_id"] / "journal.jsonl").unlink()
    desk.say("ledger", "rebuild")
    assert desk.say("ls", "--json") == before
    capfd.readouterr()
    assert main(["ledger", "check"]) == 1
    said = capfd.readouterr()
    assert said.out == f"{run['run_id']}: only in the ledger: its journal is gone\n"
    assert "rebuild" not in said.err


def test_a_row_that_no_link_has_is_reported(
    desk: Desk, home: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run = desk.json("run", desk.config("kept", "true"), "--wait")
    shutil.rmtree(home / "runs" / run["run_id"])
    assert main(["ledger", "check"]) == 1
    said = capfd.readouterr()
    assert run["run_id"] in said.out
    assert f"put their folders in {home}/runs back" in said.err


def test_a_site_file_by_its_path_is_found_again(
    desk: Desk, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    shipped = (resource_dir("site_configs") / "local.yaml").read_text()
    path = desk.folder / "elsewhere.yaml"
    path.write_text(shipped.replace("name: local", "name: elsewhere", 1))
    monkeypatch.chdir(desk.folder)
    run = desk.json("run", desk.config("far", "true"), "--site", "./elsewhere.yaml")
    monkeypatch.chdir(tmp_path)
    assert desk.json("wait", run["run_id"])["state"] == "completed"
    assert "elsewhere/" in desk.say("ls")
