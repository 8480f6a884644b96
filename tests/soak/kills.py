"""Commands that are killed, or whose disk is full, at any point at which they make something last.

What must hold, once somebody has looked, the daemon has made a round, and it was typed again:

- every job is that of one attempt, which knows it; no run is sent while a job of it is there;
- nothing is half: a run is cancelled and has no job, or has one and is not cancelled;
- what was to be made is there, whole, and what was there before is not lost;
- a full disk is an error with a message, never a traceback.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from random import Random

from hpcflow.ledger.store import open_ledger
from hpcflow.projection import catch_up, check
from hpcflow.requeue import facts
from hpcflow.storage.runs import list_runs
from hpcflow.testing.stand_in import assert_exactly_once, pass_five_minutes
from tests.soak.findings import Findings
from tests.soak.oracle import faults_of
from tests.soak.points import How, Points
from tests.soak.project import Project, import_all, shared_project
from tests.soak.struck import SCENES, Scene
from tests.soak.worker import Ended, in_child


def run(folder: Path, findings: Findings, numbers: Sequence[int]) -> None:
    """Each try: one scene, struck at one point of it. The scenes take turns."""
    import_all()
    facts.__dict__["_DELAY_S"] = 0.05  # what was withdrawn is sent again that soon
    project, log = shared_project(folder.parent), folder / "points"
    places: dict[str, list[tuple[int, How]]] = {}
    for number in numbers:
        findings.dice(number)
        turn, which = divmod(number, len(SCENES))
        scene = SCENES[which]
        if scene.name not in places:
            places[scene.name] = _places(project, scene, log, Random(findings.seed))
        point, how = places[scene.name][turn % len(places[scene.name])]
        scene.before(project)
        ended = _struck(project, scene, Points(point, how, log))
        struck = log.read_text().splitlines() or ["never"]
        story = [f"{scene.name}: {struck[-1]}", ended.text[-600:]]
        for complaint in _complaints(project, scene, how, ended, story):
            what = complaint.splitlines()[0]
            findings.add(f"{scene.name}: {what}", "\n".join([*story, "—", complaint]))
        project.reset()
        findings.progress(len(numbers))


def _places(project: Project, scene: Scene, log: Path, dice: Random) -> list[tuple[int, How]]:
    """Where a scene can be struck, and how; in an order that the seed gives."""
    scene.before(project)
    ended = _struck(project, scene, Points(0, How.KILLED, log))
    assert ended.code == 0, f"{scene.name}: {ended.text}"
    points = log.read_text().splitlines()
    places = [
        (number, how)
        for number, point in enumerate(points, start=1)
        for how in How
        if how.fits(point)
    ]
    dice.shuffle(places)
    project.reset()
    print(f"kills: {scene.name}: {len(places)} places", file=sys.stderr, flush=True)
    return places


def _struck(project: Project, scene: Scene, points: Points) -> Ended:
    def act() -> int:
        points.watch()
        return scene.act(project)

    return in_child(act, environ=scene.environ(project), folder=project.folder)


def _complaints(
    project: Project, scene: Scene, how: How, ended: Ended, story: list[str]
) -> list[str]:
    found: list[str] = []

    def say(*args: str, codes: tuple[int, ...] = (0,)) -> Ended:
        then = project.say(*args)
        story.append(f"then hpcflow {' '.join(args)}: {then.code}")
        found.extend(
            f"then {args[0]}: {fault}\n{then.text}" for fault in faults_of(then, at_terminal=False)
        )
        if then.code not in codes:
            found.append(f"then {args[0]} ends with {then.code}\n{then.text[-1500:]}")
        return then

    if how not in (How.KILLED, How.TORN):
        found += [f"{fault}\n{ended.text[-1500:]}" for fault in faults_of(ended, at_terminal=False)]
    say("ls")
    pass_five_minutes(project.home)
    say("daemon", "--once", codes=(0, 1))
    found += [f"before it is typed again: {each}" for each in scene.at_once(project)]
    pass_five_minutes(project.home)
    again = in_child(
        lambda: scene.act(project), environ=scene.environ(project), folder=project.folder
    )
    story.append(f"then again: {again.code} {again.text[-300:]}")
    found += [f"again: {fault}\n{again.text}" for fault in faults_of(again, at_terminal=False)]
    if again.code not in scene.codes_again:
        found.append(f"again ends with {again.code}\n{again.text[-1500:]}")
    for _ in range(2):
        pass_five_minutes(project.home)
        say("daemon", "--once", codes=(0, 1))
    say("ledger", "check")
    found += scene.at_last(project)
    found += _jobs_and_attempts(project)
    return found


def _jobs_and_attempts(project: Project) -> list[str]:
    jobs = project.slurm.jobs()
    try:
        assert_exactly_once(jobs)
        run_dirs = list_runs(project.home)
        with open_ledger(f"sqlite:///{project.home.ledger}") as ledger:
            catch_up(ledger, run_dirs)
            assert check(ledger, run_dirs) == [], "the ledger does not say what the files say"
            known = {
                f"{run_dir.path.name}:{attempt.attempt}": attempt.job_id
                for run_dir in run_dirs
                for attempt in ledger.run(run_dir.path.name).attempts
                if attempt.job_id is not None
            }
        assert known == {job.name: job.job_id for job in jobs}, (
            f"jobs without an attempt, or attempts without their job\n"
            f"{json.dumps(known)}\n{[(job.name, job.job_id) for job in jobs]}"
        )
    except AssertionError as error:
        return [str(error)]
    return []
