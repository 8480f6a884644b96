"""What is struck by ``kills``: a command on the project, and what must be so after it."""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Final

from hpcflow.cli.main import main
from hpcflow.runtime.__main__ import main as runtime
from tests.runtime.published import publish
from tests.soak.project import CONFIG, FILES, SWEEP, Project

Complaints = Callable[[Project], list[str]]


def _nothing(_: Project) -> None:
    """Nothing has happened before."""


def _fine(_: Project) -> list[str]:
    return []


@dataclass(frozen=True)
class Scene:
    """A command, and its oracle.

    Attributes:
        before: what has happened.
        act: the command; in a child.
        codes_again: how it may end when it is typed again.
        at_once: what is wrong after a round of the daemon.
        at_last: what is wrong after it was typed again, and two more.
    """

    name: str
    act: Callable[[Project], int]
    before: Callable[[Project], None] = _nothing
    codes_again: tuple[int, ...] = (0,)
    at_once: Complaints = _fine
    at_last: Complaints = _fine
    in_job_of: str | None = None

    def environ(self, project: Project) -> Mapping[str, str]:
        if self.in_job_of is None:
            return project.environ
        return project.environ_of_job(self.in_job_of)


def _type(*words: str) -> Callable[[Project], int]:
    """Words are roles where there is a run of that role, names of files where they end so."""

    def act(project: Project) -> int:
        def word(text: str) -> str:
            return (
                str(project.folder / text)
                if text.endswith(".yaml")
                else project.runs.get(text, text)
            )

        return main([word(each) for each in words])

    return act


def _seen(project: Project, role: str) -> tuple[str, int]:
    """The state of a run, and how many jobs of it there are."""
    run_id = project.runs[role]
    listed = project.say("ls", "--all", "--json").document["runs"]
    states = {run["run_id"]: run["state"] for run in listed}
    return states.get(run_id, "not listed"), len(project.slurm.alive(run_id))


def _is(role: str, *wanted: tuple[str, int]) -> Complaints:
    def complaints(project: Project) -> list[str]:
        seen = _seen(project, role)
        return [] if seen in wanted else [f"{role} is {seen[0]} with {seen[1]} jobs"]

    return complaints


def _not_half_cancelled(role: str, *unchanged: tuple[str, int]) -> Complaints:
    """Cancelled and without a job; or it says that its job has not ended; or as it was."""

    def complaints(project: Project) -> list[str]:
        seen, has_file = _seen(project, role), project.run_dir(role).cancel.exists()
        says_so = "was cancelled, and its job" in project.say("why", project.runs[role]).text
        if seen == ("cancelled", 0) or says_so or (seen in unchanged and not has_file):
            return []
        return [f"{role} is {seen[0]} with {seen[1]} jobs, its file `cancel` {has_file}"]

    return complaints


def _cancel(role: str, *unchanged: tuple[str, int]) -> Scene:
    return Scene(
        f"cancel of one that is {role}",
        _type("cancel", role),
        codes_again=(0, 2),
        at_once=_not_half_cancelled(role, *unchanged),
        at_last=_is(role, ("cancelled", 0)),
    )


def _resume(role: str) -> Scene:
    return Scene(
        f"resume of one that is {role}",
        _type("resume", role),
        codes_again=(0, 2),
        at_last=_is(role, ("queued", 1)),
    )


def _write_new(project: Project) -> None:
    text = CONFIG.format(name="new", store=project.store, failures=0)
    (project.folder / "new.yaml").write_text(text)


def _new_runs_have_jobs(project: Project) -> list[str]:
    """Each run that is there was sent, or is sent later: `why` tells when."""
    known = set(project.runs.values())
    listed = project.say("ls", "--all", "--json").document["runs"]
    found = []
    for run in listed:
        run_id = run["run_id"]
        jobs = [job for job in project.slurm.jobs() if job.run_id == run_id]
        if run_id not in known and not jobs and run["state"] not in ("created", "waiting"):
            why = project.say("why", run_id).text + project.say("history", run_id).text
            found.append(f"a new run is {run['state']} and has no job\n{why}")
    return found


def _write_sweep(project: Project) -> None:
    text = SWEEP.replace("name: search", "name: other")
    (project.folder / "other.yaml").write_text(text)


def _trials_have_jobs(project: Project) -> list[str]:
    """Each run of each sweep has one job, and each trial was asked for once."""
    found = []
    for sweep in project.say("sweep", "ls", "--all", "--json").document["sweeps"]:
        said = project.say("sweep", "trials", sweep["sweep_id"], "--json")
        trials = said.document["trials"]
        numbers = [trial["trial"] for trial in trials]
        if numbers != list(range(len(numbers))):
            found.append(f"trials are {numbers}")
        for run_id in (run_id for trial in trials for run_id in trial["runs"]):
            jobs = [job for job in project.slurm.jobs() if job.run_id == run_id]
            if len(jobs) != 1:
                found.append(f"a trial has {len(jobs)} jobs")
    return found


def _job_ends(project: Project, role: str, state: str) -> None:
    job = project.job(role)
    if state == "COMPLETED":
        metrics = {"accuracy": 0.7}
        project.slurm.say(job, project.home, "finished", train_step=200, metrics=metrics)
    project.slurm.end(job, project.home, state)


def _round_is_due(project: Project) -> None:
    _job_ends(project, "running", "PREEMPTED")
    _job_ends(project, "trial1", "COMPLETED")


def _more_checkpoints(project: Project) -> None:
    for role in ("running", "waiting"):
        facts = {"run_id": project.runs[role], "attempt": 1, "world_size": 1}
        publish(project.run_dir(role).checkpoints, 300, FILES, **facts)


def _is_mirrored(project: Project) -> list[str]:
    found = []
    for role in ("running", "waiting"):
        said = project.say("mirror", "verify", project.runs[role])
        if said.code != 0 or "300" not in said.text:
            found.append(f"the mirror does not have train step 300\n{said.text}")
    return found


def _whole(role: str, *train_steps: int) -> Complaints:
    """Each checkpoint that is visible is whole, and these are there."""

    def complaints(project: Project) -> list[str]:
        folder = project.run_dir(role).checkpoints
        names = {path.parent.name for path in folder.glob("*/manifest.json")}
        found = [
            f"{step} is not there\n{sorted(names)}"
            for step in train_steps
            if f"{step:09d}" not in names
        ]
        for name in names:
            for file, data in FILES.items():
                path = folder / name / file
                if not path.is_file() or path.read_bytes() != data:
                    found.append(f"a checkpoint that is visible is not whole\n{name}/{file}")
        return found

    return complaints


def _purge(project: Project) -> None:
    shutil.rmtree(project.run_dir("held").path)


def _no_staging_is_left(project: Project) -> list[str]:
    left = [path.name for path in project.run_dir("held").path.parent.glob(".*.restore")]
    return [*_whole("held", 200)(project), *(f"left behind\n{name}" for name in left)]


def _program_has_saved(project: Project) -> None:
    folder = project.folder / "saved"
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)


def _save(project: Project) -> int:
    return runtime(["checkpoint", str(project.folder / "saved"), "--train-step", "300", "loss=0.5"])


SCENES: Final = (
    Scene("run", _type("run", "new.yaml"), before=_write_new, at_last=_new_runs_have_jobs),
    _cancel("queued", ("queued", 1)),
    _cancel("running", ("running", 1)),
    _cancel("waiting", ("waiting", 0)),
    _cancel("trial2", ("queued", 1)),
    Scene("hold", _type("hold", "waiting"), at_last=_is("waiting", ("waiting", 0))),
    Scene("release", _type("release", "held"), at_last=_is("held", ("queued", 1))),
    _resume("failed"),
    _resume("cancelled"),
    _resume("held"),
    Scene("daemon", _type("daemon", "--once"), before=_round_is_due, codes_again=(0, 1),
          at_last=lambda project: [*_is("running", ("queued", 1))(project),
                                   *_trials_have_jobs(project)]),
    Scene("sweep tick", _type("sweep", "tick"), before=partial(_job_ends, role="trial1",
          state="COMPLETED"), at_last=_trials_have_jobs),
    Scene("sweep start", _type("sweep", "start", "other.yaml"), before=_write_sweep,
          codes_again=(0, 2), at_last=_trials_have_jobs),
    Scene("sweep stop", _type("sweep", "stop", "search"), codes_again=(0, 2)),
    Scene("mirror", _type("mirror", "--once"), before=_more_checkpoints, at_last=_is_mirrored),
    Scene("restore", _type("restore", "held"), before=_purge, at_last=_no_staging_is_left),
    Scene("saving", _save, before=_program_has_saved, in_job_of="running",
          at_once=_whole("running", 200), at_last=_whole("running", 200, 300)),
    Scene("prune", _type("checkpoint", "prune", "completed"), at_once=_whole("completed", 200),
          at_last=_whole("completed", 200)),
    Scene("budget set", _type("budget", "set", "project:vision", "--hard", "900")),
    Scene("ledger rebuild", _type("ledger", "rebuild")),
)  # fmt: skip
